"""Fit the serving model's coefficients to published decode tables, and say how well it does on tables held out.

    python tools/fit_serving.py            writes src/tilewright/data/serving_coefficients.json
    python tools/fit_serving.py --dry      prints only

One set of coefficients for all models and engines. A step's time is linear in the times and in the inverse of the
shares (but for a maximum here and there), so the model is asked once for the value and the slopes of every cell, the
fit runs on that, and the true model is asked again with the result until nothing moves. Objective: the mean absolute
logarithm of predicted over published, over cells that are not excluded; each table weighs as the square root of its
cells; and a weak pull towards the starting values keeps what the tables do not determine where it was.
"""

from __future__ import annotations

import datetime
import json
import math
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tilewright.data.measurements import measurement
from tilewright.serving.coefficients import Coefficients
from tilewright.serving.decode import acceptance_length, decode_step
from tilewright.serving.prefill import prefill_step
from tilewright.serving.published import Cell, cells
from tilewright.serving.questions import PrefillQuestion
from tilewright.serving.scenario import scenario_of
from tilewright.serving.validate import TARGETS

DATA = Path(__file__).parent.parent / "src" / "tilewright" / "data" / "serving_coefficients.json"
PULL = 0.004
FIRST_WEIGHT = 4.0
"""The driving case without speculation is the cleanest table, and the one with the tightest bar."""

START: dict[str, tuple[float, float, float, str]] = {
    # name: (start, lowest, highest, meaning)
    "small_kernel_s": (4e-6, 1.5e-6, 8e-6, "one kernel without a weight of its own in a CUDA graph, few tokens"),
    "attention_share": (0.7, 0.3, 1.0, "share of the reached bandwidth at which attention reads its cache"),
    "scan_token_s": (6e-8, 1e-8, 2e-7, "a layer's verification where one block walks a sequence, a token of context"),
    "wait_s": (2e-6, 0.0, 2e-5, "a collective beyond its benchmark, per doubling of the ranks"),
    "gap_s": (5e-4, 0.0, 3e-3, "idle between steps, whatever the requests"),
    "gap_request_s": (1e-5, 0.0, 2e-4, "idle between steps, for each running request"),
    "draft_gap_s": (1e-3, 0.0, 1e-2, "idle that a speculative step adds"),
    "b12x_saved_s": (2e-5, 1e-6, 6e-5, "b12x expert kernel against CUTLASS's, saved a layer in its small-batch kernel"),
    "b12x_extra": (1.0, 0.0, 3.0, "more time beyond that, as a multiple of reading the experts hit"),
}
SHARES = frozenset({"attention_share"})
FIXED: dict[str, tuple[float, str, str]] = {
    "attention_compute_share": (0.6, "share of the dense BF16 peak that attention kernels reach on prompts from 8,192 "
                                "tokens at heads of 128 and 256",
                                "aiconfigurator-core 0.12.0, context_attention tables: medians of 0.62 to 0.73 with "
                                "FlashInfer and FlashAttention 2 on RTX PRO 6000 Server, 0.50 to 0.58 on a B200"),
    "launch_s": (1e-5, "an operation of eager PyTorch, Python's part included: about 10 us on current hosts",
                 "assumed; no serving table without CUDA graphs is packaged"),
}  # fmt: skip


def _log_fit_acceptance() -> tuple[float, int]:
    """The acceptance of one draft after another that gives the mean length of all published cells."""
    rates: list[tuple[float, int]] = []
    for name in ("dcp1", "dcp2", "dcp4", "dcp8"):
        table = measurement(f"glm51_8xpro6000_vllm_v2_{name}_mtp_on").row["acceptance"]
        rates += [(rate, 3) for values in table.values() for rate in values.values()]
    mean = sum(1 + drafts * rate for rate, drafts in rates) / len(rates)
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if sum(middle**i for i in range(4)) < mean:
            low = middle
        else:
            high = middle
    return (low + high) / 2, len(rates)


def _time(cell: Cell, coefs: Coefficients) -> float:
    scenario = scenario_of(cell.question)
    if isinstance(cell.question, PrefillQuestion):
        return prefill_step(scenario, cell.question.prompt_tokens, cell.question.chunk_tokens, coefs).time_s
    return decode_step(scenario, coefs).time_s


def _published_time(cell: Cell, coefs: Coefficients) -> float:
    """The step time that the published rate means."""
    question = cell.question
    if isinstance(question, PrefillQuestion):
        return question.prompt_tokens / cell.published
    scenario = scenario_of(question)
    return scenario.concurrency * acceptance_length(scenario, coefs) / cell.published


def _axis(name: str, value: float) -> float:
    return 1 / value if name in SHARES else value


class Linear:
    """Every cell's time as value and slopes around one set of coefficients."""

    def __init__(self, chosen: list[Cell], coefs: Coefficients) -> None:
        self.base = {name: _axis(name, getattr(coefs, name)) for name in START}
        self.published = [_published_time(cell, coefs) for cell in chosen]
        self.values = [_time(cell, coefs) for cell in chosen]
        self.slopes: dict[str, list[float]] = {}
        for name in START:
            value = getattr(coefs, name)
            step = max(abs(value) * 0.05, 1e-9)
            moved = replace(coefs, **{name: value + step})
            by = _axis(name, value + step) - self.base[name]
            self.slopes[name] = [(_time(cell, moved) - old) / by for cell, old in zip(chosen, self.values, strict=True)]

    def times(self, theta: dict[str, float]) -> list[float]:
        out = list(self.values)
        for name, column in self.slopes.items():
            by = _axis(name, theta[name]) - self.base[name]
            if by:
                out = [time + by * slope for time, slope in zip(out, column, strict=True)]
        return out


def _weights(chosen: list[Cell], without: str) -> list[float]:
    counts: dict[str, int] = {}
    for cell in chosen:
        counts[cell.table] = counts.get(cell.table, 0) + 1
    first = next(iter(TARGETS))
    return [
        0.0 if cell.table == without
        else (FIRST_WEIGHT if cell.group == first else 1.0) / math.sqrt(counts[cell.table])
        for cell in chosen
    ]  # fmt: skip


def _objective(linear: Linear, theta: dict[str, float], weights: list[float]) -> float:
    total = 0.0
    for time, published, weight in zip(linear.times(theta), linear.published, weights, strict=True):
        if weight:
            total += weight * abs(math.log(max(time, 1e-9) / published))
    total /= sum(weights)
    for name, (start, *_rest) in START.items():
        if theta[name] > 0:
            total += PULL * math.log(theta[name] / start) ** 2
    return total


def _descend(linear: Linear, theta: dict[str, float], weights: list[float]) -> dict[str, float]:
    best = dict(theta)
    score = _objective(linear, best, weights)
    factor = 1.3
    while factor > 1.01:
        improved = False
        for name, (start, low, high, _) in START.items():
            for tried in (best[name] * factor, best[name] / factor):
                value = min(high, max(low or start / 20, tried))
                got = _objective(linear, {**best, name: value}, weights)
                if got < score - 1e-7:
                    best, score, improved = {**best, name: value}, got, True
        if not improved:
            factor = math.sqrt(factor)
    return best


def _fit_prefill(coefs: Coefficients) -> Coefficients:
    """The share of a prefill that is kernels, from the published rates (of one table each, equally)."""
    mine = [cell for cell in cells() if cell.prefill and not cell.excluded]
    by_table: dict[str, list[float]] = {}
    for cell in mine:
        ratio = _time(cell, replace(coefs, prefill_share=1.0)) / _published_time(cell, coefs)
        by_table.setdefault(cell.table, []).append(ratio)
    means = [math.exp(sum(map(math.log, ratios)) / len(ratios)) for ratios in by_table.values()]
    share = math.exp(sum(map(math.log, means)) / len(means))
    return replace(coefs, prefill_share=round(min(1.0, share), 3))


def _fit_handoff(coefs: Coefficients) -> Coefficients:
    """A hand-over between pipeline stages, from two published observations: TP4 with two stages about 2x slower than
    TP8 (SGLang, which schedules nothing ahead with stages), and 24, 33 and 35 tok/s with TP2 and three stages (middle:
    30.3; stacks not stated, taken for engines that do)."""
    from tilewright.serving.questions import DecodeQuestion

    base: dict[str, Any] = {
        "model": "GLM-5", "checkpoint": "community/GLM-5-NVFP4-experts-only", "gpu": "rtx-pro-6000-server",
        "attention": "dense", "moe_backend": "cutlass",
    }  # fmt: skip

    def step(coefs: Coefficients, **more: Any) -> float:
        return decode_step(scenario_of(DecodeQuestion(**base, **more)), coefs).time_s

    none = replace(coefs, handoff_s=0.0, handoff_overlapped_s=0.0)
    flat = step(none, gpus=8, tp=8)
    two = (2 * flat - step(none, gpus=8, tp=4, pp=2)) / 2
    three = (3 / (24 + 33 + 35) - step(none, gpus=6, tp=2, pp=3)) / 3
    print(f"hand-over: {two * 1e3:.2f} ms from TP4 PP2, {three * 1e3:.2f} ms from TP2 PP3")
    return replace(coefs, handoff_s=round(max(two, 1e-4), 5), handoff_overlapped_s=round(max(min(three, two), 1e-4), 5))


def _quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def main() -> None:
    acceptance, count = _log_fit_acceptance()
    values = {name: start for name, (start, *_rest) in START.items()}
    values |= {name: value for name, (value, *_rest) in FIXED.items()}
    coefs = Coefficients(
        **values, acceptance=round(acceptance, 4), handoff_s=4e-3, handoff_overlapped_s=2e-3, prefill_share=0.7
    )
    chosen = [cell for cell in cells() if not cell.excluded and not cell.prefill and cell.group in TARGETS]
    weights = _weights(chosen, "")
    theta = {name: getattr(coefs, name) for name in START}
    linear = Linear(chosen, coefs)
    for turn in range(4):
        theta = {name: float(f"{value:.4g}") for name, value in _descend(linear, theta, weights).items()}
        coefs = replace(coefs, **theta)
        linear = Linear(chosen, coefs)
        print(f"turn {turn}: objective {_objective(linear, theta, weights):.4f}")
    held: dict[str, float] = {}
    ratios: list[float] = []
    for out in dict.fromkeys(cell.table for cell in chosen):
        got = _descend(linear, theta, _weights(chosen, out))
        other = replace(coefs, **got)
        errors: list[float] = []
        for cell in chosen:
            if cell.table == out:
                ratio = _published_time(cell, other) / _time(cell, other)
                ratios.append(ratio)
                errors.append(abs(ratio - 1))
        held[out] = round(sum(errors) / len(errors), 4)
    coefs = _fit_handoff(_fit_prefill(coefs))
    in_sample = {
        group: [_published_time(c, coefs) / _time(c, coefs) - 1 for c in chosen if c.group == group]
        for group in TARGETS
    }
    for group, found in in_sample.items():
        print(f"{group}: mean absolute error {sum(map(abs, found)) / len(found):.1%} over {len(found)} cells")
    print(f"held out: {sum(abs(r - 1) for r in ratios) / len(ratios):.1%}; worst tables: "
          f"{sorted(held.items(), key=lambda item: -item[1])[:5]}")  # fmt: skip
    meanings = {name: meaning for name, (*_rest, meaning) in START.items()}
    fitted = dict.fromkeys(START, "fitted to the published decode tables")
    table: dict[str, dict[str, Any]] = {}
    for name, value in asdict(coefs).items():
        if name in START:
            table[name] = {"value": value, "kind": "fitted", "meaning": meanings[name], "source": fitted[name]}
        elif name in FIXED:
            kind = "assumed" if FIXED[name][2].startswith(("assumed", "no ")) else "measured"
            table[name] = {"value": value, "kind": kind, "meaning": FIXED[name][1], "source": FIXED[name][2]}
    table["acceptance"] = {
        "value": coefs.acceptance, "kind": "published",
        "meaning": "probability that a draft is accepted when the ones before it were",
        "source": f"mean acceptance of {count} cells of glm51_8xpro6000_vllm_v2_dcp*_mtp_on",
    }  # fmt: skip
    table["prefill_share"] = {
        "value": coefs.prefill_share, "kind": "fitted",
        "meaning": "share of a prefill that is kernels one after the other",
        "source": "glm5_8xpro6000_prefill, qwen35_397b_4xpro6000_decode_ctx (prefill), one weight each",
    }  # fmt: skip
    table["handoff_s"] = {
        "value": coefs.handoff_s, "kind": "fitted",
        "meaning": "a pipeline stage's hand-over to the next in SGLang, host work included: with stages its overlap "
        "scheduler is off",
        "source": "TP4 PP2 about 2x slower than TP8 (report of the driving case's engineer, no raw data)",
    }  # fmt: skip
    table["handoff_overlapped_s"] = {
        "value": coefs.handoff_overlapped_s, "kind": "fitted",
        "meaning": "the same in engines whose scheduling runs beside the GPU",
        "source": "TP2 PP3 on six GPUs at 24, 33 and 35 tok/s, stacks not stated",
    }  # fmt: skip
    document = {
        "about": "Coefficients of the serving model: one set for all models, engines and GPUs. Remade by "
        "tools/fit_serving.py.",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "cells": len(chosen),
        "tables": len(held),
        "in_sample": {group: round(sum(map(abs, found)) / len(found), 4) for group, found in in_sample.items()},
        "held_out": held,
        "spread": {"low": round(_quantile(ratios, 0.05), 3), "high": round(_quantile(ratios, 0.95), 3)},
        "coefficients": table,
    }
    print(json.dumps({name: entry["value"] for name, entry in table.items()}, indent=1), document["spread"])
    if "--dry" not in sys.argv:
        DATA.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
