"""What `tactics` answers (DESIGN 4.4)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from tilewright.cutlass.budget import Budget

Op = Literal["moe", "gemm", "dsl"]


class Place(msgspec.Struct, frozen=True):
    """A line of the library's sources; `file` is relative to the root that was given."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Tactic(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel that the library instantiates, with its verdict.

    `source` is where the tile is chosen: the line of the generator or build function that lists it. `launcher` is where
    the kernel's types are spelled, `emitted` the call that makes the instantiation.
    """

    name: str
    """The symbol of the instantiation; `::` and an alias where one instantiation makes several kernels."""
    source: Place
    config: dict[str, Any] | None
    """The kernel config (DESIGN 4.2), every key explicit; null when the sources cannot be read that far."""
    verdict: Budget
    op: Op
    launcher: Place
    emitted: Place
    filtered_by: str | None = None
    """Where and why the library itself never offers this kernel at run time."""
    runtime_ids: dict[str, list[int]] | None = None
    """Tactic ids under which the library's autotuner knows it, by GEMM ("gemm1", "gemm2"); MoE only."""


class Summary(msgspec.Struct, frozen=True):
    """How many tactics got which verdict."""

    total: int
    fits: int
    overflow: int
    illegal: int
    unsupported: int


class RuntimeTactic(msgspec.Struct, frozen=True, kw_only=True):
    """One id of the autotuner that can never run, and why."""

    id: int
    gemm: Literal["gemm1", "gemm2"]
    tile: str
    """As the library's enum calls it; the last extent counts bytes of K."""
    fusion: Literal["none", "finalize"]
    swap_ab: bool
    reason: str
    source: Place


class RuntimeMode(msgspec.Struct, frozen=True, kw_only=True):
    """The autotuner's list for one pair of operand formats: ids `gemm1` first, then `gemm2`."""

    a: str
    b: str
    total: int
    gemm1: int
    gemm2: int
    never: list[RuntimeTactic]


class DslKernel(msgspec.Struct, frozen=True, kw_only=True):
    """One `@cute.kernel` of the library. Lists hold what is literal in its sources, and are empty where nothing is."""

    name: str
    """Class and method, or the function."""
    source: Place
    experimental: bool
    """Under `experimental/`: the library keeps it apart from what it supports."""
    archs: list[str]
    """Architectures that the path or the source names; empty: none is named."""
    smem_of: list[str]
    """Architectures whose shared memory its stage count asks for."""
    parameters: list[str]
    """Constructor parameters about tiles, clusters, stages and types, with their defaults."""
    tiles: list[str]
    """Tiles that are written out, as name = value."""
    counted_by: list[Place]
    """Functions that count stages or shared memory."""
    verdict: str = "unsupported"
    reason: str = (
        "compiled when it is called, from a tile, stages and types that its caller passes: the sources fix no config"
    )


class Report(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="tilewright/tactics/1"):
    """Every tactic of one library."""

    library: str
    library_version: str
    cutlass: str
    """The release whose rules the verdicts follow; what the vendored headers report when they match none."""
    arch: str
    op: Op
    root: str
    tactics: list[Tactic]
    summary: Summary
    runtime: list[RuntimeMode] = []
    notes: list[str] = []
    dsl: list[DslKernel] = []
    """Kernels in the CuTe DSL; with `--op dsl` only. They are no tactics: nothing fixes a config."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One tactic that differs between two versions."""

    name: str
    what: Literal["added", "removed", "verdict", "bytes", "config"]
    before: str | None = None
    after: str | None = None
    source: Place


class RuntimeChange(msgspec.Struct, frozen=True, kw_only=True):
    """How the autotuner's list for one pair of operand formats changed: ids, and ids that can never run."""

    a: str
    b: str
    total_before: int
    total_after: int
    never_before: int
    never_after: int


class Difference(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="tilewright/tactics-diff/1"):
    """What changed from one version of a library to another. Tactics are the same when what they compute is: operands,
    tile, fusion, output, swap_ab and scheduler."""

    library: str
    before: str
    after: str
    cutlass_before: str
    cutlass_after: str
    arch: str
    op: Op
    changes: list[Change]
    same: int
    runtime: list[RuntimeChange] = []


def summarize(tactics: list[Tactic]) -> Summary:
    """The summary of `tactics`; a tactic that could not be read counts as unsupported."""
    counts = dict.fromkeys(("fits", "overflow", "illegal", "unsupported"), 0)
    for tactic in tactics:
        status = tactic.verdict.status
        counts[status if status in counts else "unsupported"] += 1
    return Summary(len(tactics), **counts)
