"""Where an SM100 TMA epilogue keeps the tiles of C and D.

Mirrors `CollectiveStorage{WithoutC,WithC,ReuseC}` of `epilogue/collective/sm100_epilogue_tma_warpspecialized.hpp` and
its `array_` counterpart. Extents in elements, sizes in bytes.
"""

from __future__ import annotations

from typing import Final

from tilewright.cutlass.fusion import FusionStorage
from tilewright.cutlass.sm100_atoms import Major, smem_atom
from tilewright.cutlass.sm100_epilogue_key import EpilogueKey, smem_bits
from tilewright.cutlass.structs import Member, Struct, struct, union
from tilewright.cutlass.verdict import Broken, Entry

ARRAY_ALIGN: Final = 16


def collective_storage(
    key: EpilogueKey,
    source: str | None,
    output: str,
    tile: tuple[int, int],
    extents: tuple[int, int],
    stages_c: int,
    stages_d: int,
    reuse: bool,
) -> Struct | Broken:
    """CollectiveStorage{WithoutC,WithC,ReuseC}: the stages of C and D, one over the other where they are reused."""
    atom_d = smem_atom(Major.K if key.layout_d == "row" else Major.MN, smem_bits(output), *extents)
    layout_c = key.layout_d if source is None else key.layout_c
    name_c = source or output
    atom_c = smem_atom(Major.K if layout_c == "row" else Major.MN, smem_bits(name_c), *extents)
    if isinstance(atom_c, Broken):
        return atom_c
    if isinstance(atom_d, Broken):
        return atom_d
    area = tile[0] * tile[1]
    stage_c, stage_d = area * smem_bits(name_c) // 8, area * smem_bits(output) // 8
    align_of = {name: ARRAY_ALIGN if smem_bits(name) >= 8 else 1 for name in (name_c, output)}
    if source is None:
        # a union with an array of no elements, which takes a byte
        return union([Member("smem_C", 1, 1, 1), Member("smem_D", stage_d * stages_d, atom_d.align, align_of[output])])
    if reuse:
        # Both lie at the stride of the wider stage; the last stage ends with its own width.
        stride, align = max(stage_c, stage_d), max(atom_c.align, atom_d.align)
        lead = stride * (stages_c - 1)
        return union(
            [
                Member("smem_C", lead + stage_c, align, align_of[source]),
                Member("smem_D", lead + stage_d, align, align_of[output]),
            ]
        )
    return struct(
        [
            Member("smem_C", stage_c * stages_c, atom_c.align, align_of[source]),
            Member("smem_D", stage_d * stages_d, atom_d.align, align_of[output]),
        ]
    )


def tensor_entries(
    tensors: Struct,
    collective: Struct,
    thread: FusionStorage,
    tile: tuple[int, int],
    source: str | None,
    output: str,
    stages_c: int,
    stages_d: int,
) -> tuple[Entry, ...]:
    """Budget lines inside the epilogue's TensorStorage."""
    m, n = tile
    smem_c, smem_d = collective.members
    over = source is not None and collective.offsets[1] == 0
    if source is None:
        why_c = "C is void: an empty array, which takes a byte of the union"
    else:
        why_c = f"{stages_c} stages x {m}x{n} x {smem_bits(source)} bits ({source})"
    shared = "; same place as C (D overwrites C)" if over else ""
    why_d = f"{stages_c if over else stages_d} stages x {m}x{n} x {smem_bits(output)} bits ({output}){shared}"
    base = "epilogue.tensors.collective"
    return (
        Entry(
            base,
            tensors.offsets[0],
            collective.bytes,
            collective.align,
            f"C and D tiles of {m}x{n}, aligned to their swizzle ({collective.align} bytes)",
        ),
        Entry("epilogue.tensors.thread", tensors.offsets[1], thread.bytes, thread.align, thread.why),
        Entry(f"{base}.smem_C", collective.offsets[0], smem_c.bytes, smem_c.type_align, why_c),
        Entry(f"{base}.smem_D", collective.offsets[1], smem_d.bytes, smem_d.type_align, why_d),
    )
