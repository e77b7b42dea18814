"""What `fix` tells a human: what changes, how it takes effect, how to undo it."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.libraries.flashinfer.fix import Fix
from tilewright.libraries.flashinfer.fix_evidence import Compiled
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
    limit = next((item.limit_bytes for item in fix.tactics if item.limit_bytes), None)
    if fix.compiled is not None and limit is not None:
        out += _proved(fix.compiled, fix.tactics, limit)
    elif fix.compiled is None:
        out.append("Nobody compiled exactly these sources yet: --prove does (nvcc, no GPU).")
    return out


def _proved(compiled: Compiled, tactics: list[Restaged], limit: int) -> list[str]:
    rows = compiled.tactics
    before = sum(row.bytes_before > limit for row in rows)
    after = sum(row.bytes_after > limit for row in rows)
    out = [
        f"{compiled.kind}: of the launcher's {len(rows)} kernel types {before} take more than {limit:,} bytes before "
        f"the patch, {after} after it (nvcc {compiled.nvcc} for {compiled.target}, {compiled.date}; nothing was run)."
    ]
    known = {item.name: item for item in tactics}
    for row in rows:
        old, new = row.kernel_before, row.kernel_after
        item = known.get(row.name)
        if old is None or new is None or item is None:
            continue
        out.append(
            f"{'x'.join(map(str, item.tile))} {item.fusion} {item.output}{' swap_ab' if item.swap_ab else ''}, the "
            f"whole kernel with {row.stages_before} -> {row.stages_after} stages: registers {old.registers} -> "
            f"{new.registers}, spills {old.spill_store_bytes} -> {new.spill_store_bytes} bytes a thread (stores; loads "
            f"{old.spill_load_bytes} -> {new.spill_load_bytes}), code {old.code_bytes:,} -> {new.code_bytes:,} bytes"
        )
    return out


def _blocked(fix: Fix) -> list[str]:
    out = [f"{key}: {', '.join(map(str, ids))}" for key, ids in fix.ids.items()]
    return [*out, f"Read by this version at {fix.file}. Exact: the ids are those of its own lists."]
