"""What changed between the tactics of two versions."""

from __future__ import annotations

from typing import Any

from tilewright.errors import InputError
from tilewright.libraries.flashinfer.model import Change, Difference, Report, RuntimeChange, Tactic

_IDENTITY = (
    "kind", "op_class", "a", "b", "c", "d", "tile", "fusion", "final_output", "activation", "swap_ab",
    "tile_scheduler", "scale_granularity", "scale_major",
)  # fmt: skip
_IGNORED = frozenset({"id", "cutlass", "arch"})


def identity(tactic: Tactic) -> tuple[Any, ...]:
    """What makes two tactics of different versions the same: what they compute, on which tile."""
    config = tactic.config
    if config is None:
        return ("name", tactic.name)
    return tuple(str(config.get(key)) for key in _IDENTITY)


def describe(tactic: Tactic) -> str:
    """A tactic in a few words."""
    config = tactic.config
    if config is None:
        return tactic.name
    tile = "x".join(map(str, config["tile"]))
    output = config["final_output"] if config["fusion"] == "finalize" else config["d"]
    parts = [f"{config['a']} x {config['b']}", tile]
    if config["fusion"] != "linear_combination":
        parts.append(config["fusion"])
    parts.append(f"to {output}")
    if config["swap_ab"]:
        parts.append("swap_ab")
    if config["scale_granularity"]:
        parts.append(f"scales {'x'.join(map(str, config['scale_granularity']))} {config['scale_major']}")
    if config["tile_scheduler"]:
        parts.append(config["tile_scheduler"])
    return " ".join(parts)


def verdict_text(tactic: Tactic) -> str:
    """The verdict in a few words."""
    verdict = tactic.verdict
    if verdict.smem_bytes is None:
        return verdict.status
    return f"{verdict.status}, {verdict.stages} stages, {verdict.smem_bytes:,} bytes"


def _keyed(report: Report) -> dict[tuple[Any, ...], Tactic]:
    """Tactics by identity; a second one with the same identity keeps its name as part of it."""
    out: dict[tuple[Any, ...], Tactic] = {}
    for tactic in report.tactics:
        key = identity(tactic)
        out[(*key, tactic.name) if key in out else key] = tactic
    return out


def difference(before: Report, after: Report) -> Difference:
    """The changes from `before` to `after`: what was added and removed, and whose verdict or bytes moved.

    Raises:
        InputError: the two are not the same library, op and architecture.
    """
    if (before.library, before.op, before.arch) != (after.library, after.op, after.arch):
        raise InputError("diff", "Only reports of the same library, op and architecture can be compared.")
    old, new = _keyed(before), _keyed(after)
    changes: list[Change] = []
    same = 0
    for key, tactic in new.items():
        earlier = old.get(key)
        if earlier is None:
            changes.append(
                Change(name=describe(tactic), what="added", after=verdict_text(tactic), source=tactic.source)
            )
            continue
        change = _changed(earlier, tactic)
        if change is None:
            same += 1
        else:
            changes.append(change)
    changes.extend(
        Change(name=describe(tactic), what="removed", before=verdict_text(tactic), source=tactic.source)
        for key, tactic in old.items()
        if key not in new
    )
    return Difference(
        library=after.library,
        before=before.library_version,
        after=after.library_version,
        cutlass_before=before.cutlass,
        cutlass_after=after.cutlass,
        arch=after.arch,
        op=after.op,
        changes=changes,
        same=same,
        runtime=_runtime(before, after),
    )


def _runtime(before: Report, after: Report) -> list[RuntimeChange]:
    """The autotuner's lists that changed, of the formats that both versions have."""
    old = {(mode.a, mode.b): mode for mode in before.runtime}
    out: list[RuntimeChange] = []
    for mode in after.runtime:
        former = old.get((mode.a, mode.b))
        if former is not None and (former.total, former.never) != (mode.total, mode.never):
            out.append(
                RuntimeChange(
                    a=mode.a,
                    b=mode.b,
                    total_before=former.total,
                    total_after=mode.total,
                    never_before=len(former.never),
                    never_after=len(mode.never),
                )
            )
    return out


def _changed(before: Tactic, after: Tactic) -> Change | None:
    old, new = before.verdict, after.verdict
    name, source = describe(after), after.source
    if old.status != new.status:
        return Change(name=name, what="verdict", before=verdict_text(before), after=verdict_text(after), source=source)
    if (old.stages, old.smem_bytes) != (new.stages, new.smem_bytes):
        return Change(name=name, what="bytes", before=verdict_text(before), after=verdict_text(after), source=source)
    if before.config is None or after.config is None:
        return None
    keys = [key for key in after.config if key not in _IGNORED and before.config.get(key) != after.config[key]]
    if not keys:
        return None
    return Change(
        name=name,
        what="config",
        before=", ".join(f"{key} {before.config.get(key)}" for key in keys),
        after=", ".join(f"{key} {after.config[key]}" for key in keys),
        source=source,
    )
