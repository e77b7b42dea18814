"""A log read as a stream: known lines counted, errors that no rule knows grouped by their shape. Bounded memory.

Most lines of a server's log say nothing here, and there can be gigabytes of them. So no line is looked at as such:
each block is searched for the literals of the rules (which the interpreter does at memory speed), and only a line
that holds one is decoded and held against the patterns.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import groupby
from typing import BinaryIO, Final

from tilewright.diagnose.blocks import Blocks
from tilewright.diagnose.rules import Rule, compiled, needles
from tilewright.withheld import masked

WINDOW_BYTES: Final = 2048
"""How much of a line is looked at on either side of a literal: known messages are far shorter."""
QUOTE: Final = 400
"""Characters of a line that a report repeats."""
MAX_VARIANTS: Final = 32
"""Different sets of figures that are kept for one kind of line (need and limit in bytes, ...)."""
MAX_UNKNOWN: Final = 300
"""Shapes of unknown errors that are kept; more are counted together."""
TEMPLATE: Final = 160
"""Characters of an unknown line by which it is grouped."""
DENSE_BYTES: Final = 300
"""Bytes for one literal of an error, on average, below which a block is taken line by line."""
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_GENERATED = re.compile(r"(sm\d{2,3}_M\d{1,4}_[A-Za-z0-9_]{1,40}\.generated\.cu)")
_UNKNOWN_NEEDLES: Final = (
    b"Error", b"ERROR", b"Exception", b"FATAL", b"CRITICAL", b"error:", b"Segmentation fault",
    b"core dumped", b"panic:",
)  # fmt: skip
_UNKNOWN = re.compile(
    r"\b(?:[A-Z]\w*(?:Error|Exception)\b(?=[:(\s.]|$)|Error:|ERROR\b|FATAL\b|CRITICAL\b|error:)|Segmentation fault"
    r"|core dumped|panic:"
)
_UNKNOWN_BYTES = re.compile(b"|".join(re.escape(needle) for needle in _UNKNOWN_NEEDLES))
_STAMP = re.compile(r"^(?:\s*(?:\[[^\]]{0,60}\]|\([^)]{0,60}\)|[\d:/.,TZ+-]{6,30}(?=\s)))+\s*")
_HEX = re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-f]{12,}\b")
_PATH = re.compile(r"(?:/[\w.@%+~-]+){2,}")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_LEAD = re.compile(r"[^\d/]{0,32}")
"""What a line begins with that no substitution of `template_of` changes, but for a word of hexadecimal letters."""


@dataclass
class Hit:
    """What was found of one rule: how often, where first and last, with which figures and generated kernels."""

    rule: Rule
    count: int
    first_line: int
    last_line: int
    text: str
    figures: list[dict[str, str]] = field(default_factory=lambda: list[dict[str, str]]())
    kernels: list[str] = field(default_factory=lambda: list[str]())

    @property
    def quoted(self) -> str:
        """The first such line as inline code: nothing in it acts as Markdown."""
        return "`" + _CONTROL.sub(" ", self.text).replace("`", "'") + "`"


@dataclass
class Unknown:
    """Errors of one shape that no rule knows. `template` has numbers, paths and addresses taken out."""

    template: str
    count: int
    first_line: int
    text: str


@dataclass
class Scan:
    """What a log holds. `unknown_more` counts unknown errors of shapes beyond those that are kept."""

    lines: int = 0
    bytes: int = 0
    hits: dict[str, Hit] = field(default_factory=lambda: dict[str, Hit]())
    unknown: dict[str, Unknown] = field(default_factory=lambda: dict[str, Unknown]())
    leads: set[str] = field(default_factory=lambda: set[str]())
    """What the lines of `unknown` begin with."""
    unknown_more: int = 0


def clean(data: bytes) -> str:
    """A piece of a log as one line of text: colours and control characters gone."""
    text = data.decode("utf-8", "replace")
    return (text if text.isprintable() else _CONTROL.sub(" ", _ANSI.sub("", text))).strip()


def template_of(text: str) -> str:
    """The shape of an error line: what is left when time, numbers, paths and addresses are taken out."""
    body = _STAMP.sub("", text, count=1)
    return _NUMBER.sub("N", _PATH.sub("PATH", _HEX.sub("HEX", body)))[:TEMPLATE].strip()


_Literal = tuple[int, int, int, tuple[Rule, ...]]
"""Line start, line end, where the literal stands, rules."""


def _candidates(region: bytes, unknown: bool) -> list[_Literal]:
    """Every line with a literal of a rule (with `unknown`: or of an error that none may know), in order."""
    found: list[_Literal] = []
    size = len(region)
    for needle, meant in [*needles().items(), *((needle, ()) for needle in _UNKNOWN_NEEDLES if unknown)]:
        at = region.find(needle)
        while at >= 0:
            start = region.rfind(b"\n", 0, at) + 1
            end = region.find(b"\n", at)
            end = size if end < 0 else end
            found.append((start, end, at, meant))
            at = region.find(needle, end)
    found.sort(key=lambda item: (item[0], item[2]))
    return found


def scan(stream: BinaryIO, label: str = "log") -> Scan:
    """Everything known, and every unknown error, in `stream`.

    Raises:
        InputError: it is no text (binary, compressed, UTF-16).
    """
    result = Scan()
    blocks = Blocks(stream, label)
    ended = True
    for region in blocks:
        ended = region.endswith(b"\n")  # else the log's last line, or a piece of one that goes on in the next block
        if sum(region.count(needle) for needle in _UNKNOWN_NEEDLES) * DENSE_BYTES > len(region):
            _line_by_line(result, region)
            continue
        line, counted = result.lines, 0
        for (start, end), literals in groupby(_candidates(region, True), key=lambda item: (item[0], item[1])):
            line += region.count(b"\n", counted, start)
            counted = start
            _line(result, line + 1, region, start, end, list(literals))
        result.lines = line + region.count(b"\n", counted)
    result.lines += not ended
    result.bytes = blocks.bytes
    return result


def _line_by_line(result: Scan, region: bytes) -> None:
    """A block of which every other line is an error: going from line to line is faster than from literal to literal."""
    known: dict[int, list[_Literal]] = {}
    for item in _candidates(region, False):
        known.setdefault(item[0], []).append(item)
    lines = region.split(b"\n")
    if not lines[-1]:
        lines.pop()
    start = 0
    for number, raw in enumerate(lines, result.lines + 1):
        literals = known.get(start)
        if literals is not None or len(raw) > WINDOW_BYTES:
            unknown = [(start, start + len(raw), start + at, ()) for at in _unknown_literals(raw)]
            both = sorted([*(literals or ()), *unknown], key=lambda item: item[2])
            if both:
                _line(result, number, region, start, start + len(raw), both)
        elif _UNKNOWN_BYTES.search(raw):
            _note_unknown(result, number, clean(raw))
        start += len(raw) + 1
    result.lines += region.count(b"\n")


def _unknown_literals(raw: bytes) -> list[int]:
    """Where the first of each literal of an unknown error stands in a line."""
    return [at for at in (raw.find(needle) for needle in _UNKNOWN_NEEDLES) if at >= 0]


def _line(result: Scan, line: int, region: bytes, start: int, end: int, literals: list[_Literal]) -> None:
    """One line that holds literals: the rules that know it, or an unknown error."""
    tried: dict[str, bool] = {}
    text = ""
    for _, _, at, meant in literals:
        piece = clean(region[max(start, at - WINDOW_BYTES) : min(end, at + WINDOW_BYTES)])
        text = text or piece
        for rule in meant:
            if not tried.get(rule.id):
                tried[rule.id] = _known(result, rule, line, piece)
    if not any(tried.values()):
        _note_unknown(result, line, text)


def _known(result: Scan, rule: Rule, line: int, text: str) -> bool:
    found = compiled(rule.id).search(text)
    if found is None:
        return False
    hit = result.hits.get(rule.id)
    if hit is None:
        hit = result.hits[rule.id] = Hit(rule, 0, line, line, masked(text)[:QUOTE])
    hit.count += 1
    hit.last_line = line
    figures = {key: value.strip() for key, value in found.groupdict().items() if value is not None}
    if figures and len(hit.figures) < MAX_VARIANTS and figures not in hit.figures:
        hit.figures.append(figures)
    kernel = _GENERATED.search(text)
    if kernel and len(hit.kernels) < MAX_VARIANTS and kernel[1] not in hit.kernels:
        hit.kernels.append(kernel[1])
    return True


def _note_unknown(result: Scan, line: int, text: str) -> None:
    if _UNKNOWN.search(text) is None:
        return
    lead = _lead(text)
    if len(result.unknown) >= MAX_UNKNOWN and lead not in result.leads:
        result.unknown_more += 1  # equal shapes begin alike, so this one is not kept: no need to make it
        return
    key = template_of(text)
    item = result.unknown.get(key)
    if item is not None:
        item.count += 1
    elif len(result.unknown) < MAX_UNKNOWN:
        text = masked(text)
        result.unknown[key] = Unknown(template_of(text), 1, line, text[:QUOTE])
        result.leads.add(lead)
    else:
        result.unknown_more += 1


def _lead(text: str) -> str:
    """The beginning of an error line, such that lines of one shape have the same."""
    body = _STAMP.sub("", text, count=1).lstrip()
    found = _LEAD.match(body)
    # A number in hexadecimal may begin with letters; a word of a to f at the end may be the start of one.
    return found[0].rstrip("abcdef") if found else ""
