"""`tilewright bench` for a reader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.report.output import Output

if TYPE_CHECKING:
    from tilewright.bench.document import BenchDocument, BenchLine, Prediction

_COLUMNS = ("backend", "us", "+-%", "TB/s", "TFLOP/s", "of published", "of read", "vs best", "error", "remarks")


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def _of_read(line: BenchLine) -> str:
    """The share of the read limit; nothing where operations take longer than reading and it says nothing."""
    bound_by_work = (line.published_limit_s or 0.0) > (line.read_limit_s or 0.0)
    return "" if bound_by_work else _share(line.of_read_limit)


def _predicted(said: Prediction, within: bool | None) -> str:
    low, time, high = (f"{value * 1e6:,.1f}" for value in (said.low_s, said.time_s, said.high_s))
    return f"predicted {time} us ({low} to {high}, {said.basis}): {'within' if within else 'outside of'} these bounds"


def _row(line: BenchLine) -> list[str]:
    result = line.result
    spread = ""
    if result.time_s and result.low_s is not None and result.high_s is not None:
        spread = f"{(result.high_s - result.low_s) / 2 / result.time_s * 100:.1f}"
    remarks = [] if result.status == "ok" else [result.status]
    remarks += [*result.marks, *([result.note] if result.note else [])]
    return [
        result.backend,
        "" if result.time_s is None else f"{result.time_s * 1e6:,.2f}",
        spread,
        "" if line.bandwidth_tbs is None else f"{line.bandwidth_tbs:.2f}",
        "" if line.tflops is None else f"{line.tflops:,.1f}",
        _share(line.of_published_limit),
        _of_read(line),
        "" if line.ratio_to_best is None else f"{line.ratio_to_best:.2f}x",
        "" if result.error is None else f"{result.error:.1e}",
        ", ".join(remarks),
    ]


def show(document: BenchDocument, out: Output) -> None:
    """A table for each problem, then who could not take part."""
    driver = f", driver {document.driver}" if document.driver else ""
    out.line(f"Measured on {document.device_name}{driver}; medians, cold L2 where no remark says otherwise.")
    groups: dict[str, list[BenchLine]] = {}
    for line in document.lines:
        result = line.result
        title = f"{result.kind}: " + " ".join(f"{key}={value}" for key, value in result.problem.items())
        groups.setdefault(title, []).append(line)
    for title, lines in groups.items():
        out.line()
        out.heading(title)
        limits = [
            f"{name} {value * 1e6:,.2f} us"
            for name, value in (
                ("published limit", lines[0].published_limit_s),
                ("reading these weights, measured", lines[0].read_limit_s),
            )
            if value is not None
        ]
        if limits:
            out.line("; ".join(limits))
        if (predicted := lines[0].predicted) is not None:
            out.line(_predicted(predicted, lines[0].within))
        out.table(_COLUMNS, [_row(line) for line in lines], right=range(1, 9))
    if document.missing:
        out.line()
        out.line("Not measured: " + "; ".join(f"{name}: {why}" for name, why in document.missing.items()) + ".")
    if document.store:
        out.note(f"Results kept in {document.store}; `tilewright results` lists and compares them.")
