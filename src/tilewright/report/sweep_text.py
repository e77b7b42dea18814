"""A sweep's answer for people: the verdict first, then every candidate, then what failed and why."""

from __future__ import annotations

from tilewright.report.budget_text import wrapped
from tilewright.report.output import Output
from tilewright.sweep.document import Candidate, SweepDocument
from tilewright.sweep.goal import parse_goal
from tilewright.sweep.outcome import STATUSES
from tilewright.sweep.space import told

__all__ = ["print_sweep"]


def _columns(found: SweepDocument) -> list[str]:
    goal = parse_goal(found.goal)
    wanted = [goal.metric, *(item.metric for item in goal.constraints), "output_tok_s", "p95_ttft_s", "p50_tpot_s"]
    return list(dict.fromkeys(wanted))


def _state(item: Candidate) -> str:
    if item.status != "measured":
        return item.status
    return "ok" if item.feasible else "misses a limit"


def print_sweep(out: Output, found: SweepDocument) -> None:
    """Print `found`."""
    version = f" {found.engine_version}" if found.engine_version else ""
    where = found.url or "each candidate started anew"
    out.heading(f"Sweep {found.sweep}: {found.goal}, {found.engine}{version}, {found.model or 'its model'}, {where}")
    for line in wrapped(found.verdict.text, ""):
        out.line(line)
    for note in found.verdict.notes:
        out.line(f"  {note}")
    if found.stopped:
        out.line(f"  Stopped: {found.stopped}.")
    out.line()
    columns = _columns(found)
    goal = parse_goal(found.goal)
    rows: list[list[object]] = []
    for item in found.candidates:
        spread = "" if item.spread_pct is None else f"{item.spread_pct:.1f} %"
        mark = "*" if item.number == found.verdict.leader else ""
        values = [f"{item.metrics[name]:,.4g}" if name in item.metrics else "" for name in columns]
        rows.append([f"{item.number}{mark}", _state(item), len(item.runs), *values, spread, told(item.assignment)])
    right = [0, 2, *range(3, 4 + len(columns))]
    out.table(["", "state", "starts", *columns, "spread", "what varies"], rows, right)
    failed = [item for item in found.candidates if item.status != "measured"]
    if failed:
        out.line()
        out.heading("What failed")
        by_number = {run.number: run for run in found.runs}
        for item in failed:
            run = [by_number[n] for n in item.runs if by_number[n].outcome.status != "measured"][-1]
            out.line(f"  {item.number} ({told(item.assignment)}): {run.outcome.reason or STATUSES[run.outcome.status]}")
            for said in run.outcome.explained:
                out.line(f"    > {said.line}")
                for text in (said.cause, said.fix):
                    for line in wrapped(text, "    ") if text else ():
                        out.line(line)
            if run.outcome.log:
                out.line(f"    log: {run.outcome.log}")
    doubtful = [item for item in found.candidates if item.marks]
    if doubtful:
        out.line()
        out.heading("Doubtful figures")
        for item in doubtful:
            out.line(f"  {item.number}: {'; '.join(item.marks)}")
    if found.launch:
        out.line()
        out.heading("The best, as it was started")
        out.line(f"  {found.launch}")
    out.line()
    total = "" if found.space_size is None else f" of {found.space_size:,.0f} in the space"
    out.line(
        f"{len(found.candidates):,} candidates{total}, {len(found.runs):,} runs, {found.seconds / 60:,.1f} min, "
        f"load by {found.generator}. All figures are measured; {goal.metric} is the mean over all repeats."
    )
    if found.journal_entry is not None:
        out.line(f"Journal entry {found.journal_entry}.")
    for note in found.notes:
        out.note(note)
    out.note(f"Kept in {found.store}")
