"""What the weight files hold: safetensors headers and index, never the tensors themselves.

A safetensors file starts with the length of its header (8 bytes, little endian) and the header, a JSON object
name -> {dtype, shape, data_offsets}. Only those are read. What they say is exact, so a config that disagrees is wrong:
a pruned checkpoint with a stale `num_experts`, say, or layers in another format than the config claims.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from tilewright.errors import InputError, shown
from tilewright.models.reading import decode_object, open_regular, read_object

__all__ = ["StoredWeights", "read_stored"]

MAX_HEADER_BYTES = 100_000_000
"""Largest header that the safetensors library itself reads (`safetensors/src/tensor.rs`, MAX_HEADER_SIZE)."""
MAX_INDEX_BYTES = 256 << 20
MAX_FILES = 4096
MAX_TENSORS = 4_000_000
_INDEX = "model.safetensors.index.json"
_LENGTH_BYTES = 8
_EXPERT = re.compile(r"(?:^|\.)layers\.(\d+)\..*?\bexperts\.(\d+)\.")
_FUSED = re.compile(r"(?:^|\.)layers\.(\d+)\..*?\bexperts\.(?:gate_up_proj|down_proj|w13|w2)")
_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
_DTYPE_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
    "I32": 4, "U32": 4, "F32": 4, "I64": 8, "U64": 8, "F64": 8,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """What the files of a checkpoint hold.

    `total_bytes` are the tensors' own bytes, exact when headers were read, the index's own claim otherwise.
    `experts` are the routed experts of a layer (the largest number found), `layers` the number of layers.
    """

    source: str
    tensors: int
    total_bytes: int | None
    experts: int
    layers: int
    by_dtype: Mapping[str, int]
    packed_fp4: bool
    """Whether linear layers are stored as packed 4-bit elements with block scales."""


class _Count:
    """Gathers what tensor names and shapes say."""

    def __init__(self) -> None:
        self.tensors = 0
        self.total = 0
        self.experts: dict[int, int] = {}
        self.layers = -1
        self.by_dtype: dict[str, int] = {}
        self.packed = False

    def name(self, name: str) -> None:
        self.tensors += 1
        if self.tensors > MAX_TENSORS:
            raise InputError("weights", f"More than {MAX_TENSORS:,} tensors are not counted.")
        hit = _EXPERT.search(name)
        if hit is not None:
            layer, expert = int(hit[1]), int(hit[2])
            self.experts[layer] = max(self.experts.get(layer, 0), expert + 1)
        hit = _LAYER.search(name)
        if hit is not None:
            self.layers = max(self.layers, int(hit[1]))
        if name.endswith((".weight_scale_2", ".weight_packed", ".weight_global_scale", "_blocks")):
            self.packed = True

    def entry(self, name: str, dtype: str, shape: list[int]) -> None:
        self.name(name)
        size = _DTYPE_BYTES.get(dtype, 0)
        for extent in shape:
            size *= extent
        self.total += size
        self.by_dtype[dtype] = self.by_dtype.get(dtype, 0) + size
        fused = _FUSED.search(name)
        if fused is not None and shape and len(shape) > 2:
            layer = int(fused[1])
            self.experts[layer] = max(self.experts.get(layer, 0), shape[0])


def _header(path: Path) -> Mapping[str, Any]:
    """The header of one safetensors file. Raises InputError when it is none or is cut short."""
    where = shown(path.name)
    stream, size = open_regular(path, "weights")
    with stream:
        prefix = stream.read(_LENGTH_BYTES)
        length = int.from_bytes(prefix, "little")
        if len(prefix) < _LENGTH_BYTES or length > min(MAX_HEADER_BYTES, size - _LENGTH_BYTES):
            raise InputError("weights", f"{where} is no whole safetensors file: its header does not fit in it.")
        return decode_object(stream.read(length), where, "safetensors header")


def _tensors(header: Mapping[str, Any], where: str) -> Iterator[tuple[str, str, list[int]]]:
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        fields = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
        dtype, shape = fields.get("dtype"), fields.get("shape")
        extents = cast("list[Any]", shape) if isinstance(shape, list) else [None]
        if not isinstance(dtype, str) or any(isinstance(n, bool) or not isinstance(n, int) or n < 0 for n in extents):
            raise InputError("weights", f"{where}: the entry of {shown(name)} has no dtype and shape.")
        yield name, dtype, cast("list[int]", extents)


def _from_files(files: list[Path], source: str) -> StoredWeights:
    count = _Count()
    for path in files:
        for name, dtype, shape in _tensors(_header(path), shown(path.name)):
            count.entry(name, dtype, shape)
    experts = max(count.experts.values(), default=0)
    return StoredWeights(source, count.tensors, count.total, experts, count.layers + 1, count.by_dtype, count.packed)


def _from_index(path: Path) -> StoredWeights:
    index = read_object(path, "safetensors index", MAX_INDEX_BYTES)
    names = index.get("weight_map")
    if not isinstance(names, dict):
        raise InputError("weight_map", f"{shown(path.name)}: weight_map is missing or no object.")
    count = _Count()
    for name in cast("dict[str, Any]", names):
        count.name(name)
    metadata = index.get("metadata")
    claimed = cast("dict[str, Any]", metadata).get("total_size") if isinstance(metadata, dict) else None
    size = claimed if isinstance(claimed, int) and not isinstance(claimed, bool) and claimed > 0 else None
    experts = max(count.experts.values(), default=0)
    return StoredWeights(path.name, count.tensors, size, experts, count.layers + 1, {}, count.packed)


def read_stored(folder: Path) -> StoredWeights | None:
    """What the weight files in `folder` hold, or None when there are none.

    All files' headers where all are there; the index alone where they are not (a folder with configs only). Raises
    InputError for files that are broken.
    """
    try:
        files = sorted(item for item in folder.iterdir() if item.name.endswith(".safetensors"))
    except OSError as error:
        raise InputError("model", f"{shown(str(folder))} cannot be listed: {error.strerror}.") from None
    if len(files) > MAX_FILES:
        raise InputError("weights", f"More than {MAX_FILES:,} weight files are not read.")
    index = folder / _INDEX
    if index.exists():
        stored = _from_index(index)
        names = cast("dict[str, Any]", read_object(index, "safetensors index", MAX_INDEX_BYTES)["weight_map"])
        wanted = {value for value in names.values() if isinstance(value, str)}
        if not files or wanted - {item.name for item in files}:
            return stored
    return _from_files(files, f"headers of {len(files):,} safetensors files") if files else None
