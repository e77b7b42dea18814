"""Build the index of one CUTLASS tree (DESIGN 4.4): every collective, the builders that give it, every schedule tag."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

from tilewright.collectives.builders import Builder, BuilderSet, Operation
from tilewright.collectives.declarations import Scope, Struct, parse
from tilewright.collectives.expressions import type_name
from tilewright.collectives.lexer import Source, Tokens, tokenize
from tilewright.collectives.model import (
    BuilderRef,
    Collective,
    Index,
    Policy,
    RefusedBy,
    ScheduleTag,
)
from tilewright.collectives.policies import describe
from tilewright.collectives.requirements import operands_of, requirements_of
from tilewright.collectives.roots import CutlassRoot
from tilewright.collectives.specialisations import Specialisation, find_specialisations
from tilewright.errors import TreeError

__all__ = ["OP_CLASSES", "build_index"]

OP_CLASSES: Final = {
    "TensorOp": "tensor_op",
    "BlockScaledTensorOp": "block_scaled",
    "SparseTensorOp": "sparse",
    "BlockScaledSparseTensorOp": "block_scaled_sparse",
    "Simt": "simt",
}
"""`cutlass::arch::OpClass*` (`cutlass/arch/mma.h`) by the names that kernel configs use."""

_DECLARATIONS: Final[dict[Operation, tuple[str, ...]]] = {
    "mma": (
        "cutlass/gemm/dispatch_policy.hpp",
        "cutlass/gemm/collective/collective_builder_decl.hpp",
        "cutlass/gemm/collective/collective_builder.hpp",
    ),
    "epilogue": (
        "cutlass/epilogue/dispatch_policy.hpp",
        "cutlass/epilogue/collective/collective_builder.hpp",
        "cutlass/epilogue/collective/detail.hpp",
        "cutlass/gemm/dispatch_policy.hpp",
    ),
}
"""Headers beside the builders that declare schedules, policies and the traits in the builders' conditions."""

_FOLDERS: Final[dict[Operation, str]] = {"mma": "cutlass/gemm/collective", "epilogue": "cutlass/epilogue/collective"}
_TEMPLATES: Final[dict[Operation, str]] = {"mma": "CollectiveMma", "epilogue": "CollectiveEpilogue"}
_ARCH_TAGS: Final = "cutlass/arch/arch.h"
_SM: Final = re.compile(r"Sm(\d{2,3})(?!\d)")
_POLICY: Final[dict[Operation, re.Pattern[str]]] = {
    "mma": re.compile(r"Mainloop[A-Z]\w*"),
    "epilogue": re.compile(r"Sm\d{2,3}[A-Z]\w*"),
}
_TAG: Final[dict[Operation, re.Pattern[str]]] = {
    "mma": re.compile(r"Kernel[A-Z]\w*"),
    "epilogue": re.compile(r"(?!Sm\d|Kernel|Mainloop)[A-Z]\w*"),
}
_EPILOGUE_TAGS_IN_GEMM: Final = ("EpilogueTransposed", "EpilogueDefault")
"""Epilogue schedules that CUTLASS declares in gemm/dispatch_policy.hpp."""
Role = Literal["tag", "category", "chosen"]
_NO_COLLECTIVE: Final = "Its builder gives a plain class (DefaultEpilogue or the like), no CollectiveEpilogue."
_NOT_TAGS: Final = frozenset({"EpilogueTileAuto", "CollectiveBuilder", "CallbacksBuilder", "EmptyStorage"})


@dataclass(eq=False)
class _Side:
    """Everything about one operation, mma or epilogue."""

    operation: Operation
    scope: Scope
    found: list[tuple[str, Specialisation]]
    policies: dict[str, Struct]
    tags: dict[str, Struct]
    builders: list[Builder]
    mentioned: frozenset[str]
    """Policies that the builders' headers name anywhere."""

    @cached_property
    def roles(self) -> dict[str, Role]:
        """What each schedule struct is for."""
        templates = {name for name, struct in self.tags.items() if struct.params}
        bodies = [builder.struct.body for builder in self.builders] + [s.body for s in self.policies.values()]
        chosen = {text for body in bodies for text in body.texts if text in templates}
        return {name: _role(name, struct, chosen) for name, struct in self.tags.items()}


def _tokens(root: CutlassRoot, path: str, notes: list[str]) -> Tokens | None:
    try:
        return tokenize(Source(path, root.read_text(path)))
    except TreeError as error:
        notes.append(error.msg)
        return None


def _arch_names(root: CutlassRoot, notes: list[str]) -> tuple[str, ...]:
    tokens = _tokens(root, _ARCH_TAGS, notes) if root.tree.exists(root.inside(_ARCH_TAGS)) else None
    names = [name for name in parse(tokens).structs if _SM.fullmatch(name)] if tokens else []
    return tuple(sorted(names, key=lambda name: int(name[2:])))


def _read_side(root: CutlassRoot, operation: Operation, archs: tuple[str, ...], notes: list[str]) -> _Side:
    folder = _FOLDERS[operation]
    template = _TEMPLATES[operation]
    scope = Scope()
    own: dict[str, Struct] = {}
    words: set[str] = set()
    policies: dict[str, Struct] = {}
    found: list[tuple[str, Specialisation]] = []
    declared = [path for path in _DECLARATIONS[operation] if root.tree.exists(root.inside(path))]
    inlined = list(root.files((".inl",), f"{folder}/builders"))
    for path in (*declared, *inlined):
        tokens = _tokens(root, path, notes)
        if tokens is None:
            continue
        one = parse(tokens)
        if operation == "epilogue" and path.startswith("cutlass/gemm/"):
            one.structs = {name: one.structs[name] for name in _EPILOGUE_TAGS_IN_GEMM if name in one.structs}
        scope.merge(one)
        if path not in declared:
            words.update(tokens.texts)
        else:
            first = {name: structs[0] for name, structs in one.structs.items() if structs[0].args is None}
            own.update(first)
            if path.endswith("/dispatch_policy.hpp"):
                policies.update({name: first[name] for name in first if _POLICY[operation].fullmatch(name)})
    for path in root.files((".hpp", ".h"), folder):
        if path.startswith(f"{folder}/builders/"):
            continue
        try:
            text = root.read_text(path)
        except TreeError as error:
            notes.append(error.msg)
            continue
        if template in text:
            found += [(path, spec) for spec in find_specialisations(Source(path, text)) if spec.template == template]
    tags = {name: struct for name, struct in own.items() if _TAG[operation].fullmatch(name) and name not in _NOT_TAGS}
    if operation == "epilogue":
        tags = {name: struct for name, struct in tags.items() if _is_schedule(name, struct)}
    reachable = frozenset({spec.policy for _, spec in found}) | frozenset(policies)
    builders = BuilderSet(operation, scope, reachable, archs, tuple(tags))
    builders.resolve()
    return _Side(operation, scope, found, policies, tags, builders.builders, frozenset(words & set(policies)))


def _is_schedule(name: str, struct: Struct) -> bool:
    """Whether a struct of the epilogue's headers is a schedule tag: named as one, and not a helper with parameters."""
    words = ("WarpSpecialized", "NoSmem", "Vectorized", "ScheduleAuto", "Transposed", "Default")
    return any(word in name for word in words) and (not struct.params or "Elementwise" in name) and "Policy" not in name


def _archs(builder: Builder) -> tuple[str, ...]:
    return tuple(arch.lower() for arch in builder.archs)


def _op_class(builder: Builder) -> str:
    return OP_CLASSES.get(builder.op_class, "any" if builder.op_class == "any" else builder.op_class)


def _is_array_tag(side: _Side, tag: str) -> bool:
    struct = side.tags.get(tag)
    words = [tag, *(text for base in struct.bases for text in base.texts)] if struct is not None else [tag]
    return any("PtrArray" in word for word in words)


def _gives(side: _Side, builder: Builder, spec: Specialisation, array: bool) -> tuple[str, ...]:
    """Tags with which `builder` gives the specialisation.

    Where a builder decides by the layouts and not by the tag whether the kernel is grouped, a pointer-array tag counts
    for the array collective only: nobody passes one on purpose for the other.
    """
    if spec.policy not in {policy for reached in builder.policies.values() for policy in reached}:
        return ()
    same = [other for _, other in side.found if other.policy == spec.policy]
    if len(same) > 1 and side.operation == "mma":  # one policy for float and for complex operands
        is_complex = "complex" in " ".join(spec.args)
        if is_complex != ("complex" in builder.elements):
            return ()
    tags = [tag for tag, reached in builder.policies.items() if spec.policy in reached and side.roles[tag] == "tag"]
    if not array:
        tags = [tag for tag in tags if not _is_array_tag(side, tag)]
    return tuple(tags)


def _collectives(side: _Side) -> list[Collective]:
    answer: list[Collective] = []
    for path, spec in side.found:
        kind = describe(spec.policy)
        refs: list[BuilderRef] = []
        giving: list[Builder] = []
        for builder in side.builders:
            tags = _gives(side, builder, spec, kind.array)
            if tags:
                giving.append(builder)
                refs.append(BuilderRef(builder.path, builder.line, _archs(builder), _op_class(builder), tags))
        schedules = dict.fromkeys(tag for ref in refs for tag in ref.schedules)
        note = None
        if not refs:
            note = "No CollectiveBuilder specialization in this tree gives it; its type has to be written out by hand."
        answer.append(
            Collective(
                name=f"{spec.template}<{spec.policy}>",
                file=path,
                line=spec.line,
                arch=kind.arch,
                runs_on=tuple(dict.fromkeys(a for ref in refs for a in ref.archs)),
                operation=side.operation,
                policy=spec.policy,
                array=kind.array,
                scaling=kind.scaling,
                sparse=kind.sparse,
                mixed_input=kind.mixed_input,
                schedules=tuple(schedules),
                builders=tuple(refs),
                op_classes=tuple(dict.fromkeys(ref.op_class for ref in refs)),
                operands=operands_of(giving),
                requires=requirements_of(path, spec, giving),
                note=note,
            )
        )
    return answer


def _role(name: str, struct: Struct, chosen: set[str]) -> Role:
    if name in chosen:
        return "chosen"
    if name.startswith("KernelSchedule") and not struct.final and not name.endswith("Auto"):
        return "category"
    return "tag"


def _schedules(side: _Side) -> list[ScheduleTag]:
    answer: list[ScheduleTag] = []
    for name, struct in side.tags.items():
        role = side.roles[name]
        refs = [
            BuilderRef(builder.path, builder.line, _archs(builder), _op_class(builder))
            for builder in side.builders
            if name in builder.policies and role != "chosen"
        ]
        inherited = [builder for builder in side.builders if name in builder.inherited]
        refused = [
            RefusedBy(builder.path, refusal.line, _archs(builder), _op_class(builder), refusal.message)
            for builder in side.builders
            if (refusal := builder.refused.get(name)) is not None
        ]
        answer.append(
            ScheduleTag(
                name=name,
                file=struct.path,
                line=struct.line,
                operation=side.operation,
                role=role,
                bases=tuple(dict.fromkeys(type_name(base).name or str(base) for base in struct.bases)),
                builders=tuple(refs),
                refused=tuple(refused),
                note=_tag_note(side, name, role, bool(refs), refused, inherited),
            )
        )
    answer += _aliases(side, {tag.name: tag for tag in answer})
    return answer


def _tag_note(
    side: _Side, name: str, role: Role, taken: bool, refused: list[RefusedBy], inherited: list[Builder]
) -> str | None:
    if role == "chosen":
        return "A builder puts it into the dispatch policy by itself; it is not passed to one."
    if role == "category":
        return None
    if taken:
        given = [builder for builder in side.builders if name in builder.policies]
        return None if any(builder.policies[name] for builder in given) else _NO_COLLECTIVE
    if refused:
        return "Every builder whose conditions let it through refuses it in a static_assert."
    if inherited:
        bases = ", ".join(type_name(base).name for base in side.tags[name].bases)
        return (
            f"No CollectiveBuilder specialization is made for it; some take it as its base {bases} and drop the rest."
        )
    return "Schedule tag present, no CollectiveBuilder specialization in this tree accepts it."


def _aliases(side: _Side, tags: dict[str, ScheduleTag]) -> list[ScheduleTag]:
    """Other names of tags: `using KernelX = KernelY;`."""
    answer: list[ScheduleTag] = []
    for name, aliases in side.scope.aliases.items():
        target = type_name(aliases[0].value).name
        if target in tags and name not in tags and not aliases[0].params and _TAG[side.operation].fullmatch(name):
            tag = tags[target]
            answer.append(
                ScheduleTag(
                    name=name,
                    file=aliases[0].value.tokens.source.path,
                    line=aliases[0].value.line,
                    operation=side.operation,
                    role=tag.role,
                    alias_of=target,
                    builders=tag.builders,
                    refused=tag.refused,
                    note=f"Another name of {target}.",
                )
            )
    return answer


def _unused_policies(side: _Side) -> list[Policy]:
    used = {spec.policy for _, spec in side.found}
    bases = {text for struct in side.policies.values() for base in struct.bases for text in base.texts}
    answer: list[Policy] = []
    for name, struct in side.policies.items():
        if name in used:
            continue
        if name in bases:
            note = "A base of other policies."
        elif name in side.mentioned:
            note = "Builders name it on the way to another policy."
        else:
            note = "Dispatch policy present, no collective in this tree is specialised for it."
        answer.append(Policy(name, struct.path, struct.line, note))
    return answer


def build_index(root: CutlassRoot) -> Index:
    """Read the headers of `root` and say what they can do. Files in the answer are relative to the include folder.

    Parts that cannot be read or understood are left out and named in `notes`; the rest is answered.
    """
    notes: list[str] = []
    archs = _arch_names(root, notes)
    sides = [_read_side(root, operation, archs, notes) for operation in ("mma", "epilogue")]
    return Index(
        version=root.version,
        fingerprint=root.fingerprint,
        collectives=tuple(item for side in sides for item in _collectives(side)),
        schedules=tuple(item for side in sides for item in _schedules(side)),
        unused_policies=tuple(item for side in sides for item in _unused_policies(side)),
        builders=sum(len(side.builders) for side in sides),
        notes=tuple(notes),
    )
