"""SM90 mainloops with a 2:4 sparse A: compressed A, B, and the metadata E in shared memory.

Mirrors `gemm/collective/builders/sm90_sparse_gmma_builder.inl`, `sm90_sparse_config.inl` and
`gemm/collective/sm90_sparse_mma_tma_gmma_ss_warpspecialized{,_fp8}.hpp`.
"""

from __future__ import annotations

from typing import Final

from tilewright.cutlass.laid import StageCount
from tilewright.cutlass.sm90_common import (
    CAPACITY,
    TENSOR_ALIGN,
    Mainloop,
    Problem,
    alignment,
    finish,
    multicast,
    one_stage,
    operand_why,
    too_few,
)
from tilewright.cutlass.sm90_gmma import SPARSITY, select, smem_atom, sparse_smem_atom
from tilewright.cutlass.sm90_tags import Tag
from tilewright.cutlass.structs import Member, struct
from tilewright.cutlass.verdict import Broken, no_collective
from tilewright.cutlass.versions import BARRIER_PAIR_BYTES

BUILDER: Final = "cutlass/gemm/collective/builders/sm90_sparse_gmma_builder.inl"
CONFIG: Final = "cutlass/gemm/collective/builders/sm90_sparse_config.inl"

METADATA_K: Final = 128
"""K of the metadata's layout atom at most: min(K of the tile, 128) (MinTileShapeK)."""
METADATA_BITS: Final = {8: 1, 16: 1, 32: 2}
"""Metadata bits a logical element of A, by the element's width: 4 bits a chunk of 4 elements (tf32: of 2)."""


def mainloop(p: Problem, tag: Tag) -> Mainloop | Broken:
    """Lay out a sparse mainloop, or name the rule that it breaks first."""
    if tag.array or tag.loads != "tma" or tag.family == "blockwise":
        return no_collective(f"No sparse SM90 builder accepts {tag.name}: use basic, cooperative, pingpong or auto.")
    fast = tag.family == "fast_accum"
    if p.register_a and not fast:
        return Broken(
            "Mainloop with sparse A sourced from RF is not implemented.",
            BUILDER,
            "Store A row-major and B column-major, or use 16-bit operands.",
        )
    broken = alignment(p)
    if broken:
        return broken
    if fast and not p.fp8:
        return Broken(
            "Only FP8 datatypes are compatible with these kernel schedules",
            BUILDER,
            f"{p.a} x {p.b} is not FP8 x FP8: use the schedule without fast accumulation.",
        )
    return _lay_out(p, tag, fp8=p.fp8 and not fast)


def _lay_out(p: Problem, tag: Tag, *, fp8: bool) -> Mainloop | Broken:
    m, n, k = p.tile
    broken = select(p.a, p.b, p.acc, p.tile, sparse=True) or _metadata(p)
    if broken:
        return broken
    atom = sparse_smem_atom(p.a, m, k, p.a_mn_major_smem)
    if isinstance(atom, Broken):
        return atom
    atom = smem_atom(p.b, n, k, p.b_mn_major_smem)
    if isinstance(atom, Broken):
        return atom
    stage_a = m * k * p.bits_a // SPARSITY // 8
    stage_b = n * k * p.bits_b // 8
    stage_e = m * k * METADATA_BITS[p.bits_a] // 8
    terms = (("A", stage_a), ("B", stage_b), ("E", stage_e), ("pipeline", BARRIER_PAIR_BYTES))
    stage_bytes = sum(size for _, size in terms)
    # Neither the stage nor the carveout is rounded here, and nothing is reserved.
    counted = max(0, CAPACITY - p.carveout) // stage_bytes
    s = counted if p.stages is None else p.stages
    count = StageCount(s, p.stages is not None, CAPACITY, p.carveout, stage_bytes, terms)
    where = f"cutlass/gemm/collective/sm90_sparse_mma_tma_gmma_ss_warpspecialized{'_fp8' if fp8 else ''}.hpp"
    broken = _whole_atoms(k) or too_few(count, where)
    if broken:
        return broken
    members = [
        Member("smem_A", stage_a * s, TENSOR_ALIGN, 16),
        Member("smem_B", stage_b * s, TENSOR_ALIGN, 16),
        Member("smem_E", stage_e * s, TENSOR_ALIGN, 16),
    ]
    whys = (
        operand_why(p.a, "M", m, k, s) + ", half of them stored",
        operand_why(p.b, "N", n, k, s),
        f"{s} stages x M {m} x K {k} metadata ({METADATA_BITS[p.bits_a]} bits an element)",
    )
    policy = f"MainloopSm90TmaGmmaWarpSpecializedSparse{'FP8' if fp8 else ''}"
    # A has 64 rows or more, which any swizzle divides.
    device_rule = one_stage(p, p.b, atom, n, p.b_mn_major_smem, s) or multicast(p, p.a_mn_major_smem, p.b_mn_major_smem)
    return finish(p, tag, count, struct(members), whys, policy, device_rule=device_rule)


def _metadata(p: Problem) -> Broken | None:
    """Sm90GemmSparseConfig: the metadata's blocks hold 64 bytes of K."""
    block = 512 // p.bits_a
    k = min(p.tile[2], METADATA_K)
    if k % block == 0:
        return None
    return Broken(
        "MinTileShapeK must be a multiple of BlockK",
        CONFIG,
        f"Use K in multiples of {block} for {p.a}, not {p.tile[2]}.",
    )


def _whole_atoms(k: int) -> Broken | None:
    if k % min(k, METADATA_K) == 0:
        return None
    return Broken(
        "tile_to_shape: block shape does not divide the target shape.",
        "cute/layout.hpp",
        f"The metadata lies in blocks of {METADATA_K} along K: K above {METADATA_K} must be a multiple of it, not {k}.",
    )
