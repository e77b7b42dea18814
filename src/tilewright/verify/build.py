"""Building the programs: nvcc as `probe` calls it, several at a time, what was built before from the cache."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tilewright.cutlass.config import KernelConfig
from tilewright.errors import ToolError, shown
from tilewright.probe.cache import cache_root, content_key, write_atomically
from tilewright.probe.compiler import kill_all, run, stoppable
from tilewright.probe.diagnostics import parse_diagnostics
from tilewright.probe.rounds import Job, Settings, include_folders, nvcc_command
from tilewright.verify.model import Build
from tilewright.verify.source import runner_source

__all__ = ["Built", "Target", "build_all", "supervised"]

_FLAGS: Final = ("-O3", "-DNDEBUG")
"""As libraries build release kernels; the program around them counts little."""
MAX_ERRORS: Final = 5
Progress = Callable[[str, int, int, float], None]


@dataclass(frozen=True)
class Target:
    """One kernel to build: its config, types and headers."""

    config: KernelConfig
    job: Job


@dataclass(frozen=True)
class Built:
    """The program, or None and the reason."""

    program: Path | None
    build: Build


def supervised(command: Sequence[str]) -> list[str]:
    """`command` so that it ends with this process, however this process ends."""
    script = Path(__file__).with_name("supervise.py")
    return [sys.executable, "-I", "-S", str(script), str(os.getpid()), *command]


def _libraries(compiler: str) -> list[str]:
    """Where the static CUDA runtime lies beside nvcc: the `probe` extra's wheels keep it in lib, toolkits in lib64."""
    home = Path(compiler).resolve().parent.parent
    return [part for name in ("lib64", "lib") if (home / name).is_dir() for part in ("-L", str(home / name))]


def _program(target: Target, text: str, settings: Settings) -> Path:
    scatter = settings.extensions.digest if settings.extensions and target.job.types.needs_scatter else ""
    key = content_key(
        "verify", target.job.headers.digest, scatter, settings.compiler.version, target.job.types.arch, *_FLAGS, text
    )
    return cache_root() / "verify" / key[:2] / key[2:]


def _build(target: Target, settings: Settings) -> Built:
    """`target` built, or why not.

    Raises:
        ToolError: nowhere to write to.
    """
    try:
        return _built(target, settings)
    except OSError as error:
        msg = (
            f"A kernel cannot be built: {shown(str(error.filename or cache_root()))} cannot be written "
            f"({error.strerror}); set TILEWRIGHT_CACHE_DIR and TMPDIR to folders that can."
        )
        raise ToolError(msg) from None


def _built(target: Target, settings: Settings) -> Built:
    text = runner_source(target.config, target.job.types, target.job.headers.files)
    if settings.keep is not None:
        write_atomically(settings.keep / f"verify-{content_key(text)[:12]}.cu", text.encode())
    program = _program(target, text, settings)
    if settings.use_cache and program.is_file():
        return Built(program, Build(ok=True))
    includes = include_folders(target.job.headers, settings.extensions if target.job.types.needs_scatter else None)
    folder = Path(tempfile.mkdtemp(prefix="tilewright-verify-"))
    started = time.monotonic()
    try:
        (folder / "verify.cu").write_text(text, encoding="utf-8")
        command = nvcc_command(
            settings, target.job.types.arch, includes, "verify.cu", "verify.bin", *_FLAGS,
            *_libraries(settings.compiler.path),
        )  # fmt: skip
        done = run(supervised(command), folder, settings.timeout_s)
        seconds = round(time.monotonic() - started, 1)
        if done.code == 0:
            _keep(folder / "verify.bin", program)
            return Built(program, Build(ok=True, seconds=seconds))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if done.timed_out:
        why = f"The compiler took longer than {settings.timeout_s:.0f} s."
        return Built(None, Build(ok=False, seconds=seconds, errors=[why]))
    errors = parse_diagnostics(done.output, [str(path) for path in includes])
    messages = list(dict.fromkeys(f"{error.message} ({error.at})" for error in errors))[:MAX_ERRORS]
    capacity = bool(errors) and all(error.capacity for error in errors)
    if not messages:
        lines = done.output.strip().splitlines()
        messages = [lines[-1][:300] if lines else "The compiler stopped without a message."]
    return Built(None, Build(ok=False, seconds=seconds, capacity_assert=capacity, errors=messages))


def _keep(built: Path, program: Path) -> None:
    """Put a finished program into the cache, whole."""
    write_atomically(program, built.read_bytes())
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


def build_all(targets: Sequence[Target], settings: Settings, progress: Progress | None = None) -> list[Built]:
    """The program of every target, in order. Ctrl-C keeps what was built: the next run goes on from there.

    Raises:
        ToolError: the compiler cannot be used, has no such target, or there is nowhere to write to.
    """
    for arch in {target.job.types.arch for target in targets}:
        settings.compiler.check_target(arch)
    out: dict[int, Built] = {}
    started = time.monotonic()
    with stoppable(), ThreadPoolExecutor(max(1, settings.jobs)) as pool:
        futures = {pool.submit(_build, target, settings): index for index, target in enumerate(targets)}
        try:
            for done, future in enumerate(as_completed(futures), 1):
                out[futures[future]] = future.result()
                if progress is not None:
                    progress("kernels", done, len(futures), time.monotonic() - started)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            with suppress(Exception):
                kill_all()
            raise
    return [out[index] for index in range(len(targets))]
