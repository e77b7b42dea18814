"""The answer of `layout` as text: the best layout, its memory, the ranks at each number of requests, the losers."""

from __future__ import annotations

import textwrap

from tilewright.report.output import Output
from tilewright.serving.layout import Layout, LayoutAnswer, Parts

GIB = 1 << 30
SHOWN = 8
"""Layouts of each kind that are shown unless all are asked for."""


WIDTH = 100


def _say(out: Output, text: str, indent: str = "", rest: str | None = None) -> None:
    """A paragraph in lines of at most WIDTH; `rest`: the indent of the lines after the first."""
    for line in textwrap.wrap(
        text, WIDTH, initial_indent=indent, subsequent_indent=indent if rest is None else rest,
        break_long_words=False, break_on_hyphens=False,
    ):  # fmt: skip
        out.line(line)


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _sharing(layout: Layout) -> str:
    """Which ranks hold the same cache."""
    ranks = layout.tp // layout.attention_dp
    if not layout.kv_replicated:
        return ""
    if ranks == layout.tp * layout.pp * layout.copies:
        return "; every GPU holds the same cache"
    return f"; the {ranks:,} GPUs that share an attention hold the same cache"


def _gib(size: int) -> str:
    return f"{size / GIB:,.2f}"


def _speeds(out: Output, answer: LayoutAnswer, chosen: list[Layout]) -> None:
    counts = [speed.concurrency for speed in chosen[0].speeds]
    rows: list[list[str]] = []
    for layout in chosen:
        cells: list[str] = []
        for speed in layout.speeds:
            star = "*" if answer.best.get(str(speed.concurrency)) == layout.name else ""
            short = "" if speed.running == speed.concurrency else "!"
            cells.append(f"{speed.tok_s:,.0f}{short}{star}")
        ttft = f"{layout.ttft_s:,.2f}" if layout.ttft_s is not None else ""
        rows.append([layout.name, *cells, ttft, "unknown" if layout.kv_tokens is None else f"{layout.kv_tokens:,}"])
    out.table(
        ["layout", *(f"c{count}" for count in counts), "TTFT s", "KV tokens"], rows,
        right=range(1, len(counts) + 3),
    )  # fmt: skip
    marks = ["* most tokens a second at that number of requests, of equals within 2 % the simplest"]
    if any(speed.running < speed.concurrency for layout in chosen for speed in layout.speeds):
        marks.append("! its cache does not hold them all at once: the others wait")
    _say(out, f"tok/s of all requests together at {answer.context:,} tokens of context (modelled). {'; '.join(marks)}.")


def _a_token(layout: Layout) -> str:
    size = layout.kv_bytes_per_token
    return "bytes a token not known" if size is None else f"{size:,} bytes a token"


def _memory(out: Output, answer: LayoutAnswer, best: Layout, parts: Parts) -> None:
    out.heading(f"Memory of the fullest GPU, {best.name} (GiB)")
    nameplate = answer.gpu_memory_source.startswith("the nameplate")
    card = "nameplate as GiB: up to 1% too much" if nameplate else answer.gpu_memory_source
    rows = [
        ["card", _gib(parts.total), card],
        ["weights, tensors", _gib(parts.weights), "exact"],
        ["held beside them once loaded", _gib(parts.loading), "modelled"],
        ["weights as the engine reports them", _gib(parts.weights_reported), ""],
        ["CUDA context and communication buffers", _gib(parts.context), "modelled, from a published log"],
        ["activations", _gib(parts.activations), "modelled"],
        ["CUDA graphs", _gib(parts.cuda_graphs), "modelled"],
        ["KV cache", _gib(parts.kv), _a_token(best)],
        ["nobody counts on", _gib(parts.free), ""],
    ]
    out.table(["part", "GiB", ""], rows, right=[1])
    if best.kv_tokens is None:
        asked = f"the launch line has the {best.max_context or 0:,} that were asked"
        _say(out, f"Cache: how many tokens it holds is not known; {asked}.")
        return
    held = ", ".join(f"{room.requests:,} of {room.context:,}" for room in best.room)
    _say(out, f"Cache: {best.kv_tokens or 0:,} tokens{_sharing(best)}. Requests that fit by tokens each: {held}.")


def print_layouts(out: Output, answer: LayoutAnswer, *, everything: bool = False) -> None:
    """The whole answer on stdout."""
    out.heading(f"{answer.model} ({answer.checkpoint}) on {answer.gpus}x {answer.gpu}, {answer.engine}")
    given = f"{answer.mem_fraction:g}" if answer.mem_fraction is not None else "unknown"
    _say(
        out,
        f"KV cache {answer.kv_layout}, memory fraction {given} ({answer.mem_fraction_source}); "
        f"goal: {answer.goal} at {_count(answer.at, 'request', 'requests')}",
        "  ",
    )
    for note in answer.notes:
        _say(out, note, "  ")
    counts = answer.counts
    out.line(
        f"  {_count(counts['fits'], 'layout fits', 'layouts fit')}, "
        f"{_count(counts['too_big'], 'does', 'do')} not, {counts['illegal']:,} cannot be cut this way."
    )
    fitting = [item for item in answer.layouts if item.status == "fits"]
    if fitting:
        out.line()
        shown = fitting if everything else _worth_showing(answer, fitting)
        _speeds(out, answer, shown)
        best = fitting[0]
        if best.memory is not None:
            out.line()
            _memory(out, answer, best, best.memory)
        out.line()
        out.heading(f"Where a step's time goes, {best.name}, {answer.at:,} request{'s' if answer.at > 1 else ''}")
        total = sum(term.time_s for term in best.terms)
        out.table(
            ["term", "ms", "share"],
            [[term.name, f"{term.time_s * 1e3:,.2f}", f"{term.time_s / total:.0%}"] for term in best.terms],
            right=[1, 2],
        )
        if best.limit_tok_s:
            speed = next(item for item in best.speeds if item.concurrency == answer.at)
            _say(
                out,
                f"Ceiling: {best.limit_tok_s:,.0f} tok/s if every byte and multiplication ran at the hardware's rates "
                f"(no launch, wait or gap); the model is at {speed.tok_s / best.limit_tok_s:.0%} of it.",
            )
        else:
            _say(out, f"No ceiling: a rate of the {answer.gpu} that it needs was never published.")
        losing = [item for item in shown if item is not best]
        if losing:
            out.line()
            out.heading("Why the others lose")
        for item in losing:
            missed = "" if item.meets is not False else " It misses the limits."
            _say(out, f"{item.name}: {item.why}.{missed}", "  ", "    ")
        if best.launch:
            out.line()
            out.heading("Launch")
            out.line(f"  {best.launch}")  # one line, to be copied
        for note in best.notes:
            _say(out, f"Note: {note}.", "  ", "    ")
    rest = [item for item in answer.layouts if item.status != "fits"]
    if rest:
        out.line()
        out.heading("Out of the question")
        for item in rest if everything else rest[:SHOWN]:
            _say(out, f"{item.name}: {item.why}.", "  ", "    ")
        if not everything and len(rest) > SHOWN:
            out.line(f"  and {len(rest) - SHOWN} more (--all shows them).")


def _worth_showing(answer: LayoutAnswer, fitting: list[Layout]) -> list[Layout]:
    """The first ones, those that are best somewhere, and the first of each kind of layout."""
    chosen = list(fitting[: SHOWN - 3])
    winners = set(answer.best.values())
    chosen += [item for item in fitting if item.name in winners and item not in chosen]
    for kind in ("pp", "ep", "dcp", "attention_dp", "copies"):
        if not any(getattr(item, kind) > 1 for item in chosen):
            chosen += [item for item in fitting if getattr(item, kind) > 1][:1]
    order = {item.name: i for i, item in enumerate(fitting)}
    return sorted({item.name: item for item in chosen}.values(), key=lambda item: order[item.name])
