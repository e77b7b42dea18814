"""Which tensor-parallel sizes a checkpoint can be cut into, and what stands in the way of the others.

A matrix can be cut where the pieces keep whole heads, whole scale blocks and whole scale vectors. What engines refuse
follows vLLM (`config/model.py` for heads, `layers/quantization/utils/fp8_utils.py:validate_fp8_block_shape` for FP8
blocks); what they pad, and so pay for, is a note.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tilewright.errors import InputError
from tilewright.models.checkpoint import COMPONENTS, Checkpoint
from tilewright.models.formats import SCALE_COLS, WeightFormat
from tilewright.models.inventory import Weight
from tilewright.models.memory import Parallel, row_groups
from tilewright.models.records import GroupedOutput, Model

__all__ = ["SIZES", "TpVerdict", "legal_tp", "tp_verdict"]

SIZES = (1, 2, 4, 8, 16, 32, 64)
"""Tensor-parallel sizes that are tried when none are named."""


@dataclass(frozen=True, slots=True)
class TpVerdict:
    """Whether a checkpoint can be cut over `tp` ranks. `problems` say why not, `notes` what it costs if it can."""

    tp: int
    problems: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def legal(self) -> bool:
        return not self.problems


def _heads(model: Model, ranks: int) -> tuple[list[str], list[str]]:
    problems: list[str] = []
    notes: list[str] = []
    heads = model.attention.heads
    if heads % ranks:
        problems.append(f"{heads} attention heads do not divide over {ranks} ranks")
    groups = model.attention.o_groups if isinstance(model.attention, GroupedOutput) else 0
    if groups % ranks and ranks % (groups or 1):
        problems.append(f"{groups} output groups do not divide over {ranks} ranks")
    kv = getattr(model.attention, "kv_heads", 0)
    if kv and kv % ranks and ranks % kv:
        problems.append(f"{kv} KV heads neither divide over {ranks} ranks nor repeat evenly on them")
    elif kv and kv < ranks:
        notes.append(f"{kv} KV heads: each is held by {ranks // kv} ranks, so the cache does not shrink further")
    return problems, notes


def _share(row: Weight, parallel: Parallel) -> tuple[str, int, int] | None:
    """(side, extent, ranks) of a matrix that ranks share out evenly; of fused parts, one part's extent."""
    dense = 1 if parallel.replicate_dense else parallel.tp
    match row.cut:
        case "out":
            return "N", row.out // row.parts, dense
        case "in":
            return "K", row.inn, dense
        case "heads_out":
            return "N", row.out, parallel.attention_tp
        case "heads_in":
            return "K", row.inn, parallel.attention_tp
        case "expert_out":
            return "N", row.out // row.parts, parallel.expert_tp
        case "expert_in":
            return "K", row.inn, parallel.expert_tp
        case _:
            return None


def _matrix(row: Weight, fmt: WeightFormat, parallel: Parallel) -> tuple[str, str]:
    """(problem, note) of cutting one matrix; empty where there is none."""
    cut = _share(row, parallel)
    if cut is None:
        return "", ""
    side, extent, ranks = cut
    what = COMPONENTS[row.component]
    if extent % ranks:
        # Heads that do not divide have been said already.
        return (
            ("", "") if row.cut.startswith("heads") else (f"{what}: {extent:,} does not divide over {ranks} ranks", "")
        )
    piece = extent // ranks
    if fmt.scaling == "block":
        unit = fmt.block[0 if side == "N" else 1]
        if piece % unit:
            name = "block_n" if side == "N" else "block_k"
            return f"{what}: {extent:,} / {ranks} = {piece:,} is no multiple of {name} = {unit}", ""
    if fmt.scaling in ("vector", "group") and side == "K":
        if piece % fmt.vector:
            text = (
                f"{what}: {extent:,} / {ranks} = {piece:,} is no multiple of the {fmt.vector} values that share a scale"
            )
            # Engines that pad MXFP4 experts to whole tiles when they load them exist; for the others it is the end.
            return ("", text + ", so engines pad it") if fmt.name == "mxfp4" else (text, "")
        columns = piece // fmt.vector
        if fmt.padded_scales and columns % SCALE_COLS:
            padded = -(-columns // SCALE_COLS) * SCALE_COLS
            return "", f"{what}: K = {piece:,} has {columns} scale columns, padded to {padded}"
    return "", ""


def tp_verdict(model: Model, parallel: Parallel, checkpoint: Checkpoint | None = None) -> TpVerdict:
    """Whether the checkpoint can be cut as `parallel` says."""
    checkpoint = checkpoint or model.checkpoint
    problems, notes = _heads(model, parallel.attention_tp)
    experts = checkpoint.experts or (model.moe.experts if model.moe else 0)
    if parallel.ep > 1 and experts % parallel.ep:
        problems.append(f"{experts} experts do not divide over {parallel.ep} expert-parallel groups")
    for group in row_groups(model, checkpoint):
        problem, note = _matrix(group.row, group.format, parallel)
        if problem:
            problems.append(problem)
        if note:
            notes.append(note)
    return TpVerdict(parallel.tp, tuple(dict.fromkeys(problems)), tuple(dict.fromkeys(notes)))


def legal_tp(
    model: Model,
    checkpoint: Checkpoint | None = None,
    sizes: Iterable[int] = SIZES,
    *,
    expert_parallel: bool = False,
) -> list[TpVerdict]:
    """The verdict for each size. With `expert_parallel`, experts stay whole and are dealt out over the ranks.

    Raises InputError for a size that is no positive whole number.
    """
    verdicts: list[TpVerdict] = []
    for size in sizes:
        try:
            parallel = Parallel(tp=size, ep=size if expert_parallel else 1)
        except InputError as error:
            raise InputError("tp", error.msg) from None
        verdicts.append(tp_verdict(model, parallel, checkpoint))
    return verdicts
