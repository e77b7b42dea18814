"""What a server log says, line by line: known lines counted, the first of each kept (`plan --log FILE`).

The file is read as a stream in bounded memory. Patterns are data (`data/log_patterns.json`), each with an example.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import BinaryIO

import msgspec

from tilewright.errors import InputError, shown

MAX_LINE_BYTES = 4096
"""Longest part of a line that is looked at; the known messages are far shorter."""
MAX_VARIANTS = 32
"""Different sets of figures that are kept for one kind of line (need and limit in bytes, ...)."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_GENERATED = re.compile(r"(sm\d{2,3}_M\d{1,4}_[A-Za-z0-9_]{1,40}\.generated\.cu)")


class Pattern(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One known line. `pattern` is a regular expression over one line; its named groups are figures."""

    id: str
    pattern: str
    says: str
    example: str
    source: str


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    about: str
    patterns: list[Pattern]


@dataclass
class Hit:
    """What was found of one pattern: how often, where first, with which figures and generated kernels."""

    pattern: Pattern
    count: int
    first_line: int
    text: str
    figures: list[dict[str, str]]
    kernels: list[str]

    @property
    def quoted(self) -> str:
        """The first such line as inline code: nothing in it acts as Markdown."""
        return "`" + _CONTROL.sub(" ", self.text).replace("`", "'") + "`"


@cache
def patterns() -> list[tuple[Pattern, re.Pattern[str]]]:
    raw = resources.files("tilewright.data").joinpath("log_patterns.json").read_bytes()
    return [(item, re.compile(item.pattern)) for item in msgspec.json.decode(raw, type=_File).patterns]


@cache
def _any() -> re.Pattern[str]:
    """One expression that matches where any pattern does: most lines of a log match none, and fail once."""
    return re.compile("|".join(re.sub(r"\(\?P<\w+>", "(?:", item.pattern) for item, _ in patterns()))


def _lines(stream: BinaryIO) -> Iterator[str]:
    while True:
        piece = stream.readline(MAX_LINE_BYTES)
        if not piece:
            return
        whole = piece
        while not piece.endswith(b"\n") and piece:
            piece = stream.readline(MAX_LINE_BYTES)
        yield whole.decode("utf-8", "replace").rstrip("\r\n")


def scan(lines: Iterable[str]) -> dict[str, Hit]:
    """Known lines among `lines`, by pattern id."""
    known, interesting = patterns(), _any()
    hits: dict[str, Hit] = {}
    for number, line in enumerate(lines, start=1):
        if interesting.search(line) is None:
            continue
        for item, regex in known:
            found = regex.search(line)
            if found is None:
                continue
            hit = hits.get(item.id)
            if hit is None:
                hit = hits[item.id] = Hit(item, 0, number, line.strip()[:400], [], [])
            hit.count += 1
            figures = {key: value for key, value in found.groupdict().items() if value is not None}
            if figures and figures not in hit.figures and len(hit.figures) < MAX_VARIANTS:
                hit.figures.append(figures)
            kernel = _GENERATED.search(line)
            if kernel and kernel[1] not in hit.kernels and len(hit.kernels) < MAX_VARIANTS:
                hit.kernels.append(kernel[1])
    return hits


def scan_log(path: Path) -> dict[str, Hit]:
    """Known lines of the log at `path`; an InputError where it cannot be read."""
    label = shown(str(path))
    try:
        with path.open("rb") as stream:
            return scan(_lines(stream))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        msg = f"--log {label} cannot be read: {reason}; pass a server's log file."
        raise InputError("log", msg) from None
