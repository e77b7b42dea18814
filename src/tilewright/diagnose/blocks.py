"""A log in blocks that end at a line's end; holes (NUL bytes only) are passed over, and what is no text is refused.

A log that was cut while its writer kept it open begins with a hole as long as the old log. In a file the system says
where a hole ends and nothing of it is read; in a pipe it has to be read, and one that goes on and on is no log.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import BinaryIO, Final

from tilewright.errors import InputError, shown

__all__ = ["BLOCK_BYTES", "MAX_HOLE_BYTES", "Blocks"]

BLOCK_BYTES: Final = 1 << 20
"""Bytes that are searched at a time; a line may cross from one block to the next."""
BINARY_SHARE: Final = 0.05
"""Share of NUL bytes, or of other control characters, in the first block above which a file is no text."""
MAX_HOLE_BYTES: Final = 4 << 30
"""NUL bytes in a row that are read before an input without an end in sight is given up: a few seconds' worth."""
_HOLE: Final = bytes(BLOCK_BYTES)
_TEXT: Final = bytes(code for code in range(256) if code >= 32 or code in b"\t\n\v\f\r\b\x1b\0")
"""Bytes that a log may hold: text in any encoding that extends ASCII, and what terminals take."""


class Blocks:
    """Iterates over the blocks of `stream`; `label` names it in a refusal. `bytes` counts what was read or passed over.

    A block ends at a line's end (the last one may not); a line longer than a block is cut there. Iteration raises
    InputError where the input is no text.
    """

    def __init__(self, stream: BinaryIO, label: str, most: int = MAX_HOLE_BYTES) -> None:
        self.bytes = 0
        self._stream, self._label, self._most = stream, shown(label), most

    def __iter__(self) -> Iterator[bytes]:
        rest = b""
        checked = False
        for block in self._solid():
            whole = rest + block
            if not checked:
                self._check(whole[:BLOCK_BYTES])
                checked = True
            end = whole.rfind(b"\n") + 1
            if end:
                yield whole[:end]
                rest = whole[end:]
            elif len(whole) >= BLOCK_BYTES:
                yield whole
                rest = b""
            else:
                rest = whole
        if rest:
            yield rest
        if self.bytes and not checked:
            raise InputError("FILE", f"{self._label} is no log: it holds nothing but NUL bytes.")

    def _solid(self) -> Iterator[bytes]:
        """The stream in blocks, but for those of NUL bytes alone."""
        hole = 0
        while block := self._stream.read(BLOCK_BYTES):
            self.bytes += len(block)
            if block != _HOLE[: len(block)]:
                hole = 0
                yield block
                continue
            hole += len(block)
            self.bytes += self._pass_over()
            if hole > self._most:
                msg = (
                    f"{self._label} is no log: {hole:,} NUL bytes follow each other in it and it goes on; give a log "
                    "(of a file with a hole at its start the file itself: its hole is not read)."
                )
                raise InputError("FILE", msg)

    def _pass_over(self) -> int:
        """Move a file on to where the system has data again; how many bytes that was (0 where it cannot tell)."""
        try:
            handle, here = self._stream.fileno(), self._stream.tell()
            raw = os.lseek(handle, 0, os.SEEK_CUR)
            try:
                there = os.lseek(handle, here, os.SEEK_DATA)
            except OSError:  # no data from here on
                there = os.fstat(handle).st_size
            finally:
                os.lseek(handle, raw, os.SEEK_SET)  # the stream's own idea of where the file stands has to stay true
            if there <= here:
                return 0
            self._stream.seek(there)
        except (OSError, ValueError, AttributeError):  # a pipe, a stream in memory, a system that does not say it
            return 0
        return there - here

    def _check(self, head: bytes) -> None:
        if head.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise InputError("FILE", f"{self._label} is UTF-16 text; convert it first: iconv -f UTF-16 -t UTF-8.")
        for magic, name, tool in ((b"\x1f\x8b", "gzip", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd", "zstd")):
            if head.startswith(magic):
                msg = f"{self._label} is compressed ({name}); give the text: {tool} -dc FILE | tilewright explain -"
                raise InputError("FILE", msg)
        body = head.lstrip(b"\0")
        if (written := body.rstrip(b"\0")).endswith(b"\n"):
            body = written  # whole lines, then a hole
        if body.count(0) > BINARY_SHARE * len(body):
            msg = f"{self._label} is no text: it is full of NUL bytes; give a log (`inspect` reads binaries)."
            raise InputError("FILE", msg)
        if len(body.translate(None, _TEXT)) > BINARY_SHARE * len(body):
            raise InputError(
                "FILE", f"{self._label} is no text but binary data; give a log (`inspect` reads binaries)."
            )
