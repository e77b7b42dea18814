"""Finding nvcc and running it: no shell, a process group of its own, a time limit, nothing left behind."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sysconfig
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from tilewright.errors import InputError, MissingPartError, ToolError, shown
from tilewright.stopped import StoppedError

__all__ = ["MINIMUM", "Compiler", "Finished", "Stopped", "find_nvcc", "kill_all", "run"]

MINIMUM: Final = (12, 8)
"""First CUDA toolkit with the targets sm_100a and sm_120a (CUDA 12.8 release notes); sm_103a and sm_121a need 12.9."""
NEEDS_12_9: Final = frozenset({"sm_103a", "sm_121a"})

_VERSION: Final = re.compile(r"\bV(\d{1,3})\.(\d{1,3})\.(\d{1,4})")
_VERSION_TIMEOUT_S: Final = 60.0
_DROPPED_VARIABLES: Final = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "CPATH", "CPLUS_INCLUDE_PATH", "C_INCLUDE_PATH")
"""Variables that would add flags or headers of their own to a compile: results must depend on the tree alone."""

_HOST_COMPILERS: Final = ("gcc", "g++", "clang++")
_KILL_GRACE_S: Final = 2.0

_live: set[subprocess.Popen[bytes]] = set()
_lock = threading.Lock()
_stopping = threading.Event()


class Stopped(Exception):  # noqa: N818 - not an error: somebody asked for it
    """The run was stopped (Ctrl-C) while this compile was under way."""


@dataclass(frozen=True)
class Compiler:
    """An nvcc that answered to --version."""

    path: str
    version: str
    """As 13.0.88."""

    @property
    def release(self) -> tuple[int, int]:
        major, minor, *_ = self.version.split(".")
        return int(major), int(minor)

    def check_target(self, arch: str) -> None:
        """Raise a ToolError where this nvcc has no target `arch` (sm_120a, ...)."""
        needed = (12, 9) if arch in NEEDS_12_9 else MINIMUM
        if self.release < needed:
            least = ".".join(map(str, needed))
            msg = f"nvcc {self.version} at {shown(self.path)} has no target {arch}; it takes {least} or newer."
            raise ToolError(msg)


@dataclass(frozen=True)
class Finished:
    """A compile that ended. `code` is None where it was stopped for taking too long."""

    code: int | None
    output: str
    """stdout and stderr."""
    timed_out: bool = False


def _environment(temporary: Path) -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if name not in _DROPPED_VARIABLES}
    env["TMPDIR"] = str(temporary)
    env["LC_ALL"] = "C"  # diagnostics are read: English, ASCII quotes
    return env


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    for sent in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sent)
        except (ProcessLookupError, PermissionError):
            break
        try:
            process.wait(_KILL_GRACE_S)
        except subprocess.TimeoutExpired:
            continue
        # nvcc is gone; its children may not be: the group is killed once more, unconditionally
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        break


def kill_all() -> None:
    """Kill every compile under way and its children; compiles that start later in this run are refused."""
    _stopping.set()
    with _lock:
        processes = list(_live)
    for process in processes:
        _kill_group(process)


@contextmanager
def stoppable() -> Generator[None, None, None]:
    """The span of one run: whatever ends it, Ctrl-C and SIGTERM included, no compile outlives it."""
    _stopping.clear()
    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, _interrupt) if main else None
    try:
        yield
    except BaseException:
        kill_all()
        raise
    finally:
        if main:
            signal.signal(signal.SIGTERM, before)


def _interrupt(number: int, _frame: object) -> NoReturn:
    """SIGTERM ends a run as Ctrl-C does."""
    raise StoppedError(number)


def run(command: Sequence[str], cwd: Path, timeout_s: float) -> Finished:
    """Run `command` in `cwd`, which also takes its temporary files, for at most `timeout_s` seconds.

    Raises:
        ToolError: it could not be started.
        Stopped: `kill_all` was called meanwhile.
    """
    if _stopping.is_set():
        raise Stopped
    try:
        process = subprocess.Popen(
            list(command),
            cwd=cwd,
            env=_environment(cwd),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # a process group of its own, so that nvcc's children can be killed with it
        )
    except OSError as error:
        raise ToolError(f"{shown(command[0])} could not be started: {error.strerror}.") from None
    with _lock:
        _live.add(process)
    try:
        if _stopping.is_set():  # kill_all came between the check above and the line before
            _kill_group(process)
        output, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        _kill_group(process)
        output, _ = process.communicate()
        return Finished(None, output.decode("utf-8", "replace"), timed_out=True)
    except BaseException:
        _kill_group(process)
        process.communicate()
        raise
    finally:
        with _lock:
            _live.discard(process)
    if _stopping.is_set():
        raise Stopped
    return Finished(process.returncode, output.decode("utf-8", "replace"))


def _package_compilers() -> Iterator[Path]:
    """nvcc as the wheels of the `probe` extra lay it out: all of CUDA 13's unpack into `nvidia/cu13`, where nvcc finds
    its headers, nvvm and ptxas by itself (`bin/nvcc.profile`)."""
    for name in ("purelib", "platlib"):
        yield from sorted((Path(sysconfig.get_paths()[name]) / "nvidia").glob("cu*/bin/nvcc"))


def _candidates(given: str | None) -> Iterator[str]:
    if given is not None:
        yield given
        return
    for name in ("CUDA_HOME", "CUDA_PATH"):
        home = os.environ.get(name)
        if home:
            yield str(Path(home) / "bin" / "nvcc")
    on_path = shutil.which("nvcc")
    if on_path:
        yield on_path
    yield from map(str, _package_compilers())


def _version_of(path: str) -> str | None:
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, timeout=_VERSION_TIMEOUT_S, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(done.stdout.decode("utf-8", "replace"))
    return f"{found[1]}.{found[2]}.{found[3]}" if found else None


def find_nvcc(given: str | None = None) -> Compiler:
    """The nvcc to use: `given`, else of CUDA_HOME, CUDA_PATH, PATH, else of the `probe` extra's wheels.

    Raises:
        InputError: `given` is not an nvcc.
        ToolError: the ones found are too old, or nvcc has no host compiler to preprocess with.
        MissingPartError: there is none.
    """
    too_old: list[str] = []
    for path in _candidates(given):
        version = _version_of(path)
        if version is None:
            if given is not None:
                raise InputError(
                    "--nvcc", f"--nvcc: {shown(given)} does not answer to --version as an nvcc; give its path."
                )
            continue
        compiler = Compiler(str(Path(shutil.which(path) or path).absolute()), version)  # compiles run elsewhere
        if compiler.release >= MINIMUM:
            if not any(shutil.which(name) for name in _HOST_COMPILERS) and "NVCC_CCBIN" not in os.environ:
                raise ToolError("nvcc needs a host C++ compiler and there is none; install g++, or set NVCC_CCBIN.")
            return compiler
        too_old.append(f"{version} at {shown(path)}")
    if too_old:
        need = ".".join(map(str, MINIMUM))
        raise ToolError(
            f"nvcc {', '.join(too_old)} is too old: sm_120a needs {need} or newer; give one with --nvcc PATH."
        )
    raise MissingPartError("nvcc", "probe")
