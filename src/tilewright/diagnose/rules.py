"""The known lines, from `data/log_rules.json`: each with its needles, its pattern, what it means and what helps.

A rule is data. A new one is an entry there, with an example that the tests hold it to.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import Literal

import msgspec

Severity = Literal["stops", "wrong", "slow", "notice", "info"]
"""Nothing is served; answers or later calls may be wrong; it works, slowly; looks bad and is not; worth knowing."""
SEVERITIES: tuple[Severity, ...] = ("stops", "wrong", "slow", "notice", "info")

Arithmetic = Literal["cutlass", "cutlass_tile", "triton", "static"]
"""Which model says how the bytes in the line come about (`tilewright.diagnose.arithmetic`)."""


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One known line. `needles` are literals of which one stands in every line that `pattern` matches; named groups of
    the pattern are figures. `source` is the public report or the source file that prints the line."""

    id: str
    needles: list[str]
    pattern: str
    severity: Severity
    title: str
    cause: str
    fix: str
    commands: list[str]
    arithmetic: Arithmetic | None
    example: str
    source: str

    @property
    def says(self) -> str:
        """What the line means, in a few words."""
        return self.title


class Need(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A count of bytes that a public report explains; `limit`: what a block of the GPU there may have. The same count
    against another limit is another kernel, with another way out."""

    need: int
    limit: int
    text: str
    source: str


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    about: str
    needs: list[Need]
    rules: list[Rule]


@cache
def _file() -> _File:
    raw = resources.files("tilewright.data").joinpath("log_rules.json").read_bytes()
    return msgspec.json.decode(raw, type=_File)


def needs() -> list[Need]:
    """Byte counts of public reports."""
    return _file().needs


@cache
def rules() -> tuple[Rule, ...]:
    """Every rule, in the order of the file."""
    return tuple(_file().rules)


@cache
def compiled(rule_id: str) -> re.Pattern[str]:
    """The pattern of a rule."""
    return re.compile(next(rule.pattern for rule in rules() if rule.id == rule_id))


@cache
def needles() -> dict[bytes, tuple[Rule, ...]]:
    """Literal -> the rules whose lines hold it."""
    table: dict[bytes, list[Rule]] = {}
    for rule in rules():
        for needle in rule.needles:
            table.setdefault(needle.encode(), []).append(rule)
    return {needle: tuple(found) for needle, found in table.items()}
