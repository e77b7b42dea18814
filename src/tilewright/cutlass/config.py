"""A kernel config: everything that fixes the type of a CUTLASS kernel (DESIGN 4.2).

`parse_config` is the one way in for data from outside: it checks every key, fills every default, and answers a
`KernelConfig` in which nothing is left open but "auto". It says nothing about whether CUTLASS would accept the
config; that is a verdict, not an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, cast

import msgspec

from tilewright.arch import arch_name
from tilewright.errors import ConfigError, nearest, shown
from tilewright.formats.elements import ALIASES, ELEMENTS, element

__all__ = ["KEYS", "NEWEST_CUTLASS", "KernelConfig", "config_to_dict", "parse_config", "parse_tile"]

NEWEST_CUTLASS: Final = "4.7.0"
"""Newest CUTLASS release whose rules the model knows (tag v4.7.0)."""

MAX_EXTENT: Final = 65536
"""Largest tile, cluster or alignment extent that is read as one; anything above is a typing error, not a tile."""

Auto = Literal["auto"]


class KernelConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One kernel config, every key explicit. Values and their C++ meaning: `docs/kernel-config.md`.

    Extents are in elements, alignments in elements, `tile` is the `TileShape_MNK` handed to the builders (for 2sm
    kernels the tile of the CTA pair) and is never exchanged by `swap_ab`; the other operand keys are those before
    the swap.
    """

    id: str = ""
    cutlass: str = NEWEST_CUTLASS
    arch: str
    kind: str = "dense"
    op_class: str
    a: str
    b: str
    acc: str = "f32"
    c: str = "void"
    d: str = "bf16"
    layout_a: str = "row"
    layout_b: str = "col"
    layout_c: str = "row"
    layout_d: str = "row"
    align_a: int
    align_b: int
    align_c: int
    align_d: int
    tile: tuple[int, int, int]
    cluster: tuple[int, int, int] = (1, 1, 1)
    schedule: str = "auto"
    epilogue_schedule: str = "auto"
    fusion: str = "linear_combination"
    final_output: str | None = None
    activation: str | None = None
    swap_ab: bool = False
    epilogue_tile: tuple[int, int] | Auto = "auto"
    stages: int | Auto = "auto"
    scale_granularity: tuple[int, int, int] | None = None
    scale_major: str | None = None
    narrow: str | None = None
    scale: str | None = None
    zero: str | None = None
    tile_scheduler: str | None = None
    layout_sfd: str | None = None


KEYS: Final[tuple[str, ...]] = KernelConfig.__struct_fields__

_KEY_SET: Final = frozenset(KEYS)

_OPERANDS: Final = (
    "nvfp4", "mxfp4", "mxfp6_e2m3", "mxfp6_e3m2", "mxfp8_e4m3", "mxfp8_e5m2", "e4m3", "e5m2", "e2m1", "e3m2",
    "e2m3", "bf16", "f16", "tf32", "int8", "uint8", "int4", "uint4",
)  # fmt: skip
_OUTPUTS: Final = (
    "void", "bf16", "f16", "f32", "e4m3", "e5m2", "int8", "uint8", "int32", "nvfp4", "mxfp4", "mxfp8_e4m3",
    "mxfp8_e5m2", "e2m1", "e2m3", "e3m2", "mxfp6_e2m3", "mxfp6_e3m2",
)  # fmt: skip

LEGAL: Final[dict[str, tuple[str, ...]]] = {
    "arch": ("sm90", "sm100", "sm103", "sm120", "sm121"),
    "kind": ("dense", "grouped"),
    "op_class": ("tensor_op", "block_scaled", "sparse", "block_scaled_sparse", "blockwise", "mixed_input"),
    "a": _OPERANDS,
    "b": _OPERANDS,
    "acc": ("f32", "f16", "int32"),
    "c": _OUTPUTS,
    "d": _OUTPUTS,
    "layout_a": ("row", "col"),
    "layout_b": ("row", "col"),
    "layout_c": ("row", "col"),
    "layout_d": ("row", "col"),
    "fusion": (
        "linear_combination", "finalize", "activation", "block_scale_out", "per_row_bias", "per_col_bias",
        "per_row_bias_activation_aux",
    ),
    "final_output": ("bf16", "f16", "f32"),
    "activation": ("silu", "gelu", "relu"),
    "scale_major": ("mn", "k"),
    "narrow": ("a", "b"),
    "scale": ("bf16", "f16", "f32", "e4m3", "e5m2"),
    "zero": ("bf16", "f16", "f32", "e4m3", "e5m2"),
    "tile_scheduler": ("default", "static_persistent", "stream_k"),
    "layout_sfd": ("row", "col"),
}  # fmt: skip
"""Legal values of every enumerated key. Formats also answer to their aliases (`fp16`, `s32`, ...)."""

_LEGAL_SETS: Final = {key: frozenset(values) for key, values in LEGAL.items()}

SCHEDULES: Final = (
    "auto", "cooperative", "pingpong", "basic", "tma", "1sm", "2sm", "acc2x4", "cp_async", "cp_async_cooperative",
    "cp_async_pingpong", "basic_fp8_fast_accum", "cooperative_fp8_fast_accum", "pingpong_fp8_fast_accum",
)  # fmt: skip
"""Schedules by short name; any other is a builder tag by its C++ name (`Kernel...`)."""

_TAG: Final = re.compile(r"Kernel[A-Za-z0-9]{1,120}")
_EPILOGUE_TAG: Final = re.compile(r"[a-z0-9][a-z0-9_]{0,119}")
_VERSION: Final = re.compile(r"\d{1,3}\.\d{1,3}\.\d{1,3}(\.\d{1,3})?")
_BY: Final = r"\s*[xX×,]\s*"
"""What stands between two extents: `x`, also as people and documents write it, or a comma."""
_TILE: Final = re.compile(rf"[0-9]{{1,6}}(?:{_BY}[0-9]{{1,6}})*")

_FORMAT_KEYS: Final = frozenset({"a", "b", "acc", "c", "d", "final_output", "scale", "zero"})
_BOOL_WORDS: Final = {"true": True, "false": False}


def parse_tile(field: str, text: str, extents: int) -> tuple[int, ...]:
    """`128x256x128` (or with commas) as `extents` integers; a ConfigError names `field` otherwise."""
    if not _TILE.fullmatch(text):
        raise ConfigError(field, f"{field}: {shown(text)} is not a shape; write {extents} extents as 128x256x128.")
    return _extents(field, [int(part) for part in re.split(_BY, text)], extents)


def _extents(field: str, value: Any, count: int) -> tuple[int, ...]:
    if isinstance(value, str):
        return parse_tile(field, value, count)
    if not isinstance(value, list | tuple):
        raise ConfigError(field, f"{field}: {shown(value)} is not a list of {count} integers.")
    items = tuple(cast("list[Any] | tuple[Any, ...]", value))
    if len(items) != count:
        raise ConfigError(field, f"{field}: {shown(list(items))} has {len(items)} extents; it takes {count}.")
    for item in items:
        if type(item) is not int or not 1 <= item <= MAX_EXTENT:
            raise ConfigError(field, f"{field}: {shown(item)} is not an integer from 1 to {MAX_EXTENT}.")
    return cast("tuple[int, ...]", items)


def _enumerated(field: str, value: Any) -> str:
    legal = LEGAL[field]
    if isinstance(value, str):
        if value in legal:
            return value
        lowered = value.strip().lower()
        if lowered in legal:
            return lowered
        if field in _FORMAT_KEYS and ALIASES.get(lowered) in legal:
            return ALIASES[lowered]
        if field == "arch":
            name = arch_name(lowered)
            if name in legal:
                return name
        near = nearest(value, legal)
        hint = f"; the nearest legal value{' is' if len(near) == 1 else 's are'} {', '.join(near)}" if near else ""
        legal_text = ", ".join(legal)
        raise ConfigError(field, f"{field}: {shown(value)} is not legal{hint}. Legal: {legal_text}.")
    raise ConfigError(field, f"{field}: {shown(value)} is not a string; legal values: {', '.join(legal)}.")


def _the_nearest(names: Sequence[str]) -> str:
    return f"the nearest {'is' if len(names) == 1 else 'are'} {', '.join(names)}"


def _schedule(value: Any) -> str:
    if isinstance(value, str) and (value in SCHEDULES or _TAG.fullmatch(value)):
        return value
    near = nearest(value, SCHEDULES) if isinstance(value, str) else []
    hint = f"; {_the_nearest(near)}" if near else ""
    msg = f"schedule: {shown(value)} is not legal{hint}. Legal: {', '.join(SCHEDULES)}, or a tag by name (Kernel...)."
    raise ConfigError("schedule", msg)


def _epilogue_schedule(value: Any) -> str:
    if isinstance(value, str) and _EPILOGUE_TAG.fullmatch(value):
        return value
    msg = (
        f"epilogue_schedule: {shown(value)} is not legal. Legal: auto, or a tag of cutlass::epilogue in snake case "
        "(tma_warp_specialized, tma_warp_specialized_cooperative, no_smem_warp_specialized, ...)."
    )
    raise ConfigError("epilogue_schedule", msg)


def _stages(value: Any) -> int | Auto:
    if value == "auto":
        return "auto"
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 6:
        value = int(value)
    if type(value) is int and 1 <= value <= MAX_EXTENT:
        return value
    raise ConfigError("stages", f'stages: {shown(value)} is not legal. Legal: "auto", or an integer from 1.')


def _alignment(field: str, value: Any) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 6:
        value = int(value)
    if type(value) is int and 1 <= value <= MAX_EXTENT:
        return value
    raise ConfigError(field, f"{field}: {shown(value)} is not an integer from 1 to {MAX_EXTENT} (elements).")


def _bool(field: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _BOOL_WORDS:
        return _BOOL_WORDS[value.lower()]
    raise ConfigError(field, f"{field}: {shown(value)} is not true or false.")


VECTOR_BITS: Final = 128
"""Default alignment: one 128-bit vector, what TMA needs (16 bytes; CUDA driver, cuTensorMapEncodeTiled)."""
F8F6F4_SUBBYTE_ALIGNMENT: Final = 128
"""Default alignment in elements of FP4/FP6 operands in f8f6f4 MMAs (CUTLASS `detail/sm100_*`: 128 elements)."""
_F6F4: Final = frozenset({"e2m1", "e2m3", "e3m2"})
_F8F6F4_CLASSES: Final = ("block_scaled", "block_scaled_sparse", "tensor_op", "sparse")
_SPARSE_CLASSES: Final = ("sparse", "block_scaled_sparse")
DEFAULT_GRANULARITY: Final = (1, 128, 128)
"""Elements that share a software scale where a blockwise config does not say: one scale a token and 128 of K, one a
128 x 128 block of weights (DeepSeek-V3's recipe, and the SM90 and SM120 builders' usual one)."""
SPARSITY: Final = 2
"""Logical elements a stored element of a 2:4 sparse operand stands for."""


def default_alignment(name: str, other: str, op_class: str) -> int:
    """Default alignment in elements of an A or B operand of format `name` whose partner has format `other`."""
    if name not in ELEMENTS:
        return 8
    fmt = ELEMENTS[name]
    packed_pair = {name, other} in ({"nvfp4"}, {"mxfp4"})
    if op_class in _F8F6F4_CLASSES and fmt.plain in _F6F4 and not packed_pair:
        return F8F6F4_SUBBYTE_ALIGNMENT
    return VECTOR_BITS // fmt.bits


def default_alignments(a: str, b: str, op_class: str, layout_a: str, layout_b: str, swap_ab: bool) -> tuple[int, int]:
    """Default alignments of A and B in elements. Of a sparse operand half is stored, so that a K-major one needs twice
    as many logical elements for the same load; it is A, or B where swap_ab makes it the builder's A."""
    pair = default_alignment(a, b, op_class), default_alignment(b, a, op_class)
    if op_class not in _SPARSE_CLASSES:
        return pair
    if swap_ab:
        return pair[0], pair[1] * (SPARSITY if layout_b == "col" else 1)
    return pair[0] * (SPARSITY if layout_a == "row" else 1), pair[1]


def _output_alignment(name: str, stand_in: str) -> int:
    fmt = element(name if name != "void" else stand_in)
    return VECTOR_BITS // fmt.bits if fmt else 8


def parse_config(raw: Mapping[str, Any]) -> KernelConfig:
    """Check `raw` (one JSON object, as in `docs/kernel-config.md`) and fill its defaults.

    Raises:
        ConfigError: an unknown key, a wrong type, or a value that is none of the legal ones. `field` names the key,
            the message the legal values.
    """
    if not raw.keys() <= _KEY_SET:
        unknown = [key for key in raw if key not in _KEY_SET]
        near = nearest(unknown[0], KEYS)
        hint = f"; {_the_nearest(near)}" if near else f". Legal: {', '.join(KEYS)}"
        raise ConfigError(unknown[0], f"{shown(unknown[0])} is not a key of a kernel config{hint}.")
    given = {key: value for key, value in raw.items() if value is not None}
    for key in ("arch", "a", "tile"):
        if key not in given:
            raise ConfigError(key, f"{key}: it is missing; a config needs at least arch, a and tile.")

    out: dict[str, Any] = {}
    ident = given.get("id", "")
    if not isinstance(ident, str):
        raise ConfigError("id", f"id: {shown(ident)} is not a string.")
    out["id"] = ident
    version = given.get("cutlass", NEWEST_CUTLASS)
    if not isinstance(version, str) or not _VERSION.fullmatch(version.removeprefix("v")):
        raise ConfigError("cutlass", f"cutlass: {shown(version)} is not a version; write it as 4.2.1.")
    out["cutlass"] = version.removeprefix("v")

    for key, legal in _LEGAL_SETS.items():
        if key in given:
            value = given[key]
            out[key] = value if type(value) is str and value in legal else _enumerated(key, value)
    out.setdefault("kind", "dense")
    a = out["a"]
    b = out.setdefault("b", a)
    if "op_class" not in out:
        blocks = ELEMENTS[a].block_scaled and ELEMENTS[b].block_scaled
        out["op_class"] = "block_scaled" if blocks else "tensor_op"
    op_class = out["op_class"]
    out.setdefault("acc", "int32" if a in ("int8", "uint8") and b in ("int8", "uint8") else "f32")

    out["schedule"] = _schedule(given.get("schedule", "auto"))
    out["epilogue_schedule"] = _epilogue_schedule(given.get("epilogue_schedule", "auto"))
    fusion = out.setdefault("fusion", "linear_combination")
    out["swap_ab"] = _bool("swap_ab", given.get("swap_ab", False))
    out["stages"] = _stages(given.get("stages", "auto"))
    tile = given.get("epilogue_tile", "auto")
    out["epilogue_tile"] = "auto" if tile == "auto" else _extents("epilogue_tile", tile, 2)
    out["tile"] = _extents("tile", given["tile"], 3)
    out["cluster"] = _extents("cluster", given.get("cluster", (1, 1, 1)), 3)
    if "scale_granularity" in given:
        out["scale_granularity"] = _extents("scale_granularity", given["scale_granularity"], 3)
    elif op_class == "blockwise":
        out["scale_granularity"] = DEFAULT_GRANULARITY
    if out.get("tile_scheduler") == "default":
        del out["tile_scheduler"]

    finalize = fusion == "finalize"
    if finalize:
        out.setdefault("final_output", "bf16")
    out.setdefault("d", "void" if finalize else "bf16")
    scattered = finalize and out["arch"] in ("sm120", "sm121")
    out.setdefault("c", out["final_output"] if scattered else "void")
    if fusion in ("activation", "per_row_bias_activation_aux") and "activation" not in out:
        out["activation"] = "silu" if fusion == "activation" else "relu"

    stand_in = out.get("final_output") or (out["d"] if out["d"] != "void" else "bf16")
    align_a, align_b = default_alignments(
        a, b, op_class, out.get("layout_a", "row"), out.get("layout_b", "col"), out["swap_ab"]
    )
    defaults = {
        "align_a": align_a,
        "align_b": align_b,
        "align_c": _output_alignment(out["c"], stand_in),
        "align_d": _output_alignment(out["d"], stand_in),
    }
    for key, default in defaults.items():
        out[key] = _alignment(key, given[key]) if key in given else default
    return KernelConfig(**out)


def config_to_dict(config: KernelConfig) -> dict[str, Any]:
    """`config` as a JSON object with every key explicit."""
    return msgspec.to_builtins(config)
