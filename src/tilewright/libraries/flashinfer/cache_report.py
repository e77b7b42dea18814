"""`tactics flashinfer --cache`: a cache file against the FlashInfer, the GPU and the server that would read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tilewright.collectives.tree import SourceTree
from tilewright.errors import InputError, shown
from tilewright.libraries.flashinfer.autotune_cache import (
    Acceptance,
    CacheFile,
    Entry,
    acceptance,
    bucket,
    read_tuner,
)
from tilewright.libraries.flashinfer.model import Tactic

MOE_OPS = {"trtllm::fused_moe::gemm1": "gemm1", "trtllm::fused_moe::gemm2": "gemm2"}
"""fused_moe/core.py: the two choices of a CUTLASS MoE layer, by our tactics' names of the GEMM."""


_NO_END = 1 << 30
"""More tokens than are ever tuned for."""


class Kernel(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A kernel that a tactic number may mean: the number alone does not say the formats."""

    name: str
    a: str
    b: str
    tile: list[int]
    fusion: str
    swap_ab: bool
    verdict: str


class Chosen(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One entry of the file."""

    op: str
    runner: str
    rows: int | None
    tactic: Any
    kernels: list[Kernel] = []
    problem: str = ""


class Coverage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The buckets of M that one op is tuned for (with one set of the other extents), and numbers of tokens of the
    server whose bucket is not among them: they run the default tactic, or are tuned at their first use."""

    op: str
    runner: str
    shape: list[list[int]]
    buckets: list[int]
    missing: dict[str, int]


class CacheReport(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="tilewright/tactics-cache/1"):
    """A cache file of FlashInfer's autotuner. `missing` of a coverage: the server's number of tokens -> its bucket."""

    library_version: str
    file: str
    metadata: dict[str, Any] | None
    accepted: Acceptance
    entries: int
    coverage: list[Coverage]
    chosen: list[Chosen]
    unread: list[str] = []
    notes: list[str] = []


def _kernels(tactics: Sequence[Tactic], gemm: str, number: int) -> list[Kernel]:
    found: list[Kernel] = []
    for tactic in tactics:
        if tactic.config is None or number not in (tactic.runtime_ids or {}).get(gemm, []):
            continue
        config = tactic.config
        found.append(
            Kernel(
                name=tactic.name, a=str(config.get("a")), b=str(config.get("b")), tile=list(config.get("tile") or []),
                fusion=str(config.get("fusion")), swap_ab=bool(config.get("swap_ab")), verdict=tactic.verdict.status,
            )
        )  # fmt: skip
    return found


def _coverage(entries: Sequence[Entry], wanted: Sequence[int], hybrid: bool) -> list[Coverage]:
    groups: dict[tuple[Any, ...], list[Entry]] = {}
    for entry in entries:
        # Tensors that follow the number of tokens (routing, scales) change with it: only the first one's width tells.
        rest = (tuple(entry.shapes[0][1:]),) if entry.shapes else ()
        groups.setdefault((entry.op, entry.runner, rest, entry.extras), []).append(entry)
    rounded = [(tokens, bucket(tokens, _NO_END, hybrid)) for tokens in wanted]
    out: list[Coverage] = []
    for (op, runner, rest, _), those in groups.items():
        tuned = {entry.rows for entry in those if entry.rows is not None}
        buckets = sorted(tuned)
        missing: dict[str, int] = {}
        most = buckets[-1] if buckets else 1
        for tokens, unlimited in rounded:
            place = min(most, unlimited) if tokens < most else most
            # Above the largest bucket FlashInfer takes the largest, tuned for fewer tokens than there are.
            if place not in tuned or tokens > most:
                missing[str(tokens)] = place if place in tuned else unlimited
        out.append(
            Coverage(op=op, runner=runner, shape=[list(part) for part in rest], buckets=buckets, missing=missing)
        )
    return out


def cache_report(
    tree: SourceTree, cache: CacheFile, file: str, tactics: Sequence[Tactic], running: Mapping[str, str],
    wanted: Sequence[int],
) -> CacheReport:  # fmt: skip
    """The report on `cache` for the FlashInfer of `tree`. `wanted`: numbers of tokens that the server runs.

    Raises:
        InputError: `running` has a field that this FlashInfer does not compare.
    """
    tuner = read_tuner(tree)
    unknown = [name for name in running if name not in {*tuner.fields, "gpu", "flashinfer_version"}]
    if unknown and tuner.fields:
        msg = f"--running {shown(unknown[0])} is nothing that FlashInfer {tuner.version} compares; it compares "
        raise InputError("running", f"{msg}{', '.join(tuner.fields)}.")
    environment = {"flashinfer_version": tuner.version, **running}
    chosen: list[Chosen] = []
    meant: dict[tuple[str, int], list[Kernel]] = {}
    """(GEMM, tactic) -> kernels: the numbers are few, whatever the number of entries."""
    for entry in cache.entries:
        gemm = MOE_OPS.get(entry.op)
        kernels: list[Kernel] = []
        if gemm is not None and isinstance(entry.tactic, int) and not isinstance(entry.tactic, bool):
            numbered = (gemm, entry.tactic)
            if numbered not in meant:
                meant[numbered] = _kernels(tactics, gemm, entry.tactic)
            kernels = meant[numbered]
        chosen.append(
            Chosen(
                op=entry.op, runner=entry.runner, rows=entry.rows, tactic=entry.tactic, kernels=kernels,
                problem=entry.problem,
            )
        )  # fmt: skip
    rounding = "rounded up in steps" if tuner.hybrid else "rounded down to a power of two"
    notes = [f"FlashInfer {tuner.version}: numbers of tokens are {rounding} to a bucket."]
    if any(len({(kernel.a, kernel.b) for kernel in kernels}) > 1 for kernels in meant.values()):
        notes.append("A tactic number means another kernel for each pair of formats: all that it may mean are listed.")
    return CacheReport(
        library_version=tuner.version, file=file, metadata=cache.metadata,
        accepted=acceptance(cache, tuner, environment), entries=len(cache.entries),
        coverage=_coverage(cache.entries, wanted, tuner.hybrid), chosen=chosen, unread=cache.unread, notes=notes,
    )  # fmt: skip
