"""Writing one file: whole or not at all, and over an older one only when told to.

What is no file (/dev/null, /dev/stdout, a named pipe) is written into: putting a file in its place would take the
device away from everybody on the machine.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

from tilewright.errors import InputError, shown


def write_temp(folder: Path, name: str, content: bytes) -> str:
    """A file beside the one that it is going to replace, flushed to disk; its path."""
    handle, temp = tempfile.mkstemp(prefix=f".{name[:100]}.", dir=folder)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        umask = os.umask(0)
        os.umask(umask)
        Path(temp).chmod(0o666 & ~umask)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temp).unlink()
        raise
    return temp


def _is_stream(path: Path) -> bool:
    """Whether something is there that is written into and never replaced: a character device or a named pipe.

    Raises:
        InputError: a disk or a socket is there.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISBLK(mode) or stat.S_ISSOCK(mode):
        raise InputError("out", f"{shown(str(path))} is a device or a socket and is left alone; give another file.")
    return stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)


def _probe(folder: Path) -> None:
    """Raises OSError where no file can be made in the folder: said before the work, not after it."""
    with tempfile.TemporaryFile(dir=folder):
        pass


def check_new(out: str, *, force: bool, option: str = "--out") -> Path:
    """`out`, given as `option`, as a path that may be written.

    Raises:
        InputError: it is a folder, its folder is missing or takes no file, or it exists and `force` is not set.
    """
    label = shown(out)
    path = Path(out)
    if "\0" in out:
        raise InputError(option.lstrip("-"), f"{option} {label} has a NUL character in it; give another file.")
    try:
        if path.is_dir() or not path.name:
            raise InputError(option.lstrip("-"), f"{option} {label} is a folder; name the file to write.")
        if not path.parent.is_dir():
            raise InputError(
                option.lstrip("-"), f"{option} {label}: there is no folder {shown(str(path.parent))}; make it first."
            )
        if _is_stream(path):
            return path
        if os.path.lexists(path) and not force:
            raise InputError(
                option.lstrip("-"), f"{label} exists and is kept: give another {option}, or --force to replace it."
            )
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(option.lstrip("-"), f"{option} {label} cannot be used: {reason}; give another file.") from None
    try:
        _probe(path.parent)
    except OSError as error:
        raise _unwritable(out, option, error) from None
    return path


def _unwritable(out: str, option: str, error: OSError) -> InputError:
    msg = f"{option} {shown(out)} cannot be written: {error.strerror or error}; give a file that you may write."
    return InputError(option.lstrip("-"), msg)


def write_new(out: str, content: bytes, *, force: bool, option: str = "--out") -> Path:
    """Write `content` to the file `out` and answer its path.

    Raises:
        InputError: it cannot be written, or it exists and `force` is not set.
    """
    path = check_new(out, force=force, option=option)
    temp: str | None = None
    try:
        if _is_stream(path):
            with path.open("wb") as stream:
                stream.write(content)
            return path
        if path.is_symlink():  # the file that it leads to is replaced, and the link stays
            path = path.resolve()
        temp = write_temp(path.parent, path.name, content)
        if force:
            Path(temp).replace(path)
            temp = None
        else:
            _place(temp, path)
    except FileExistsError:
        msg = f"{shown(out)} exists and is kept: give another {option}, or --force to replace it."
        raise InputError(option.lstrip("-"), msg) from None
    except OSError as error:
        raise _unwritable(out, option, error) from None
    finally:
        if temp is not None:
            with contextlib.suppress(OSError):
                Path(temp).unlink()
    return path


def _place(temp: str, path: Path) -> None:
    """Put the finished file in place, and never over another that appeared meanwhile (where links are possible)."""
    try:
        os.link(temp, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if os.path.lexists(path):
            raise FileExistsError(str(path)) from None
        Path(temp).replace(path)
