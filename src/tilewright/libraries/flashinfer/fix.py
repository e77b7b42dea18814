"""`fix`: what a user can apply so that FlashInfer's overflowing tactics run, or are not tried (DESIGN: cheapest first).

`blocklist` needs no build and changes no speed; `patch` needs a rebuild and makes the tactics run. Both are made from
the tree itself, and the model recomputes every tactic under them.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from tilewright.collectives.tree import SourceTree
from tilewright.cutlass.config import parse_config
from tilewright.cutlass.fit import fit
from tilewright.errors import ToolError, TreeError
from tilewright.libraries.flashinfer.fix_blocklist import ANY, make_blocklist, read_format
from tilewright.libraries.flashinfer.fix_effect import Step, blocklist_steps, patch_steps
from tilewright.libraries.flashinfer.fix_evidence import Compiled, built_tiles, recorded
from tilewright.libraries.flashinfer.fix_patch import Patch, make_patch
from tilewright.libraries.flashinfer.fix_stages import Restaged, restaged
from tilewright.libraries.flashinfer.layout import Layout, find_layout
from tilewright.libraries.flashinfer.model import Report

if TYPE_CHECKING:
    from tilewright.probe.compiler import Compiler

Write = Literal["blocklist", "patch"]

NARROW: tuple[tuple[int, int, int], ...] = ((128, 64, 128), (128, 32, 128))
"""Tiles for few tokens an expert; FlashInfer has them from 0.6.14 on (pull request 3152)."""


class Fix(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="tilewright/fix/1"):
    """What `fix` answers. `content` is what the file holds; null where nothing has to be fixed."""

    library: str
    library_version: str
    cutlass: str
    arch: str
    root: str
    write: Write
    content: str | None
    file: str | None
    """Patch: the file that it changes, relative to the folder in which it applies. Blocklist: where it is read."""
    tactics: list[Restaged]
    """Patch: every tactic before and after. Blocklist: empty."""
    ids: dict[str, list[int]]
    """Blocklist: key -> autotuner ids. Patch: empty."""
    steps: list[Step]
    notes: list[str]
    compiled: Compiled | None = None
    """Patch: the launcher's real types before and after, as the compiler has them; null where nobody compiled them."""
    out: str | None = None


def make_fix(
    tree: SourceTree,
    report: Report,
    write: Write,
    *,
    out: str | None = None,
    operands: str | None = None,
    gpu: str = ANY,
    compiler: Compiler | None = None,
) -> Fix:
    """The fix for the FlashInfer in `tree`, whose tactics `report` holds. With `compiler` a patch is proved: the
    launcher's types are compiled before and after it (a minute or two, no GPU).

    Raises:
        InputError: this version reads no blocklist, or `operands` is needed or wrong.
        TreeError: the tree is not one that can be patched or read, with the reason.
        ToolError: the launcher does not compile, or contradicts the model.
    """
    if write == "blocklist":
        return _blocklist(tree, report, out, operands, gpu)
    return _patch(tree, report, out, compiler)


def _answer(report: Report, write: Write, out: str | None, **parts: object) -> Fix:
    given: dict[str, Any] = {"content": None, "file": None, "tactics": [], "ids": {}, "steps": [], **parts}
    return Fix(
        library=report.library,
        library_version=report.library_version,
        cutlass=report.cutlass,
        arch=report.arch,
        root=report.root,
        write=write,
        out=out,
        **given,
    )


def _blocklist(tree: SourceTree, report: Report, out: str | None, operands: str | None, gpu: str) -> Fix:
    layout = find_layout(tree)
    made = make_blocklist(layout, report, operands, gpu)
    if made is None:
        reads = read_format(layout).source
        note = f"Every id that the autotuner of FlashInfer {layout.version} tries leads to a kernel that fits."
        return _answer(report, "blocklist", out, file=reads, notes=[note])
    file = shlex.quote(out) if out else "blocklist.json"
    return _answer(
        report,
        "blocklist",
        out,
        content=made.text,
        file=made.format.source,
        ids=made.ids,
        steps=blocklist_steps(file if file.startswith("/") else f'"$PWD"/{file}'),
        notes=made.warnings,
    )


def _patch(tree: SourceTree, report: Report, out: str | None, compiler: Compiler | None) -> Fix:
    layout = find_layout(tree)
    patch = make_patch(layout)
    name = patch.file.rpartition("/")[2]
    tactics = restaged([tactic for tactic in report.tactics if tactic.launcher.file.endswith(name)])
    healed = [item for item in tactics if item.outcome == "healed"]
    refused = [item for item in tactics if item.outcome == "refused"]
    unknown = [item for item in tactics if item.outcome == "unknown"]
    if unknown or not tactics:
        why = report.notes[0] if report.notes else "the model has no verdict for them"
        msg = (
            f"The patch is not made: {len(unknown)} of {len(tactics)} tactics of FlashInfer {layout.version} cannot be "
            f"recomputed under it ({why})."
        )
        raise TreeError("root", msg)
    if refused:
        first = refused[0]
        msg = (
            f"The patch is not made: with {'x'.join(map(str, first.tile))} ({first.fusion}) fewer than two stages are "
            f"left beside the epilogue, and CUTLASS would refuse to compile the module; take the tile out of "
            f"{report.tactics[0].source.file}."
        )
        raise TreeError("root", msg)
    notes = [*_narrow_tiles(report), *_further_tiles(layout, report)]
    if not healed:
        note = f"None of the {len(tactics)} tactics of FlashInfer {layout.version} overflows: nothing to patch."
        return _answer(report, "patch", out, file=patch.file, tactics=tactics, notes=[note, *notes])
    file = shlex.quote(out) if out else "fix.patch"
    return _answer(
        report,
        "patch",
        out,
        content=patch.diff,
        file=patch.file,
        tactics=tactics,
        steps=patch_steps(layout, tactics, file),
        notes=notes,
        compiled=_compiled(layout, patch, tactics, compiler),
    )


def _compiled(layout: Layout, patch: Patch, tactics: list[Restaged], compiler: Compiler | None) -> Compiled | None:
    """What the compiler has of the patch: compiled now, else as it is on record for exactly these sources."""
    if compiler is None:
        return recorded(layout, patch)
    from tilewright.libraries.flashinfer.fix_compile import compiled_now

    found = compiled_now(compiler, layout, patch, [item.name for item in tactics])
    for item, row in zip(tactics, found.tactics, strict=True):
        if (row.bytes_before, row.bytes_after) != (item.bytes_before, item.bytes_after):
            msg = (
                f"The compiler and the model differ on {item.name}: {row.bytes_before:,} -> {row.bytes_after:,} bytes "
                f"compiled, {item.bytes_before} -> {item.bytes_after} modelled. Nothing was written; please report it."
            )
            raise ToolError(msg)
    return found


def _narrow_tiles(report: Report) -> list[str]:
    """Whether this version has the narrow tiles, and if not, what its CUTLASS makes of them."""
    tiles = {tuple((tactic.config or {}).get("tile", ()))[:2] for tactic in report.tactics}
    wanted = [tile for tile in NARROW if tile[:2] not in tiles]
    if not wanted:
        shapes = " and ".join(f"{m}x{n}" for m, n, _ in NARROW)
        return [f"The tiles for few tokens an expert ({shapes}) are in this version's list already."]
    base = next((tactic.config for tactic in report.tactics if tactic.verdict.status == "fits" and tactic.config), None)
    if base is None:
        return []
    out: dict[str, list[str]] = {}
    for tile in wanted:
        budget = fit(parse_config({**base, "tile": list(tile)}), brief=True)
        shape = "x".join(map(str, tile))
        if budget.status == "illegal":
            why = (budget.rules or [budget.cause or "illegal"])[0]
            out.setdefault(f"cannot be added on CUTLASS {report.cutlass}: {why}", []).append(shape)
        elif budget.status == "fits":
            why = f"would fit ({budget.smem_bytes:,} bytes); this version does not list it."
            out.setdefault(why, []).append(shape)
    return [f"{' and '.join(shapes)} {why}" for why, shapes in out.items()]


def _further_tiles(layout: Layout, report: Report) -> list[str]:
    """Tiles beyond the list: only those whose whole kernel was built on exactly this CUTLASS, and which fit."""
    listed = {
        (tuple((tactic.config or {}).get("tile", ())), bool((tactic.config or {}).get("swap_ab")))
        for tactic in report.tactics
    }
    limit = next((tactic.verdict.limit_bytes for tactic in report.tactics if tactic.verdict.limit_bytes), 0)
    found = [
        item
        for item in built_tiles(layout.cutlass().fingerprint)
        if (item.tile, item.swap_ab) not in listed and item.smem_bytes <= limit
    ]
    if not found:
        return []
    told = "; ".join(
        f"{'x'.join(map(str, item.tile))}{' swap_ab' if item.swap_ab else ''} ({item.smem_bytes:,} bytes, "
        f"{item.stages} stages, {item.registers} registers, {item.spill_store_bytes} bytes spilled)"
        for item in found
    )
    return [
        f"Tiles beyond the list whose whole kernel this CUTLASS builds and which fit (nvfp4, finalize to bf16; exact, "
        f"compiled with nvcc {found[0].nvcc}, not run): {told}. Nobody has timed them, and a new tile needs the "
        "library's enumerator, generator and dispatch besides: worth a try only where verify runs them and a "
        "benchmark of your shapes says so."
    ]
