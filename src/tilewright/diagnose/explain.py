"""A scanned log as a report: what stops the server first, each finding with cause, arithmetic, fix and source."""

from __future__ import annotations

from typing import BinaryIO

import msgspec

from tilewright.diagnose.arithmetic import arithmetic
from tilewright.diagnose.rules import SEVERITIES
from tilewright.diagnose.scan import Hit, Scan, scan

UNKNOWN_SHOWN = 20
"""Shapes of unknown errors that a report carries, most frequent first."""


class Fix(msgspec.Struct, frozen=True):
    """What helps. Capitals in a command stand for what only the reader knows."""

    text: str
    commands: list[str] = []


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of line. `count` how often it stands there, `example` the first one, `figures` what it prints.

    `arithmetic` is exact: the models' own count for the bytes in the line. `source` is published: the report or the
    source file that the cause rests on.
    """

    id: str
    severity: str
    title: str
    count: int
    first_line: int
    last_line: int
    example: str
    figures: list[dict[str, str]]
    kernels: list[str]
    cause: str
    arithmetic: list[str]
    fix: Fix
    source: str


class UnknownError(msgspec.Struct, frozen=True, kw_only=True):
    """Errors of one shape that no rule knows; `template` has numbers, paths and addresses taken out."""

    template: str
    count: int
    first_line: int
    example: str


class Explanation(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="tilewright/explain/1"):
    """The report on one log. `unknown_more` counts unknown errors beyond those listed."""

    source: str
    lines: int
    bytes: int
    findings: list[Finding]
    unknown: list[UnknownError]
    unknown_more: int


def _finding(hit: Hit) -> Finding:
    rule = hit.rule
    return Finding(
        id=rule.id,
        severity=rule.severity,
        title=rule.title,
        count=hit.count,
        first_line=hit.first_line,
        last_line=hit.last_line,
        example=hit.text,
        figures=hit.figures,
        kernels=hit.kernels,
        cause=rule.cause,
        arithmetic=arithmetic(hit),
        fix=Fix(rule.fix, rule.commands),
        source=rule.source,
    )


def report(found: Scan, source: str) -> Explanation:
    """What `found` says, worst first and in the order of the log among equals."""
    hits = sorted(found.hits.values(), key=lambda hit: (SEVERITIES.index(hit.rule.severity), hit.first_line))
    unknown = sorted(found.unknown.values(), key=lambda item: (-item.count, item.first_line))
    return Explanation(
        source=source,
        lines=found.lines,
        bytes=found.bytes,
        findings=[_finding(hit) for hit in hits],
        unknown=[
            UnknownError(template=item.template, count=item.count, first_line=item.first_line, example=item.text)
            for item in unknown[:UNKNOWN_SHOWN]
        ],
        unknown_more=sum(item.count for item in unknown[UNKNOWN_SHOWN:]) + found.unknown_more,
    )


def explain(stream: BinaryIO, source: str = "log") -> Explanation:
    """Read a log from `stream` (bytes) and explain it. Raises InputError where it is no text."""
    return report(scan(stream, source), source)
