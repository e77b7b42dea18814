"""The answer of `flags --advise` as text."""

from __future__ import annotations

from typing import Final

from tilewright.report.budget_text import wrapped
from tilewright.report.output import Output
from tilewright.serving.advice.answer import Advice, Effect, Judged, Suggestion

_ACTIONS: Final = {"set": "set", "change": "change", "remove": "remove", "try": "try"}
_TITLES: Final = {"sglang": "SGLang", "vllm": "vLLM"}


def print_advice(out: Output, made: Advice) -> None:
    """What to set and why, what to try, what of the user's line does nothing, and the launch line."""
    title = f"{_TITLES[made.engine]} {made.version or '(version not said)'}"
    out.heading(f"{made.checkpoint} on {made.gpus}x {made.gpu}, {made.layout}, {title}")
    many = "request" if made.concurrency == 1 else "requests"
    out.line(f"For {made.goal} at {made.concurrency:,} {many} of {made.context:,} tokens. Layout: {made.layout_why}.")
    if made.judged:
        out.line()
        out.heading("Your launch line")
        for item in made.judged:
            _print_judged(out, item)
    for heading, items in (
        ("Set", [item for item in made.suggestions if item.action != "try"]),
        ("Worth a measurement, not in the line", [item for item in made.suggestions if item.action == "try"]),
    ):
        if items:
            out.line()
            out.heading(heading)
            for item in items:
                _print_suggestion(out, item)
    if made.left:
        out.line()
        out.heading("Left as it is")
        for item in made.left:
            _print_wrapped(out, f"  {item.flag or item.concept}: {item.why}.")
    out.line()
    out.heading(f"Predicted, against {made.compared_with} (modelled)")
    out.table(
        ["requests", "running", "tok/s", "as advised", "bounds", "ms a token"],
        [
            [
                f"{rate.concurrency:,}",
                f"{rate.running_now:,} -> {rate.running:,}",
                f"{rate.tok_s_now:,.1f}",
                f"{rate.tok_s:,.1f}",
                f"{rate.low_tok_s:,.0f} to {rate.high_tok_s:,.0f}",
                f"{rate.tpot_s * 1e3:.1f}",
            ]
            for rate in made.rates
        ],
    )
    cache = "how many tokens the cache holds is not known" if made.kv_tokens is None else ""
    cache = cache or f"{made.kv_tokens:,} tokens of cache"
    out.line(
        f"First token of a prompt of {made.prompt_tokens:,}: {made.ttft_now_s:.2f} -> {made.ttft_s:.2f} s "
        f"({made.ttft_low_s:.2f} to {made.ttft_high_s:.2f}); "
        f"{cache}, one request up to {made.max_context:,}."
    )
    out.line()
    checked = "accepted by" if made.launch_checked else "as far as it could be followed accepted by"
    out.heading(f"Launch line, {checked} the parser of {title}")
    out.line(made.launch)
    for note in made.notes:
        out.note(note)


def _print_wrapped(out: Output, text: str) -> None:
    first, *rest = wrapped(text.strip(), "      ")
    out.line("  " + first.strip())
    for line in rest:
        out.line(line)


def _print_judged(out: Output, item: Judged) -> None:
    instead = f" Instead: {' '.join(item.instead)}." if item.instead and " ".join(item.instead) not in item.text else ""
    source = f" ({item.source})" if item.source else ""
    _print_wrapped(out, f"  {item.verdict}: {item.word}: {item.text}{instead}{source}")


def _print_suggestion(out: Output, item: Suggestion) -> None:
    words = " ".join(item.words) or item.given or item.flag
    out.line(f"  {_ACTIONS[item.action]} {words}")
    before = f"Your line: {item.given}." if item.given and item.words else f"Without it: {item.without}."
    out_text = f"{before} {item.why}"
    for line in wrapped(out_text, "      "):
        out.line(line)
    effects = _effects(item.effects)
    for line in effects:
        out.line(f"      {line}")
    for ground in item.evidence:
        for line in wrapped(f"{ground.kind}: {ground.text} ({ground.source})", "      "):
            out.line(line)
    if item.conflicts:
        for line in wrapped(f"Not together with: {'; '.join(item.conflicts)}.", "      "):
            out.line(line)
    if item.numerics != "unchanged":
        out.line(f"      Numerics: {item.numerics}.")


def _effects(effects: list[Effect]) -> list[str]:
    """One line a phase: decode at each number of requests, prefill, capacity."""
    out: list[str] = []
    for phase in ("decode", "prefill", "capacity", "start"):
        mine = [item for item in effects if item.phase == phase]
        if not mine:
            continue
        parts = [_effect(item) for item in mine]
        metric = f", {mine[0].metric}" if phase != "decode" else " tok/s"
        out.append(f"{phase}{metric} ({mine[0].basis}): " + "; ".join(parts))
    return out


def _effect(item: Effect) -> str:
    at = f" at {item.concurrency:,}" if item.concurrency is not None else ""
    bounds = (
        f" ({item.low_percent:+.0f} to {item.high_percent:+.0f})"
        if item.low_percent is not None and item.high_percent is not None
        else ""
    )
    gain = f"{item.gain_percent:+.0f} %{bounds}" if item.gain_percent is not None else "not predicted"
    if item.before is None or item.after is None:
        return f"{gain}{at}"
    figures = (
        f"{item.before:,.4g} -> {item.after:,.4g}" if item.before < 100 else f"{item.before:,.0f} -> {item.after:,.0f}"
    )
    return f"{figures}{at}, {gain}"
