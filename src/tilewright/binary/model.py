"""The answer of `tilewright inspect`, schema `tilewright/inspect/1`."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["Architecture", "FileReport", "GpuRef", "Image", "Kernel", "ModuleCount", "Report", "Unreadable", "Verdict"]

ImageKind = Literal["sass", "ptx", "lto", "other"]
Runs = Literal["native", "jit", "no", "unknown"]


class Kernel(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel as compiled; null where the image does not say (PTX has registers only once it is compiled)."""

    name: str
    """As the symbol table has it: mangled."""
    registers: int | None = None
    """32-bit registers a thread (EIATTR_REGCOUNT)."""
    stack_bytes: int | None = None
    """Local memory of a thread for the kernel's own frame: spills and local arrays (EIATTR_FRAME_SIZE)."""
    cumulative_stack_bytes: int | None = None
    """With the functions that it calls (EIATTR_MIN_STACK_SIZE); null where the compiler could not tell (recursion)."""
    spill_store_bytes: int | None = None
    """Of the stores to local memory those that the compiler marked as spills, as `ptxas -v` counts them: the bytes of
    the instructions, in the kernel's own code. Null where the compiler did not mark them and there may be some."""
    spill_load_bytes: int | None = None
    local_loads: int | None = None
    """LDL instructions in the kernel's code, spills or not; null where the code was not looked at."""
    local_stores: int | None = None
    shared_bytes: int | None = None
    """Static shared memory of a block, without what the system reserves; dynamic shared memory is a launch argument."""
    shared_reserved_bytes: int | None = None
    """What the system reserves a block besides, where the image counts it in (1,024 from sm_90 on)."""
    constant_bytes: int | None = None
    """Constant bank 0: the driver's own part and the parameters."""
    parameter_bytes: int | None = None
    barriers: int | None = None
    """Named barriers; 0 where the image names none."""
    max_threads: tuple[int, int, int] | None = None
    """`__launch_bounds__` (PTX `.maxntid`): a launch with more threads a block fails."""
    required_threads: tuple[int, int, int] | None = None
    """PTX `.reqntid`: a launch with any other block fails."""
    cluster: tuple[int, int, int] | None = None
    """Blocks a cluster that was fixed at compile time."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether something runs on the GPU that was asked about."""

    runs: Runs
    why: str


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of device code: SASS (a cubin), PTX, or LTO IR."""

    module: int
    """Number of the fatbinary that it is in, from 0: one for each translation unit (one in all after a device link).
    The driver loads one image of each module."""
    kind: ImageKind
    target: str
    """sm_120a, compute_90, lto_90."""
    toolkit: str | None = None
    """CUDA release of the compiler that made it, where it says so."""
    ptx_version: str | None = None
    bytes: int
    """As stored."""
    compression: Literal["lz4", "zstd"] | None = None
    uncompressed_bytes: int
    relocatable: bool = False
    """Device code that must be linked before anything can load it (-rdc, -dc)."""
    source: str | None = None
    """Name of the source file, where a debug build recorded it."""
    kernels: tuple[Kernel, ...] | None = None
    """Null where they were not read; `note` says why."""
    note: str | None = None
    verdict: Verdict | None = None


class Architecture(msgspec.Struct, frozen=True, kw_only=True):
    """All images of one file for one target."""

    kind: ImageKind
    target: str
    images: int
    bytes: int
    modules: int
    relocatable: bool = False
    verdict: Verdict | None = None


class ModuleCount(msgspec.Struct, frozen=True, kw_only=True):
    """On the GPU that was asked about: modules with SASS that runs, with PTX only, and with nothing."""

    native: int
    jit: int
    none: int


class FileReport(msgspec.Struct, frozen=True, kw_only=True):
    """One file with device code."""

    path: str
    """As given, or relative to the folder or wheel."""
    kind: Literal["cubin", "fatbin", "elf", "ptx", "container"]
    """`elf`: a host object or library. `container`: a file of another format (static library, DLL) in which the
    fatbinaries were found by their magic."""
    bytes: int
    cpu: str | None = None
    """Processor of the host code, as `uname -m` says it; null where there is none."""
    modules: int
    """Modules that a driver can load: the relocatable ones only where the file was not linked."""
    architectures: tuple[Architecture, ...]
    images: tuple[Image, ...] | None = None
    """Null in a folder or a wheel, unless a file was named."""
    usable: ModuleCount | None = None
    verdict: Verdict | None = None
    notes: tuple[str, ...] = ()


class Unreadable(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a folder or a wheel that could not be read."""

    path: str
    error: str


class GpuRef(msgspec.Struct, frozen=True, kw_only=True):
    """The GPU that was asked about."""

    key: str
    name: str
    compute_capability: str


class Report(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="tilewright/inspect/1"):
    """The document of `tilewright inspect --json`."""

    path: str
    kind: Literal["file", "wheel", "folder"]
    cpu: tuple[str, ...] = ()
    """Processors of the host code in it, and of the wheel's name."""
    gpu: GpuRef | None = None
    files: tuple[FileReport, ...]
    without_device_code: int = 0
    """Binaries that were looked at and have none."""
    unreadable: tuple[Unreadable, ...] = ()
    targets: tuple[str, ...] = ()
    """Every target that anything in it was compiled for."""
    verdict: Verdict | None = None
    advice: str | None = None
    notes: tuple[str, ...] = ()
