"""What `tilewright flags` answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from tilewright.errors import InputError, UnknownNameError
from tilewright.libraries.engine_flags.launch import LaunchCheck, check_launch, withheld
from tilewright.libraries.engine_flags.model import Flag, FlagSet
from tilewright.libraries.engine_flags.read import engine_flags
from tilewright.libraries.engine_flags.uses import uses


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """One difference from the other version (`before`) to this one."""

    name: str
    what: str
    """`added`, `removed`, `default`, `choices`, `kind`, `deprecated`."""
    before: Any = None
    after: Any = None


class Use(msgspec.Struct, frozen=True):
    """Where the value of a flag is named outside its declaration."""

    name: str
    places: tuple[str, ...]
    complete: bool


class FlagsDocument(msgspec.Struct, frozen=True, omit_defaults=True):
    """Flags of one engine in one tree, as asked."""

    schema: str
    engine: str
    version: str | None
    root: str
    total: int
    flags: tuple[Flag, ...]
    partial: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    """Of `flags`, those whose values nothing reads, as far as that was looked for (packaged releases)."""
    compared_with: str | None = None
    changes: tuple[Change, ...] | None = None
    uses: tuple[Use, ...] | None = None
    launch: LaunchCheck | None = None


def select(flags: FlagSet, names: Sequence[str]) -> tuple[Flag, ...]:
    """Flags called one of `names`, or with one of them in their name where no flag is called so.

    Raises:
        UnknownNameError: a name fits no flag.
    """
    chosen: dict[str, Flag] = {}
    for name in names:
        spelt = name if name.startswith("-") else "--" + name.replace("_", "-")
        exact = flags.get(spelt)
        part = spelt.lstrip("-").lower()
        hits = [exact] if exact else [f for f in flags.flags if part and any(part in known for known in f.names)]
        if not hits:
            raise UnknownNameError("flag", name, list(flags.by_name))
        chosen.update((flag.names[0], flag) for flag in hits)
    return tuple(chosen.values()) if names else flags.flags


def compare(before: FlagSet, after: FlagSet) -> tuple[Change, ...]:
    """What changed from `before` to `after`, spelling by spelling for what came and went."""
    changes = [Change(name, "removed") for name in sorted(before.by_name.keys() - after.by_name.keys())]
    changes += [Change(name, "added") for name in sorted(after.by_name.keys() - before.by_name.keys())]
    for flag in after.flags:
        old = next((before.by_name[name] for name in flag.names if name in before.by_name), None)
        if old is None:
            continue
        pairs = (
            ("default", old.default_text or old.default, flag.default_text or flag.default),
            ("choices", old.choices_text or old.choices, flag.choices_text or flag.choices),
            ("kind", old.kind, flag.kind),
            ("deprecated", old.deprecated, flag.deprecated),
        )
        changes += [Change(flag.names[0], what, a, b) for what, a, b in pairs if a != b]
    return tuple(changes)


def flags_document(
    engine: str,
    root: str | Path | None,
    names: Sequence[str] = (),
    *,
    version: str | None = None,
    diff: str | Path | None = None,
    show_uses: bool = False,
    launch: str | None = None,
) -> FlagsDocument:
    """Flags of the `engine` in `root`; without one, the packaged flags of the release nearest to `version`.

    Raises:
        TreeError: `root` or `diff` does not hold the engine.
        UnknownNameError: a name of `names` fits no flag.
        InputError: `launch` cannot be split into words.
    """
    from tilewright.collectives.tree import open_tree
    from tilewright.libraries.engine_flags.snapshots import snapshot

    used: list[Use] | None = None
    if root is None:
        if show_uses:
            raise InputError("uses", "--uses searches the engine's sources; pass --root with an installed one.")
        found = snapshot(engine, version)
        chosen = select(found, names)
    else:
        with open_tree(root) as tree:
            found = engine_flags(tree, engine)
            chosen = select(found, names)
            if show_uses and names:
                package = found.flags[0].file.split(f"{engine}/", 1)[0] + engine
                used = []
                for flag in chosen:
                    places, complete = uses(tree, package, flag)
                    used.append(Use(flag.names[0], tuple(places), complete))
    check = withheld(check_launch(found, launch)) if launch is not None else None
    changes, other_version = None, None
    if diff is not None:
        with open_tree(diff) as tree:
            other = engine_flags(tree, engine)
        changes, other_version = compare(other, found), other.version or str(diff)
        if names:
            wanted = {name for flag in chosen for name in flag.names}
            changes = tuple(change for change in changes if change.name in wanted)
    return FlagsDocument(
        "tilewright/flags/1",
        engine,
        found.version,
        str(root) if root is not None else f"packaged flags of {engine} {found.version}",
        len(found.flags),
        chosen,
        found.partial,
        tuple(flag.names[0] for flag in chosen if flag.names[0] in found.unused),
        other_version,
        changes,
        tuple(used) if used is not None else None,
        check,
    )
