"""Compiling the launcher before and after the patch: shared memory and stages of every tactic, whole kernels of some.

The headers that the library's own build sees are laid out in a temporary folder, the launcher (patched or not) among
them, and nvcc compiles it as `gen_cutlass_fused_moe_sm120_module` does, for sm_120a. No GPU, no build of the module,
nothing of the tree is run.
"""

from __future__ import annotations

import datetime
import shutil
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tilewright.errors import ToolError
from tilewright.libraries.flashinfer.decisions import LAUNCHER
from tilewright.libraries.flashinfer.fix_evidence import Compiled, CompiledTactic
from tilewright.libraries.flashinfer.fix_patch import Patch
from tilewright.libraries.flashinfer.fix_proof import DEFINES, INCLUDES, Row, fired, invocation, read_rows, unit, whole
from tilewright.libraries.flashinfer.layout import Layout, join
from tilewright.probe.compiler import Compiler, run, stoppable
from tilewright.probe.ptxas import parse_ptxas, section_bytes

__all__ = [
    "TARGET",
    "BuiltKernel",
    "CompiledTypes",
    "LauncherTree",
    "compile_kernel",
    "compile_types",
    "compiled_now",
    "laid_out",
]

TARGET: Final = "sm_120a"
_HEADERS: Final = (".h", ".hpp", ".inl", ".cuh", ".inc")
_NO_CUBLAS: Final = {
    # tensorrt_llm/common/cudaUtils.h includes both for the names of error codes alone; neither takes part in a kernel.
    "cublas_v2.h": "#pragma once\nenum cublasStatus_t { CUBLAS_STATUS_SUCCESS, CUBLAS_STATUS_NOT_INITIALIZED, "
    "CUBLAS_STATUS_ALLOC_FAILED, CUBLAS_STATUS_INVALID_VALUE, CUBLAS_STATUS_ARCH_MISMATCH, "
    "CUBLAS_STATUS_MAPPING_ERROR, CUBLAS_STATUS_EXECUTION_FAILED, CUBLAS_STATUS_INTERNAL_ERROR, "
    "CUBLAS_STATUS_NOT_SUPPORTED, CUBLAS_STATUS_LICENSE_ERROR };\n",
    "cublasLt.h": '#pragma once\n#include "cublas_v2.h"\n',
}
"""Stand-ins for cuBLAS's headers: many machines with nvcc have none, and the answer must not depend on that."""


@dataclass(frozen=True)
class LauncherTree:
    """The headers of one FlashInfer on disk, where a launcher can be put among them."""

    folder: Path
    includes: tuple[Path, ...]
    launchers: Path
    """The launcher's own folder: its includes are relative."""


@dataclass(frozen=True)
class CompiledTypes:
    """What the compiler says of a launcher's types. `refused`: (bytes, limit) where the launcher's own assert fired."""

    rows: dict[str, Row]
    """Tactic name -> its row."""
    refused: list[tuple[int, int]]
    seconds: float


@dataclass(frozen=True)
class BuiltKernel:
    """One whole kernel, as ptxas built it. Bytes a thread for spills and stack."""

    registers: int
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int
    code_bytes: int
    seconds: float


@contextmanager
def laid_out(layout: Layout) -> Generator[LauncherTree]:
    """The library's headers in a folder that is gone afterwards.

    Raises:
        TreeError: a header cannot be read.
    """
    root = layout.cutlass()
    tools = f"{root.include.rpartition('/')[0]}/tools/util/include".lstrip("/")
    places = {"csrc": layout.csrc, "include": layout.include, "cutlass/include": root.include}
    if layout.tree.exists(tools):
        places["cutlass/tools/util/include"] = tools
    folder = Path(tempfile.mkdtemp(prefix="tilewright-fix-"))
    try:
        for name, place in places.items():
            under = join(place, "nv_internal") if name == "csrc" else place
            for path in layout.tree.files(_HEADERS, under):
                target = folder / name / path[len(place) :].lstrip("/")
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(layout.tree.read(path))
        last = folder / "stand-in"
        last.mkdir()
        for name, text in _NO_CUBLAS.items():
            (last / name).write_text(text)
        yield LauncherTree(folder, (*(folder / name for name in INCLUDES), last), (folder / "csrc" / LAUNCHER).parent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _command(compiler: Compiler, tree: LauncherTree, source: Path, output: Path, *mode: str) -> list[str]:
    includes = [part for folder in tree.includes for part in ("-I", str(folder))]
    return [
        compiler.path, "-std=c++17", f"-arch={TARGET}", "--expt-relaxed-constexpr", "-w", "-O3", "-DNDEBUG", *mode,
        *(f"-D{name}" for name in DEFINES), *includes, "-o", str(output), str(source),
    ]  # fmt: skip


def _first_error(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if "error" in line.lower()]
    return (lines or output.strip().splitlines() or ["no message"])[0][:300]


def compile_types(
    compiler: Compiler, tree: LauncherTree, launcher: str, names: Sequence[str], timeout_s: float = 1800.0
) -> CompiledTypes:
    """Bytes and stages of the tactics `names` as the text `launcher` makes them: seconds a tactic, no kernel is built.

    Raises:
        ToolError: the launcher does not compile for another reason than the one that tells the sizes.
    """
    calls = [invocation(name) for name in names]
    if not all(calls):
        msg = f"The instantiation {names[calls.index(None)]} has a name that is not known."
        raise ToolError(msg)
    source = tree.launchers / "tw_types.cu"
    source.write_text(unit(launcher, [call for call in calls if call]), encoding="utf-8")
    started = time.monotonic()
    with stoppable():
        done = run(_command(compiler, tree, source, tree.folder / "types.ptx", "-ptx"), tree.folder, timeout_s)
    seconds = round(time.monotonic() - started, 1)
    rows = {names[row.index]: row for row in read_rows(done.output) if row.index < len(names)}
    if done.timed_out or len(rows) != len(names):
        why = "it took too long" if done.timed_out else _first_error(done.output)
        msg = f"Compiling the launcher told {len(rows)} of {len(names)} sizes: {why}"
        raise ToolError(msg)
    return CompiledTypes(rows, fired(done.output), seconds)


def compile_kernel(
    compiler: Compiler, tree: LauncherTree, launcher: str, name: str, timeout_s: float = 1800.0
) -> BuiltKernel:
    """The whole kernel of tactic `name` down to machine code, from the launcher as it stands (30-400 s).

    Raises:
        ToolError: it does not compile.
    """
    call = invocation(name)
    if call is None:
        raise ToolError(f"The instantiation {name} has a name that is not known.")
    source, cubin = tree.launchers / "tw_kernel.cu", tree.folder / "kernel.cubin"
    source.write_text(whole(launcher, call), encoding="utf-8")
    started = time.monotonic()
    with stoppable():
        done = run(_command(compiler, tree, source, cubin, "-cubin", "-Xptxas", "-v"), tree.folder, timeout_s)
    seconds = round(time.monotonic() - started, 1)
    figures = parse_ptxas(done.output)
    if done.code != 0 or "registers" not in figures:
        raise ToolError(f"The kernel of {name} did not compile: {_first_error(done.output)}")
    return BuiltKernel(
        registers=figures["registers"],
        spill_store_bytes=figures.get("spill_store_bytes", 0),
        spill_load_bytes=figures.get("spill_load_bytes", 0),
        stack_bytes=figures.get("stack_bytes", 0),
        code_bytes=section_bytes(cubin.read_bytes(), ".text."),
        seconds=seconds,
    )


def compiled_now(compiler: Compiler, layout: Layout, patch: Patch, names: Sequence[str]) -> Compiled:
    """Every tactic of `names` before and after the patch, compiled here and now.

    Raises:
        ToolError: the launcher does not compile.
    """
    compiler.check_target(TARGET)
    with laid_out(layout) as place:
        before, after = (compile_types(compiler, place, text, names) for text in (patch.before, patch.after))
    return Compiled(
        kind="exact (compiled)",
        nvcc=compiler.version,
        target=TARGET,
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        source=f"compiled on this machine in {before.seconds + after.seconds:.0f} s",
        tactics=[
            CompiledTactic(
                name=name,
                bytes_before=before.rows[name].smem_bytes,
                stages_before=before.rows[name].stages,
                bytes_after=after.rows[name].smem_bytes,
                stages_after=after.rows[name].stages,
            )
            for name in names
        ],
    )
