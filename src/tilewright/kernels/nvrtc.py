"""Compiling CUDA C++ at run time: NVRTC, through cuda-bindings. It needs no GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from typing import Any

from tilewright.errors import ToolError
from tilewright.kernels.parts import cuda_module

HEADERS = ("nvfp4_common.cuh", "nvfp4_wgmma.cuh")
"""What the kernels include: NVRTC is given their text, nvcc finds them beside the kernels."""


def checked(result: Any) -> Any:
    code, *values = result
    if int(code) != 0:
        msg = f"CUDA refused: {getattr(code, 'name', code)}."
        raise ToolError(msg)
    return values[0] if len(values) == 1 else tuple(values)


@lru_cache(maxsize=1)
def included() -> dict[str, bytes]:
    """Name -> text of what the kernels include."""
    folder = files("tilewright.kernels")
    return {name: folder.joinpath(name).read_bytes() for name in HEADERS}


@lru_cache(maxsize=1)
def nvrtc_version() -> str:
    """The NVRTC that compiles here: MAJOR.MINOR, and the releases of the packages that bring it where known."""
    major, minor = checked(cuda_module("nvrtc").nvrtcVersion())
    return " ".join((f"{major}.{minor}", *_releases()))


def _releases() -> Iterator[str]:
    for name in ("nvidia-cuda-nvrtc", "cuda-bindings"):
        with suppress(PackageNotFoundError):
            yield f"{name} {version(name)}"


def compile_cubin(source: str, target: str, defines: tuple[str, ...]) -> bytes:
    """`source` (a file of this package) compiled for `target`. Raises ToolError with the compiler's first error."""
    nvrtc = cuda_module("nvrtc")
    text = files("tilewright.kernels").joinpath(source).read_bytes()
    headers = included()
    names = [name.encode() for name in headers]
    program = checked(nvrtc.nvrtcCreateProgram(text, source.encode(), len(names), list(headers.values()), names))
    options = [f"--gpu-architecture={target}".encode(), b"--std=c++17", *(define.encode() for define in defines)]
    status = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if int(status[0]) != 0:
        log = bytearray(checked(nvrtc.nvrtcGetProgramLogSize(program)))
        nvrtc.nvrtcGetProgramLog(program, log)
        lines = [line for line in bytes(log).decode(errors="replace").splitlines() if "error" in line]
        msg = f"NVRTC could not compile {source} for {target}: {lines[0] if lines else status[0].name}."
        raise ToolError(msg)
    cubin = bytearray(checked(nvrtc.nvrtcGetCUBINSize(program)))
    checked(nvrtc.nvrtcGetCUBIN(program, cubin))
    nvrtc.nvrtcDestroyProgram(program)
    return bytes(cubin)
