"""Random kernel configs, for holding the model against the compiler.

Families, formats, tiles (usual, odd and illegal ones), fusions, layouts, alignments, stages, epilogue tiles and
versions are drawn from the lists below; the weights favour what people run. A seed always draws the same configs.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["sample_configs"]

Weighted = Sequence[tuple[Any, int]]


@dataclass(frozen=True)
class Space:
    """What is drawn for one family of one architecture."""

    arch: str
    op_class: str
    weight: int
    m: Weighted
    n: Weighted
    k: Weighted
    pairs: Weighted
    """(A, B)."""
    schedules: Weighted
    epilogues: Weighted
    """Epilogue schedules of dense kernels; {P} is `ptr_array_` in grouped ones."""
    kinds: tuple[str, ...] = ("dense", "grouped")
    clusters: Weighted = (((1, 1, 1), 24), ((2, 1, 1), 1), ((1, 2, 1), 1))


_FUSIONS: Final = (
    ("linear_combination", 8), ("finalize", 4), ("activation", 2), ("block_scale_out", 2), ("per_row_bias", 1),
    ("per_col_bias", 1), ("per_row_bias_activation_aux", 1),
)  # fmt: skip
_OUTPUTS: Final = (("bf16", 8), ("f16", 2), ("f32", 3), ("e4m3", 1), ("e5m2", 1), ("e2m1", 1), ("int8", 1))
_BLOCK_OUTPUTS: Final = ("nvfp4", "nvfp4", "mxfp8_e4m3", "mxfp4")
_EPILOGUE_TILES: Final = ((64, 64), (128, 64), (32, 32), (128, 32), (64, 16), (64, 32), (128, 128), (64, 128))
_GRANULARITIES: Final = (
    (1, 128, 128), (1, 128, 128), (128, 128, 128), (1, 1, 128), (64, 128, 128), (128, 1, 128), (1, 64, 128),
    (1, 128, 64),
)  # fmt: skip

_MX: Final = ("mxfp8_e4m3", "mxfp4", "mxfp6_e3m2", "mxfp8_e5m2", "mxfp6_e2m3")
_F8F6F4: Final = ("e4m3", "e5m2", "e2m1", "e3m2", "e2m3")
_BLOCK_PAIRS: Final = (
    (("nvfp4", "nvfp4"), 25), (("mxfp4", "mxfp4"), 5), *(((a, b), 1) for a in _MX for b in _MX),
)  # fmt: skip
_F8F6F4_PAIRS: Final = ((("e4m3", "e4m3"), 10), *(((a, b), 1) for a in _F8F6F4 for b in _F8F6F4))
_FP8_PAIRS: Final = ((("e4m3", "e4m3"), 4), (("e4m3", "e5m2"), 1))
_DENSE_PAIRS: Final = (
    (("bf16", "bf16"), 4), (("f16", "f16"), 1), (("e4m3", "e4m3"), 3), (("e5m2", "e4m3"), 1), (("tf32", "tf32"), 1),
    (("int8", "int8"), 1),
)  # fmt: skip
_MIXED_PAIRS: Final = (
    (("int4", "bf16"), 3), (("int8", "bf16"), 2), (("uint4", "f16"), 1), (("int4", "e4m3"), 2), (("e4m3", "bf16"), 1),
    (("bf16", "int4"), 1), (("bf16", "e4m3"), 1),
)  # fmt: skip

_M120: Final = ((128, 10), (64, 3), (256, 4), (192, 1), (96, 1))
_N120: Final = ((128, 10), (64, 4), (256, 4), (32, 4), (16, 2), (8, 2), (192, 1), (96, 1), (48, 1), (24, 1))
_K120: Final = ((128, 10), (256, 5), (64, 2), (512, 1), (96, 1))
_WS: Final = (("auto", 4), ("cooperative", 2), ("pingpong", 2))
_WS_EPILOGUES: Final = (
    ("auto", 4), ("tma_warp_specialized", 4), ("tma_warp_specialized_cooperative", 1),
    ("{P}tma_warp_specialized_cooperative", 1), ("{P}tma_warp_specialized_pingpong", 1),
    ("no_smem_warp_specialized", 1),
)  # fmt: skip
_SM90_WS: Final = (("cooperative", 4), ("pingpong", 4), ("basic", 2), ("auto", 1))
_SM90_EPILOGUES: Final = (
    ("{P}tma_warp_specialized_cooperative", 4), ("{P}tma_warp_specialized_pingpong", 1), ("tma_warp_specialized", 3),
    ("auto", 1), ("{P}no_smem_warp_specialized", 1),
)  # fmt: skip
_SM: Final = (("1sm", 5), ("2sm", 5), ("auto", 1))
_SM_EPILOGUES: Final = (("{P}tma_warp_specialized_{S}", 8), ("{P}no_smem_warp_specialized_{S}", 1), ("auto", 1))
_SM_CLUSTERS: Final = (((1, 1, 1), 4), ((2, 1, 1), 5), ((1, 2, 1), 1), ((2, 2, 1), 1), ((4, 1, 1), 1))
_M100: Final = ((128, 5), (256, 5), (64, 1))
_N100: Final = ((128, 5), (256, 4), (64, 3), (192, 2), (32, 1), (16, 1))

SPACES: Final = (
    Space("sm120", "block_scaled", 7, _M120, _N120, _K120, _BLOCK_PAIRS, _WS, _WS_EPILOGUES),
    Space("sm120", "tensor_op", 2, _M120, _N120, _K120, _F8F6F4_PAIRS, _WS, _WS_EPILOGUES),
    Space("sm120", "blockwise", 2, _M120, _N120, _K120, _FP8_PAIRS, _WS, _WS_EPILOGUES),
    Space("sm120", "sparse", 1, _M120, _N120, _K120, _F8F6F4_PAIRS, (("auto", 1),), _WS_EPILOGUES, ("dense",)),
    Space(
        "sm120", "block_scaled_sparse", 1, _M120, _N120, ((256, 6), (128, 2), (512, 1)), _BLOCK_PAIRS,
        (("cooperative", 5), ("acc2x4", 1)), _WS_EPILOGUES, ("dense",),
    ),
    Space(
        "sm90", "tensor_op", 6, ((128, 6), (64, 3), (256, 3), (192, 1)), _N120, ((64, 5), (128, 4), (32, 1)),
        _DENSE_PAIRS, _SM90_WS, _SM90_EPILOGUES, clusters=_SM_CLUSTERS,
    ),
    Space(
        "sm90", "blockwise", 2, ((128, 5), (64, 2), (256, 1)), ((128, 5), (64, 1), (256, 1)), ((128, 1),),
        _FP8_PAIRS, (("cooperative", 1), ("pingpong", 1)), _SM90_EPILOGUES, clusters=_SM_CLUSTERS,
    ),
    Space(
        "sm90", "mixed_input", 2, ((128, 4), (64, 2), (256, 1)), ((128, 3), (64, 1), (16, 1), (256, 1)),
        ((64, 4), (128, 2)), _MIXED_PAIRS, (("cooperative", 3), ("pingpong", 3), ("basic", 1)), _SM90_EPILOGUES,
        clusters=_SM_CLUSTERS,
    ),
    Space(
        "sm90", "sparse", 1, ((128, 4), (64, 2), (256, 1)), ((128, 3), (64, 2), (256, 1)), ((64, 2), (128, 2)),
        _DENSE_PAIRS, _SM90_WS, _SM90_EPILOGUES, ("dense",), _SM_CLUSTERS,
    ),
    Space(
        "sm100", "tensor_op", 4, _M100, _N100, ((64, 5), (128, 3), (32, 1)), _DENSE_PAIRS, _SM, _SM_EPILOGUES,
        clusters=_SM_CLUSTERS,
    ),
    Space(
        "sm100", "block_scaled", 4, _M100, _N100, ((256, 5), (128, 2), (512, 1)), _BLOCK_PAIRS, _SM, _SM_EPILOGUES,
        clusters=_SM_CLUSTERS,
    ),
    Space(
        "sm100", "blockwise", 2, _M100, _N100, ((128, 1),), _FP8_PAIRS, _SM[:2], _SM_EPILOGUES, clusters=_SM_CLUSTERS,
    ),
    Space(
        "sm100", "sparse", 1, _M100, _N100, ((64, 1), (128, 1)), _DENSE_PAIRS, _SM[:2], _SM_EPILOGUES, ("dense",),
        _SM_CLUSTERS,
    ),
    Space(
        "sm100", "block_scaled_sparse", 1, _M100, _N100, ((256, 1),), _BLOCK_PAIRS, _SM[:2], _SM_EPILOGUES,
        ("dense",), _SM_CLUSTERS,
    ),
    Space(
        "sm103", "block_scaled", 1, ((128, 5), (256, 5)), ((128, 4), (192, 3), (256, 3), (64, 1)),
        ((768, 20), (256, 1)), ((("nvfp4", "nvfp4"), 3), (("mxfp4", "mxfp4"), 2)), _SM, _SM_EPILOGUES,
        clusters=_SM_CLUSTERS,
    ),
)  # fmt: skip
"""Every family that the truth rows have."""


def _pick(rng: random.Random, weighted: Weighted) -> Any:
    values, weights = zip(*weighted, strict=True)
    return rng.choices(values, weights)[0]


def _output(rng: random.Random, raw: dict[str, Any], scatter: bool) -> None:
    """Fusion and the types of C and D."""
    fusion = _pick(rng, _FUSIONS)
    if fusion == "finalize" and (not scatter or raw["kind"] == "dense"):
        fusion = "linear_combination"
    raw["fusion"] = fusion
    if fusion == "finalize":
        raw["final_output"] = rng.choice(("bf16", "bf16", "f16", "f32"))
        raw["c"] = rng.choice((raw["final_output"], "void", "bf16"))
    elif fusion == "block_scale_out":
        raw["d"] = rng.choice(_BLOCK_OUTPUTS)
        raw["c"] = rng.choice(("void", "void", "bf16", "f16"))
        if rng.random() < 0.2:
            raw["activation"] = "silu"
        if rng.random() < 0.15:
            raw["layout_sfd"] = rng.choice(("row", "col"))
    else:
        raw["d"] = _pick(rng, _OUTPUTS)
        raw["c"] = rng.choice(("void", raw["d"], raw["d"], "bf16", "f32"))
        if fusion == "activation":
            raw["activation"] = rng.choice(("silu", "gelu", "relu"))


def _now_and_then(rng: random.Random, raw: dict[str, Any]) -> None:
    """What most configs leave alone."""
    if rng.random() < 0.1:
        raw["layout_c"] = raw["layout_d"] = "col"
    if rng.random() < 0.03:
        raw["layout_d"] = "col"
    if rng.random() < 0.03:
        raw[rng.choice(("layout_a", "layout_b"))] = rng.choice(("row", "col"))
    if rng.random() < 0.3:
        raw["stages"] = rng.choice((1, 2, 2, 2, 3, 3, 4, 5, 7))
    if rng.random() < 0.12:
        raw["epilogue_tile"] = list(rng.choice(_EPILOGUE_TILES))
    if rng.random() < 0.06:
        raw[rng.choice(("align_a", "align_b"))] = rng.choice((8, 16, 32, 64, 128, 256))
    if rng.random() < 0.04:
        raw[rng.choice(("align_c", "align_d"))] = rng.choice((1, 2, 4, 8, 16))
    if rng.random() < 0.02:
        raw["acc"] = "f16"


def _draw(rng: random.Random, spaces: Sequence[Space], scatter: bool) -> dict[str, Any]:
    space: Space = _pick(rng, [(space, space.weight) for space in spaces])
    kind = rng.choice(space.kinds)
    a, b = _pick(rng, space.pairs)
    schedule = _pick(rng, space.schedules)
    pointer = "ptr_array_" if kind == "grouped" else ""
    side = schedule if schedule in ("1sm", "2sm") else "1sm"
    epilogue = _pick(rng, space.epilogues).format(P=pointer, S=side)
    if epilogue == "tma_warp_specialized_pingpong":  # there is no such tag: the epilogue of dense kernels has one less
        epilogue = "tma_warp_specialized"
    raw: dict[str, Any] = {
        "arch": "sm121" if space.arch == "sm120" and rng.random() < 0.1 else space.arch,
        "kind": kind, "op_class": space.op_class, "a": a, "b": b,
        "tile": [_pick(rng, space.m), _pick(rng, space.n), _pick(rng, space.k)],
        "cluster": list(_pick(rng, space.clusters)), "schedule": schedule,
        "epilogue_schedule": epilogue,
        "swap_ab": rng.random() < 0.25,
    }  # fmt: skip
    _output(rng, raw, scatter)
    _now_and_then(rng, raw)
    if space.op_class == "blockwise":
        raw["scale_granularity"] = list(rng.choice(_GRANULARITIES))
        raw["scale_major"] = rng.choice(("mn", "mn", "k"))
    elif space.op_class == "mixed_input":
        raw["narrow"] = "a" if a != "bf16" else "b"
        wide = b if raw["narrow"] == "a" else a
        raw["scale"] = rng.choice((None, wide if wide in ("bf16", "f16") else "bf16"))
        raw["zero"] = raw["scale"] if raw["scale"] and rng.random() < 0.4 else None
    elif space.arch == "sm120" and space.op_class == "block_scaled" and rng.random() < 0.05:
        ping = rng.choice(("", "Pingpong"))
        raw["schedule"] = f"KernelTmaWarpSpecialized{ping}{rng.choice(('Nvf4', 'Mxf4', 'Mxf8f6f4'))}Sm120"
    if "int8" in (a, b) and space.op_class != "mixed_input":
        raw["acc"] = "int32"
    return raw


DEFAULT_ARCHS: Final = ("sm120",)
"""What is drawn where no arch is asked for: GeForce and RTX PRO Blackwell, DGX Spark (sm121 among them)."""


def sample_configs(
    count: int,
    seed: int,
    versions: Sequence[str],
    *,
    finalize: bool = True,
    fixed: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """`count` random raw configs (for `parse_config`), their `cutlass` drawn from `versions`; the same for a seed.

    `finalize`: whether the fusion of that name may be drawn (its header is not part of CUTLASS). `fixed` keys are in
    every config as they are; `arch` and `op_class` among them choose the families that are drawn from.
    """
    given = dict(fixed or {})
    arch = str(given.get("arch", "")).lower().removeprefix("sm_").removeprefix("sm").rstrip("af")
    archs = ("sm120" if arch in ("120", "121") else f"sm{arch}",) if arch else DEFAULT_ARCHS
    spaces = [
        space for space in SPACES if space.arch in archs and given.get("op_class", space.op_class) == space.op_class
    ] or [space for space in SPACES if space.arch in archs]
    rng = random.Random(seed)
    configs: list[dict[str, Any]] = []
    for number in range(count):
        raw = _draw(rng, spaces or SPACES, finalize)
        configs.append({"id": f"sample-{seed}-{number}", "cutlass": rng.choice(list(versions)), **raw, **given})
    return configs
