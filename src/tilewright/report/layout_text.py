"""The answer of `layout` as text: the best layout, its memory, the ranks at each number of requests, the losers."""

from __future__ import annotations

from tilewright.report.output import Output
from tilewright.serving.layout import Layout, LayoutAnswer, Parts

GIB = 1 << 30
SHOWN = 8
"""Layouts of each kind that are shown unless all are asked for."""


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
        rows.append([layout.name, *cells, ttft, f"{layout.kv_tokens or 0:,}"])
    out.table(
        ["layout", *(f"c{count}" for count in counts), "TTFT s", "KV tokens"], rows,
        right=range(1, len(counts) + 3),
    )  # fmt: skip
    marks = ["* most tokens a second at that number of requests, of equals within 2 % the simplest"]
    if any(speed.running < speed.concurrency for layout in chosen for speed in layout.speeds):
        marks.append("! its cache does not hold them all at once: the others wait")
    out.line(f"tok/s of all requests together at {answer.context:,} tokens of context (modelled). {'; '.join(marks)}.")


def _memory(out: Output, best: Layout, parts: Parts) -> None:
    out.heading(f"Memory of the fullest GPU, {best.name} (GiB)")
    rows = [
        ["card", _gib(parts.total), "exact"],
        ["weights, tensors", _gib(parts.weights), "exact"],
        ["held beside them once loaded", _gib(parts.loading), "modelled"],
        ["weights as the engine reports them", _gib(parts.weights_reported), ""],
        ["CUDA context and communication buffers", _gib(parts.context), "from a published log"],
        ["activations", _gib(parts.activations), "modelled"],
        ["CUDA graphs", _gib(parts.cuda_graphs), "modelled"],
        ["KV cache", _gib(parts.kv), f"{best.kv_bytes_per_token or 0:,} bytes a token"],
        ["nobody counts on", _gib(parts.free), ""],
    ]
    out.table(["part", "GiB", ""], rows, right=[1])
    held = ", ".join(f"{room.requests:,} of {room.context:,}" for room in best.room)
    shared = "; every rank holds the same cache" if best.kv_replicated else ""
    out.line(f"Cache: {best.kv_tokens or 0:,} tokens{shared}. Requests that fit by tokens each: {held}.")


def print_layouts(out: Output, answer: LayoutAnswer, *, everything: bool = False) -> None:
    """The whole answer on stdout."""
    out.heading(f"{answer.model} ({answer.checkpoint}) on {answer.gpus}x {answer.gpu}, {answer.engine}")
    given = f"{answer.mem_fraction:g}" if answer.mem_fraction is not None else "unknown"
    out.line(
        f"  KV cache {answer.kv_layout}, memory fraction {given} ({answer.mem_fraction_source}); "
        f"goal: {answer.goal} at {answer.at:,} request{'s' if answer.at > 1 else ''}"
    )
    for note in answer.notes:
        out.line(f"  {note}")
    counts = answer.counts
    out.line(f"  {counts['fits']} layouts fit, {counts['too_big']} do not, {counts['illegal']} cannot be cut this way.")
    fitting = [item for item in answer.layouts if item.status == "fits"]
    if fitting:
        out.line()
        shown = fitting if everything else _worth_showing(answer, fitting)
        _speeds(out, answer, shown)
        best = fitting[0]
        if best.memory is not None:
            out.line()
            _memory(out, best, best.memory)
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
            out.line(
                f"Ceiling: {best.limit_tok_s:,.0f} tok/s if every byte and multiplication ran at the hardware's rates "
                f"(no launch, wait or gap); the model is at {speed.tok_s / best.limit_tok_s:.0%} of it."
            )
        out.line()
        out.heading("Why the others lose")
        losing = [item for item in shown if item is not best]
        for item in losing:
            missed = "" if item.meets is not False else " It misses the limits."
            out.line(f"  {item.name}: {item.why}.{missed}")
        if best.launch:
            out.line()
            out.heading("Launch")
            out.line(f"  {best.launch}")
        for note in best.notes:
            out.line(f"  Note: {note}.")
    rest = [item for item in answer.layouts if item.status != "fits"]
    if rest:
        out.line()
        out.heading("Out of the question")
        for item in rest if everything else rest[:SHOWN]:
            out.line(f"  {item.name}: {item.why}.")
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
