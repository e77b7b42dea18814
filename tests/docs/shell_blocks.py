"""The commands of the documentation: read out of fenced blocks, split as a shell would, run in this process.

    ```sh                      every line is a command; `\\` continues it, `#` starts a comment
    tilewright gpus h200
    ```
    ```text                    what the block before it prints; a line `...` stands for any number of
    ```                        lines, and at the end of a line for the rest of it

A comment on the line before a block says what it needs beyond this machine (`<!-- needs: gpu -->`) and which exit
status its last command ends with (`<!-- exit: 1 -->`). Blocks whose need is not there are parsed all the same: the
commands and options in them have to exist.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^```(\w*)\s*$")
MARK = re.compile(r"^<!--\s*(.*?)\s*-->\s*$")
TILEWRIGHT = "tilewright"


@dataclass(frozen=True)
class Block:
    """One `sh` or `python` block and what is said about it."""

    file: Path
    line: int
    language: str
    text: str
    needs: frozenset[str]
    exit: int
    expected: str | None

    @property
    def where(self) -> str:
        return f"{self.file.name}:{self.line}"


def blocks(file: Path) -> list[Block]:
    """Every `sh` and `python` block of a page, each with the `text` block that follows it."""
    lines = file.read_text("utf-8").splitlines()
    found: list[Block] = []
    marks: dict[str, str] = {}
    number = 0
    while number < len(lines):
        line = lines[number]
        mark, fence = MARK.match(line), FENCE.match(line)
        number += 1
        if mark:
            for part in mark[1].split(";"):
                key, _, value = part.partition(":")
                marks[key.strip()] = value.strip()
        elif fence:
            start = number
            while not lines[number].startswith("```"):
                number += 1
            text = "\n".join(lines[start:number])
            number += 1
            if fence[1] in ("sh", "python"):
                needs = frozenset(item.strip() for item in marks.get("needs", "").split(",") if item.strip())
                found.append(Block(file, start, fence[1], text, needs, int(marks.get("exit", "0")), None))
            elif fence[1] == "text" and found and "output" not in marks and _follows(lines, found[-1], start):
                last = found.pop()
                found.append(Block(file, last.line, last.language, last.text, last.needs, last.exit, text))
            marks = {}
        elif line.strip():
            marks = {}
    return found


def _follows(lines: list[str], block: Block, start: int) -> bool:
    """Whether nothing but blank lines stands between the block and the fence before line `start`."""
    end = block.line + block.text.count("\n") + 2
    return not any(line.strip() for line in lines[end : start - 1])


@dataclass(frozen=True)
class Command:
    """One command: its words, and the file that its output goes to."""

    words: tuple[str, ...]
    to: str | None = None
    piped: bool = False
    """Whether it stands in a pipeline: what it reads or writes is not its own."""


def commands(block: Block) -> list[Command]:
    """The commands of a `sh` block, those of a pipeline one by one."""
    joined = re.sub(r"\\\n\s*", " ", block.text)
    made: list[Command] = []
    for line in joined.splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|;<>&")
        lexer.whitespace_split = True
        lexer.commenters = "#"
        words = list(lexer)
        if not words:
            continue
        assert not {";", "&&", "||", "&"} & set(words), f"{block.where}: one command a line"
        pipeline: list[list[str]] = [[]]
        for word in words:
            if word == "|":
                pipeline.append([])
            else:
                pipeline[-1].append(word)
        for part in pipeline:
            to = None
            if ">" in part:
                place = part.index(">")
                to, part = part[place + 1], part[:place]
            made.append(Command(tuple(part), to, len(pipeline) > 1))
    return made


NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
MODELLED = ("modelled", "predicted")
NEAR, FEW = 0.1, 3
"""How far a modelled figure may have moved since the page was written: a new fit of the model moves it a little."""


def same(wanted: str, given: str) -> bool:
    """Whether a printed line is the one that is shown."""
    if wanted.endswith("..."):
        return given.startswith(wanted[:-3].rstrip())
    if given == wanted or not any(word in wanted for word in MODELLED):
        return given == wanted
    pairs = zip(NUMBER.findall(wanted), NUMBER.findall(given), strict=False)
    near = all(abs(a - b) <= max(FEW, NEAR * abs(a)) for a, b in ((_number(x), _number(y)) for x, y in pairs))
    return near and NUMBER.sub("#", wanted) == NUMBER.sub("#", given)


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def matches(expected: str, found: str) -> str | None:
    """None where `found` is what `expected` shows, else the first line of it that is missing or in the wrong place."""
    wanted = [line.rstrip() for line in expected.splitlines()]
    given = [line.rstrip() for line in found.splitlines()]
    dates = re.compile(r"\b20\d\d-\d\d-\d\d\b")
    wanted, given = ([dates.sub("DATE", line) for line in lines] for lines in (wanted, given))
    while given and not given[-1]:
        given.pop()
    chunks: list[list[str]] = [[]]
    for line in wanted:
        if line.strip() == "...":
            chunks.append([])
        else:
            chunks[-1].append(line)
    place = 0
    for number, chunk in enumerate(chunks):
        first, last = number == 0, number == len(chunks) - 1
        if last and not first:
            starts = range(len(given) - len(chunk), len(given) - len(chunk) + 1) if chunk else range(place, place + 1)
        else:
            starts = range(place, place + 1) if first else range(place, len(given) - len(chunk) + 1)
        best = -1
        for start in starts:
            window = given[start : start + len(chunk)] if start >= place else []
            equal = next((i for i, line in enumerate(chunk) if i >= len(window) or not same(line, window[i])), None)
            if equal is None:
                place, best = start + len(chunk), -1
                break
            best = max(best, equal)
        else:
            return chunk[max(best, 0)]
    if chunks[-1] == [] or place == len(given):
        return None
    return f"(nothing more; printed: {given[place]})"
