"""The tactics that can never run: to the byte, with the tactic's number, the line that decides, and a verified fix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from tilewright.cutlass.budget import Budget
from tilewright.libraries.flashinfer.fix_stages import Restaged, restaged
from tilewright.libraries.flashinfer.model import Report, Tactic
from tilewright.plan.evidence import entries, published
from tilewright.plan.finding import Draft, Evidence, Fact, Fix, Gain, Outcome, Rejected
from tilewright.plan.launcher_edit import (
    BLOCKLIST,
    blocklist_commands,
    edit_commands,
    patch,
    reads_blocklist,
    undo_edit,
)
from tilewright.plan.library import LibraryView
from tilewright.plan.registry import Rule
from tilewright.plan.target import Target

_OPERANDS = {"nvfp4": ("nvfp4", "nvfp4"), "mxfp4": ("mxfp8_e4m3", "mxfp4")}
"""Weight format of the experts -> operand formats (a, b) of the tactics that serve it, before any swap."""
OUTPUT = "bf16"
"""What the engines serve these models in; the same tactics exist with f16 output."""


def tile_text(tile: Any) -> str:
    return "x".join(str(extent) for extent in tile)


def rule_text(budget: Budget) -> str:
    """The message of the rule that a config breaks, without the file that holds it; its status where there is none."""
    text = (budget.rules or [budget.status])[0]
    return text.partition(" (")[0].strip()


def serving(report: Report, family: str | None) -> list[Tactic]:
    """The tactics that this weight format can use."""
    operands = _OPERANDS.get(family or "")
    return [
        tactic
        for tactic in report.tactics
        if tactic.config is not None
        and operands is not None
        and {tactic.config["a"], tactic.config["b"]} == set(operands)
    ]


def _output(config: dict[str, Any]) -> str:
    return config.get("final_output") or config["d"]


def _row(tactic: Tactic) -> dict[str, Any]:
    config, verdict = tactic.config or {}, tactic.verdict
    return {
        "tile": tile_text(config["tile"]),
        "fusion": "finalize" if config["fusion"] == "finalize" else "none",
        "swap_ab": config["swap_ab"],
        "output": _output(config),
        "stages": verdict.stages,
        "mainloop_bytes": verdict.mainloop_bytes,
        "epilogue_bytes": verdict.epilogue_bytes,
        "smem_bytes": verdict.smem_bytes,
        "limit_bytes": verdict.limit_bytes,
        "excess_bytes": verdict.excess_bytes,
        "status": verdict.status,
        "ids": tactic.runtime_ids,
        "source": str(tactic.source),
    }


def _decisions(library: LibraryView, failing: list[Tactic]) -> list[dict[str, str]]:
    """Where the library decides what fails: tile list, stage policy, types, the call that fails, the message."""
    first = failing[0]
    launcher = first.launcher.file
    points: list[tuple[str, str]] = [
        (f"the tile {tile_text(config['tile'])} is listed", str(tactic.source))
        for tactic in one_a_tile(failing)
        for config in [tactic.config or {}]
    ]
    points.append(("every combination of tile, fusion, output and swap_ab is emitted", str(first.emitted)))
    for what, pattern in (
        ("the stage count is left to StageCountAutoCarveout", r"using StageCountAutoCarveout"),
        ("the mainloop is built with it", r"StageCountAutoCarveout,\s*KernelSchedule"),
        ("the message of your log is thrown", r"Failed to initialize cutlass TMA WS grouped gemm"),
    ):
        line = library.find(launcher, pattern)
        if line:
            points.append((what, str(line)))
    root = library.roots[0] if library.roots else None
    if root:
        for what, file, pattern in (
            (
                "CUTLASS divides the capacity by the bytes of a stage",
                "cutlass/gemm/collective/builders/sm120_blockscaled_mma_builder.inl",
                r"compute_stage_count_or_override|sm100_compute_stage_count_or_override",
            ),
            ("the capacity is defined", "cutlass/arch/arch.h", r"sm120_smem_capacity_bytes\s*="),
        ):
            line = library.find(root.inside(file), pattern)
            if line:
                points.append((what, str(line)))
    return [{"what": what, "place": place} for what, place in points]


def one_a_tile(tactics: list[Tactic]) -> list[Tactic]:
    """One tactic for each tile, the one with the output that engines use where there is one."""
    seen: dict[str, Tactic] = {}
    for tactic in sorted(tactics, key=lambda item: _output(item.config or {}) != OUTPUT):
        seen.setdefault(tile_text((tactic.config or {})["tile"]), tactic)
    return list(seen.values())


def _fixes(verdict: Budget) -> list[dict[str, Any]]:
    return [{"change": fix.change, "smem_bytes": fix.smem_bytes, "note": fix.note} for fix in verdict.fixes]


def _ids(report: Report, operands: tuple[str, str]) -> list[int]:
    modes = [mode for mode in report.runtime if (mode.a, mode.b) == operands]
    return sorted({tactic.id for mode in modes for tactic in mode.never if "bytes of shared memory" in tactic.reason})


def which(tactic: Tactic) -> str:
    """A tactic by name: `128x256x128 finalize bf16`."""
    row = _row(tactic)
    return f"{row['tile']} {row['fusion']} {row['output']}{' swap_ab' if row['swap_ab'] else ''}"


def _illegal(target: Target, report: Report, tactics: list[Tactic]) -> Iterator[Outcome]:
    """Tactics that break a rule of CUTLASS, and autotuner ids that reach no kernel."""
    operands = _OPERANDS[target.expert_family or ""]
    modes = [mode for mode in report.runtime if (mode.a, mode.b) == operands]
    nowhere = [item for mode in modes for item in mode.never if "bytes of shared memory" not in item.reason]
    bad = [tactic for tactic in tactics if tactic.verdict.status == "illegal"]
    if not nowhere and not bad:
        return
    total = modes[0].total if modes else len(tactics)
    reasons = Counter(item.reason for item in nowhere)
    text = "; ".join(f"{reason} ({count}x)" for reason, count in reasons.most_common(3))
    text += "".join(f"; {which(item)}: {(item.verdict.rules or [item.verdict.cause])[0]}" for item in bad[:3])
    yield Draft(
        id="tactics_refused",
        title=f"{len(nowhere) + len(bad)} of {total} autotuner entries lead to no kernel for these operands",
        layer="library",
        evidence=[
            Evidence("exact", text.strip("; ") + ".", str((nowhere[0].source) if nowhere else bad[0].source)),
            *published("autotuner_skips"),
        ],
        cause="The heuristic offers one list of tiles for both operand pairs; the dispatch knows fewer for this one.",
        fix=Fix("Nothing has to be done: the autotuner leaves them out. They cost start-up time and log lines.", []),
        gain=Gain("start-up and log noise", None, None, None, "exact"),
        metric="startup",
        confidence=0.9,
        effort_h=0.25,
        confirm="The skipped numbers in the log are: " + ", ".join(str(item.id) for item in nowhere) + ".",
        undo="Nothing to undo.",
    )


def run(target: Target) -> Iterator[Outcome]:
    library = target.library
    assert library is not None
    if not target.sm12x or target.expert_family not in _OPERANDS:
        return
    report = library.moe
    if report is None:
        yield Fact("remarks", [f"{library.title} has no MoE tactics that are read here: pass a FlashInfer."])
        return
    tactics = serving(report, target.expert_family)
    rows = [_row(tactic) for tactic in tactics if _output(tactic.config or {}) == OUTPUT]
    yield Fact("tiles", rows)
    yield Fact(
        "tactics",
        {
            "library": library.title,
            "cutlass": report.cutlass,
            "total": report.summary.total,
            "fits": report.summary.fits,
            "overflow": report.summary.overflow,
            "illegal": report.summary.illegal,
            "unsupported": report.summary.unsupported,
            "notes": report.notes,
        },
    )
    yield from _illegal(target, report, tactics)
    failing = [tactic for tactic in tactics if tactic.verdict.status == "overflow"]
    if not failing:
        unread = [tactic for tactic in tactics if tactic.verdict.status == "unsupported"]
        if unread:
            cause = unread[0].verdict.cause or "the model does not cover them yet"
            yield Fact(
                "remarks", [f"{len(unread)} of {len(tactics)} tactics of {library.title} cannot be judged: {cause}"]
            )
            return
        yield Rejected(
            "Look for shared-memory overflows among the MoE tactics",
            f"None of the {len(tactics)} tactics of {library.title} for these operands overflows.",
            [Evidence("exact", f"{report.summary.fits} of {report.summary.total} fit.", "tilewright tactics")],
        )
        return
    yield from _overflow(target, library, report, tactics, failing)


def _healed_text(made: list[Restaged]) -> str:
    """What the patch does to every tactic of the launcher, in words."""
    healed: dict[str, Restaged] = {}
    for item in made:
        if item.outcome == "healed":
            healed.setdefault(tile_text(item.tile), item)
    after = ", ".join(
        f"{tile} -> {item.stages_after} stages, {item.bytes_after:,} bytes ({item.reserve_bytes:,} set aside)"
        for tile, item in healed.items()
    )
    return f"With what the storage really takes set aside where it overflows: {after}; no other tactic changes."


def _evidence(
    target: Target, library: LibraryView, report: Report, failing: list[Tactic], ids: list[int], made: list[Restaged]
) -> list[Evidence]:
    worst = failing[0].verdict
    tiles = ", ".join(dict.fromkeys(tile_text((item.config or {})["tile"]) for item in failing))
    evidence = [
        Evidence(
            "exact",
            f"{len(failing)} of {report.summary.total} tactics ({tiles}, each in bf16 and f16) need "
            f"{worst.smem_bytes:,} "
            f"bytes of shared memory with the finalize fusion; a block may have {worst.limit_bytes:,}: "
            f"{worst.excess_bytes:,} too many.",
            f"{library.title}, CUTLASS {report.cutlass}; tilewright tactics flashinfer",
        ),
        Evidence("exact", worst.cause or "", "tilewright fit, which equals the compiled types"),
    ]
    if made:
        evidence.append(Evidence("exact", _healed_text(made), "tilewright fit on every tactic of this launcher"))
    if ids:
        numbers = " and ".join(map(str, ids))
        evidence.append(
            Evidence("exact", f"The autotuner's numbers for them are {numbers} (second GEMM).", str(failing[0].source))
        )
    line = target.log.get("tma_ws_internal") if target.log else None
    if line:
        kernels = f" ({', '.join(line.kernels)})" if line.kernels else ""
        evidence.append(
            Evidence(
                "measured",
                f"Your log says so {line.count} times, first in line {line.first_line}{kernels}.",
                target.log_source,
            )
        )
    return evidence + published(
        "k64_retraction", "gb10_tile_147_154", "autotuner_skips", "spill_sm120", "tactic_is_not_corruption"
    )


def _overflow(
    target: Target, library: LibraryView, report: Report, tactics: list[Tactic], failing: list[Tactic]
) -> Iterator[Outcome]:
    worst = failing[0].verdict
    yield Fact("decided_at", _decisions(library, failing))
    yield Fact(
        "summary",
        [
            (
                10,
                f"`Error Internal` at start-up: {len(failing)} of {report.summary.total} MoE tactics ask for "
                f"{worst.smem_bytes:,} bytes of shared memory and a block has {worst.limit_bytes:,}. They are "
                "skipped; to make "
                "them run is worth little (another tile brought 2.5 to 6 % at one user, nothing at eight, in the one "
                "public "
                "comparison).",
            )
        ],
    )
    yield Fact(
        "overflow_fixes",
        [{"tactic": which(item), "fixes": _fixes(item.verdict)} for item in one_a_tile(failing)],
    )
    ids = _ids(report, _OPERANDS[target.expert_family or ""])
    survivors = sorted({tile_text((item.config or {})["tile"]) for item in tactics if item.verdict.status == "fits"})
    made = restaged(report.tactics)
    made = made if all(item.outcome in ("healed", "same") for item in made) else []
    diff = patch(library) if made else None
    listed = reads_blocklist(library)
    verified = "; ".join(f"{fix.note} ({fix.smem_bytes:,} bytes)" for fix in worst.fixes[:3])
    if listed:
        first = f"This version reads {BLOCKLIST}: let it skip them. "
        commands, undo = blocklist_commands(target), f"`unset {BLOCKLIST}` and delete blocklist.json."
    elif diff:
        first = "Let the launcher set aside what the count leaves out, and the module be built again. "
        commands, undo = edit_commands(library), undo_edit(library)
    else:
        first = "Leave them: the autotuner skips what fails. "
        commands, undo = list[str](), "Nothing to undo."
    yield Draft(
        id="tactics_overflow",
        title=f"{len(failing)} of {report.summary.total} MoE tactics can never run: {worst.excess_bytes:,} bytes too "
        "many",
        layer="kernel",
        evidence=_evidence(target, library, report, failing, ids, made),
        cause=f"StageCountAutoCarveout picks {worst.stages} stages at compile time and does not count all that the "
        "kernel "
        "keeps besides its tensors. Only the finalize fusion of the second GEMM is hit: without it, and with "
        "swap_ab, the "
        "same tiles run.",
        fix=Fix(
            f"{first}Single tactics, verified by the model: {verified}. Which of the tiles that run the autotuner "
            "picks at "
            f"your token counts matters more than one tile more: {', '.join(survivors)}.",
            commands,
            diff,
        ),
        gain=Gain("start-up: nothing that fails is tried; decode unchanged, %", 0.0, 0.0, 0.0, "published")
        if listed
        else Gain("decode tok/s, %", 0.0, 1.0, 6.0, "published"),
        metric="startup" if listed else "decode",
        confidence=0.9 if listed else 0.3,
        effort_h=0.5 if listed else 2.0,
        risk="none for speed: what fails is skipped today"
        if listed
        else "the rebuilt tile may spill, or be slower at few tokens an expert; then the autotuner does not pick it",
        numerics="unchanged: the same products in another tile",
        confirm="`Failed to initialize cutlass TMA WS grouped gemm` is gone from the start-up log"
        + (f" for tactics {' and '.join(map(str, ids))}" if ids else "")
        + "; tok/s at 1 and at your usual number of requests, before and after.",
        undo=undo,
    )
    if not listed:
        yield Rejected(
            f"export {BLOCKLIST}=...",
            f"{library.title} does not read it; its autotuner leaves failing tactics out anyway.",
            [entries()["blocklist"].evidence],
        )


RULE = Rule(
    id="tactics",
    looks_at="tactics that can never run, to the byte, and where that is decided",
    run=run,
    needs=("library",),
)
