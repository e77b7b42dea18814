"""Verdicts on a whole file and on everything that was read, and what to build instead."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from tilewright.binary.model import FileReport, ModuleCount, Verdict
from tilewright.hardware.gpu import Gpu

if TYPE_CHECKING:
    from tilewright.binary.images import Found

__all__ = ["advice", "build_flags", "overall"]

SYMPTOM: Final = (
    "A launcher that sets the shared memory of a kernel first reports it as 'Error Internal' (cudaFuncSetAttribute "
    "fails), others as cudaErrorNoKernelImageForDevice (209); neither has to do with memory."
)
FIRST_ACCELERATED_MAJOR: Final = 9
"""Hopper: the first with `a` targets (NVCC manual)."""
FIRST_FAMILY_MAJOR: Final = 10
"""Blackwell: the first with `f` targets, from CUDA 12.9 on (NVCC manual)."""
_SHOWN: Final = 6


def build_flags(capability: str) -> str:
    """nvcc options that give code for a device, in words."""
    major, _, minor = capability.partition(".")
    number, base = f"{major}{minor}", f"{major}0"
    if int(major) < FIRST_ACCELERATED_MAJOR:
        return f"-gencode arch=compute_{number},code=sm_{number}"
    exact = f"-gencode arch=compute_{number}a,code=sm_{number}a"
    if int(major) < FIRST_FAMILY_MAJOR:
        return exact
    return f"{exact}, or -gencode arch=compute_{base}f,code=sm_{base}f for all {major}.x (CUDA 12.9 or newer)"


def _reasons(verdicts: Iterable[Verdict | None]) -> str:
    """Why nothing runs: each reason once."""
    reasons = [*dict.fromkeys(verdict.why for verdict in verdicts if verdict is not None and verdict.runs != "native")]
    more = f"; and {len(reasons) - _SHOWN} more reasons" if len(reasons) > _SHOWN else ""
    return "; ".join(reasons[:_SHOWN]) + more


def overall(images: Sequence[Found], usable: ModuleCount, verdicts: Sequence[Verdict | None]) -> Verdict:
    """The verdict on one file: the best that any of its modules has, with how many have less."""
    total = usable.native + usable.jit + usable.none
    if not images:
        return Verdict(runs="no", why="it holds no device code")
    if usable.native == usable.jit == 0:
        return Verdict(runs="no", why=_reasons(verdicts))
    parts: list[str] = []
    if usable.native:
        parts.append(f"{usable.native} of {total} modules have code that runs as it is")
    if usable.jit:
        parts.append(f"{usable.jit} of {total} have PTX only, compiled at load")
    if usable.none:
        parts.append(f"{usable.none} of {total} have nothing for this GPU, and their kernels cannot be launched on it")
    return Verdict(runs="native" if usable.native else "jit", why="; ".join(parts))


def _plain_only(files: Sequence[FileReport], capability: str) -> str | None:
    """What to know where all code that runs as it is was compiled for the plain target (sm_120, not sm_120a or f).

    The tensor-core instructions of Hopper and later exist for the `a` and `f` targets only (PTX ISA, "target feature");
    CUTLASS kernels compiled without print that message and stop (`gemm/kernel/sm90_gemm_*.hpp`).
    """
    if int(capability.partition(".")[0]) < FIRST_ACCELERATED_MAJOR:
        return None
    rows = [row for file in files for row in file.architectures]
    native = {row.target for row in rows if row.verdict is not None and row.verdict.runs == "native"}
    if not native or any(target[-1] in "af" for target in native):
        return None
    names = " and ".join(sorted(native))
    needs = "block-scaled and FP4 MMA" if int(capability.partition(".")[0]) >= FIRST_FAMILY_MAJOR else "wgmma"
    return (
        f"Its code is for plain {names}, which has none of the instructions of the a and f targets ({needs}, ...): a "
        "kernel that needs them stops with 'Arch conditional MMA instruction used without targeting appropriate "
        f"compute capability. Aborting.' For such kernels build with {build_flags(capability)}."
    )


def advice(files: Sequence[FileReport], gpu: Gpu) -> tuple[Verdict, str | None]:
    """The verdict on everything that was read, and what to do where that is less than all."""
    device = f"{gpu.name} ({gpu.compute_capability})"
    with_code = [file for file in files if file.architectures]
    if not with_code:
        return Verdict(runs="no", why="there is no device code in it"), None
    usable = [file.usable for file in with_code if file.usable is not None]
    native, jit, none = (sum(getattr(item, key) for item in usable) for key in ("native", "jit", "none"))
    flags = f"To have code for {gpu.compute_capability}, build with {build_flags(gpu.compute_capability)}."
    if native == jit == 0:
        rows = [row for file in with_code for row in file.architectures]
        why = f"nothing in it can run on {device}: {_reasons(row.verdict for row in rows)}"
        return Verdict(runs="no", why=why), f"{SYMPTOM} {flags}"
    total = native + jit + none
    if total == native:
        why = f"on {device} everything in it has code that runs as it is"
    elif total == jit:
        why = f"on {device} all of it is compiled from PTX at load, which costs time and lacks what a and f targets add"
    else:
        why = f"on {device} {native:,} of {total:,} modules have code that runs as it is"
        why += f", {jit:,} only PTX that is compiled at load" if jit else ""
        why += f", {none:,} nothing: their kernels cannot be launched" if none else ""
    hint = f"{SYMPTOM} {flags}" if none else flags if jit else _plain_only(with_code, gpu.compute_capability)
    return Verdict(runs="native" if native else "jit", why=why), hint
