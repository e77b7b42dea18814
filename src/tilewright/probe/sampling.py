"""Random kernel configs of the SM120 space, for holding the model against the compiler.

Families, formats, tiles (usual, odd and illegal ones), fusions, layouts, alignments, stages, epilogue tiles and
versions are drawn from the lists below; the weights favour what people run. A seed always draws the same configs.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

__all__ = ["sample_configs"]

_FAMILIES: Final = (("block_scaled", 7), ("tensor_op", 2), ("blockwise", 2))
_MX: Final = ("mxfp8_e4m3", "mxfp4", "mxfp6_e3m2", "mxfp8_e5m2", "mxfp6_e2m3")
_F8F6F4: Final = ("e4m3", "e5m2", "e2m1", "e3m2", "e2m3")

_M: Final = ((128, 10), (64, 3), (256, 4), (192, 1), (96, 1))
_N: Final = ((128, 10), (64, 4), (256, 4), (32, 4), (16, 2), (8, 2), (192, 1), (96, 1), (48, 1), (24, 1))
_K: Final = ((128, 10), (256, 5), (64, 2), (512, 1), (96, 1))

_FUSIONS: Final = (
    ("linear_combination", 8), ("finalize", 4), ("activation", 2), ("block_scale_out", 2), ("per_row_bias", 1),
    ("per_col_bias", 1), ("per_row_bias_activation_aux", 1),
)  # fmt: skip
_OUTPUTS: Final = (("bf16", 8), ("f16", 2), ("f32", 3), ("e4m3", 1), ("e5m2", 1), ("e2m1", 1), ("int8", 1))
_EPILOGUE_TILES: Final = ((64, 64), (128, 64), (32, 32), (128, 32), (64, 16), (64, 32), (128, 128), (64, 128))
_GRANULARITIES: Final = (
    (1, 128, 128), (128, 128, 128), (1, 1, 128), (64, 128, 128), (128, 1, 128), (1, 64, 128), (1, 128, 64),
)  # fmt: skip
_EPILOGUE_SCHEDULES: Final = (
    ("auto", 4), ("tma_warp_specialized", 4), ("tma_warp_specialized_cooperative", 1),
    ("ptr_array_tma_warp_specialized_cooperative", 1), ("ptr_array_tma_warp_specialized_pingpong", 1),
    ("no_smem_warp_specialized", 1),
)  # fmt: skip
_BLOCK_OUTPUTS: Final = ("nvfp4", "nvfp4", "mxfp8_e4m3", "mxfp4")


def _pick(rng: random.Random, weighted: Sequence[tuple[Any, int]]) -> Any:
    values, weights = zip(*weighted, strict=True)
    return rng.choices(values, weights)[0]


def _operands(rng: random.Random, family: str) -> tuple[str, str]:
    if family == "blockwise":
        return "e4m3", rng.choice(("e4m3", "e4m3", "e4m3", "e5m2"))
    if family == "tensor_op":
        return rng.choice(_F8F6F4), rng.choice(("e4m3", *_F8F6F4))
    pick = rng.random()
    if pick < 0.5:
        return "nvfp4", "nvfp4"
    if pick < 0.6:
        return "mxfp4", "mxfp4"
    return rng.choice(_MX), rng.choice(_MX)


def _draw(rng: random.Random, finalize: bool) -> dict[str, Any]:
    family = _pick(rng, _FAMILIES)
    kind = rng.choice(("dense", "grouped"))
    a, b = _operands(rng, family)
    fusion = _pick(rng, _FUSIONS)
    if fusion == "finalize" and (not finalize or kind == "dense"):
        fusion = "linear_combination"
    raw: dict[str, Any] = {
        "arch": "sm121" if rng.random() < 0.1 else "sm120", "kind": kind, "op_class": family, "a": a, "b": b,
        "tile": [_pick(rng, _M), _pick(rng, _N), _pick(rng, _K)], "fusion": fusion,
        "schedule": _pick(rng, (("auto", 4), ("cooperative", 2), ("pingpong", 2))),
        "epilogue_schedule": _pick(rng, _EPILOGUE_SCHEDULES),
        "swap_ab": rng.random() < 0.25,
    }  # fmt: skip
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
    if rng.random() < 0.1:
        raw["layout_c"] = raw["layout_d"] = "col"
    if rng.random() < 0.03:
        raw["layout_d"] = "col"
    if rng.random() < 0.03:
        raw[rng.choice(("layout_a", "layout_b"))] = rng.choice(("row", "col"))
    if rng.random() < 0.04:
        raw["cluster"] = rng.choice(([2, 1, 1], [1, 2, 1]))
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
    if family == "blockwise":
        raw["scale_granularity"] = list(rng.choice(_GRANULARITIES))
        raw["scale_major"] = rng.choice(("mn", "mn", "k"))
    elif family == "block_scaled" and rng.random() < 0.05:
        ping = rng.choice(("", "Pingpong"))
        raw["schedule"] = f"KernelTmaWarpSpecialized{ping}{rng.choice(('Nvf4', 'Mxf4', 'Mxf8f6f4'))}Sm120"
    return raw


def sample_configs(count: int, seed: int, versions: Sequence[str], *, finalize: bool = True) -> list[dict[str, Any]]:
    """`count` random raw configs (for `parse_config`), their `cutlass` drawn from `versions`; the same for a seed.

    `finalize`: whether the fusion of that name may be drawn (its header is not part of CUTLASS).
    """
    rng = random.Random(seed)
    configs: list[dict[str, Any]] = []
    for number in range(count):
        raw = _draw(rng, finalize)
        configs.append({"id": f"sample-{seed}-{number}", "cutlass": rng.choice(list(versions)), **raw})
    return configs
