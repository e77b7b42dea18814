"""Results of the same problem beside each other: by backend, driver, version, GPU, config or day. Pure functions.

What is not compared is the same within a row: one GPU unless GPUs are compared, one backend unless backends are. Else a
store that holds several GPUs' results would set one's kernel against another's.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import Any, Literal

import msgspec

from tilewright.errors import InputError
from tilewright.store.result import Result, Stored, key_of

By = Literal["backend", "gpu", "driver", "config", "version", "day"]
BYS: tuple[By, ...] = ("backend", "gpu", "driver", "config", "version", "day")


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """What one group measured of one problem: its best config's median over `results` runs, with their spread. Runs
    with marks count only where there are no others."""

    group: str
    time_s: float
    low_s: float
    high_s: float
    results: int
    config: dict[str, Any]
    marks: list[str]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One problem. `ratio` is each group's time over that of `reference`; `apart` whether their spreads do not meet.
    `gpu`, `backend`: of all that is in the row; empty where that is what is compared."""

    kind: str
    problem: dict[str, Any]
    gpu: str = ""
    backend: str = ""
    cells: list[Cell]
    reference: str
    ratio: dict[str, float]
    apart: dict[str, bool]


class Comparison(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="tilewright/results-compare/1"):
    """`groups` in the order of the columns; a row is compared with the first of them that measured it."""

    by: str
    groups: list[str]
    rows: list[Row]
    left_out: int
    """Results without a time (failed, refused) or whose answer was wrong."""


def group_of(result: Result, by: By) -> str:
    """The name of the group that `result` belongs to."""
    where = result.environment
    if by == "backend":
        return result.backend
    if by == "gpu":
        return str(where.get("gpu", "unknown"))
    if by == "driver":
        return str(where.get("driver", "unknown"))
    if by == "day":
        return result.at[:10]
    if by == "version":
        versions = where.get("versions")
        named: Any = versions.get(result.backend) if isinstance(versions, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        return f"{result.backend} {named or 'unknown'}"
    return key_of(result.config)


def _held(result: Result, by: By) -> tuple[str, str]:
    """(GPU, backend) of the row that `result` belongs to."""
    return (
        "" if by == "gpu" else group_of(result, "gpu"),
        "" if by == "backend" else result.backend,
    )


def _cell(group: str, results: list[Result]) -> Cell:
    """The best config of the group: the one whose median over its runs is shortest."""
    configs: dict[str, list[Result]] = {}
    for result in [result for result in results if not result.marks] or results:
        configs.setdefault(key_of(result.config), []).append(result)
    best = min(configs.values(), key=lambda runs: median(_time(run) for run in runs))
    times = [_time(run) for run in best]
    return Cell(
        group=group,
        time_s=median(times),
        low_s=min([*times, *(run.low_s for run in best if run.low_s is not None)]),
        high_s=max([*times, *(run.high_s for run in best if run.high_s is not None)]),
        results=len(best),
        config=best[0].config,
        marks=sorted({mark for run in best for mark in run.marks}),
    )


def _time(result: Result) -> float:
    assert result.time_s is not None
    return result.time_s


def compare(stored: Iterable[Stored], by: By = "backend", baseline: str | None = None) -> Comparison:
    """Problems that more than one group measured, each group's best beside the others'.

    Raises:
        InputError: no group is called `baseline`.
    """
    left_out = 0
    problems: dict[tuple[str, str, str, str], dict[str, list[Result]]] = {}
    for item in stored:
        result = item.result
        if result.status != "ok" or result.time_s is None:
            left_out += 1
            continue
        groups = problems.setdefault((result.kind, *_held(result, by), key_of(result.problem)), {})
        groups.setdefault(group_of(result, by), []).append(result)
    names = sorted({name for groups in problems.values() for name in groups})
    if baseline is not None:
        if baseline not in names:
            known = ", ".join(names) or "none: no result is left to compare"
            raise InputError("baseline", f"No {by} is called {baseline!r} among these results; there are: {known}.")
        names = [baseline, *(name for name in names if name != baseline)]
    rows = list[Row]()
    for (kind, gpu, backend, _), groups in problems.items():
        if len(groups) < 2 or (baseline is not None and baseline not in groups):
            continue
        cells = [_cell(name, groups[name]) for name in names if name in groups]
        first, rest = cells[0], cells[1:]
        rows.append(
            Row(
                kind=kind,
                gpu=gpu,
                backend=backend,
                problem=next(iter(groups.values()))[0].problem,
                cells=cells,
                reference=first.group,
                ratio={cell.group: cell.time_s / first.time_s for cell in rest if first.time_s},
                apart={cell.group: cell.low_s > first.high_s or cell.high_s < first.low_s for cell in rest},
            )
        )
    return Comparison(by=by, groups=names, rows=rows, left_out=left_out)
