"""What `fix` tells a human: what changes, how it takes effect, how to undo it."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.libraries.flashinfer.fix import Fix
from tilewright.libraries.flashinfer.fix_stages import Restaged


def explain(fix: Fix, line: Callable[[str], None]) -> None:
    """The explanation of `fix`, line by line."""
    line(f"FlashInfer {fix.library_version}, CUTLASS {fix.cutlass}, {fix.arch}")
    if fix.content is None:
        for note in fix.notes:
            line(f"  {note}")
        return
    for text in _patched(fix) if fix.write == "patch" else _blocked(fix):
        line(f"  {text}")
    for step in fix.steps:
        line("")
        line(f"{step.what}: {step.text}")
        if step.basis:
            line(f"  ({step.basis})")
        for command in step.commands:
            line(f"    {command}")
    if fix.notes:
        line("")
    for note in fix.notes:
        line(f"note: {note}")


def _patched(fix: Fix) -> list[str]:
    healed = [item for item in fix.tactics if item.outcome == "healed"]
    same = sum(item.outcome == "same" for item in fix.tactics)
    out = [f"changes {fix.file}"]
    seen: dict[tuple[object, ...], list[Restaged]] = {}
    for item in healed:
        seen.setdefault((item.a, item.b, item.tile, item.fusion, item.swap_ab), []).append(item)
    for group in seen.values():
        first = group[0]
        outputs = ", ".join(dict.fromkeys(item.output for item in group))
        swap = " swap_ab" if first.swap_ab else ""
        out.append(
            f"{'x'.join(map(str, first.tile))} {first.a} x {first.b} {first.fusion}{swap} ({outputs}): "
            f"{first.bytes_before:,} bytes, {first.stages_before} stages -> {first.bytes_after:,} bytes, "
            f"{first.stages_after} stages (limit {first.limit_bytes:,}; {first.reserve_bytes:,} set aside)"
        )
    out.append(
        f"{len(healed)} of {len(fix.tactics)} tactics run that could not; {same} keep their very types. Exact: the "
        "model of `fit`, on every tactic of the launcher. What a rebuilt tile is worth is not known before it has run; "
        "the autotuner takes it only where it is faster."
    )
    return out


def _blocked(fix: Fix) -> list[str]:
    out = [f"{key}: {', '.join(map(str, ids))}" for key, ids in fix.ids.items()]
    return [*out, f"Read by this version at {fix.file}. Exact: the ids are those of its own lists."]
