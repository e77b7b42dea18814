"""`tilewright tune` for a reader, and its progress while it runs."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tilewright.report.output import Output

if TYPE_CHECKING:
    from tilewright.tune.document import Tuned, TuneDocument
    from tilewright.tune.layer import Problem
    from tilewright.tune.run import Outcome
    from tilewright.tune.trials import Trial

_SHORT = {
    "BLOCK_SIZE_M": "M", "BLOCK_SIZE_N": "N", "BLOCK_SIZE_K": "K", "GROUP_SIZE_M": "group", "num_warps": "warps",
    "num_stages": "stages",
}  # fmt: skip


def config_text(config: dict[str, int] | None) -> str:
    """`M 16, N 128, K 128, group 1, warps 4, stages 2`."""
    if config is None:
        return "none ran"
    return ", ".join(f"{_SHORT.get(name, name)} {value}" for name, value in config.items())


class Progress:
    """How a run goes, on stderr: a bar with an estimate on a terminal, a line for each number of tokens elsewhere."""

    def __init__(self, out: Output, problems: int, trials_each: int) -> None:
        self._out, self._total = out, problems * trials_each
        self._each = trials_each
        self._bar: Any = None
        self._task: Any = None
        self._begun = time.monotonic()
        self._done = 0
        self._finished = 0
        self._inside: dict[int, int] = {}

    def __enter__(self) -> Self:
        if not self._out.quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task("trials", total=self._total)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def trial(self, problem: Problem, trial: Trial, reused: bool) -> None:
        """One trial more."""
        self._done += not reused
        self._inside[problem.tokens] = self._inside.get(problem.tokens, 0) + 1
        if self._bar is not None:
            self._bar.update(self._task, advance=1, description=f"M={problem.tokens}")

    def outcome(self, outcome: Outcome) -> None:
        """One number of tokens is done: its winner, and how long the rest may take at the pace so far."""
        self._finished += self._each
        self._inside.pop(outcome.problem.tokens, None)
        if self._bar is not None:
            self._bar.update(self._task, completed=self._finished + sum(self._inside.values()))
        best = outcome.best
        text = f"M={outcome.problem.tokens}: "
        text += f"{(best.time_s or 0) * 1e6:,.1f} us, {config_text(best.config)}" if best else "no config ran"
        reused = f", {outcome.reused} from the store" if outcome.reused else ""
        text += f" ({outcome.trials} trials{reused})"
        left = (self._total - self._finished) * (time.monotonic() - self._begun) / max(1, self._finished)
        if self._finished < self._total and self._done:
            text += f"; about {left:,.0f} s left"
        if self._bar is not None:
            self._bar.console.print(text, highlight=False)
        else:
            self._out.note(text)


def _row(item: Tuned) -> list[str]:
    faults = ", ".join(f"{count} {name}" for name, count in item.faults.items())
    return [
        str(item.tokens),
        "" if item.time_s is None else f"{item.time_s * 1e6:,.1f}",
        "" if item.up_s is None else f"{item.up_s * 1e6:,.1f}",
        "" if item.down_s is None else f"{item.down_s * 1e6:,.1f}",
        config_text(item.config),
        "" if item.next_ratio is None else f"{item.next_ratio:.3f}x",
        str(item.trials) + (f" + {item.reused}" if item.reused else ""),
        faults,
    ]


def show(document: TuneDocument, out: Output) -> None:
    """The document as text."""
    layer = document.layer
    out.heading(
        f"{document.kernel}, {layer['dtype']}: {layer['experts']} experts, hidden {layer['hidden']:,}, inter "
        f"{layer['inter']:,}, top {layer['topk']}, on {document.device_name or document.gpu}"
    )
    out.line(f"Kernel: {document.kernel_source}.")
    space = document.space
    out.line(f"Space: {space.total:,} configs, {space.kept:,} can run; up to {space.looked_at:,} trials each M.")
    for reason, count in space.dropped.items():
        out.line(f"  {count:6,} out: {reason}")
    if document.mode == "compile only":
        _show_compiled(document, out)
        return
    out.line()
    columns = ("tokens", "us", "up", "down", "best config", "next", "trials", "faults")
    out.table(columns, [_row(item) for item in document.results], right=(0, 1, 2, 3, 5))
    for item in document.elsewhere:
        out.line(
            f"The winner at {item.best_at} tokens takes {item.ratio:.2f}x the time of the winner at {item.tokens}."
        )
    if document.unfinished:
        counts = ", ".join(str(count) for count in document.unfinished)
        out.line(f"Not finished for {counts} tokens: the time was up; --resume goes on where it was.")
    out.line()
    out.line(f"Measured in {document.elapsed_s:,.1f} s on {', '.join(document.workers) or 'no worker'}.")
    for file in document.files:
        seen = f" (read by {file.seen_by})" if file.seen_by else ""
        out.line(f"Wrote {file.path}{seen}")
    for note in document.notes:
        out.line(note)


def _show_compiled(document: TuneDocument, out: Output) -> None:
    compiled = document.compiled
    out.line()
    if compiled is not None:
        done = compiled.builds - compiled.failed
        out.line(f"Compiled {done:,} of {compiled.builds:,} builds in {compiled.seconds:,.1f} s.")
        for reason, count in compiled.failures.items():
            out.line(f"  {count:6,} refused: {reason}")
    for tokens, configs in document.first_choices.items():
        out.line(f"M={tokens}: the model would begin with {config_text(configs[0])}.")
    for note in document.notes[-1:]:
        out.line(note)
