"""Every CUTLASS under one root, read: an index of each tree, placed under the root, with what its release is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from tilewright.collectives import cache
from tilewright.collectives.known import first_seen, first_with, identify, nearest_known
from tilewright.collectives.model import (
    BuilderRef,
    Collective,
    Index,
    Policy,
    RefusedBy,
    Requirement,
    ScheduleTag,
    TreeInfo,
)
from tilewright.collectives.roots import CutlassRoot
from tilewright.collectives.tree import SourceTree, printable

T = TypeVar("T", BuilderRef, RefusedBy, Requirement)

__all__ = ["Survey", "index_of", "schedule_tags", "survey"]


@dataclass(frozen=True)
class Survey:
    """Every CUTLASS under one root, read."""

    root: str
    trees: tuple[TreeInfo, ...]
    indexes: tuple[Index, ...]
    """One for each of `trees`; files are relative to the root."""
    notes: tuple[str, ...]


def index_of(root: CutlassRoot) -> Index:
    """The index of one CUTLASS tree, from the cache where its content was read before. Files are relative to its
    include folder."""
    kept = cache.load("indexes", root.fingerprint, Index)
    if kept is not None and kept.fingerprint == root.fingerprint:
        return kept if kept.version == root.version else msgspec.structs.replace(kept, version=root.version)
    from tilewright.collectives.index import build_index  # the lexer and the evaluator, not needed for what is cached

    index = build_index(root)
    if not index.notes:  # what could not be read this time may be readable next time
        cache.store("indexes", root.fingerprint, index)
    return index


def schedule_tags(root: CutlassRoot) -> frozenset[str]:
    """Names of every schedule tag of a tree: the names that may reach a compiler (DESIGN 4.2)."""
    return frozenset(tag.name for tag in index_of(root).schedules)


def _info(root: CutlassRoot, index: Index) -> TreeInfo:
    known = identify(root)
    near = _nearest(root) if known is None else None
    owner = root.owner
    return TreeInfo(
        cutlass=known.release(root.version) if known is not None else root.version,
        reported=root.version,
        known=", ".join(known.names) if known is not None else None,
        ruleset=known.ruleset if known is not None else None,
        nearest=near,
        fingerprint=root.fingerprint,
        include=printable(root.include),
        library=f"{owner.name} {owner.version}" if owner is not None else None,
        copies=tuple(printable(copy) for copy in root.copies),
        collectives=len(index.collectives),
        builders=index.builders,
    )


def _nearest(root: CutlassRoot) -> str:
    """What an unknown tree is nearest to, in words; from the cache where its content was compared before."""
    kept = cache.load("nearest", root.fingerprint, str)
    if kept is None:
        found = nearest_known(root)
        kept = f"{found.tree.name}, {found.differing} of {found.counted} files differ"
        cache.store("nearest", root.fingerprint, kept)
    return kept


def survey(tree: SourceTree) -> Survey:
    """Read every distinct CUTLASS of `tree`.

    Raises:
        TreeError: there is none.
    """
    trees: list[TreeInfo] = []
    indexes: list[Index] = []
    for number, root in enumerate(tree.cutlass_roots()):
        index = index_of(root)
        trees.append(_info(root, index))
        indexes.append(_placed(index, root, number))
    notes = [*tree.notes, *(note for index in indexes for note in index.notes)]
    return Survey(tree.name, tuple(trees), tuple(indexes), tuple(dict.fromkeys(map(printable, notes))))


def _placed(index: Index, root: CutlassRoot, number: int) -> Index:
    """`index` with its files relative to the root that was asked about, and with the copies of each file."""
    put = msgspec.structs.replace
    include = printable(root.include)
    prefix = f"{include}/" if include else ""
    copies = [f"{printable(copy)}/" if copy else "" for copy in root.copies]

    def moved(items: Iterable[T]) -> tuple[T, ...]:
        return tuple(put(item, file=prefix + item.file) for item in items)

    return put(
        index,
        collectives=tuple(
            put(
                item,
                file=prefix + item.file,
                builders=moved(item.builders),
                requires=moved(item.requires),
                copies=tuple(copy + item.file for copy in copies),
                note=item.note if item.builders else _unbuilt(item),
                tree=number,
            )
            for item in index.collectives
        ),
        schedules=tuple(
            put(
                tag,
                file=prefix + tag.file,
                builders=moved(tag.builders),
                refused=moved(tag.refused),
                note=_tag_note(tag),
                tree=number,
            )
            for tag in index.schedules
        ),
        unused_policies=tuple(
            put(policy, file=prefix + policy.file, note=_policy_note(policy), tree=number)
            for policy in index.unused_policies
        ),
    )


def _since(version: str) -> str:
    return f"{version} or before" if version == first_seen().oldest else version


def _unbuilt(item: Collective) -> str | None:
    since = first_seen().built.get(item.policy)
    return f"{item.note} A builder for it is first present in CUTLASS {_since(since)}." if since else item.note


def _tag_note(tag: ScheduleTag) -> str | None:
    """The note of a tag, with the release that first accepts a tag that this tree does not."""
    if tag.builders or tag.role != "tag" or tag.note is None:
        return tag.note
    accepted = first_seen().accepted.get(tag.name)
    if not accepted:
        return f"{tag.note} No release up to {first_seen().newest} has one."
    versions = sorted(set(accepted.values()), key=lambda text: tuple(map(int, text.split("."))))
    return f"{tag.note} First present in CUTLASS {_since(versions[0])}."


def _policy_note(policy: Policy) -> str | None:
    found = first_with(policy.name)
    if found is None or policy.note is None or "no collective" not in policy.note:
        return policy.note
    return f"{policy.note} First present in CUTLASS {_since(found[0])}."
