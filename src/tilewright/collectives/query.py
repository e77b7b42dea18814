"""Ask a source tree what its CUTLASS can do: `survey` reads every tree under a root, `select` filters.

The public function is `collectives`, which `tilewright collectives` prints.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

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
    Scaling,
    ScheduleTag,
    Suited,
    TreeInfo,
)
from tilewright.collectives.roots import CutlassRoot
from tilewright.collectives.tree import SourceTree, open_tree, printable
from tilewright.errors import InputError, nearest, shown

if TYPE_CHECKING:
    from tilewright.cutlass.config import KernelConfig

__all__ = [
    "ARCHS",
    "Answer",
    "Filters",
    "FitSummary",
    "ForConfig",
    "Survey",
    "collectives",
    "index_of",
    "normal_arch",
    "schedule_tags",
    "survey",
]

ARCHS: Final = ("sm70", "sm80", "sm90", "sm100", "sm101", "sm103", "sm120", "sm121")
"""Archs that CUTLASS has tags for and that a user may ask about; SM121 runs what is built for the Sm120 tag."""

_BUILT_FOR: Final = {"sm121": "sm120"}
_ARCH: Final = re.compile(r"(?:sm_?)?(\d{2,3})([af]?)", re.I)
_SM: Final = re.compile(r"Sm(\d{2,3})(?!\d)")

_REFERENCE_ARCHS: Final[dict[str, tuple[str, ...]]] = {"blockwise": ("sm90",), "block_scaled": ("sm100",)}
"""Where a way of scaling was first written in CUTLASS 3.x, and is documented best: what to read beside another arch's.
Software-scaled FP8: SM90 (example 67); hardware block scaling: SM100 (example 72)."""


class FitSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict of `fit`, without its fields."""

    cutlass: str
    status: str
    stages: int | None
    smem_bytes: int | None
    limit_bytes: int | None
    excess_bytes: int | None
    rules: tuple[str, ...] = ()
    fixes: tuple[str, ...] = ()


class ForConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Which collectives could run a kernel config."""

    config: dict[str, Any]
    verdicts: tuple[Suited, ...]
    """Those that could, then those that look as if they could, each with its reasons; mainloops, then epilogues."""
    fit: FitSummary | None = None
    """What `fit` says about the config with the rules of the tree; None where some collective is missing."""
    first_release: str | None = None
    """Where no mainloop could: the first release with one that could, and its dispatch policy."""
    first_policy: str | None = None
    notes: tuple[str, ...] = ()


class Answer(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="tilewright/collectives/1"):
    """The answer of `collectives` (DESIGN 4.4). `file`s are relative to `root`."""

    cutlass: str
    root: str
    trees: tuple[TreeInfo, ...]
    collectives: tuple[Collective, ...]
    references: tuple[Collective, ...] = ()
    """What to read beside the answer: the same scaling on the arch where it is documented best."""
    schedules: tuple[ScheduleTag, ...] = ()
    unused_policies: tuple[Policy, ...] = ()
    notes: tuple[str, ...] = ()
    for_config: ForConfig | None = msgspec.field(default=None, name="for")


@dataclass(frozen=True, slots=True)
class Filters:
    """Which collectives to show; None shows all."""

    arch: str | None = None
    scaling: Scaling | None = None
    array: bool | None = None
    operation: Literal["mma", "epilogue"] | None = None
    sparse: bool | None = None


@dataclass(frozen=True)
class Survey:
    """Every CUTLASS under one root, read."""

    root: str
    trees: tuple[TreeInfo, ...]
    indexes: tuple[Index, ...]
    """One for each of `trees`; files are relative to the root."""
    notes: tuple[str, ...]


def normal_arch(text: str, field: str = "arch") -> str:
    """`sm120`, `SM_120a`, `120f` or `12.0` as `sm120`.

    Raises:
        InputError: it names no arch that CUTLASS has.
    """
    match = _ARCH.fullmatch(text.strip().replace(".", "") if re.fullmatch(r"\s*\d{1,2}\.\d\s*", text) else text.strip())
    arch = f"sm{match[1]}" if match else ""
    if arch not in ARCHS:
        near = nearest(text, ARCHS)
        msg = f"{field}: {shown(text)} is no arch; legal are {', '.join(ARCHS)}"
        raise InputError(field, f"{msg} (nearest: {near[0]})." if near else f"{msg}.")
    return arch


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

    def builders(refs: Iterable[BuilderRef]) -> tuple[BuilderRef, ...]:
        return tuple(put(ref, file=prefix + ref.file) for ref in refs)

    def refused(refs: Iterable[RefusedBy]) -> tuple[RefusedBy, ...]:
        return tuple(put(ref, file=prefix + ref.file) for ref in refs)

    def requires(items: Iterable[Requirement]) -> tuple[Requirement, ...]:
        return tuple(put(item, file=prefix + item.file) for item in items)

    return put(
        index,
        collectives=tuple(
            put(
                item,
                file=prefix + item.file,
                builders=builders(item.builders),
                requires=requires(item.requires),
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
                builders=builders(tag.builders),
                refused=refused(tag.refused),
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


def matches(item: Collective, filters: Filters) -> bool:
    """Whether a collective is what was asked for. An arch is one that it is for, or whose builders give it."""
    arch = None if filters.arch is None else _BUILT_FOR.get(filters.arch, filters.arch)
    return (
        (arch is None or arch == item.arch or arch in item.runs_on)
        and filters.scaling in (None, item.scaling)
        and filters.array in (None, item.array)
        and filters.operation in (None, item.operation)
        and filters.sparse in (None, item.sparse)
    )


def _references(items: Iterable[Collective], filters: Filters) -> tuple[Collective, ...]:
    """The same scaling on the arch to read it on, where the question is about another arch."""
    archs = _REFERENCE_ARCHS.get(filters.scaling or "", ())
    if filters.arch is None or filters.arch in archs:
        return ()
    return tuple(
        item
        for item in items
        if item.arch in archs
        and item.operation == "mma"
        and not item.sparse
        and item.builders
        and item.scaling == filters.scaling
        and filters.array in (None, item.array)
    )


def _about(tag: ScheduleTag, filters: Filters) -> bool:
    """Whether a tag belongs to the answer: named for the arch, or accepted for it, or for no arch and by no builder."""
    if filters.operation not in (None, tag.operation):
        return False
    if filters.arch is None:
        return True
    arch = _BUILT_FOR.get(filters.arch, filters.arch)
    named = _SM.findall(tag.name)
    if named:
        return f"sm{named[-1]}" == arch
    places = [*tag.builders, *tag.refused]
    return not places or any(arch in place.archs for place in places)


def select(found: Survey, filters: Filters) -> Answer:
    """The part of a survey that `filters` ask for."""
    everything = [item for index in found.indexes for item in index.collectives]
    schedules = (tag for index in found.indexes for tag in index.schedules)
    policies = (policy for index in found.indexes for policy in index.unused_policies)
    arch = None if filters.arch is None else _BUILT_FOR.get(filters.arch, filters.arch)
    return Answer(
        cutlass=found.trees[0].cutlass,
        root=found.root,
        trees=found.trees,
        collectives=tuple(item for item in everything if matches(item, filters)),
        references=_references(everything, filters),
        schedules=tuple(tag for tag in schedules if _about(tag, filters)),
        unused_policies=tuple(
            policy
            for policy in policies
            if (arch is None or arch[2:] in _SM.findall(policy.name))
            and (filters.operation in (None, "mma" if policy.name.startswith("Mainloop") else "epilogue"))
        ),
        notes=found.notes,
    )


def _for_config(found: Survey, items: Iterable[Collective], config: KernelConfig) -> ForConfig:
    from tilewright.collectives.suit import first_that_could, suited
    from tilewright.cutlass.config import config_to_dict
    from tilewright.cutlass.fit import fit

    verdicts = suited(items, config)
    ruleset = found.trees[0].ruleset
    could = any(one.can and one.operation == "mma" for one in verdicts)
    summary = None
    if could and ruleset is not None:
        budget = fit(msgspec.structs.replace(config, cutlass=ruleset))
        summary = FitSummary(
            cutlass=ruleset,
            status=budget.status,
            stages=budget.stages,
            smem_bytes=budget.smem_bytes,
            limit_bytes=budget.limit_bytes,
            excess_bytes=budget.excess_bytes,
            rules=tuple(budget.rules),
            fixes=tuple(fix.note for fix in budget.fixes),
        )
    first = None if could else first_that_could(config)
    notes: list[str] = []
    if config.cutlass not in {tree.cutlass for tree in found.trees}:
        notes.append(f"The config says CUTLASS {config.cutlass}; it is judged by the tree, {found.trees[0].cutlass}.")
    if could and config.arch in ("sm120", "sm121") and config.cluster != (1, 1, 1):
        notes.append(
            "The collective that could run it asserts nothing about the cluster. Above 1x1x1 its copies ask for TMA "
            "multicast, which SM120 does not have: the types compile, so try it on the GPU before relying on it."
        )
    return ForConfig(
        config=config_to_dict(config),
        verdicts=verdicts,
        fit=summary,
        first_release=first[0] if first else None,
        first_policy=first[1] if first else None,
        notes=tuple(notes),
    )


def collectives(root: str | Path, filters: Filters | None = None, config: KernelConfig | None = None) -> Answer:
    """What the CUTLASS headers under `root` (a folder or a wheel) can do; with `config`, which could run it.

    With a config, `collectives` holds those that could, and `for` the verdict on each that looks as if it could.

    Raises:
        TreeError: `root` cannot be read or holds no CUTLASS.
    """
    filters = filters or Filters()
    with open_tree(root) as tree:
        found = survey(tree)
        answer = select(found, filters)
        if config is None:
            return answer
        judged = _for_config(found, answer.collectives, config)
    able = {(one.file, one.line) for one in judged.verdicts if one.can}
    kept = tuple(item for item in answer.collectives if (item.file, item.line) in able)
    return msgspec.structs.replace(answer, collectives=kept, references=(), for_config=judged)
