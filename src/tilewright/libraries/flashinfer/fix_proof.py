"""The launcher's real types, without its kernels: a translation unit that compiles in seconds and needs no GPU.

The unit is the launcher itself, cut in its macro after the kernel's type, with one instantiation a tactic. What a
kernel takes and how many stages it has is told by a class template that asserts false: the compiler names every
instance. The unit therefore never compiles; its diagnostics are the answer. Where the launcher's own assert fires, the
compiler says that too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tilewright.libraries.flashinfer.fix_patch import MACRO

DEFINES: Final = (
    "COMPILE_BLACKWELL_TMA_GEMMS",
    "COMPILE_BLACKWELL_SM120_TMA_GROUPED_GEMMS",
    "ENABLE_BF16",
    "ENABLE_FP8",
    "ENABLE_FP4",
    "USING_OSS_CUTLASS_MOE_GEMM",
)
"""Of `gen_cutlass_fused_moe_sm120_module` (flashinfer/jit/fused_moe.py)."""
INCLUDES: Final = (
    "csrc/nv_internal",
    "csrc/nv_internal/include",
    "csrc/nv_internal/tensorrt_llm/cutlass_extensions/include",
    "csrc/nv_internal/tensorrt_llm/kernels/cutlass_kernels/include",
    "csrc/nv_internal/tensorrt_llm/kernels/cutlass_kernels",
    "include",
    "cutlass/include",
    "cutlass/tools/util/include",
)
"""Include folders of that module, relative to `flashinfer/data`."""
_LABEL: Final = re.compile(
    r"kernelLauncher_(?P<arch>Sm\d+)_(?P<a>SafeFP4|SafeFP8|SafeBF16|half|float|__nv_\w+?)_"
    r"(?P<b>SafeFP4|SafeFP8|SafeBF16|half|float|__nv_\w+?)_(?P<out>half|SafeBF16|float|__nv_\w+?)_"
    r"(?P<schedule>void|\w+?)_(?P<tag>EpilogueOpDefault\w*?)_(?P<fusion>[A-Z]+)_(?P<m>\d+)_(?P<n>\d+)_(?P<k>\d+)_"
    r"(?P<cluster>\d+_\d+_\d+)_(?P<flags>(?:true|false)(?:_(?:true|false)){3})"
)
"""The instantiation's name, which the macro pastes from its arguments."""
_ROW: Final = re.compile(r"\btw_row<[^>]*> \[with Index=(\d+), Bytes=(\d+), Stages=(\d+)\]")
_FIRED: Final = re.compile(r"\bSm120SharedMemory<[^>]*> \[with Needed=(\d+), Limit=(\d+)\]")
"""As nvcc writes template arguments (12.8 to 13.0)."""
_TELL: Final = "template <int Index, int Bytes, int Stages> struct tw_row { static_assert(Index < 0); };"


@dataclass(frozen=True)
class Row:
    """What the compiler says about tactic number `index`."""

    index: int
    smem_bytes: int
    stages: int


def invocation(label: str) -> str | None:
    """The macro call that makes the instantiation `label`; None where the label has another form."""
    found = _LABEL.search(label)
    if found is None:
        return None
    parts = [
        found["arch"], found["a"], found["b"], found["out"], found["schedule"], found["tag"], found["fusion"],
        found["m"], found["n"], found["k"], *found["cluster"].split("_"), *found["flags"].split("_"),
    ]  # fmt: skip
    return f"{MACRO}({', '.join(parts)})"


def unit(launcher: str, calls: Sequence[str]) -> str:
    """The unit of `launcher` (its text, patched or not), with one instantiation for each of `calls`.

    Raises:
        ValueError: the macro does not have the form that `fix_patch` knows.
    """
    lines = launcher.split("\n")
    start, end = _macro(lines)
    cut = next((i for i in range(start, end) if re.match(r"\s*using GemmGrouped =", lines[i])), None)
    if cut is None:
        raise ValueError("its macro does not name GemmGrouped")
    told = (
        "constexpr int tw_told = sizeof(tw_row<TW_INDEX, GemmKernel::SharedStorageSize, "
        "CollectiveMainloop::DispatchPolicy::Stages>); } }"
    )
    rows = [line for index, call in enumerate(calls) for line in _call(index, call)]
    return "\n".join(
        [
            *lines[:start],
            _TELL,
            *lines[start:cut],
            told,
            *rows,
            *lines[end + 1 :],
        ]
    )


def whole(launcher: str, call: str) -> str:
    """The launcher as it stands, with the one instantiation `call`: its kernel is built whole.

    Raises:
        ValueError: the macro does not have the form that `fix_patch` knows.
    """
    lines = launcher.split("\n")
    _, end = _macro(lines)
    return "\n".join([*lines[: end + 1], call, *lines[end + 1 :]])


def _macro(lines: list[str]) -> tuple[int, int]:
    """First and last line of the macro that instantiates a kernel. Raises ValueError where there is none."""
    start = next((i for i, line in enumerate(lines) if line.startswith(f"#define {MACRO}(")), None)
    if start is None:
        raise ValueError(f"it does not define {MACRO}")
    end = start
    while end < len(lines) and lines[end].endswith("\\"):
        end += 1
    return start, end


def _call(index: int, call: str) -> Iterable[str]:
    return (f"constexpr int tw_index_{index} = {index};", "#undef TW_INDEX", f"#define TW_INDEX tw_index_{index}", call)


def read_rows(output: str) -> list[Row]:
    """The rows that the compiler's diagnostics name, each once, in order of the calls."""
    found = {int(index): Row(int(index), int(size), int(stages)) for index, size, stages in _ROW.findall(output)}
    return [found[index] for index in sorted(found)]


def fired(output: str) -> list[tuple[int, int]]:
    """(bytes needed, bytes allowed) of every kernel at which the patch's own assert fired."""
    return [(int(needed), int(limit)) for needed, limit in _FIRED.findall(output)]
