"""SM90 mainloops that load by cp.async: for operands whose alignment TMA does not take.

Mirrors the CpAsync builders of `gemm/collective/builders/sm90_gmma_builder.inl`, make_simt_gmem_tiled_copy of
`builders/sm90_common.inl` and `gemm/collective/sm90_mma_multistage_gmma_{ss,rs}_warpspecialized.hpp`.
"""

from __future__ import annotations

from typing import Final

from tilewright.cutlass.sm90_common import (
    COLLECTIVE,
    TENSOR_ALIGN,
    WARP_GROUP,
    Mainloop,
    Problem,
    count_stages,
    divides,
    finish,
    operand_member,
    operand_why,
    size_of,
    too_few,
)
from tilewright.cutlass.sm90_gmma import SELECTOR, select, smem_atom
from tilewright.cutlass.sm90_register_a import atoms, fills, row_to_transpose, swaps, transposes_b, transposition
from tilewright.cutlass.sm90_tags import Tag
from tilewright.cutlass.sm90_versions import GMMA_BUILDER
from tilewright.cutlass.structs import struct
from tilewright.cutlass.verdict import Broken

CP_ASYNC_ALIGNMENT: Final = 4
"""cp_async_min_alignment_bytes (`builders/sm90_common.inl`)."""
VECTORS: Final = (4, 8, 16)
"""Bytes that a cp.async copies (`cute/arch/copy_sm80.hpp`)."""
REGISTER_ALIGN: Final = 256
"""Alignment of the TensorStorage and its arrays where A goes through registers."""


def mainloop(p: Problem, tag: Tag) -> Mainloop | Broken:
    """Lay out a cp.async mainloop, or name the rule that it breaks first."""
    for name, align in ((p.a, p.align_a), (p.b, p.align_b)):
        if size_of(name) * align % CP_ASYNC_ALIGNMENT:
            return Broken(
                "Minimum alignment required for cp.async is 4B.",
                GMMA_BUILDER,
                f"Use {CP_ASYNC_ALIGNMENT // size_of(name)} elements or more of {name}.",
            )
    return _registers(p, tag) if p.register_a else _shared(p, tag)


def _copies(p: Problem, threads: int) -> Broken | None:
    """make_simt_gmem_tiled_copy: how `threads` cover a tile with one vector each."""
    m, n, k = p.tile
    for name, align, mn, k_major in ((p.a, p.align_a, m, p.a_k_major), (p.b, p.align_b, n, p.b_k_major)):
        vector = size_of(name) * align
        if vector not in VECTORS:
            return Broken(
                "cp.async sizeof(TS) is not supported",
                "cute/arch/copy_sm80.hpp",
                f"cp.async copies 4, 8 or 16 bytes; {align} elements of {name} are {vector}.",
            )
        along, across = (k, mn) if k_major else (mn, k)
        major = along // align if threads >= along // align else threads
        if not major or threads % major or (across % (threads // major)):
            return Broken(
                "static assertion failed",
                SELECTOR,
                f"{threads} threads of {align} elements do not cover {along}x{across} of {name}; change the alignment.",
            )
    return None


def _shared(p: Problem, tag: Tag) -> Mainloop | Broken:
    m, n, k = p.tile
    broken = select(p.a, p.b, p.acc, p.tile)
    if broken:
        return broken
    groups = 2 if tag.loop == "basic" else 1
    broken = _copies(p, groups * WARP_GROUP)
    if broken:
        return broken
    for name, mn, mn_major in ((p.a, m, p.a_mn_major_smem), (p.b, n, p.b_mn_major_smem)):
        atom = smem_atom(name, mn, k, mn_major)
        if isinstance(atom, Broken):
            return atom
    count = count_stages(p, p.operand_terms)
    where = COLLECTIVE.format("multistage_gmma_ss_warpspecialized")
    broken = divides(p) or too_few(count, where)
    if broken:
        return broken
    s = count.stages
    members = [operand_member("smem_A", m, k, p.bits_a, s), operand_member("smem_B", n, k, p.bits_b, s)]
    whys = (operand_why(p.a, "M", m, k, s), operand_why(p.b, "N", n, k, s))
    tensors = struct(members, TENSOR_ALIGN)
    return finish(p, tag, count, tensors, whys, "MainloopSm90CpAsyncGmmaWarpSpecialized", load_warp_groups=groups)


def _registers(p: Problem, tag: Tag) -> Mainloop | Broken:
    m, n, k = p.tile
    broken = select(p.a, p.b, p.acc, p.tile) or _copies(p, WARP_GROUP)
    if broken:
        return broken
    swap, transposed = swaps(p), transposes_b(p)
    picked = atoms(p, transposed)
    if isinstance(picked, Broken):
        return picked
    count = count_stages(p, p.operand_terms)
    where = COLLECTIVE.format("multistage_gmma_rs_warpspecialized")
    inner_a, inner_b = (picked[1], picked[0]) if swap else picked
    groups = 2 if tag.cooperative and m >= 2 * 64 else 1
    broken = (
        divides(p)
        or fills(inner_a, m, k, where)
        or fills(inner_b, n, k, where)
        or (transposition(p, groups) if transposed else None)
        or too_few(count, where)
        or (row_to_transpose(p, where) if transposed else None)
    )
    if broken:
        return broken
    if size_of(inner_b.name) == 1 and not transposed:
        # The collective asks this of the layout of B whether it transposes it or not.
        return Broken(
            "Warp specialized ARF kernels have not supported universal B transposition yet.",
            where,
            "With 8-bit operands cp.async takes A and B both K-major, or A column-major and B row-major.",
        )
    s = count.stages
    members = [
        operand_member("smem_A", m, k, p.bits_a, s, align=REGISTER_ALIGN, type_align=REGISTER_ALIGN),
        operand_member("smem_B", n, k, p.bits_b, s, align=REGISTER_ALIGN, type_align=REGISTER_ALIGN),
    ]
    whys = (operand_why(inner_a.name, "M", m, k, s), operand_why(inner_b.name, "N", n, k, s))
    tensors = struct(members, REGISTER_ALIGN)
    return finish(p, tag, count, tensors, whys, "MainloopSm90CpAsyncGmmaRmemAWarpSpecialized")
