"""Random kernel configs, for holding the model against the compiler.

A config is drawn from what its family usually has (`spaces`), then varied: none, one or a few of its keys are given
any of their legal values, usual or not. So most configs compile, every value of every key is drawn, and the odd ones
meet each other. A seed always draws the same configs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tilewright.arch import arch_name
from tilewright.cutlass.config import LEGAL
from tilewright.probe.spaces import (
    ANY_CLUSTERS,
    ANY_EPILOGUES,
    ANY_EXTENTS,
    ANY_SHORT,
    ANY_TAGS,
    BLOCK_OUTPUTS,
    EPILOGUE_TILES,
    FUSIONS,
    GRANULARITIES,
    MIXED_GRANULARITIES,
    OUTPUTS,
    SPACES,
    Space,
    Weighted,
)

__all__ = ["sample_configs"]

_ALIGNMENTS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_HOW_MANY: Final = ((0, 4), (1, 3), (2, 2), (3, 1))
"""Variations a config, and their weights."""
_COHERENT: Final = 0.85
"""Share of configs whose keys are made to fit each other before they are varied."""

Raw = dict[str, Any]


def _pick(rng: random.Random, weighted: Weighted) -> Any:
    values, weights = zip(*weighted, strict=True)
    return rng.choices(values, weights)[0]


def _output(rng: random.Random, raw: Raw, fusion: str) -> None:
    """Fusion and the types of C and D."""
    for key in ("final_output", "activation", "layout_sfd"):
        raw.pop(key, None)
    raw["fusion"] = fusion
    if fusion == "finalize":
        raw["final_output"] = rng.choice(("bf16", "bf16", "f16", "f32"))
        raw["c"] = rng.choice((raw["final_output"], "void", "bf16"))
        raw.pop("d", None)
    elif fusion == "block_scale_out":
        raw["d"] = rng.choice(BLOCK_OUTPUTS)
        raw["c"] = rng.choice(("void", "void", "bf16", "f16"))
        if rng.random() < 0.2:
            raw["activation"] = "silu"
        if rng.random() < 0.15:
            raw["layout_sfd"] = rng.choice(("row", "col"))
    else:
        raw["d"] = _pick(rng, OUTPUTS)
        raw["c"] = rng.choice(("void", raw["d"], raw["d"], "bf16", "f32"))
        if fusion == "activation":
            raw["activation"] = rng.choice(("silu", "gelu", "relu"))


def _family_keys(rng: random.Random, raw: Raw) -> None:
    """The keys that only some op classes have."""
    op_class, a, b = raw["op_class"], raw["a"], raw["b"]
    if op_class == "blockwise":
        raw["scale_granularity"] = list(rng.choice(GRANULARITIES))
        raw["scale_major"] = rng.choice(("mn", "mn", "k"))
    elif op_class == "mixed_input":
        raw["narrow"] = "b" if a in ("bf16", "f16") else "a"
        wide = b if raw["narrow"] == "a" else a
        raw["scale"] = rng.choice((None, wide if wide in ("bf16", "f16") else "bf16"))
        raw["zero"] = raw["scale"] if raw["scale"] and rng.random() < 0.4 else None
        if raw["arch"] == "sm100":
            raw["swap_ab"] = raw["narrow"] == "b"
            if raw["scale"] and rng.random() < 0.85:
                raw["scale_granularity"] = list(rng.choice(MIXED_GRANULARITIES))
    if "int8" in (a, b) and op_class != "mixed_input":
        raw["acc"] = "int32"


# ---- what goes with what: without this most of what is drawn would break the same few rules


def _coherent(rng: random.Random, raw: Raw) -> None:
    """Let schedule, tile, cluster, epilogue and fusion fit each other, as in kernels that people build."""
    if raw["kind"] == "grouped" and raw["fusion"].startswith("per_"):
        raw["fusion"] = "linear_combination"  # PtrArray epilogues have no bias callbacks
    {"sm90": _coherent_sm90, "sm120": _coherent_sm120, "sm121": _coherent_sm120}.get(raw["arch"], _coherent_umma)(
        rng, raw
    )


def _coherent_sm90(rng: random.Random, raw: Raw) -> None:
    grouped, tile = raw["kind"] == "grouped", raw["tile"]
    if raw["fusion"] == "block_scale_out":
        _output(rng, raw, "activation")
    if grouped and raw["schedule"] not in ("cooperative", "pingpong"):
        raw["schedule"] = rng.choice(("cooperative", "pingpong"))
    cooperative = raw["schedule"] == "cooperative"
    if "no_smem" not in raw["epilogue_schedule"] or raw["fusion"] != "linear_combination":
        kind = "cooperative" if cooperative else "pingpong"
        dense = "tma_warp_specialized_cooperative" if cooperative else "tma_warp_specialized"
        raw["epilogue_schedule"] = f"ptr_array_tma_warp_specialized_{kind}" if grouped else dense
    tile[0] = rng.choice((128, 128, 256)) if cooperative else rng.choice((64, 64, 128))
    if tile[1] % 16:
        tile[1] = 32
    if raw["op_class"] == "blockwise":
        raw["scale_granularity"] = list(rng.choice(((1, 128, 128), (128, 128, 128), (64, 128, 128))))


def _coherent_sm120(rng: random.Random, raw: Raw) -> None:
    tile, op_class = raw["tile"], raw["op_class"]
    raw["cluster"] = [1, 1, 1]
    scaled = "block_scaled" in op_class
    tile[0] = rng.choice((128, 128, 256) if scaled else (64, 128, 128))
    if tile[0] < 128 and op_class in ("tensor_op", "blockwise"):
        raw["schedule"] = "pingpong"
    tile[1] = max(32, tile[1])
    narrow = raw["a"] == raw["b"] and raw["a"] in ("nvfp4", "mxfp4")
    tile[2] = rng.choice((128, 256)) if narrow else 128
    if "sparse" in op_class:
        tile[2] = rng.choice((128, 256))
    if op_class == "blockwise":
        raw["scale_granularity"] = [*rng.choice(((1, 128), (128, 128), (1, 1), (64, 32))), tile[2]]
        raw["scale_granularity"][1] = min(raw["scale_granularity"][1], tile[1])
        raw["scale_granularity"][0] = min(raw["scale_granularity"][0], tile[0])
    raw["epilogue_schedule"] = rng.choice(("auto", "tma_warp_specialized"))


def _coherent_umma(rng: random.Random, raw: Raw) -> None:
    """SM100 and SM103."""
    tile, op_class, two = raw["tile"], raw["op_class"], raw["schedule"] == "2sm"
    grouped = raw["kind"] == "grouped"
    if grouped and raw["schedule"] == "auto":
        return
    if "block_scaled" in op_class or "sparse" in op_class:
        tile[0] = 256 if two else 128
        tile[1] = max(64, tile[1])
    else:
        tile[0] = rng.choice((128, 256, 256)) if two else rng.choice((64, 128, 128))
    if raw["arch"] == "sm103":
        tile[1], tile[2] = max(128, tile[1]), 768
    raw["cluster"] = list(rng.choice(((2, 1, 1), (2, 1, 1), (2, 2, 1), (4, 1, 1))) if two else raw["cluster"])
    if raw["fusion"] != "linear_combination" and "no_smem" in raw["epilogue_schedule"]:
        _output(rng, raw, "linear_combination")
    if op_class == "blockwise":
        cta = (tile[0] // (2 if two else 1), tile[1], tile[2])
        usual = ((1, 128, 128), (128, 128, 128), (1, 1, 128), (32, 32, 128))
        raw["scale_granularity"] = [min(pair) for pair in zip(rng.choice(usual), cta, strict=True)]


# ---- variations: each gives one key, or a few that belong together, any legal value


def _layouts(rng: random.Random, raw: Raw, _: bool) -> None:
    for key in rng.sample(("layout_a", "layout_b", "layout_c", "layout_d"), rng.choice((1, 1, 2))):
        raw[key] = rng.choice(("row", "col"))


def _column_major(rng: random.Random, raw: Raw, _: bool) -> None:  # noqa: ARG001
    raw["layout_c"] = raw["layout_d"] = "col"


def _stages(rng: random.Random, raw: Raw, _: bool) -> None:
    raw["stages"] = rng.choice((1, 2, 2, 2, 3, 3, 4, 5, 6, 7, 8, 10, 12))


def _epilogue_tile(rng: random.Random, raw: Raw, _: bool) -> None:
    raw["epilogue_tile"] = list(rng.choice(EPILOGUE_TILES))


def _alignment(rng: random.Random, raw: Raw, _: bool) -> None:
    raw[rng.choice(("align_a", "align_b", "align_c", "align_d"))] = rng.choice(_ALIGNMENTS)


def _accumulator(rng: random.Random, raw: Raw, _: bool) -> None:
    raw["acc"] = rng.choice(LEGAL["acc"])


def _cluster(rng: random.Random, raw: Raw, _: bool) -> None:
    raw["cluster"] = list(rng.choice(ANY_CLUSTERS))


def _extent(rng: random.Random, raw: Raw, _: bool) -> None:
    axis = rng.randrange(3)
    raw["tile"][axis] = rng.choice(ANY_EXTENTS[axis])


def _schedule(rng: random.Random, raw: Raw, _: bool) -> None:
    base = "sm120" if raw["arch"] == "sm121" else raw["arch"]
    raw["schedule"] = rng.choice(rng.choice((ANY_SHORT, ANY_TAGS))[base])


def _epilogue(rng: random.Random, raw: Raw, _: bool) -> None:
    raw["epilogue_schedule"] = rng.choice(ANY_EPILOGUES["sm120" if raw["arch"] == "sm121" else raw["arch"]])


def _source(rng: random.Random, raw: Raw, _: bool) -> None:
    raw["c"] = rng.choice(LEGAL["c"])


def _destination(rng: random.Random, raw: Raw, _: bool) -> None:
    """Any D; with finalize one of its own beside the scattered type."""
    raw["d"] = rng.choice(LEGAL["d"])


def _operands(rng: random.Random, raw: Raw, _: bool) -> None:
    raw[rng.choice("ab")] = rng.choice(LEGAL["a"])


def _fusion(rng: random.Random, raw: Raw, scatter: bool) -> None:
    _output(rng, raw, rng.choice([name for name in LEGAL["fusion"] if scatter or name != "finalize"]))


def _activation(rng: random.Random, raw: Raw, _: bool) -> None:
    raw["activation"] = rng.choice(("silu", "gelu", "relu"))


def _scheduler(rng: random.Random, raw: Raw, _: bool) -> None:
    raw["tile_scheduler"] = rng.choice(("static_persistent", "stream_k"))


def _swap(rng: random.Random, raw: Raw, _: bool) -> None:  # noqa: ARG001
    raw["swap_ab"] = not raw["swap_ab"]


def _sfd(rng: random.Random, raw: Raw, _: bool) -> None:
    raw["layout_sfd"] = rng.choice(("row", "col"))


def _scales(rng: random.Random, raw: Raw, _: bool) -> None:
    """Granularity and major of software scales, or the scale and zero point of a narrow operand."""
    if raw["op_class"] == "mixed_input":
        raw["scale"] = rng.choice((None, *LEGAL["scale"]))
        raw["zero"] = rng.choice((None, None, raw["scale"], *LEGAL["zero"])) if raw["scale"] else None
        raw["narrow"] = rng.choice("ab")
    elif raw["op_class"] == "blockwise":
        raw["scale_granularity"] = rng.choice((None, *(list(item) for item in GRANULARITIES)))
        raw["scale_major"] = rng.choice((None, "mn", "k"))


_VARIATIONS: Final[Sequence[tuple[Callable[[random.Random, Raw, bool], None], int]]] = (
    (_layouts, 4), (_column_major, 2), (_stages, 5), (_epilogue_tile, 3), (_alignment, 3), (_accumulator, 1),
    (_cluster, 3), (_extent, 4), (_schedule, 5), (_epilogue, 4), (_source, 3), (_destination, 4), (_operands, 2),
    (_fusion, 3), (_activation, 1), (_scheduler, 3), (_swap, 1), (_sfd, 1), (_scales, 3),
)  # fmt: skip


def _draw(rng: random.Random, spaces: Sequence[Space], scatter: bool) -> Raw:
    space: Space = _pick(rng, [(space, space.weight) for space in spaces])
    kind = rng.choice(space.kinds)
    a, b = _pick(rng, space.pairs)
    schedule = _pick(rng, space.schedules)
    pointer = "ptr_array_" if kind == "grouped" else ""
    side = schedule if schedule in ("1sm", "2sm") else "1sm"
    epilogue = _pick(rng, space.epilogues).format(P=pointer, S=side)
    if epilogue == "tma_warp_specialized_pingpong":  # there is no such tag: the epilogue of dense kernels has one less
        epilogue = "tma_warp_specialized"
    raw: Raw = {
        "arch": "sm121" if space.arch == "sm120" and rng.random() < 0.1 else space.arch,
        "kind": kind, "op_class": space.op_class, "a": a, "b": b,
        "tile": [_pick(rng, space.m), _pick(rng, space.n), _pick(rng, space.k)],
        "cluster": list(_pick(rng, space.clusters)), "schedule": schedule,
        "epilogue_schedule": epilogue,
        "swap_ab": rng.random() < 0.25,
    }  # fmt: skip
    fusion = _pick(rng, FUSIONS)
    if fusion == "finalize" and (not scatter or kind == "dense"):
        fusion = "linear_combination"
    _output(rng, raw, fusion)
    _family_keys(rng, raw)
    if rng.random() < _COHERENT:
        _coherent(rng, raw)
    for _ in range(_pick(rng, _HOW_MANY)):
        _pick(rng, _VARIATIONS)(rng, raw, scatter)
    if raw["fusion"] == "block_scale_out" and not raw["d"].startswith(("nvfp4", "mxfp")):
        raw["d"] = rng.choice(BLOCK_OUTPUTS)  # the fusion has no other D
    return raw


def sample_configs(
    count: int,
    seed: int,
    versions: Sequence[str],
    *,
    finalize: bool = True,
    fixed: Mapping[str, Any] | None = None,
) -> list[Raw]:
    """`count` random raw configs (for `parse_config`), their `cutlass` drawn from `versions`; the same for a seed.

    `finalize`: whether the fusion of that name may be drawn (its header is not part of CUTLASS). `fixed` keys are in
    every config as they are; `arch` and `op_class` among them choose the families that are drawn from.
    """
    given = dict(fixed or {})
    arch = arch_name(str(given.get("arch", "")))
    wanted = "sm120" if arch == "sm121" else arch
    of_arch = [space for space in SPACES if not arch or space.arch == wanted] or list(SPACES)
    spaces = [space for space in of_arch if given.get("op_class", space.op_class) == space.op_class] or of_arch
    rng = random.Random(seed)
    configs: list[Raw] = []
    for number in range(count):
        raw = _draw(rng, spaces, finalize)
        configs.append({"id": f"sample-{seed}-{number}", "cutlass": rng.choice(list(versions)), **raw, **given})
    return configs
