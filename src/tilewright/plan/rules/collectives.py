"""Which collectives of this tree could run the MoE GEMM, and why those that look like a way around are none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilewright.collectives.model import Suited
from tilewright.collectives.suit import suited
from tilewright.cutlass.config import KernelConfig, parse_config
from tilewright.cutlass.fit import fit
from tilewright.plan.finding import Evidence, Fact, Outcome, Rejected
from tilewright.plan.registry import Rule
from tilewright.plan.rules.tactics import serving, tile_text
from tilewright.plan.target import Target

_OPERANDS: dict[str, dict[str, Any]] = {
    "nvfp4": {"op_class": "block_scaled", "a": "nvfp4", "b": "nvfp4"},
    "mxfp4": {"op_class": "block_scaled", "a": "mxfp8_e4m3", "b": "mxfp4"},
    "fp8": {"op_class": "blockwise", "a": "e4m3", "b": "e4m3", "scale_granularity": [1, 128, 128]},
}
_ARCHS = {
    "nvfp4": ("sm100", "sm120", "sm121"),
    "mxfp4": ("sm100", "sm120", "sm121"),
    "fp8": ("sm90", "sm100", "sm120", "sm121"),
}
"""Architectures that a grouped kernel of these operands is asked for here."""
SCHEDULES = ("cooperative", "pingpong")
SHOWN = 8


def question(target: Target) -> tuple[KernelConfig, str] | None:
    """(the kernel config that is asked about, where it comes from), or None where there is nothing to ask."""
    library, family, arch = target.library, target.expert_family or "", target.gpu.arch
    if library is None or family not in _OPERANDS or arch not in _ARCHS[family]:
        return None
    report = library.moe if target.sm12x else None
    tactics = serving(report, family) if report else []
    failing = [item for item in tactics if item.verdict.status == "overflow"] or tactics
    if failing and failing[0].config:
        return parse_config({**failing[0].config, "arch": arch}), str(failing[0].source)
    raw = {
        "arch": arch, "kind": "grouped", "tile": [128, 128, 128], "c": "bf16", "d": "bf16",
        **({"cutlass": library.cutlass} if library.cutlass else {}), **_OPERANDS[family],
    }  # fmt: skip
    return parse_config(raw), "the usual grouped tile of these operands"


def _row(one: Suited) -> dict[str, Any]:
    return {
        "policy": one.policy,
        "place": f"{one.file}:{one.line}",
        "can": one.can,
        "schedules": list(one.schedules),
        "reasons": list(one.reasons),
    }


def _schedules(config: KernelConfig) -> list[dict[str, Any]]:
    """What each schedule that the collective takes would need, as the library builds it: stages left to CUTLASS."""
    from msgspec.structs import replace

    rows: list[dict[str, Any]] = []
    for schedule in SCHEDULES:
        for stages in ("auto", 2):
            budget = fit(replace(config, schedule=schedule, stages=stages), brief=True)
            known = any(row["schedule"] == schedule and row["stages"] == budget.stages for row in rows)
            if budget.smem_bytes is not None and not known:
                rows.append(
                    {
                        "schedule": schedule,
                        "stages": budget.stages,
                        "asked": stages,
                        "smem_bytes": budget.smem_bytes,
                        "status": budget.status,
                    }
                )
    return rows


def run(target: Target) -> Iterator[Outcome]:
    library = target.library
    assert library is not None
    asked = question(target)
    found = library.survey
    if asked is None or found is None:
        return
    config, origin = asked
    everything = [item for index in found.indexes for item in index.collectives]
    verdicts = [one for one in suited(everything, config) if one.operation == "mma"]
    can = [one for one in verdicts if one.can]
    cannot = [one for one in verdicts if not one.can]
    blockwise = [one for one in cannot if "Blockwise" in one.policy and target.gpu.arch[:4] in one.policy.lower()]
    # What people reach for first stands first: the array collective with software scales, then the nearest others.
    shown = dict.fromkeys(
        [*(one.policy for one in blockwise if "Array" in one.policy), *(one.policy for one in cannot)]
    )
    ordered = [next(one for one in cannot if one.policy == name) for name in shown]
    yield Fact(
        "collectives",
        {
            "tree": f"{library.title}, CUTLASS {found.trees[0].cutlass}",
            "total": len(everything),
            "config": f"grouped {config.a} x {config.b}, {tile_text(config.tile)}, {config.fusion}",
            "config_source": origin,
            "could": [_row(one) for one in can],
            "could_not": [_row(one) for one in ordered[:SHOWN]],
            "schedules": _schedules(config) if can and target.sm12x else [],
        },
    )
    way = next((one for one in blockwise if "Array" in one.policy), None)
    if way and config.op_class == "block_scaled":
        yield Rejected(
            f"Go around the limit with the blockwise array collective ({way.policy})",
            way.reasons[0],
            [Evidence("exact", "It is in this tree, and it is for another operation.", f"{way.file}:{way.line}")],
        )


RULE = Rule(id="collectives", looks_at="other collectives that could run the MoE GEMM", run=run, needs=("library",))
