"""Where a command's output goes (DESIGN 4.1).

With `--json`, one JSON document (or JSON Lines) on stdout and nothing else. Otherwise text on stdout: Rich on a
terminal, plain and stable in a pipe, no colour with NO_COLOR. Notes and progress go to stderr, never to stdout.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import click
import msgspec

from tilewright.report.silence import silence

F = TypeVar("F", bound=Callable[..., Any])

BAR_FULL, BAR_EMPTY = "█", "·"
_ASCII_BAR = ("#", ".")

_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What a terminal acts on, or what turns the direction of the text after it; a tab and a line's end may stay."""

_BREAK: Final = re.compile(r"[\t\n\r\v\f\x85\u2028\u2029]+")
"""What would end a row of a table in the middle of a cell."""


def visible(text: str) -> str:
    """`text` with control characters written out: text from files, logs and journals must not steer the terminal."""
    if text.isprintable():
        return text
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def json_bytes(value: object) -> bytes:
    """`value` as one compact JSON document, UTF-8."""
    return msgspec.json.encode(value)


def tell(text: str) -> None:
    """One line on stderr. Where it takes none (a full disk, a terminal that is gone) the work goes on without it."""
    try:
        click.echo(text, err=True)
    except OSError:
        silence(sys.stderr)


def _unicode_ok() -> bool:
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower()
    return "utf" in encoding


def bar(used: int, limit: int, width: int = 40) -> str:
    """A bar of `used` against `limit` (same unit), `width` characters long; more than full is drawn full."""
    full, empty = (BAR_FULL, BAR_EMPTY) if _unicode_ok() else _ASCII_BAR
    cells = 0 if limit <= 0 else min(width, round(width * used / limit))
    return full * cells + empty * (width - cells)


@dataclass(frozen=True)
class Output:
    """The two streams of one command run."""

    json: bool = False
    quiet: bool = False

    @property
    def fancy(self) -> bool:
        """Whether stdout is a terminal that may get Rich output."""
        return not self.json and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"

    def document(self, value: object) -> None:
        """Write `value` as the command's JSON document."""
        sys.stdout.buffer.write(json_bytes(value) + b"\n")
        sys.stdout.buffer.flush()

    def line(self, text: str = "") -> None:
        """One line of human output on stdout."""
        if not self.json:
            _print(visible(text))

    def lines(self, texts: Iterable[str]) -> None:
        """Many lines of human output on stdout."""
        if not self.json:
            _print_all([visible(text) for text in texts])

    def note(self, text: str) -> None:
        """One line for the human beside the result: on stderr, unless `--quiet`."""
        if not self.quiet:
            tell(text)

    def heading(self, text: str) -> None:
        """A heading line on stdout."""
        if self.fancy and "NO_COLOR" not in os.environ:
            _print(click.style(visible(text), bold=True))
        else:
            self.line(text)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]], right: Sequence[int] = ()) -> None:
        """A table on stdout; columns whose index is in `right` are right-aligned (figures)."""
        if self.json:
            return
        cells = [["" if cell is None else _cell(cell) for cell in row] for row in rows]
        if self.fancy:
            _rich_table(columns, cells, right)
            return
        whole = [[visible(name) for name in columns], *cells]
        widths = [max(map(len, column)) for column in zip(*whole, strict=True)]
        sides = [str.rjust if i in right else str.ljust for i in range(len(columns))]
        put = [zip(sides, row, widths, strict=True) for row in whole]
        _print_all(["  ".join([side(cell, width) for side, cell, width in row]).rstrip() for row in put])


def _cell(value: object) -> str:
    text = str(value)
    return text if text.isprintable() else visible(_BREAK.sub(" ", text))


def _print(text: str) -> None:
    try:
        print(text)
    except UnicodeEncodeError:
        print(text.encode("ascii", "replace").decode())


def _print_all(texts: Sequence[str]) -> None:
    """Lines printed together, which is many times faster than one by one."""
    if not texts:
        return
    try:
        print("\n".join(texts))
    except UnicodeEncodeError:
        for text in texts:
            _print(text)


def _rich_table(columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for i, name in enumerate(columns):
        table.add_column(name, justify="right" if i in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


def output_options(function: F) -> F:
    """Add `--json` and `--quiet` to a command; it receives them as `as_json` and `quiet`."""
    function = click.option("--quiet", "-q", is_flag=True, help="No notes or progress on stderr.")(function)
    return click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout and nothing else.")(
        function
    )
