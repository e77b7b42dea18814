"""Ideas about tiles that people try first, worked out by the model: a newer CUTLASS, K = 64, one stage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilewright.cutlass.budget import Budget
from tilewright.cutlass.config import NEWEST_CUTLASS, parse_config
from tilewright.cutlass.fit import fit
from tilewright.plan.evidence import published
from tilewright.plan.finding import Evidence, Outcome, Rejected
from tilewright.plan.registry import Rule
from tilewright.plan.rules.tactics import rule_text, serving, tile_text
from tilewright.plan.target import Target

RELEASES = ("4.4.2", "4.5.0", NEWEST_CUTLASS)
"""Releases that people move to: the one with the carve-out fix, the one with narrow tiles, the newest known."""


def _again(config: dict[str, Any], **change: Any) -> Budget:
    return fit(parse_config({**config, **change}))


def _text(budget: Budget) -> str:
    if budget.smem_bytes is None:
        return budget.status
    return f"{budget.smem_bytes:,} bytes with {budget.stages} stages ({budget.status})"


def run(target: Target) -> Iterator[Outcome]:
    library = target.library
    assert library is not None
    report = library.moe
    if report is None or not target.sm12x or target.expert_family != "nvfp4":
        return
    failing = [item for item in serving(report, "nvfp4") if item.verdict.status == "overflow"]
    if not failing:
        return
    config = failing[0].config or {}
    name = tile_text(config["tile"])
    moved = {version: _again(config, cutlass=version) for version in RELEASES if version != report.cutlass}
    still = [version for version, budget in moved.items() if budget.status == "overflow"]
    if still:
        yield Rejected(
            "Vendor a newer CUTLASS to make these tiles fit",
            f"{name} with finalize stays where it is: "
            + "; ".join(f"CUTLASS {version}: {_text(moved[version])}" for version in still)
            + ". The carve-out fix of 4.4.2 is not enough.",
            [
                Evidence(
                    "exact",
                    f"{library.title} with CUTLASS {report.cutlass}: {_text(failing[0].verdict)}.",
                    "tilewright fit",
                )
            ],
        )
    one = _again(config, stages=1)
    yield Rejected(
        "StageCount<1> for the large tiles",
        f'CUTLASS asserts "{rule_text(one)}" Two stages take {_text(_again(config, stages=2))}.',
        [Evidence("exact", f"{name} with one stage: {one.status}.", "tilewright fit")],
    )
    thin = _again(config, tile=[128, 128, 64])
    yield Rejected(
        "Tiles with K = 64 (elements)",
        f"128x128x64 with finalize: {_text(thin)} on CUTLASS {report.cutlass}. The one public comparison found 2.5 "
        "to 6 % at one "
        "user and nothing at eight, within error.",
        published("k64_retraction"),
    )


RULE = Rule(id="tile_ideas", looks_at="other tiles, stages and CUTLASS releases", run=run, needs=("library",))
