"""Triton asked itself: the engine's kernel cut out, compiled for the GPU's architecture in a process of its own.

On request only. What runs is Triton's compiler over the text of one `@triton.jit` function (`extract.py`); nothing of
the engine is imported. No GPU is needed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from tilewright.collectives.tree import open_tree
from tilewright.errors import InputError, MissingPartError, ToolError, shown
from tilewright.triton_.config import illegal
from tilewright.triton_.fit import gpu_limits
from tilewright.triton_.functions import find_kernel, read_features
from tilewright.triton_.kernels import KERNELS, operands_of
from tilewright.triton_.launch import job
from tilewright.triton_.model import TritonConfig, TritonVerdict

TIMEOUT_S: Final = 180.0
"""Longest that one compilation may take, seconds; the largest tiles take about 20."""
EXIT_MISSING: Final = 3
_WORKER: Final = Path(__file__).with_name("worker.py")
_TARGETS: Final = {121: 120, 103: 100}
"""Architectures that Triton compiles as another one of their family where that is asked."""
_MAX_OUTPUT: Final = 1 << 20


@dataclass(frozen=True)
class Compiled:
    """What Triton says of one tile."""

    shared_bytes: int
    triton: str
    source: str
    """The function compiled, as `file:line`."""


def installed_root(engine: str) -> str:
    """The folder that holds the engine installed beside this Python; nothing is imported.

    Raises:
        InputError: it is not installed.
    """
    spec = importlib.util.find_spec(engine)
    if spec is None or not spec.submodule_search_locations:
        msg = f"{engine} is not installed beside this Python; pass its wheel or site-packages with --root."
        raise InputError("root", msg)
    return str(Path(next(iter(spec.submodule_search_locations))).parent)


def compile_tile(
    config: TritonConfig, root: str | None = None, python: str | None = None, timeout_s: float = TIMEOUT_S
) -> TritonVerdict:
    """The verdict on `config` by compiling it; `root` holds the engine, `python` is an interpreter that has Triton.

    Raises:
        InputError: the GPU, the engine or its kernel is not there.
        MissingPartError: that Python has no Triton.
        ToolError: Triton did not finish in time, or refused the kernel.
    """
    sm, limit = gpu_limits(config)
    broken = illegal(config)
    if broken is not None:
        return TritonVerdict(id=config.id, status="illegal", limit_bytes=limit, cause=broken, rules=[broken])
    done = ask_triton(config, sm, root, python, timeout_s)
    rules = [f"Triton {done.triton} compiled {done.source} for sm_{sm}: {done.shared_bytes:,} bytes."]
    if limit is None:
        cause = f"The limit of sm_{sm} is not in the catalogue."
        return TritonVerdict(
            id=config.id, status="unsupported", smem_bytes=done.shared_bytes, basis="compiled", cause=cause, rules=rules
        )
    over = max(0, done.shared_bytes - limit)
    cause = None
    if over:
        cause = f"The compiled kernel takes {done.shared_bytes:,} bytes; a block of sm_{sm} may have {limit:,}."
    return TritonVerdict(
        id=config.id, status="overflow" if over else "fits", smem_bytes=done.shared_bytes, limit_bytes=limit,
        excess_bytes=over, basis="compiled", cause=cause, rules=rules,
    )  # fmt: skip


def ask_triton(
    config: TritonConfig, sm: int, root: str | None, python: str | None, timeout_s: float = TIMEOUT_S
) -> Compiled:
    """Compile `config` for architecture `sm`; errors as `compile_tile`."""
    engine = KERNELS[config.kernel].engine
    with open_tree(root or installed_root(engine)) as tree:
        from tilewright.libraries.tuned.engine import SPECS, package_folder

        package = package_folder(tree, SPECS[engine])
        if package is None:
            raise InputError("root", f"There is no {engine} in {shown(tree.name)}; pass its wheel or site-packages.")
        kernel = find_kernel(tree, package, config)
    operands = operands_of(config, read_features(kernel), sm)
    work = job(kernel, config, operands, _TARGETS.get(sm, sm))
    head = {"source": kernel.source, "kernel": kernel.name}
    answer = _run([head, work], python or sys.executable, timeout_s)
    if "error" in answer:
        raise ToolError(f"Triton refused {kernel.file}:{kernel.line}: {' '.join(str(answer['error']).split())[:400]}")
    return Compiled(int(answer["shared"]), str(answer["triton"]), f"{kernel.file}:{kernel.line}")


def _run(lines: list[dict[str, Any]], python: str, timeout_s: float) -> dict[str, Any]:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TRITON_")}
    try:
        process = subprocess.Popen(
            [python, str(_WORKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True, env=environment,
        )  # fmt: skip
    except OSError as error:
        raise InputError("python", f"--python: {shown(python)} cannot be started ({error.strerror}).") from None
    try:
        out, err = process.communicate(text, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise ToolError(f"Triton did not finish within {timeout_s:.0f} s; the process was ended.") from None
    if process.returncode == EXIT_MISSING:
        raise MissingPartError("Triton", "triton")
    last = out[:_MAX_OUTPUT].strip().splitlines()[-1:] or [""]
    try:
        return cast("dict[str, Any]", json.loads(last[0]))
    except ValueError:
        why = err.strip().splitlines()[-1:] or ["no reason given"]
        raise ToolError(f"Triton ended without an answer (exit {process.returncode}): {why[0][:300]}.") from None
