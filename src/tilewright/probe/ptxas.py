"""The whole kernel, down to SASS: does it compile, and what does ptxas say of its registers, spills and stack.

`cutlass::device_kernel<K>` is instantiated, and with it the functions a host calls before a launch
(`to_underlying_arguments`, `can_implement`): types that compile can still fail there. One kernel a compile, since ptxas
takes most of the time (30-75 s a kernel on one core).
"""

from __future__ import annotations

import re
import shutil
import struct
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, Final

import msgspec

from tilewright.probe.cache import ResultCache, content_key, write_atomically
from tilewright.probe.compiler import kill_all, run, stoppable
from tilewright.probe.diagnostics import parse_diagnostics
from tilewright.probe.result import KernelBuild
from tilewright.probe.rounds import Job, Settings, include_folders, nvcc_command
from tilewright.probe.unit import preamble, unit_file

__all__ = ["build_kernels", "parse_ptxas", "section_bytes"]

MAX_ERRORS: Final = 5

_FLAGS: Final = ("-O3", "-DNDEBUG", "-cubin", "-Xptxas", "-v")
"""As libraries build release kernels (FlashInfer `jit/core.py`): CUTLASS's device asserts cost registers."""

_ENTRY: Final = re.compile(r"Compiling entry function '([^']*device_kernel[^']*)'")
_FRAME: Final = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS: Final = re.compile(r"Used (\d+) registers")
_BARRIERS: Final = re.compile(r"used (\d+) barriers")

_ELF_MAGIC: Final = b"\x7fELF\x02\x01"
"""A 64-bit little-endian ELF, which a cubin is."""
_SECTION_HEADER: Final = struct.Struct("<IIQQQQIIQQ")


def _source(job: Job) -> str:
    name = unit_file(0)
    types = job.types
    return (
        preamble(types.needs_scatter, sorted(job.headers.files))
        + f"""#include "cutlass/device_kernel.h"
struct S_{name} {{
#line 1 "{name}"
using E = {types.epilogue};
#line 2 "{name}"
using M = {types.mainloop};
#line 3 "{name}"
using K = {types.kernel};
}};
#line 4 "{name}"
void const* tw_kernel() {{ return reinterpret_cast<void const*>(&cutlass::device_kernel<S_{name}::K>); }}
void const* tw_arguments() {{ return reinterpret_cast<void const*>(&S_{name}::K::to_underlying_arguments); }}
void const* tw_can_implement() {{ return reinterpret_cast<void const*>(&S_{name}::K::can_implement); }}
"""
    )


def parse_ptxas(text: str) -> dict[str, int]:
    """Registers, spills, stack and barriers of the kernel in the output of `ptxas -v`; keys as in KernelBuild."""
    entry = _ENTRY.search(text)
    if entry is None:
        return {}
    rest = text[entry.end() :]
    properties = rest.find(f"Function properties for {entry[1]}")
    rest = rest[max(0, properties) :]
    found: dict[str, int] = {}
    frame = _FRAME.search(rest)
    if frame:
        found["stack_bytes"], found["spill_store_bytes"], found["spill_load_bytes"] = (int(x) for x in frame.groups())
    registers, barriers = _REGISTERS.search(rest), _BARRIERS.search(rest)
    if registers:
        found["registers"] = int(registers[1])
    if barriers:
        found["barriers"] = int(barriers[1])
    return found


def section_bytes(cubin: bytes, prefix: str) -> int:
    """Bytes in the sections of an ELF file whose name starts with `prefix`; 0 where there is none, or no ELF."""
    if not cubin.startswith(_ELF_MAGIC) or len(cubin) < 64:
        return 0
    (table,) = struct.unpack_from("<Q", cubin, 40)
    size, count, names_at = struct.unpack_from("<HHH", cubin, 58)
    try:
        headers = [_SECTION_HEADER.unpack_from(cubin, table + at * size) for at in range(count)]
        names = headers[names_at][4]
    except (struct.error, IndexError):
        return 0
    total = 0
    for header in headers:
        start = names + header[0]
        name = cubin[start : cubin.find(b"\0", start)].decode("ascii", "replace")
        if name.startswith(prefix):
            total += header[5]
    return total


def _build(job: Job, settings: Settings) -> KernelBuild | str:
    """Compile one kernel; where there is no answer (time limit, crash), why."""
    text = _source(job)
    folder = Path(tempfile.mkdtemp(prefix="tilewright-probe-"))
    started = time.monotonic()
    try:
        (folder / "kernel.cu").write_text(text, encoding="utf-8")
        if settings.keep is not None:
            write_atomically(settings.keep / f"kernel-{job.types.arch}-{content_key(text)[:12]}.cu", text.encode())
        includes = include_folders(job.headers, settings.extensions if job.types.needs_scatter else None)
        command = nvcc_command(settings, job.types.arch, includes, "kernel.cu", "kernel.cubin", *_FLAGS)
        done = run(command, folder, settings.timeout_s)
        seconds = round(time.monotonic() - started, 1)
        if done.code == 0:
            cubin = (folder / "kernel.cubin").read_bytes()
            figures = parse_ptxas(done.output)
            return KernelBuild(
                compiles=True,
                registers=figures.get("registers"),
                spill_store_bytes=figures.get("spill_store_bytes"),
                spill_load_bytes=figures.get("spill_load_bytes"),
                stack_bytes=figures.get("stack_bytes"),
                local_bytes=section_bytes(cubin, ".nv.local."),
                barriers=figures.get("barriers"),
                code_bytes=section_bytes(cubin, ".text."),
                seconds=seconds,
            )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    errors = parse_diagnostics(done.output, [str(path) for path in includes])
    if done.timed_out:
        return f"nvcc took longer than {settings.timeout_s:g} s (--timeout)"
    if not errors:
        return f"nvcc ended with {done.code} and named no error; it may have been killed for want of memory (--jobs 1)"
    messages = dict.fromkeys(f"{error.message} ({error.at})" for error in errors)
    capacity = all(error.capacity for error in errors)
    return KernelBuild(compiles=False, capacity_assert=capacity, seconds=seconds, errors=list(messages)[:MAX_ERRORS])


def build_kernels(
    jobs: Sequence[Job], settings: Settings, progress: Callable[[int, int, float], None] | None = None
) -> list[KernelBuild | str]:
    """The whole kernel of every job, in order; where the compiler gave no answer, why.

    Raises:
        ToolError: the compiler cannot be used.
    """
    cache = ResultCache(settings.use_cache)
    keys = [_key(job, settings) for job in jobs]
    known: dict[str, KernelBuild | str] = {}
    wanted: dict[str, Job] = {}
    for key, job in zip(keys, jobs, strict=True):
        entry = cache.get(key) if key not in known and key not in wanted else None
        built = _decode(entry)
        if built is not None:
            known[key] = built
        elif key not in known:
            wanted[key] = job
    for arch in {job.types.arch for job in wanted.values()}:
        settings.compiler.check_target(arch)
    started = time.monotonic()
    with stoppable(), ThreadPoolExecutor(max(1, settings.jobs)) as pool:
        futures = {pool.submit(_build, job, settings): key for key, job in wanted.items()}
        try:
            for done, future in enumerate(as_completed(futures), 1):
                key = futures[future]
                built = known[key] = future.result()
                if isinstance(built, KernelBuild):
                    cache.put(key, msgspec.to_builtins(built))
                if progress is not None:
                    progress(done, len(futures), time.monotonic() - started)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            kill_all()
            raise
    return [known[key] for key in keys]


def _key(job: Job, settings: Settings) -> str:
    scatter = settings.extensions.digest if settings.extensions and job.types.needs_scatter else ""
    return content_key(
        "kernel", job.headers.digest, scatter, settings.compiler.version, job.types.arch, *_FLAGS, _source(job)
    )


def _decode(entry: dict[str, Any] | None) -> KernelBuild | None:
    if entry is None:
        return None
    try:
        return msgspec.convert(entry, KernelBuild)
    except msgspec.ValidationError:
        return None
