"""What a flag of one release is called in another: by its declaration, by its aliases, or by what it is for.

A release that drops a flag usually declared it deprecated in favour of another before, and every packaged release's
declarations are looked at. Nothing is guessed from likeness of names.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.libraries.engine_flags.concepts import concepts, renames
from tilewright.libraries.engine_flags.model import Flag, FlagSet
from tilewright.libraries.engine_flags.snapshots import snapshot, snapshot_versions

__all__ = ["History", "Successor", "history", "successor"]


@dataclass(frozen=True, slots=True)
class Successor:
    """What to write instead of a flag: `name`, its `value` where the declaration gives one, and what says so."""

    name: str
    value: str | None
    source: str


@dataclass(frozen=True, slots=True)
class History:
    """Packaged releases that accept a flag, oldest first; empty: none does."""

    versions: tuple[str, ...]


def history(engine: str, name: str) -> History:
    """Which packaged releases of the engine accept a flag spelt `name`."""
    return History(tuple(version for version in snapshot_versions(engine) if snapshot(engine, version).has(name)))


def successor(flags: FlagSet, name: str) -> Successor | None:
    """What `flags` has for a flag called `name` that it lacks or calls deprecated; None where nothing tells."""
    here = flags.get(name)
    if here is not None and here.successor:
        made = _usable(flags, here.successor, f"{here.file}:{here.line}")
        if made is not None:
            return made
    for version in reversed(snapshot_versions(flags.engine)):
        other = snapshot(flags.engine, version)
        flag = other.get(name)
        if flag is None:
            continue
        where = f"{flags.engine} {version} {flag.file}:{flag.line}"
        if flag.successor and (made := _usable(flags, flag.successor, where)) is not None:
            return made
        for alias in flag.names:
            if alias != name and alias.startswith("--") and _good(flags.get(alias)):
                return Successor(alias, None, where)
    for item in renames():
        if item.engine == flags.engine and item.old == name and _good(flags.get(item.new.split(".")[0])):
            return Successor(item.new, None, item.source)
    for item in concepts().values():
        mine = item.sglang if flags.engine == "sglang" else item.vllm
        if name in mine:
            for other_name in mine:
                if other_name != name and _good(flags.get(other_name)):
                    return Successor(other_name, None, "both are read for the same setting")
    return None


def _good(flag: Flag | None) -> bool:
    return flag is not None and not flag.deprecated


def _usable(flags: FlagSet, written: str, source: str) -> Successor | None:
    """A declaration's `use --x` or `use --x=value`, where this version has it."""
    name, _, value = written.partition("=")
    if "{" in name:  # --cuda-graph-backend-{decode,prefill}: the decode one is what the old flag was used for
        head, _, rest = name.partition("{")
        name = head + rest.split(",")[0].split("}")[0] + rest.partition("}")[2]
    return Successor(name, value or None, source) if _good(flags.get(name)) else None
