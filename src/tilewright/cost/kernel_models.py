"""Coefficients of kernels: read from the package or from a folder that `tilewright calibrate` wrote, when asked for.

One compressed JSON file a backend and format, and `index.json` with what each was fitted on and how well it holds
on shapes that it never saw.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from tilewright.cost.gemm_features import COLD_BYTES, GEMM_FEATURES, WEIGHT_BYTES
from tilewright.cost.moe_features import MOE_FEATURES
from tilewright.cost.surface import Surface, SurfaceTable
from tilewright.cost.trees import Forest, Trees
from tilewright.errors import InputError, shown

__all__ = [
    "FEATURES",
    "SURFACE_FEATURE",
    "Coefficients",
    "FitError",
    "Index",
    "IndexEntry",
    "KernelFile",
    "KernelModel",
    "load",
    "model_of",
]

FEATURES: Final[dict[str, tuple[str, ...]]] = {"gemm": GEMM_FEATURES, "moe": MOE_FEATURES}
SURFACE_FEATURE: Final = "surface"
"""The smooth part's value, as a feature after all others."""
INDEX_NAME: Final = "index.json"
_MAX_FILE: Final = 64 << 20
"""Largest coefficient file after decompression, bytes; ours take a few hundred thousand."""


class FitError(msgspec.Struct, frozen=True):
    """Relative error on shapes held out (grouped cross-validation): shares, not percent.

    `covered`: share of rows within the bounds; `plain_mean`: boosted trees on plain features, same folds."""

    mean: float
    p95: float
    covered: float
    folds: int
    plain_mean: float | None = None
    plain_p95: float | None = None


class IndexEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One backend and format: what it was fitted on. `ranges`: least and largest of each size among the rows."""

    op: Literal["gemm", "moe"]
    gpu: str
    backend: str
    dtype: str
    framework: str
    file: str
    rows: int
    shapes: int
    date: str
    ranges: dict[str, tuple[float, float]]
    error: FitError
    source: str = ""


class Index(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="tilewright/coefficients/1"):
    """All backends of a folder of coefficients."""

    entries: list[IndexEntry]
    notice: str = ""


class KernelFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Trees of the log of time over roofline, and one tree whose leaves are regions with bounds of their own.

    `low` and `high`: factors on the time, one for each region. `kept`: the roofline is the one that reads a repeated
    weight from L2 where it fits (GEMM). `surface`: what varies smoothly with the sizes (GEMM): the last feature, and
    `share` of it is added to the trees' sum."""

    features: list[str]
    trees: Trees
    regions: Trees
    low: list[float]
    high: list[float]
    kept: bool = False
    surface: SurfaceTable | None = None
    share: float = 0.0


class KernelModel(msgspec.Struct, frozen=True, kw_only=True):
    """A backend's coefficients made ready."""

    entry: IndexEntry
    forest: Forest
    regions: Forest
    low: list[float]
    high: list[float]
    kept: bool = False
    surface: Surface | None = None
    share: float = 0.0

    def features(self, work: Sequence[float], sizes: tuple[int, ...]) -> Sequence[float]:
        """The features of a piece of work as this kernel's trees read them."""
        if self.surface is None:
            return work
        m, n, k = sizes
        return [*work, self.surface.value(m, n, k, work[COLD_BYTES if self.kept else WEIGHT_BYTES])]

    def log_factor(self, features: Sequence[float]) -> float:
        """Logarithm of the time over the roofline; `features` as the method of that name gives them."""
        value = self.forest.value(features)
        return value if self.surface is None else value + self.share * features[-1]


class Coefficients:
    """A folder of coefficients; files are read when a question needs them."""

    def __init__(self, index: Index, folder: Path | None) -> None:
        self.index = index
        self.folder = folder
        self.by_key: dict[tuple[str, str, str, str], IndexEntry] = {
            (item.op, item.gpu, item.backend, item.dtype): item for item in index.entries
        }
        self._models: dict[str, KernelModel] = {}
        # What answering keeps from one question to the next: choices of a backend, tables, factors.
        self.choices: dict[tuple[str, str, str, str | None, frozenset[str]], Any] = {}
        self.tables: dict[str, Any] = {}
        self.ratios: dict[tuple[str, str, tuple[int, ...], str], float] = {}
        self.relative: dict[str, list[tuple[float, float]]] = {}

    def model(self, entry: IndexEntry) -> KernelModel:
        """The model of `entry`. Raises InputError when its file is missing or broken."""
        found = self._models.get(entry.file)
        if found is None:
            found = self._models[entry.file] = self._read(entry)
        return found

    def _read(self, entry: IndexEntry) -> KernelModel:
        name = entry.file
        if "/" in name or "\\" in name or name.startswith("."):
            raise InputError(
                "coefficients", f"{INDEX_NAME} names the file {shown(name)}; a file of the folder is meant."
            )
        try:
            packed = self._bytes(name)
            inflate = zlib.decompressobj(31)
            raw = inflate.decompress(packed, _MAX_FILE)
            content = msgspec.json.decode(raw, type=KernelFile)
        except (OSError, zlib.error, msgspec.MsgspecError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            msg = f"Coefficients {shown(name)} cannot be read ({reason}); run 'tilewright calibrate' again."
            raise InputError("coefficients", msg) from None
        # A file may leave out the last features: calibration drops those that do not help a kernel.
        features = tuple(content.features)
        known = FEATURES[entry.op]
        legal = features == (*known, SURFACE_FEATURE) if content.surface else features == known[: len(features)]
        if not legal or len(content.low) != len(content.high) or (content.surface and entry.op != "gemm"):
            msg = f"Coefficients {shown(name)} were made by another version; run 'tilewright calibrate' again."
            raise InputError("coefficients", msg)
        regions = Forest(content.regions, len(features))
        return KernelModel(
            entry=entry,
            forest=Forest(content.trees, len(features)),
            regions=regions,
            low=content.low,
            high=content.high,
            kept=content.kept,
            surface=Surface(content.surface) if content.surface else None,
            share=content.share,
        )

    def _bytes(self, name: str) -> bytes:
        if self.folder is None:
            return files("tilewright.data").joinpath("coefficients", name).read_bytes()
        with (self.folder / name).open("rb") as stream:
            return stream.read(_MAX_FILE)


@lru_cache(maxsize=8)
def load(folder: str | None = None) -> Coefficients:
    """The packaged coefficients, or those of `folder`. Raises InputError when they cannot be read."""
    try:
        if folder is None:
            raw = files("tilewright.data").joinpath("coefficients", INDEX_NAME).read_bytes()
        else:
            with (Path(folder) / INDEX_NAME).open("rb") as stream:
                raw = stream.read(_MAX_FILE)
        return Coefficients(msgspec.json.decode(raw, type=Index), None if folder is None else Path(folder))
    except (OSError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        what = shown(folder)
        msg = f"--coefficients {what} holds no readable {INDEX_NAME} ({reason}); 'tilewright calibrate' writes one."
        raise InputError("coefficients", msg) from None


def model_of(coefficients: Coefficients, op: str, gpu: str, backend: str, dtype: str) -> KernelModel | None:
    """The model of exactly that backend, or None."""
    entry = coefficients.by_key.get((op, gpu, backend, dtype))
    return None if entry is None else coefficients.model(entry)
