"""Reading quantisation configs: ModelOpt (nested and flat), compressed-tensors, FP8, MXFP4, GPTQ, AWQ, bitsandbytes.

Mirrors how vLLM reads them (`model_executor/layers/quantization/{modelopt,fp8,mxfp4,gptq,awq}.py` and
`compressed_tensors/`). A method or algorithm that is not known is refused with its name: bytes would be a guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from tilewright.errors import InputError, shown
from tilewright.models.checkpoint import Checkpoint, Rule
from tilewright.models.formats import FORMATS, WeightFormat, weight_format
from tilewright.models.patterns import Patterns

__all__ = ["METHODS", "MODELOPT_ALGORITHMS", "parse_quantisation"]

MODELOPT_ALGORITHMS: dict[str, str] = {
    "FP8": "fp8",
    "FP8_PB_WO": "fp8_block",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8_channel",
    "NVFP4": "nvfp4",
    "NVFP4_AWQ": "nvfp4",
    "W4A16_NVFP4": "nvfp4_w4a16",
    "MXFP8": "mxfp8",
    "MXFP4": "mxfp4",
    "W4A16_AWQ": "int4",
    "W4A16": "int4",
    "INT4_AWQ": "int4",
    "W8A16": "int8_w8a16",
    "W8A8_SQ_PER_CHANNEL": "int8",
}
_MIXED = "MIXED_PRECISION"
METHODS = (
    "modelopt", "modelopt_fp4", "compressed-tensors", "fp8", "mxfp4", "gptq", "awq", "fbgemm_fp8", "bitsandbytes",
)  # fmt: skip
_MAX_GROUP = 1 << 16
_FP4_BITS, _FP8_BITS = 4, 8


@dataclass(frozen=True, slots=True)
class _Reader:
    """One quantisation config, and where it is, for messages."""

    raw: Mapping[str, Any]
    where: str

    def fail(self, key: str, msg: str) -> InputError:
        return InputError(key, f"{self.where}: {key} {msg}.")

    def text(self, *keys: str) -> str:
        for key in keys:
            value = self.raw.get(key)
            if value is not None:
                if not isinstance(value, str):
                    raise self.fail(key, f"must be a text, not {shown(value)}")
                return value
        return ""

    def integer(self, key: str, default: int) -> int:
        value = self.raw.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value <= _MAX_GROUP:
            raise self.fail(key, f"must be a whole number up to {_MAX_GROUP:,}, not {shown(value)}")
        return value

    def mapping(self, key: str) -> Mapping[str, Any]:
        value = self.raw.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self.fail(key, f"must be an object, not {shown(value)}")
        return cast("dict[str, Any]", value)

    def patterns(self, *keys: str) -> Patterns:
        """All of the lists under the keys together."""
        found: list[object] = []
        for key in keys:
            value = self.raw.get(key)
            if value is None:
                continue
            if not isinstance(value, list):
                raise self.fail(key, f"must be a list of module names, not {shown(value)}")
            found += cast("list[object]", value)
        return Patterns(found, self.where)

    def block(self, key: str, default: tuple[int, int]) -> tuple[int, int]:
        value = self.raw.get(key)
        if value is None:
            return default
        sizes = cast("list[object]", value) if isinstance(value, list) else list[object]()
        whole = [size for size in sizes if isinstance(size, int) and 0 < size <= _MAX_GROUP]
        if len(sizes) != len(default) or len(whole) != len(default):
            raise self.fail(key, f"must be two whole numbers such as [128, 128], not {shown(cast('object', value))}")
        return whole[0], whole[1]

    def inner(self, key: str) -> _Reader:
        return _Reader(self.mapping(key), f"{self.where}.{key}")


def _kv_cache(reader: _Reader) -> str:
    text = ""
    if isinstance(reader.raw.get("kv_cache_scheme"), dict):
        bits = reader.inner("kv_cache_scheme").integer("num_bits", _FP8_BITS)
        return {_FP4_BITS: "nvfp4", _FP8_BITS: "fp8"}.get(bits, "")
    text = reader.text("kv_cache_quant_algo", "kv_cache_scheme").lower()
    return text if text in ("fp8", "nvfp4") else ""


_NESTED_KEYS = ("kv_cache_quant_algo", "group_size", "exclude_modules")
"""What vLLM's ModelOpt reader asks of an NVFP4 `hf_quant_config.json`, null or not ("NVFP4 quantization requires group
size and kv_cache_quant_algo specified", quantization/modelopt.py)."""
_EXCLUDE_KEYS = ("ignore", "exclude_modules", "modules_to_not_convert", "ignored_layers", "modules_to_not_quantize")


def _algorithm(reader: _Reader, name: str, group: int) -> WeightFormat:
    fmt = MODELOPT_ALGORITHMS.get(name.upper())
    if fmt is None:
        known = ", ".join([*MODELOPT_ALGORITHMS, _MIXED])
        raise reader.fail("quant_algo", f"is {shown(name)}, which is not known; known are {known}")
    base = weight_format(fmt)
    return weight_format(fmt, vector=group) if group > 0 and base.scaling == "group" else base


def _weights_only(reader: _Reader) -> bool:
    """Whether every group of a ModelOpt config leaves activations alone: NVFP4 is then really W4A16."""
    groups = [reader.inner("config_groups").mapping(name) for name in reader.mapping("config_groups")]
    return bool(groups) and all(group.get("input_activations") is None for group in groups)


def _modelopt(reader: _Reader) -> Checkpoint:
    nested = reader.raw.get("quantization")
    if isinstance(nested, dict):
        reader = _Reader(cast("dict[str, Any]", nested), f"{reader.where}: quantization")
    algorithm = reader.text("quant_algo", "quant_method_algo")
    group = reader.integer("group_size", 0)
    notes: list[str] = []
    exclude = reader.patterns(*_EXCLUDE_KEYS)
    layers = reader.mapping("quantized_layers")
    if layers or algorithm.upper() == _MIXED:
        rules = _mixed(reader, layers, group)
        if not layers:
            notes.append(
                "MIXED_PRECISION without quantized_layers: what is quantised is not stated, nothing is assumed"
            )
    elif algorithm:
        fmt = _algorithm(reader, algorithm, group)
        if fmt.name == "nvfp4" and _weights_only(reader):
            fmt = FORMATS["nvfp4_w4a16"]
            notes.append("quant_algo says NVFP4, but no group quantises activations: this is W4A16")
        missing = [key for key in _NESTED_KEYS if key not in reader.raw] if isinstance(nested, dict) else []
        if algorithm.upper() == "NVFP4" and missing:
            notes.append(f"without {', '.join(missing)} in hf_quant_config.json vLLM refuses an NVFP4 checkpoint")
        rules = (Rule(fmt),)
        if not exclude:
            notes.append("the config lists no excluded modules: every linear layer but the head is taken as quantised")
    else:
        raise reader.fail("quant_algo", f"is missing; known are {', '.join(MODELOPT_ALGORITHMS)}")
    return Checkpoint("", "modelopt", rules, exclude, _kv_cache(reader), notes=tuple(notes))


def _mixed(reader: _Reader, layers: Mapping[str, Any], group: int) -> tuple[Rule, ...]:
    by_format: dict[WeightFormat, list[str]] = {}
    for name, entry in layers.items():
        if not isinstance(entry, dict):
            raise reader.fail("quantized_layers", f"must give an object for {shown(name)}, not {shown(entry)}")
        inner = _Reader(cast("dict[str, Any]", entry), f"{reader.where}.quantized_layers[{shown(name)}]")
        fmt = _algorithm(inner, inner.text("quant_algo"), inner.integer("group_size", group))
        by_format.setdefault(fmt, []).append(name)
    return tuple(Rule(fmt, Patterns(names, reader.where)) for fmt, names in by_format.items())


def _group_format(reader: _Reader, group: _Reader) -> WeightFormat:
    weights = group.inner("weights")
    if not weights.raw:
        raise reader.fail("config_groups", "has a group without weights")
    bits = weights.integer("num_bits", 0)
    kind = weights.text("type")
    strategy = weights.text("strategy")
    size = weights.integer("group_size", 0)
    quantised_inputs = group.raw.get("input_activations") is not None
    if kind == "float" and bits == _FP4_BITS:
        if "mxfp4" in (group.text("format") or reader.text("format")) or size == FORMATS["mxfp4"].vector:
            return FORMATS["mxfp4"]
        return FORMATS["nvfp4" if quantised_inputs else "nvfp4_w4a16"]
    if kind == "float" and bits == _FP8_BITS:
        if strategy == "block" or weights.raw.get("block_structure") is not None:
            return weight_format("fp8_block", block=weights.block("block_structure", (128, 128)))
        if strategy == "group" and size == FORMATS["mxfp8"].vector:
            return FORMATS["mxfp8"]
        if not quantised_inputs:
            return FORMATS["fp8_w8a16"]
        return FORMATS["fp8_channel" if strategy == "channel" else "fp8"]
    if kind == "int" and bits == _FP8_BITS:
        return FORMATS["int8" if quantised_inputs else "int8_w8a16"]
    if kind == "int" and bits == _FP4_BITS:
        base = FORMATS["int4"]
        return replace(base, scaling="channel") if size <= 0 else replace(base, vector=size)
    raise reader.fail("config_groups", f"has {bits}-bit weights of type {shown(kind)}, which are not known")


def _groups(reader: _Reader) -> Checkpoint:
    rules: list[Rule] = []
    groups = reader.mapping("config_groups")
    if not groups:
        raise reader.fail("config_groups", "is missing or empty, so nothing says how the weights are quantised")
    for name in groups:
        group = _Reader(reader.mapping("config_groups"), reader.where).inner(name)
        fmt = _group_format(reader, group)
        targets = group.raw.get("targets")
        entries = cast("list[object]", targets) if isinstance(targets, list) else ["Linear"]
        # "Linear" and class names of expert modules mean every linear layer; all else are names or expressions.
        classes = [item for item in entries if isinstance(item, str) and item.isalnum() and item[:1].isupper()]
        named = [item for item in entries if item not in classes]
        if named:
            rules.append(Rule(fmt, Patterns(named, group.where)))
        if classes:
            rules.append(Rule(fmt))
    return Checkpoint("", "compressed-tensors", tuple(rules), reader.patterns(*_EXCLUDE_KEYS), _kv_cache(reader))


def _fp8(reader: _Reader, expert_dtype: object) -> Checkpoint:
    if reader.raw.get("quantized_layers") is not None:
        # DeepSeek V4 by ModelOpt: an FP8 checkpoint whose experts were quantised again.
        made = _modelopt(reader)
        note = "what the excluded modules are stored in is not stated: counted as trained"
        return replace(made, notes=(*made.notes, note))
    notes: list[str] = []
    if reader.raw.get("weight_block_size") is not None:
        fmt = weight_format("fp8_block", block=reader.block("weight_block_size", (128, 128)))
    else:
        fmt = FORMATS["fp8"]
    rules = [Rule(fmt)]
    if expert_dtype == "fp4":
        rules.insert(0, Rule(FORMATS["mxfp4"], components=frozenset({"experts_w13", "experts_w2"})))
        notes.append("expert_dtype fp4: routed experts are taken as MXFP4 (one byte of scale for 32 elements)")
    return Checkpoint("", "fp8", tuple(rules), reader.patterns(*_EXCLUDE_KEYS), _kv_cache(reader), notes=tuple(notes))


def _mxfp4(reader: _Reader) -> Checkpoint:
    rule = Rule(FORMATS["mxfp4"], components=frozenset({"experts_w13", "experts_w2"}))
    return Checkpoint("", "mxfp4", (rule,), reader.patterns(*_EXCLUDE_KEYS), _kv_cache(reader))


def _integer_groups(reader: _Reader, method: str) -> Checkpoint:
    bits = reader.integer("bits" if reader.raw.get("bits") is not None else "w_bit", _FP4_BITS)
    size = reader.integer("group_size" if reader.raw.get("group_size") is not None else "q_group_size", 128)
    if bits not in (_FP4_BITS, _FP8_BITS):
        raise reader.fail("bits", f"must be 4 or 8, not {bits}")
    base = replace(FORMATS["int4"], name=f"int{bits}_w{bits}a16" if bits == _FP8_BITS else "int4", bits=bits)
    fmt = replace(base, scaling="channel") if size <= 0 else replace(base, vector=size)
    note = "zero points (1/4 of the scales' bytes or less) are not counted"
    return Checkpoint("", method, (Rule(fmt),), reader.patterns(*_EXCLUDE_KEYS), notes=(note,))


def _bitsandbytes(reader: _Reader) -> Checkpoint:
    four = reader.raw.get("load_in_4bit") is True
    fmt = replace(FORMATS["int4"], name="nf4", vector=64, scale_bytes=4) if four else FORMATS["int8_w8a16"]
    exclude = reader.patterns(*_EXCLUDE_KEYS, "llm_int8_skip_modules")
    return Checkpoint("", "bitsandbytes", (Rule(fmt),), exclude)


def parse_quantisation(
    raw: object, where: str, *, key: str = "", expert_dtype: object = None, name: str = ""
) -> Checkpoint:
    """The checkpoint that a quantization_config (or the content of hf_quant_config.json) describes.

    Raises InputError, naming the field, when it is mistyped or uses a method that is not known.
    """
    place = f"{where}: {key}" if key else where
    if not isinstance(raw, dict):
        raise InputError(key or "quantization_config", f"{place} must be an object, not {shown(raw)}.")
    reader = _Reader(cast("dict[str, Any]", raw), place)
    method = reader.text("quant_method").lower()
    if not method:
        if reader.raw.get("quantization") is not None or reader.raw.get("quant_algo") is not None:
            method = "modelopt"
        elif reader.raw.get("config_groups") is not None:
            method = "compressed-tensors"
    if method in ("modelopt", "modelopt_fp4", "modelopt_mixed", "modelopt_mxfp8"):
        made = _modelopt(reader)
    elif method == "compressed-tensors":
        made = _groups(reader)
    elif method == "fp8":
        made = _fp8(reader, expert_dtype)
    elif method == "fbgemm_fp8":
        made = Checkpoint("", method, (Rule(FORMATS["fp8_channel"]),), reader.patterns(*_EXCLUDE_KEYS))
    elif method == "mxfp4":
        made = _mxfp4(reader)
    elif method in ("gptq", "awq", "gptq_marlin", "awq_marlin"):
        made = _integer_groups(reader, method.removesuffix("_marlin"))
    elif method == "bitsandbytes":
        made = _bitsandbytes(reader)
    else:
        what = f"is {shown(method)}, which is not known" if method else "is missing"
        raise reader.fail("quant_method", f"{what}; known are {', '.join(METHODS)}")
    return replace(made, name=name or made.formats[0] if made.formats else name or "as trained", source=where)
