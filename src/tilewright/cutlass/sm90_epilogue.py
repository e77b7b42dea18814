"""The epilogue that the SM90 builder chooses: by TMA through shared memory, or straight from registers.

Mirrors `epilogue/collective/builders/sm90_builder.inl`; the storage of the TMA epilogue is in `epilogue_storage`. The
direct ones (NoSmem) are `epilogue/collective/default_epilogue{,_array}.hpp` behind Sm90TmaWarpSpecializedAdapter.
Extents in elements, sizes in bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd
from typing import Final, NamedTuple

from tilewright.cutlass import epilogue_storage as storage
from tilewright.cutlass.caches import LAYOUTS
from tilewright.cutlass.config import KernelConfig
from tilewright.cutlass.epilogue import EpilogueKey, epilogue_key
from tilewright.cutlass.epilogue_storage import ARRAY_HEADER, DENSE_HEADER, Epilogue, Staging, swizzle_atom
from tilewright.cutlass.fusion import CALLBACKS, FusionStorage, fusion_storage
from tilewright.cutlass.sm90_versions import EPILOGUE_BUILDER, Sm90Rules, sm90_rules
from tilewright.cutlass.structs import Struct
from tilewright.cutlass.verdict import Broken, Entry
from tilewright.cutlass.versions import Rules, rules_for
from tilewright.formats.elements import ELEMENTS

MAX_STAGES_C: Final = 4
MAX_STAGES_D: Final = 2
"""Most stages of C and of D (sm90_get_tma_dispatch_policy)."""
TILE_N: Final = 32
"""Columns of EpilogueTileAuto; `TILE_N_8_BIT` for an 8-bit D of a kernel that is not cooperative."""
TILE_N_8_BIT: Final = 64
TILE_M: Final = {True: 128, False: 64}
"""Rows of the epilogue tile: cooperative or not."""
OVERRIDE_N: Final = 16
"""An epilogue tile given by the user has N in multiples of it."""
THREADS: Final = {True: 256, False: 128}
"""Threads that store a tile."""
OUTPUT_ALIGNMENT_BITS: Final = 128
OUTPUT_ALIGNMENT_BITS_FP6: Final = 96 * 8
"""get_output_alignment_bits (`cutlass/detail/layout.hpp`): TMA stores whole 16 bytes, and FP6 by 96."""


class Schedule(NamedTuple):
    """An epilogue tag that stores by TMA. `warp_groups` is NumEpilogueWarpGroups of a ptr-array tag."""

    cooperative: bool
    warp_groups: int | None


TMA: Final = {
    "tma_warp_specialized": Schedule(cooperative=False, warp_groups=None),
    "tma_warp_specialized_cooperative": Schedule(cooperative=True, warp_groups=None),
    "ptr_array_tma_warp_specialized": Schedule(cooperative=False, warp_groups=1),
    "ptr_array_tma_warp_specialized_pingpong": Schedule(cooperative=False, warp_groups=2),
    "ptr_array_tma_warp_specialized_cooperative": Schedule(cooperative=True, warp_groups=2),
}
DIRECT: Final = {
    "no_smem_warp_specialized": "cutlass::gemm::EpilogueDefault",
    "ptr_array_no_smem_warp_specialized": "cutlass::epilogue::PtrArrayNoSmemWarpSpecialized",
    "ptr_array_no_smem_warp_specialized_transposed": "cutlass::epilogue::PtrArrayNoSmemWarpSpecializedTransposed",
}
"""Tags that store from registers, and the name that their dispatch policy prints."""
AUTO_IS: Final = "no_smem_warp_specialized"
"""EpilogueScheduleAuto: "TMA epilogues are not compatible with non-TMA non-WS mainloops"."""


@dataclass(frozen=True, slots=True)
class Direct:
    """An epilogue without shared memory. Its empty classes take a byte each, two in the PipelineStorage."""

    array: bool
    policy: str
    bytes: int = 1
    pipeline_bytes: int = 2
    tensormap_bytes: int = 1

    @property
    def tensors(self) -> Struct:
        return Struct((), (), 1, 1)


def epilogue(config: KernelConfig) -> Epilogue | Direct | Broken:
    """Lay out the epilogue of `config`, or say which rule it breaks first."""
    return _epilogue(epilogue_key(config), config.align_c, config.align_d)


@lru_cache(maxsize=LAYOUTS)
def _epilogue(key: EpilogueKey, align_c: int, align_d: int) -> Epilogue | Direct | Broken:
    if key.schedule == "auto" or key.schedule in DIRECT:
        return _direct(key)
    schedule = TMA.get(key.schedule)
    if schedule is None:
        return _no_collective(f"The SM90 epilogue builder takes none but auto, {', '.join((*TMA, *DIRECT))}.")
    return _staged(key, schedule, align_c, align_d, sm90_rules(key.version))


def _no_collective(advice: str) -> Broken:
    return Broken(
        "Could not build a collective epilogue for given parameters.",
        "cutlass/epilogue/collective/collective_builder.hpp",
        advice,
    )


def _direct(key: EpilogueKey) -> Direct | Broken:
    name = AUTO_IS if key.schedule == "auto" else key.schedule
    if key.fusion != "linear_combination":
        if key.schedule == "auto":
            return Broken(
                "Auto schedule doesn't support fusion. Use one of the TmaWarpSpecialized schedules instead.",
                EPILOGUE_BUILDER,
                f"{key.fusion} needs tma_warp_specialized, cooperative or not, or their ptr_array forms.",
            )
        return _no_collective(f"An epilogue without shared memory has no fusion; {key.fusion} needs a TMA epilogue.")
    if key.d == "void":
        return Broken("D is void", EPILOGUE_BUILDER, "Give d a type: this epilogue stores D and nothing else.")
    array = name != AUTO_IS
    if key.grouped and not array:
        return Broken(
            "StrideCD must be rank-3: [M, N, L]",
            "cutlass/epilogue/collective/default_epilogue.hpp",
            "Use ptr_array_no_smem_warp_specialized, or a ptr_array_tma epilogue, in a grouped kernel.",
        )
    return Direct(array, DIRECT[name])


def choose_tile(key: EpilogueKey, schedule: Schedule, output: str, rules: Sm90Rules) -> tuple[int, int] | Broken:
    """EpilogueTileAuto or the override: `sm90_compute_tile_shape_or_override`."""
    if key.epilogue_tile is not None:
        m, n = key.epilogue_tile
        if m != TILE_M[schedule.cooperative] or n % OVERRIDE_N:
            return Broken(
                "Unsupported tile shape",
                EPILOGUE_BUILDER,
                f"This epilogue takes {TILE_M[schedule.cooperative]} rows and columns in multiples of {OVERRIDE_N}.",
            )
        return m, n
    columns = TILE_N
    if not schedule.cooperative and ELEMENTS[output].bits == 8 and (key.n % TILE_N_8_BIT == 0 or rules.wide_8_bit_tile):
        columns = TILE_N_8_BIT
    return min(TILE_M[schedule.cooperative], key.m), gcd(min(columns, key.n), key.n)


def _staged(key: EpilogueKey, schedule: Schedule, align_c: int, align_d: int, rules: Sm90Rules) -> Epilogue | Broken:
    array = schedule.warp_groups is not None
    # Void D takes the type of what the fusion stores itself.
    output = key.final_output or key.d if key.fusion == "finalize" and key.d == "void" else key.d
    if output == "void":
        return Broken(
            "SmemElementD is void",
            ARRAY_HEADER if array else DENSE_HEADER,
            "Give d a type; only the finalize fusion stores through itself and leaves d void.",
        )
    tile = choose_tile(key, schedule, output, rules)
    if isinstance(tile, Broken):
        return tile
    source = None if key.c == "void" else key.c
    broken = _divides(key, tile) or _alignment(key, align_c, align_d, rules) or _layouts(key, array)
    if broken:
        return broken
    if tile[1] % 8 and rules.aligned_outputs:
        return Broken(
            "CopyAtomC can't be void, divisiblity check for EpilogueTile_MN failed",
            EPILOGUE_BUILDER,
            f"The epilogue tile has {tile[1]} columns; it needs a multiple of 8.",
        )

    tiles = -(-key.m // tile[0]) * -(-key.n // tile[1])
    bits_c = 0 if source is None else ELEMENTS[source].bits
    bits_d = ELEMENTS[output].bits
    # Same width means that D may overwrite C in place; 8-bit residuals load fast and stay separate.
    reuse = bits_c == bits_d and bits_d > 8
    stages_d = min(tiles, MAX_STAGES_D)
    stages_c = max(min(tiles, MAX_STAGES_C), stages_d + 1) if reuse else min(tiles, MAX_STAGES_C)
    thread = _fusion(key, array, tile, stages_d, output)
    if isinstance(thread, Broken):
        return thread
    atom_d = swizzle_atom(output, key.layout_d, tile)
    atom_c = swizzle_atom(source, key.layout_c, tile) if source else atom_d
    for atom in (atom_c, atom_d):
        if isinstance(atom, Broken):
            return atom
    broken = _whole_tiles(key, tile, ARRAY_HEADER if array else DENSE_HEADER)
    if broken:
        return broken
    assert not isinstance(atom_c, Broken)
    assert not isinstance(atom_d, Broken)
    staging = Staging(
        tile=tile,
        stages_c=stages_c,
        stages_d=stages_d,
        fragment_size=tile[0] * tile[1] // THREADS[schedule.cooperative],
        reuse_smem_c=reuse,
        # Delaying complicates the tensor-map updates of ptr-array kernels.
        delay_tma_store=source is None and not array,
        warp_groups=schedule.warp_groups,
    )
    return storage.lay_out(staging, output, source, atom_d, atom_c, thread, stores_d=key.d != "void")


def _divides(key: EpilogueKey, tile: tuple[int, int]) -> Broken | None:
    """`shape_div` of the tile by the epilogue tile, for the number of epilogue tiles."""
    for extent, cta, axis in ((tile[0], key.m, "M"), (tile[1], key.n, "N")):
        if cta % extent and extent % cta:
            return Broken(
                "Divisibility Condition",
                "cute/int_tuple.hpp",
                f"The epilogue tile is {tile[0]}x{tile[1]}: make the tile's {axis} a multiple of {extent}.",
            )
    return None


def _whole_tiles(key: EpilogueKey, tile: tuple[int, int], header: str) -> Broken | None:
    for extent, cta, axis in ((tile[0], key.m, "M"), (tile[1], key.n, "N")):
        if cta % extent:
            return Broken(
                f"EPI_TILE_{axis} must divide CTA_{axis}",
                header,
                f"The epilogue tile is {tile[0]}x{tile[1]}: make the tile's {axis} a multiple of {extent}.",
            )
    return None


def _alignment(key: EpilogueKey, align_c: int, align_d: int, rules: Sm90Rules) -> Broken | None:
    if not rules.aligned_outputs:
        return None
    for name, align, matrix in ((key.c, align_c, "C"), (key.d, align_d, "D")):
        if name == "void":
            continue
        bits = ELEMENTS[name].bits
        need = OUTPUT_ALIGNMENT_BITS_FP6 if bits == 6 else OUTPUT_ALIGNMENT_BITS
        if bits * align % need:
            advice = f"Alignment {align} of {matrix} ({name}) is not {need // 8} bytes; use {need // bits} elements."
            return Broken("C/D Should meet TMA alignment requirement", EPILOGUE_BUILDER, advice)
    return None


def _layouts(key: EpilogueKey, array: bool) -> Broken | None:
    """A dense epilogue has no use for the pointers to strides of a grouped kernel."""
    if key.grouped and not array:
        return Broken(
            "StrideC must be rank-3: [M, N, L]", DENSE_HEADER, "Use a ptr_array_tma epilogue in a grouped kernel."
        )
    return None


def _fusion(key: EpilogueKey, array: bool, tile: tuple[int, int], stages_d: int, output: str) -> FusionStorage | Broken:
    """Storage of the fusion's callbacks. SM90 has no fusion that generates scale factors."""
    if key.fusion == "block_scale_out":
        return Broken(
            "Could not find a callbacks specialization.",
            CALLBACKS,
            "SM90 generates no block scales: write D in a plain format.",
        )
    return fusion_storage(
        key.fusion,
        array,
        _with_array_callbacks(key.version),
        tile_n=key.n,
        epilogue_tile=tile,
        stages_d=stages_d,
        output=output,
        scattered=key.final_output or output,
        activation=key.activation,
        swap_ab=key.swap_ab,
        layout_sfd=key.layout_sfd,
        layout_d=key.layout_d,
    )


@lru_cache(maxsize=64)
def _with_array_callbacks(version: str) -> Rules:
    """SM90's ptr-array epilogue has had the callbacks builder for auxiliary tensors in every release."""
    rules = rules_for(version)
    assert rules is not None, "callers check the release first"
    return replace(rules, array_aux_callbacks=True)


def figures(epi: Epilogue | Direct) -> dict[str, object]:
    """The Budget's keys that describe an epilogue."""
    if isinstance(epi, Epilogue):
        return storage.figures(epi)
    return {
        "epilogue_bytes": epi.bytes,
        "epilogue_tensor_bytes": epi.tensors.bytes,
        "epilogue_pipeline_bytes": epi.pipeline_bytes,
        "epilogue_tensormap_bytes": epi.tensormap_bytes,
        "epilogue_policy": epi.policy,
    }


def entries(epi: Epilogue | Direct) -> list[Entry]:
    """Budget lines inside the epilogue; none where it keeps nothing."""
    return storage.entries(epi) if isinstance(epi, Epilogue) else []
