"""The `CollectiveBuilder` specialisations of one CUTLASS tree: what each takes, and which collective it gives.

For every specialisation and every schedule tag of the tree, the `enable_if` condition and the class-level
static_asserts are evaluated (`conditions.py`); where both allow the tag, the specialisation's `CollectiveOp` is
followed to the dispatch policies that it can end at.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import Final, Literal

from tilewright.collectives.conditions import Bound, Env
from tilewright.collectives.declarations import Assertion, Range, Scope, Struct
from tilewright.collectives.expressions import type_name
from tilewright.collectives.reach import Reacher

__all__ = ["Builder", "BuilderSet", "Operation", "Refusal"]

Operation = Literal["mma", "epilogue"]

SCHEDULE_INDEX: Final[dict[str, int]] = {"mma": 12, "epilogue": 13}
"""Position of the schedule among the arguments of `CollectiveBuilder`, used where the primary template is not there to
say it: `gemm/collective/collective_builder_decl.hpp`, `epilogue/collective/collective_builder.hpp` (CUTLASS 4.7.0)."""

MAX_UNDECIDED: Final = 4
"""Constants of a builder that are tried both ways: CUTLASS has 3 at most (grouped, ragged, FP8 input)."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A tag that a builder's `enable_if` lets through and its static_assert then refuses."""

    message: str
    line: int


@dataclass(eq=False)
class Builder:
    """One specialisation of `CollectiveBuilder`. `archs` and `op_class` are what it takes ("any" operation class where
    it does not say). `policies` maps each tag that it accepts to the dispatch policies of the collectives it gives."""

    operation: Operation
    struct: Struct
    archs: tuple[str, ...]
    op_class: str
    elements: str
    policies: dict[str, frozenset[str]] = field(default_factory=dict[str, "frozenset[str]"])
    refused: dict[str, Refusal] = field(default_factory=dict[str, Refusal])
    inherited: list[str] = field(default_factory=list[str])
    """Tags that pass only because they derive from a tag that the condition names (`BuilderSet._by_accident`)."""

    @property
    def path(self) -> str:
        return self.struct.path

    @property
    def line(self) -> int:
        return self.struct.line

    @property
    def assertions(self) -> list[Assertion]:
        """Class-level static_asserts."""
        return self.struct.scope.assertions


class BuilderSet(Reacher):
    """The builders of one operation of one tree."""

    def __init__(
        self,
        operation: Operation,
        scope: Scope,
        policies: frozenset[str],
        archs: tuple[str, ...],
        tags: tuple[str, ...],
    ) -> None:
        super().__init__(scope, frozenset(tags) | frozenset(archs), policies)
        self.operation: Operation = operation
        self.archs = archs
        self.tags = tags
        specialisations = scope.structs.get("CollectiveBuilder", [])
        self._at = self._schedule_position(specialisations)
        self.builders = [self._read(struct) for struct in specialisations if struct.args is not None]
        self._reached: dict[tuple[int, str], frozenset[str]] = {}

    def _schedule_position(self, structs: list[Struct]) -> int:
        for struct in structs:
            if struct.args is None:
                for index, param in enumerate(struct.params):
                    if "Schedule" in param.name:
                        return index
        return SCHEDULE_INDEX[self.operation]

    def _read(self, struct: Struct) -> Builder:
        args = struct.args or ()
        condition = self._condition(struct)
        archs = tuple(
            arch
            for arch in self._choices(struct, 0, self.archs)
            if condition is None or self.truth(condition, self._env(struct, arch, None)) is not False
        )
        elements = " ".join(str(args[i]) for i in (2, 5) if i < len(args)) if self.operation == "mma" else ""
        return Builder(self.operation, struct, archs, _op_class(args[1]) if len(args) > 1 else "any", elements)

    def _env(self, struct: Struct, arch: str | None, tag: str | None) -> Env:
        """The environment inside a specialisation whose arch and schedule are given; None leaves one open."""
        bindings: dict[str, str | Bound | None] = dict.fromkeys(param.name for param in struct.params)
        for index, value in ((0, arch), (self._at, tag)):
            param = self._param(struct, index) if value is not None else None
            if param is not None:
                bindings[param] = value
        return Env(bindings, (struct.scope,))

    def _param(self, struct: Struct, index: int) -> str | None:
        """Name of the template parameter that is the argument at `index`; None where the argument is fixed."""
        args = struct.args or ()
        if index >= len(args):
            return None
        arg = self.type_name(args[index])
        plain = arg.args is None and not arg.rest
        return arg.name if plain and any(param.name == arg.name for param in struct.params) else None

    def _choices(self, struct: Struct, index: int, values: tuple[str, ...]) -> tuple[str, ...]:
        """Which of `values` the argument at `index` can be: all of them for a parameter, else the one written."""
        args = struct.args or ()
        if index >= len(args):
            return ()
        if self._param(struct, index) is not None:
            return values
        fixed = self.canonical(self.type_name(args[index]).name)
        return (fixed,) if fixed in values else ()

    def _condition(self, struct: Struct) -> Range | None:
        for arg in reversed(struct.args or ()):
            name = self.type_name(arg)
            if name.name in ("enable_if_t", "enable_if") and name.args:
                return name.args[0]
        return None

    def resolve(self) -> None:
        """Work out, for every builder and every tag, what it gives."""
        for builder in self.builders:
            arch = builder.archs[0] if builder.archs else None
            condition = self._condition(builder.struct)
            named = frozenset(map(self.canonical, condition.texts)) if condition is not None else frozenset[str]()
            needed = self._members_needed(builder.struct)
            stores = self._stores_tag(builder.struct)
            for tag in self._choices(builder.struct, self._at, self.tags):
                env = self._env(builder.struct, arch, tag)
                if condition is not None and self.truth(condition, env) is False:
                    continue
                if self._by_accident(tag, named):
                    builder.inherited.append(tag)
                    continue
                missing = next((m for m in needed if not self._has_member(tag, m)), None)
                if missing is not None:
                    builder.refused[tag] = Refusal(f"the tag has no member {missing}", builder.line)
                    continue
                if self._is_template(tag) and not stores:
                    continue
                reached, refusal = self._give(builder, env)
                if refusal is not None:
                    builder.refused[tag] = refusal
                else:
                    builder.policies[tag] = reached

    def _members_needed(self, struct: Struct) -> tuple[str, ...]:
        """Members of its schedule tag that a builder uses: `BuilderScheduleTag::SchedulerPipelineStageCount`."""
        param = self._param(struct, self._at)
        texts = struct.body.texts if param is not None else []
        return tuple(
            dict.fromkeys(texts[i + 2] for i in range(len(texts) - 2) if texts[i] == param and texts[i + 1] == "::")
        )

    def _has_member(self, tag: str, member: str) -> bool:
        for name in self.ancestors(tag):
            for struct in self.scope.structs.get(name, ()):
                if member in struct.scope.constants or member in struct.scope.aliases:
                    return True
        return False

    def _by_accident(self, tag: str, named: frozenset[str]) -> bool:
        """Whether a condition that names `named` lets a mainloop tag through only as a descendant of another tag.

        SM90's `KernelTmaWarpSpecializedCooperativeFP8Blockwise` derives from `...Cooperative`, so SM120's builders,
        which ask for that base, accept it and ignore what it adds: software scaling would silently not happen. Bases
        made for the purpose (`KernelSchedule...`) do not count as accidents. Epilogue tags derive on purpose.
        """
        if self.operation != "mma" or tag in named or self._is_template(tag):
            return False
        above = (self.ancestors(tag) - {tag}) & named
        return bool(above) and not any(name.startswith("KernelSchedule") for name in above)

    def _is_template(self, tag: str) -> bool:
        structs = self.scope.structs.get(tag)
        return bool(structs and structs[0].params)

    def _stores_tag(self, struct: Struct) -> bool:
        """Whether the builder puts the tag itself into the policy (`using KernelSchedule = BuilderScheduleTag`).

        Schedules that are templates, `Kernel...Sm120<Stages>`, derive from the plain tags, so that most conditions let
        them through; they are meant for the builders that store them.
        """
        param = self._param(struct, self._at)
        aliases = struct.scope.aliases.get("KernelSchedule", ())
        return param is not None and any(alias.value.texts == [param] for alias in aliases)

    def _give(self, builder: Builder, env: Env) -> tuple[frozenset[str], Refusal | None]:
        """Policies that a builder gives in `env`, or why it refuses.

        Constants that depend on what is not bound (is it grouped?) are tried both ways, and a way that a static_assert
        forbids is dropped.
        """
        scope = builder.struct.scope
        outcome = scope.aliases.get("CollectiveOp")
        if not outcome:
            never = next((a for a in scope.assertions if "dependent_false" in a.condition.texts), None)
            message = never.message if never else "it defines no CollectiveOp"
            return frozenset(), Refusal(message, never.line if never else builder.line)
        first = frozenset[str]().union(*(self.reach(alias.value, env) for alias in outcome))
        open_names = sorted(env.undecided)[:MAX_UNDECIDED]
        reached: set[str] = set()
        refusal: Refusal | None = None
        possible = False
        for values in product((False, True), repeat=len(open_names)):
            way = Env(env.bindings, env.scopes, dict(zip(open_names, values, strict=True))) if open_names else env
            broken = next((a for a in scope.assertions if self.truth(a.condition, way) is False), None)
            if broken is not None:
                refusal = refusal or Refusal(broken.message, broken.line)
                continue
            possible = True
            if open_names:
                reached.update(*(self.reach(alias.value, way) for alias in outcome))
            else:
                reached |= first
        return frozenset(reached), None if possible else refusal

    def delegate(self, args: list[Range], env: Env, depth: int) -> frozenset[str]:
        """What another builder gives: `CollectiveBuilder<arch, op class, ..., schedule>` inside a builder."""
        found: set[str] = set()
        if len(args) <= self._at:
            return frozenset()
        archs, tags = self.types(args[0], env, depth), self.types(args[self._at], env, depth)
        op_class = _op_class(args[1])
        for builder in self.builders:
            if archs is not None and archs.isdisjoint(builder.archs):
                continue
            if "any" not in (builder.op_class, op_class) and builder.op_class != op_class:
                continue
            condition = self._condition(builder.struct)
            for tag in self._choices(builder.struct, self._at, tuple(sorted(tags or ()))):
                key = (id(builder), tag)
                if key not in self._reached:
                    self._reached[key] = frozenset()  # a builder that leads back to itself adds nothing
                    inner = self._env(builder.struct, builder.archs[0] if builder.archs else None, tag)
                    if condition is None or self.truth(condition, inner, depth) is not False:
                        self._reached[key] = self._give(builder, inner)[0]
                found |= self._reached[key]
        return frozenset(found)


def _op_class(arg: Range) -> str:
    """`arch::OpClassTensorOp` as TensorOp; "any" for a template parameter."""
    name = type_name(arg).name
    return name.removeprefix("OpClass") if name.startswith("OpClass") and name != "OpClass" else "any"
