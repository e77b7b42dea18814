"""Mainloops of SM100 for 2:4 sparse A operands, with and without hardware scale factors.

Mirrors `gemm/collective/builders/sm100_sparse_umma_builder.inl`, `sm100_blockscaled_sparse_umma_builder.inl` (what is
chosen and asserted), `gemm/collective/sm100_sparse_mma_warpspecialized.hpp`,
`sm100_blockscaled_sparse_mma_warpspecialized.hpp` (how it is laid out) and `builders/sm1xx_sparse_config.inl` (the
metadata E). A is stored compressed: half of its logical elements, plus E. Sizes in bytes, extents in logical elements.
"""

from __future__ import annotations

from math import lcm
from typing import Final

from tilewright.cutlass import sm100_carveout, sm100_mma
from tilewright.cutlass.cute_slices import slices, stage_modes, unsliceable
from tilewright.cutlass.sm100_atoms import Major, smem_atom
from tilewright.cutlass.sm100_blockscaled import scale_bytes, scale_member, scaled_pair
from tilewright.cutlass.sm100_carveout import BARRIER_PAIR, Reserved
from tilewright.cutlass.sm100_collective import (
    ARRAY_ALIGN,
    Mainloop,
    MainloopKey,
    counted,
    finish,
    is_pair,
    odd_cluster,
    operand_member,
)
from tilewright.cutlass.sm100_mma import SPARSITY
from tilewright.cutlass.sm100_tags import Tag
from tilewright.cutlass.sm100_versions import Sm100Rules
from tilewright.cutlass.structs import Member, round_up
from tilewright.cutlass.verdict import Broken
from tilewright.formats.elements import ELEMENTS

SPARSE_BUILDER: Final = "cutlass/gemm/collective/builders/sm100_sparse_umma_builder.inl"
SCALED_BUILDER: Final = "cutlass/gemm/collective/builders/sm100_blockscaled_sparse_umma_builder.inl"
SPARSE_COLLECTIVE: Final = "cutlass/gemm/collective/sm100_sparse_mma_warpspecialized.hpp"
SCALED_COLLECTIVE: Final = "cutlass/gemm/collective/sm100_blockscaled_sparse_mma_warpspecialized.hpp"
SPARSE_CONFIG: Final = "cutlass/gemm/collective/builders/sm1xx_sparse_config.inl"

CTA_ROWS: Final = 128
"""Rows of A in each CTA that the sparse collectives take, and of one atom of E."""
PHASES: Final = (2, 4)
"""Instructions along K that the sparse collectives take."""
WIDE_N: Final = 224
"""N above which the sparse builder has one accumulator."""
SCALED_N: Final = (128, 192, 256)
STAGE_ALIGN: Final = 128


class Metadata:
    """How the metadata E of an instruction is stored: elements of one atom along K, logical elements a byte."""

    __slots__ = ("atom_k", "elements")

    def __init__(self, atom_k: int, elements: int) -> None:
        self.atom_k, self.elements = atom_k, elements


_BYTES: Final = Metadata(128, 8)
"""8-bit containers and 16-bit elements: TensorEAtom of K 128, sparse_elem<8, uint8_t>."""
_WORDS: Final = Metadata(64, 4)
"""tf32: K 64, sparse_elem<4, uint8_t>."""
_NIBBLES: Final = Metadata(256, 16)
"""FP4: K 256, sparse_elem<16, uint8_t>."""


def lay_out(key: MainloopKey, tag: Tag, rules: Sm100Rules) -> Mainloop | Broken:
    """`sm100_sparse_umma_builder.inl`."""
    ops, tile = key.ops, key.tile
    m, n, k = tile
    bits_a, bits_b = ELEMENTS[ops.a].bits, ELEMENTS[ops.b].bits
    sm = tag.sm or (2 if key.cluster[0] % 2 == 0 and m % 128 == 0 else 1)
    unpacked = min(bits_a, bits_b) < 8
    step = sm100_mma.instruction_k(bits_a, sparse=True)
    broken = (
        sm100_mma.aligned(ops, unpacked, sparse=True)
        or (sm100_mma.mixed_widths(ops, tile, 2 if is_pair(key, tag) else 1, sparse=True) if unpacked else None)
        or sm100_mma.tile_shape(tile, sm, None)
        or sm100_mma.sparse_inputs(ops, sm)
        or sm100_mma.atom(ops, key.acc, tile, sm, sparse=True, rules=rules)
        or _unsigned(ops.a)
        or sm100_mma.whole_instructions(k, step)
        or odd_cluster(key, sm)
    )
    if broken:
        return broken
    rows, columns = m // sm, n // sm
    width_a, width_b = max(8, bits_a), max(8, bits_b)
    meta = _WORDS if bits_a == 32 else _BYTES
    broken = _atoms(key, rows, columns, width_a, width_b, 1) or _phases(rows, k // step, SPARSE_COLLECTIVE)
    if broken:
        return broken
    accumulators = 1 if n > WIDE_N else 2
    # one load of E may serve two K blocks: its atom is longer than they are
    e = rows * lcm(k, meta.atom_k) // meta.elements
    a, b = rows * k * width_a // 8 // SPARSITY, columns * k * width_b // 8
    # the count doubles E where 16- and 32-bit elements have two K blocks (is_hmma_two_kphase)
    two_phases = bits_a in (16, 32) and k * bits_a == 128 * 8
    counted_e = rows * k // meta.elements * (2 if two_phases else 1)
    # beside an integer B, the collective does not know a narrow A as unpacked and stores it packed (IsF8F6F4)
    alone = ELEMENTS[ops.b].plain not in sm100_mma.F8F6F4
    return _finish(
        key, tag, sm, rules, (a, b, e), (bits_a if alone else width_a, width_b), counted_e, accumulators, None
    )


def lay_out_scaled(key: MainloopKey, tag: Tag, rules: Sm100Rules) -> Mainloop | Broken:
    """`sm100_blockscaled_sparse_umma_builder.inl`."""
    ops, tile = key.ops, key.tile
    m, n, k = tile
    unpacked = tag.instruction == "mxf8f6f4" and min(ELEMENTS[ops.a].bits, ELEMENTS[ops.b].bits) < 8
    broken = sm100_mma.aligned(ops, unpacked, sparse=True) or sm100_mma.scaled_inputs(tag, ops, sparse=True)
    if broken:
        return broken
    sm = scaled_pair(key, tag)
    if isinstance(sm, Broken):
        return sm
    fp4 = sm100_mma.scaled_instruction(tag, ops) == "mxnvf4"
    step = sm100_mma.INSTRUCTION_BITS // (4 if fp4 else 8) * SPARSITY
    broken = (
        (None if fp4 else sm100_mma.mixed_widths(ops, tile, sm, sparse=True))
        or sm100_mma.tile_shape(tile, sm, sm100_mma.SCALED_N)
        or sm100_mma.whole_instructions(k, step)
        or odd_cluster(key, sm)
    )
    if broken:
        return broken
    rows, columns = m // sm, n // sm
    bits_b = 4 if fp4 else 8
    vector = sm100_mma.scaled_vector(ops.a, sparse=True)
    broken = _atoms(key, rows, columns, 8, bits_b, 2 if fp4 else 1) or _scaled_tile(key, vector, rows, k // step)
    if broken:
        return broken
    meta = _NIBBLES if fp4 else _BYTES
    accumulators = 1 if n == 256 else 2
    e = rows * lcm(k, meta.atom_k) // meta.elements
    a = rows * k // SPARSITY // (2 if fp4 else 1)
    b = columns * k * bits_b // 8
    scales = scale_bytes(rows, k, vector), scale_bytes(n, k, vector)
    return _finish(key, tag, sm, rules, (a, b, e), (8, bits_b), rows * k // meta.elements, accumulators, scales)


def _unsliceable(key: MainloopKey, columns: int, k: int, bits: int, stages: int) -> str | None:
    """Why TMA cannot be handed one stage of B; compressed A has 128 rows, which always slice."""
    major = Major.K if key.ops.layout_b == "col" else Major.MN
    atom = smem_atom(major, bits, columns, k)
    assert not isinstance(atom, Broken), "_atoms() came first"
    line = atom.row_bytes * 8 // bits
    step = sm100_mma.instruction_k(bits, sparse=True)
    return slices(atom.name, stage_modes(line, major is Major.K, columns, k, step), stages, columns * k)


def _unsigned(name: str) -> Broken | None:
    if name != "uint8":
        return None
    return Broken(
        "Ambiguous Input Type Config (failed to choose Instruction type)",
        SPARSE_CONFIG,
        "A sparse integer operand is int8; uint8 has no metadata layout.",
    )


def _atoms(key: MainloopKey, rows: int, columns: int, bits_a: int, bits_b: int, packed: int) -> Broken | None:
    """Layouts of compressed A (`packed` elements a byte) and of B."""
    ops = key.ops
    a = smem_atom(Major.K if ops.layout_a == "row" else Major.MN, bits_a, rows, key.tile[2] // SPARSITY // packed)
    b = smem_atom(Major.K if ops.layout_b == "col" else Major.MN, bits_b, columns, key.tile[2])
    return next((atom for atom in (a, b) if isinstance(atom, Broken)), None)


def _phases(rows: int, phases: int, where: str) -> Broken | None:
    if rows == CTA_ROWS and phases in PHASES:
        return None
    return Broken(
        "This kernel only support MmaShape=128 and 2/4 kphase.",
        where,
        f"Sparse kernels take 128 rows of A in each CTA and a K of 2 or 4 instructions, not {rows} and {phases}.",
    )


def _scaled_tile(key: MainloopKey, vector: int, rows: int, phases: int) -> Broken | None:
    n, k = key.tile[1], key.tile[2]
    if n not in SCALED_N:
        return Broken("Cta N should be one of 128/192/256", SCALED_COLLECTIVE, f"N is {n}: use one of them.")
    if k % (vector * 4):
        return Broken(
            "CtaK needs to be multiplier of SFAtomK",
            SCALED_COLLECTIVE,
            f"A block of scales covers K of {vector * 4}: make the tile's K a multiple of it.",
        )
    return _phases(rows, phases, SCALED_COLLECTIVE)


def _finish(
    key: MainloopKey,
    tag: Tag,
    sm: int,
    rules: Sm100Rules,
    operands: tuple[int, int, int],
    widths: tuple[int, int],
    counted_e: int,
    accumulators: int,
    scales: tuple[int, int] | None,
) -> Mainloop | Broken:
    """Stage count and storage. `operands` are bytes a stage of A, B and E, `counted_e` those of E that are counted,
    `widths` the bits that an element of A and of B is stored in."""
    a, b, e = operands
    schedulers = rules.dense_scheduler_stages
    reserved: Reserved = sm100_carveout.sparse(accumulators, schedulers, rules)
    tensors = a + b + counted_e + sum(scales or ())
    terms = (
        ("A", a),
        ("B", b),
        ("E", counted_e),
        *zip(("SFA", "SFB"), scales or (), strict=False),
        ("rounding to 128", round_up(tensors, STAGE_ALIGN) - tensors),
        ("pipeline", BARRIER_PAIR),
    )
    count = counted(key, reserved, sum(size for _, size in terms), terms)
    stages = count.stages
    if stages <= 0:
        return Broken(
            "Stages must be positive",
            SPARSE_BUILDER if scales is None else SCALED_BUILDER,
            "Not one stage fits beside the epilogue: use a smaller tile or a smaller epilogue.",
        )
    rows, columns, k = key.tile[0] // sm, key.tile[1] // sm, key.tile[2]
    condition = None if rules.slices_plainly else _unsliceable(key, columns, k, widths[1], stages)
    if condition:
        return unsliceable("B", condition)
    align_a = ARRAY_ALIGN if widths[0] >= 8 else 1
    members = [
        Member(
            "smem_A",
            a * min(widths[0], 8) // 8 * stages,
            align_a,
            align_a,
            f"{stages} stages x {rows}x{k}, every other element of four",
        ),
        operand_member("smem_B", columns, k, widths[1], stages),
        Member("smem_E", e * stages, ARRAY_ALIGN, ARRAY_ALIGN, f"{stages} stages x {e} bytes of metadata of A"),
    ]
    if scales is not None:
        members += [scale_member("smem_SFA", scales[0], stages), scale_member("smem_SFB", scales[1], stages)]
    return finish(key, tag, sm, count, members, rules, schedulers=schedulers, accumulators=accumulators, maps=())
