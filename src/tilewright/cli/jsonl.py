"""Streams of JSON Lines, as `--from FILE.jsonl` reads them: one object a line in, one answer a line out, in order.

A bad line never ends a stream: too long, not UTF-8, not JSON, not an object, or refused by the command, it gets an
answer that says so (DESIGN 4.2), and the next line follows. Blank lines are skipped.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from stat import S_ISCHR
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

import msgspec

from tilewright.cutlass.budget import ErrorLine, LineError
from tilewright.errors import InputError, shown

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["MAX_LINE_BYTES", "answer_stream", "decode_object", "error_line", "open_stream", "read_lines"]

MAX_LINE_BYTES: Final = 1 << 20
"""Longest line that is read. A config takes a few hundred bytes; anything near this is no config."""

_SKIP_BYTES: Final = 1 << 16
"""Piece size in which the rest of a line that is too long is passed over, never held whole."""

_MOST_SKIPPED: Final = 1 << 30
"""Bytes of one line that are passed over before the stream is given up: a device such as /dev/zero never ends one."""

_BOM: Final = b"\xef\xbb\xbf"


@contextmanager
def open_stream(
    source: str, field: str = "--from", wanted: str = "a file of one JSON object a line"
) -> Generator[BinaryIO, None, None]:
    """`source` opened for reading bytes; `-` is stdin, which stays open. `wanted`: what to give instead.

    Raises:
        InputError: the file is not there or cannot be read; `field` is the flag that named it.
    """
    if source == "-":
        if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison] - a shell closed it (<&-)
            raise InputError(field, f"{field}: stdin is closed; give {wanted}, or pipe it in.")
        yield sys.stdin.buffer
        return
    try:
        stream: BinaryIO = io.BufferedReader(_Told(source, field, wanted))
    except (OSError, ValueError) as error:
        raise _unread(source, field, wanted, error) from None
    with stream:
        if _is_endless(stream):
            raise InputError(field, f"{field}: {shown(source)} is a device that never ends; give {wanted}, or -.")
        yield stream


class _Told(io.FileIO):
    """A file that says which one it is where reading it fails, long after it was opened (a disk, a share)."""

    def __init__(self, source: str, field: str, wanted: str) -> None:
        self._told = (source, field, wanted)
        super().__init__(source)

    def readinto(self, buffer: WriteableBuffer, /) -> int:  # pyright: ignore[reportIncompatibleMethodOverride] - never None: it blocks
        try:
            return super().readinto(buffer) or 0
        except OSError as error:
            raise _unread(*self._told, error) from None


def _unread(source: str, field: str, wanted: str, error: Exception) -> InputError:
    reason = getattr(error, "strerror", None) or str(error)
    return InputError(field, f"{field}: {shown(source)} cannot be read ({reason}); give {wanted}, or -.")


def _is_endless(stream: BinaryIO) -> bool:
    """Whether it is a device such as /dev/zero: no terminal, and not the null device."""
    found = os.fstat(stream.fileno())
    return S_ISCHR(found.st_mode) and not stream.isatty() and found.st_rdev != Path(os.devnull).stat().st_rdev


def read_lines(
    stream: BinaryIO, limit: int = MAX_LINE_BYTES, most: int = _MOST_SKIPPED
) -> Iterator[tuple[int, bytes | LineError]]:
    """(number from 1, line) of every line that is not blank; a line over `limit` bytes as the LineError to answer.

    At most `limit` + 1 bytes of a line are in memory at a time; a line that goes on for `most` more ends the stream.
    """
    number = 0
    while data := stream.readline(limit + 1):
        number += 1
        if number == 1 and data.startswith(_BOM):
            data = data[len(_BOM) :]
        if len(data) > limit and not data.endswith(b"\n"):
            skipped = 0
            while (rest := stream.readline(_SKIP_BYTES)) and not rest.endswith(b"\n"):
                skipped += len(rest)
                if skipped > most:
                    message = f"Line {number} does not end within {most:,} bytes; nothing after it is read."
                    yield number, LineError("line", message)
                    return
            yield number, LineError("line", f"Line {number} is longer than {limit:,} bytes; write one object a line.")
        elif not data.isspace() and data:
            yield number, data


def decode_object(number: int, data: bytes) -> dict[str, Any] | LineError:
    """The JSON object on line `number`, or what is wrong with it."""
    try:
        value: Any = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        return LineError("line", f"Line {number} is not JSON: {error}.")
    except RecursionError:
        return LineError("line", f"Line {number} is nested too deeply.")
    except ValueError as error:  # UnicodeDecodeError: bytes in a string that are not UTF-8
        return LineError("line", f"Line {number} is not UTF-8: {error}.")
    if not isinstance(value, dict):
        return LineError("line", f"Line {number} holds {shown(value)}; it takes one JSON object.")
    return cast("dict[str, Any]", value)


def error_line(raw: Any, error: LineError | InputError) -> ErrorLine:
    """The answer to a line that the command refused; it repeats the line's `id` where that is a string."""
    ident: Any = cast("dict[str, Any]", raw).get("id") if isinstance(raw, dict) else None
    if isinstance(error, InputError):
        error = LineError(error.field, error.msg)
    return ErrorLine(id=ident if isinstance(ident, str) else None, error=error)


def answer_stream(
    stream: BinaryIO,
    answer: Callable[[dict[str, Any]], Any],
    out: BinaryIO,
    limit: int = MAX_LINE_BYTES,
    on_error: Callable[[Any, LineError | InputError], Any] = error_line,
) -> tuple[int, int]:
    """Answer every line of `stream` on `out` as JSON Lines, in order; (lines answered, lines refused).

    `answer` gets the object of a line; an InputError of it becomes the line's answer, as does a line that holds no
    object, through `on_error(raw object or None, error)`.
    """
    encode = msgspec.json.Encoder().encode
    write = out.write
    count = refused = 0
    for number, data in read_lines(stream, limit):
        raw = decode_object(number, data) if isinstance(data, bytes) else data
        result: Any
        if isinstance(raw, LineError):
            result = on_error(None, raw)
            refused += 1
        else:
            try:
                result = answer(raw)
            except InputError as error:
                result = on_error(raw, error)
                refused += 1
        count += 1
        write(encode(result))
        write(b"\n")
    out.flush()
    return count, refused
