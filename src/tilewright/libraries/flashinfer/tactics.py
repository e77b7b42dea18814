"""Every tactic that FlashInfer compiles for an architecture, each with its verdict, read from its real sources.

The build functions say which translation units are written (`build.py`), the units which kernels are instantiated
(`sources.py`), the launchers' own type aliases what those kernels are (`libraries.kernel_config`), and
`tilewright.cutlass.fit` whether they can run. Nothing of FlashInfer is imported or run.
"""

from __future__ import annotations

import re
from typing import Any, Final

from tilewright.collectives.tree import SourceTree
from tilewright.cutlass.budget import Budget
from tilewright.cutlass.config import config_to_dict, parse_config
from tilewright.cutlass.fit import fit
from tilewright.errors import ConfigError, TreeError
from tilewright.libraries.cpp_source.kernels import Root
from tilewright.libraries.cpp_source.tokens import NotRead
from tilewright.libraries.cpp_source.types import Type
from tilewright.libraries.flashinfer.build import BuildReader
from tilewright.libraries.flashinfer.layout import Layout, find_layout
from tilewright.libraries.flashinfer.model import Op, Place, Report, Tactic, summarize
from tilewright.libraries.flashinfer.sources import Instantiation, SourceReader
from tilewright.libraries.flashinfer.target import target_of
from tilewright.libraries.kernel_config import OtherArchitecture, config_of, tile_of
from tilewright.libraries.python_source.limits import CannotFollow

MOE_BUILDERS: Final = "jit/fused_moe.py"
_GEMM_FOLDERS: Final = ("jit/gemm",)
_MOE_BUILDER: Final = re.compile(r"gen_cutlass_\w*moe\w*")
"""Build functions of the CUTLASS MoE module; others of that file fetch finished kernels (TRT-LLM's cubins)."""
_SWAP: Final = re.compile(r"(?i)swap_?ab_?")
_TRUE: Final = frozenset({"true", "1"})


def read_tactics(tree: SourceTree, op: Op = "moe", arch: str = "sm120") -> list[Tactic]:
    """Every tactic that the FlashInfer in `tree` compiles for `arch`, in the library's own order.

    Raises:
        TreeError: there is no FlashInfer, or its generator cannot be followed (says where, and what stopped it).
    """
    return _Reader(find_layout(tree), arch).tactics(op)


def read_report(tree: SourceTree, op: Op = "moe", arch: str = "sm120") -> Report:
    """`read_tactics` with everything around it: versions, summary, the autotuner's ids.

    Raises:
        TreeError: as `read_tactics`.
    """
    from tilewright.libraries.flashinfer.runtime import with_runtime_ids

    layout = find_layout(tree)
    reader = _Reader(layout, arch)
    tactics = reader.tactics(op)
    notes = list(reader.notes)
    if reader.sources.patched:
        notes.append(
            f"{', '.join(sorted(reader.sources.patched))} carries the patch of `tilewright fix`: where CUTLASS's own "
            "stage count overflows, the kernel has the next one that fits."
        )
    runtime = []
    if op == "moe" and arch in ("sm120", "sm121"):
        tactics, runtime, more = with_runtime_ids(layout, reader.sources, tactics)
        notes += more
    return Report(
        library="flashinfer",
        library_version=layout.version,
        cutlass=reader.cutlass,
        arch=arch,
        op=op,
        root=tree.name,
        tactics=tactics,
        summary=summarize(tactics),
        runtime=runtime,
        notes=notes,
    )


def unreadable(why: str, layout: Layout, place: str) -> TreeError:
    """The error for sources that cannot be followed."""
    where = f" ({place})" if place else ""
    return TreeError(
        "root",
        f"The kernel generator of FlashInfer {layout.version} cannot be followed{where}: {why}. Nothing was guessed; "
        "check that the tree is whole, and report the version if it is.",
    )


class _Reader:
    """Reads the tactics of one FlashInfer for one architecture."""

    def __init__(self, layout: Layout, arch: str) -> None:
        self.layout, self.arch, self.target = layout, arch, target_of(arch)
        self.sources = SourceReader(layout, self.target)
        self.notes: list[str] = []
        self.cutlass, self.unknown_cutlass = _cutlass(layout, self.notes)

    def tactics(self, op: Op) -> list[Tactic]:
        files = [MOE_BUILDERS] if op == "moe" else self._gemm_files()
        out: list[Tactic] = []
        found = False
        for file in files:
            try:
                reader = BuildReader(self.layout, target=self.target)
                builders = [
                    name for name in reader.builders(file) if bool(_MOE_BUILDER.fullmatch(name)) is (op == "moe")
                ]
            except CannotFollow as stop:
                if op == "moe":
                    raise unreadable(stop.why, self.layout, stop.where) from None
                self.notes.append(f"{stop.where or file} was not read: {stop.why}.")
                continue
            for builder in builders:
                found = True
                out.extend(self._module(reader, file, builder, op))
            if reader.assumed:
                self.notes.append(f"Taken for the machine that builds: {'; '.join(sorted(reader.assumed))}.")
        if not found:
            place = self.layout.inside(files[0]) if files else self.layout.package
            raise unreadable(f"no build function for {self.arch} is in it", self.layout, place)
        if not out:
            self.notes.append(f"The build functions make no {op} kernel for {self.arch}.")
        return out

    def _gemm_files(self) -> list[str]:
        """Files of build functions for GEMMs, relative to the package: those that mention the architecture at all."""
        prefix = len(self.layout.package) + 1 if self.layout.package else 0
        out: list[str] = []
        for folder in _GEMM_FOLDERS:
            for path in self.layout.tree.files((".py",), self.layout.inside(folder)):
                text = self.sources.text(path) or ""
                if any(self.target.builder.fullmatch(name) for name in re.findall(r"^def (\w+)\(", text, re.M)):
                    out.append(path[prefix:])
        return sorted(out, key=lambda path: (path.count("/"), not path.endswith("core.py"), path))

    def _module(self, reader: BuildReader, file: str, builder: str, op: Op) -> list[Tactic]:
        try:
            modules = reader.build(file, builder)
        except CannotFollow as stop:
            if op == "moe":
                raise unreadable(stop.why, self.layout, stop.where) from None
            place = Place(stop.file or self.layout.inside(file), stop.line or 1)
            return [
                self._unread(builder, f"its build function cannot be followed: {stop.why}", place, place, place, op)
            ]
        out: list[Tactic] = []
        for module in modules:
            for instance in self.sources.instantiations(module, self.target.unit):
                try:
                    tactic = self._tactic(instance, op)
                except OtherArchitecture:
                    continue
                out.append(tactic)
        return out

    def _tactic(self, instance: Instantiation, op: Op) -> Tactic:
        finding = instance.problem or instance.filtered
        root = instance.kernel.root if instance.kernel is not None else finding.root if finding is not None else None
        assert root is not None
        name, source, emitted = self._name(instance, root), self._source(instance, root), self._emitted(instance)
        if instance.kernel is None:
            assert finding is not None
            launcher = Place(finding.file, finding.line)
            tactic = self._unread(name, finding.why, source, launcher, emitted, op)
            if instance.filtered is not None:
                return Tactic(
                    name=name, source=source, config=None, verdict=tactic.verdict, op=op, launcher=launcher,
                    emitted=emitted, filtered_by=f"{launcher}: {finding.why}",
                )  # fmt: skip
            return tactic
        launcher = Place(instance.kernel.file, instance.kernel.line)
        swap = next((text for key, text in root.names.items() if _SWAP.fullmatch(key)), "false")
        try:
            raw = config_of(instance.kernel.type, swap in _TRUE, self.arch)
            config, verdict = self._verdict(raw, name)
        except OtherArchitecture:
            raise
        except NotRead as stop:
            place = Place(stop.file, stop.line) if stop.file else launcher
            return self._unread(name, stop.why, source, place, emitted, op)
        except ConfigError as stop:
            return self._unread(name, f"the model has no word for it: {stop.msg}", source, launcher, emitted, op)
        tactic = Tactic(
            name=name, source=source, config=config, verdict=verdict, op=op, launcher=launcher, emitted=emitted
        )
        if launcher.file not in self.sources.patched:
            return tactic
        from tilewright.libraries.flashinfer.fix_patched import healed

        return healed(tactic)

    def _verdict(self, raw: dict[str, Any], name: str) -> tuple[dict[str, Any], Budget]:
        config = parse_config({**raw, "cutlass": self.cutlass, "id": name})
        if self.unknown_cutlass:
            return config_to_dict(config), Budget(id=name, status="unsupported", cause=self.unknown_cutlass)
        return config_to_dict(config), fit(config)

    def _unread(self, name: str, why: str, source: Place, launcher: Place, emitted: Place, op: Op) -> Tactic:
        cause = f"{launcher}: {why}."
        return Tactic(
            name=name, source=source, config=None, verdict=Budget(id=name, status="unsupported", cause=cause), op=op,
            launcher=launcher, emitted=emitted,
        )  # fmt: skip

    def _name(self, instance: Instantiation, root: Root) -> str:
        if instance.operation is not None and instance.operation.name:
            return instance.operation.name
        if instance.several and instance.kernel is not None:
            return f"{root.label}::{instance.kernel.alias}"
        return root.label

    def _source(self, instance: Instantiation, root: Root) -> Place:
        """The line that lists the tile: in the generator, build function, template or launcher."""
        operation, rendered = instance.operation, instance.unit.rendered
        if operation is not None:
            return Place(*(operation.tile_at or operation.made_at))
        if rendered is None:
            return Place(instance.module.file, instance.module.line)
        if rendered.tile_at is not None:
            return Place(*rendered.tile_at)
        tile = _tile_type(instance)
        if tile is not None and tile.at is not None and not root.is_macro:
            return Place(tile.at.file, tile.at.line)
        return self._in_template(rendered.template, root.name)

    def _in_template(self, template: str, name: str) -> Place:
        lines = (self.sources.text(template) or "").splitlines()
        return Place(template, next((i for i, line in enumerate(lines, 1) if name in line), 1))

    def _emitted(self, instance: Instantiation) -> Place:
        operation, rendered = instance.operation, instance.unit.rendered
        if operation is not None:
            return Place(*operation.made_at)
        if rendered is not None:
            return Place(*rendered.called_at)
        return Place(instance.module.file, instance.module.line)


def _tile_type(instance: Instantiation) -> Type | None:
    """The tile of the instance's mainloop, as the launcher spells it."""
    kernel = instance.kernel.type if instance.kernel is not None else None
    try:
        return tile_of(kernel) if kernel is not None else None
    except NotRead:
        return None


def _cutlass(layout: Layout, notes: list[str]) -> tuple[str, str]:
    """The CUTLASS release whose rules the vendored headers follow, and why there is none ("" when there is one)."""
    from tilewright.collectives.known import identify, nearest_known

    root = layout.cutlass()
    known = identify(root)
    if known is None:
        nearest = nearest_known(root)
        examples = ", ".join(nearest.examples[:2])
        reason = (
            f"The CUTLASS headers of this FlashInfer ({root.include}, reporting {root.version}) match no tree whose "
            f"rules are known; the nearest is {nearest.tree.name}, {nearest.differing} files apart ({examples}). "
            "`tilewright probe` compiles against them."
        )
        return root.version, reason
    if known.ruleset != root.version:
        notes.append(
            f"The vendored CUTLASS reports {root.version} and has the content of {known.name}: the rules of "
            f"{known.ruleset} apply."
        )
    return known.ruleset, ""
