"""Ask a source tree what its CUTLASS can do: what `survey` read of it, filtered, and held against a config.

The public function is `collectives`, which `tilewright collectives` prints.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from tilewright.arch import arch_name
from tilewright.collectives.answer import Answer, FitSummary, ForConfig
from tilewright.collectives.model import Collective, Scaling, ScheduleTag
from tilewright.collectives.survey import Survey, survey
from tilewright.collectives.tree import open_tree
from tilewright.errors import InputError, nearest, shown

if TYPE_CHECKING:
    from tilewright.cutlass.config import KernelConfig

__all__ = ["ARCHS", "Filters", "collectives", "normal_arch"]

ARCHS: Final = ("sm70", "sm80", "sm90", "sm100", "sm101", "sm103", "sm120", "sm121")
"""Archs that CUTLASS has tags for and that a user may ask about; SM121 runs what is built for the Sm120 tag."""

_BUILT_FOR: Final = {"sm121": "sm120"}
_SM: Final = re.compile(r"Sm(\d{2,3})(?!\d)")

_REFERENCE_ARCHS: Final[dict[str, tuple[str, ...]]] = {"blockwise": ("sm90",), "block_scaled": ("sm100",)}
"""Where a way of scaling was first written in CUTLASS 3.x, and is documented best: what to read beside another arch's.
Software-scaled FP8: SM90 (example 67); hardware block scaling: SM100 (example 72)."""


@dataclass(frozen=True, slots=True)
class Filters:
    """Which collectives to show; None shows all."""

    arch: str | None = None
    scaling: Scaling | None = None
    array: bool | None = None
    operation: Literal["mma", "epilogue"] | None = None
    sparse: bool | None = None


def normal_arch(text: str, field: str = "arch") -> str:
    """`sm120`, `SM_120a`, `120f` or `12.0` as `sm120`.

    Raises:
        InputError: it names no arch that CUTLASS has.
    """
    arch = arch_name(text)
    if arch not in ARCHS:
        near = nearest(text, ARCHS)
        msg = f"{field}: {shown(text)} is no arch; legal are {', '.join(ARCHS)}"
        raise InputError(field, f"{msg} (nearest: {near[0]})." if near else f"{msg}.")
    return arch


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
        tree = found.trees[0].cutlass
        notes.append(f"Judged by the tree, which is CUTLASS {tree}; for the config alone it is {config.cutlass}.")
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
