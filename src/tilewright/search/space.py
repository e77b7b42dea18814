"""The kernel configs that are worth asking about, and which of them are legal.

Every axis of a config that the user leaves open is walked: tile, swap_ab, schedule, cluster, epilogue schedule, tile
scheduler, epilogue tile, stages. What is legal is `fit`'s answer alone; the lists below only say where to look, and a
value that no release takes costs time and nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from tilewright.cutlass.config import KernelConfig, parse_config
from tilewright.cutlass.fit import LIMITS, lay_out, unsupported
from tilewright.cutlass.fixes import TOO_FEW_STAGES
from tilewright.cutlass.laid import Laid
from tilewright.errors import ConfigError
from tilewright.formats.elements import ELEMENTS

__all__ = ["Found", "Space"]

Cluster = tuple[int, int, int]

_FINE_N: Final = (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256)
_EVEN_N: Final = (16, 32, 64, 96, 128, 160, 192, 224, 256)
_SINGLE: Final[tuple[Cluster, ...]] = ((1, 1, 1),)
_CLUSTERS: Final[tuple[Cluster, ...]] = ((1, 1, 1), (2, 1, 1), (1, 2, 1), (2, 2, 1))
_PAIRS: Final[tuple[Cluster, ...]] = ((2, 1, 1), (4, 1, 1), (2, 2, 1))
_EPILOGUE_TILES: Final = ((64, 64), (128, 64), (128, 32), (64, 32), (32, 32), (64, 16), (64, 8))
_EPILOGUE_TILES_SM90: Final = ((128, 64), (64, 64), (128, 32), (64, 32), (128, 16), (64, 16))
_EPILOGUE_COLUMNS_SM100: Final = (64, 32, 16)
MIN_STAGES: Final = 2
"""Fewest stages that are pinned: one stage overlaps nothing, and most collectives assert two."""
TRIED_WITHOUT_COUNT: Final = (2,)
"""Stages that are pinned where the automatic count is too low to be legal."""


BLOCKWISE_GRANULARITY: Final = (1, 128, 128)
"""Elements that share a scale where none is given: DeepSeek's, a row's 128 of K for activations."""


class _Extents(NamedTuple):
    m: tuple[int, ...]
    n: tuple[int, ...]
    k_bits: tuple[int, ...]
    """Bits of one row along K, in the wider operand: 64, 128 and 256 bytes are what swizzles and MMAs divide."""


_K_BITS: Final = (512, 1024, 2048)
_TILES: Final = {
    "sm90": _Extents((64, 128, 192, 256), (8, 16, 32, 64, 96, 128, 160, 192, 256), _K_BITS),
    "sm100": _Extents((64, 128, 256), _EVEN_N, _K_BITS),
    "sm103": _Extents((128, 256), (64, 128, 192, 256), (512, 1024, 3072)),
    "sm120": _Extents((64, 128, 192, 256), _FINE_N, (256, 512, 1024, 2048)),
}
"""Where tiles are looked for; which of them exist is the model's answer. SM103's FP4 kernels take K = 768."""


class Found(NamedTuple):
    """A legal config and its types."""

    config: KernelConfig
    laid: Laid


@dataclass
class Space:
    """The configs of one search. `given` are the keys that the user fixed, as typed; `tally` counts what was tried.

    Raises ConfigError on construction when a fixed key is none of the legal ones.
    """

    given: Mapping[str, Any]
    arch: str
    tally: Counter[str] = field(default_factory=Counter[str])
    refusals: Counter[str] = field(default_factory=Counter[str])
    """Rules and reasons that configs were refused for, with how many."""
    seen: set[tuple[Any, ...]] = field(default_factory=set[tuple[Any, ...]])
    refused: str = ""
    """The last of the refusals."""

    def __post_init__(self) -> None:
        family = "sm120" if self.arch == "sm121" else self.arch
        if family not in _TILES:
            raise ConfigError("arch", f"arch: kernels are searched for {', '.join(LIMITS)}, not {self.arch}.")
        self.family = family
        self.extents = _TILES[family]
        swaps = (None,) if "swap_ab" in self.given else (False, True)
        self.bases = [self._base(swap) for swap in swaps]

    def _base(self, swap: bool | None) -> KernelConfig:
        raw = {"tile": [128, 128, 128], **self.given, "arch": self.arch}
        if raw.get("op_class") == "blockwise":
            raw.setdefault("scale_granularity", BLOCKWISE_GRANULARITY)
            raw.setdefault("scale_major", "mn")
        if swap is not None:
            raw["swap_ab"] = swap
        return parse_config(raw)

    def __iter__(self) -> Iterator[Found]:
        """Every legal tile, schedule, cluster and tile scheduler with the stages that the builder counts, or the most
        that fit where it counts too many or too few; each kernel once, always in the same order."""
        for base in self.bases:
            for shape in self._shapes(base):
                yield from self._new(self._first(shape))

    def variants(self, shape: KernelConfig) -> Iterator[Found]:
        """The other numbers of stages and epilogue tiles of a config that was found."""
        for tile in self._epilogue_tiles(shape):
            config = msgspec.structs.replace(shape, epilogue_tile=tile, stages=self._counted(shape))
            laid = self._ask(config)
            if laid is None or not self._usable(config, laid, overflow_too=True):
                continue
            yield from self._new([] if laid.smem_bytes > LIMITS[config.arch] else [Found(config, laid)])
            if "stages" not in self.given:
                yield from self._new(self._pinned(config, range(MIN_STAGES, laid.count.stages)))

    def refuse(self, why: str) -> None:
        """Count a legal config that the tree cannot build."""
        self.tally["not in the tree"] += 1
        self.refusals[why] += 1

    def _counted(self, shape: KernelConfig) -> Any:
        return shape.stages if "stages" in self.given else "auto"

    def _new(self, items: Iterable[Found]) -> Iterator[Found]:
        """Those of `items` that are not a kernel that was found before."""
        for found in items:
            key = _identity(found)
            if key in self.seen:
                self.tally["same kernel"] += 1
            else:
                self.seen.add(key)
                yield found

    def _shapes(self, base: KernelConfig) -> Iterator[KernelConfig]:
        tiles = [base.tile] if "tile" in self.given else self._tiles(base)
        for schedule, epilogue, clusters in self._schedules(base):
            for cluster in clusters:
                for tile in tiles:
                    yield msgspec.structs.replace(
                        base, tile=tile, schedule=schedule, epilogue_schedule=epilogue, cluster=cluster
                    )

    def _tiles(self, base: KernelConfig) -> list[tuple[int, int, int]]:
        ms, ns, k_bits = self.extents
        width = max(ELEMENTS[base.a].bits, ELEMENTS[base.b].bits)
        # 6-bit elements take 8 in shared memory (CUTLASS's f8f6f4 containers)
        width = 8 if width == 6 else width
        return [(m, n, bits // width) for m in ms for n in ns for bits in k_bits]

    def _schedules(self, base: KernelConfig) -> Iterator[tuple[str, str, tuple[Cluster, ...]]]:
        """Schedules with the epilogue schedules and clusters that may go with each."""
        names = (base.schedule,) if "schedule" in self.given else _schedule_names(self.family, base)
        for name in names:
            fixed = "epilogue_schedule" in self.given
            epilogues = (base.epilogue_schedule,) if fixed else _epilogue_names(self.family, name, base.kind)
            clusters = (base.cluster,) if "cluster" in self.given else _clusters(self.family, name)
            for epilogue in epilogues:
                yield name, epilogue, clusters

    def _first(self, shape: KernelConfig) -> Iterator[Found]:
        """The shape under each tile scheduler, repaired where a stage count or an epilogue tile is all it takes."""
        schedulers = [shape.tile_scheduler]
        if "tile_scheduler" not in self.given and shape.kind == "dense":
            schedulers.append("stream_k")
        for scheduler in schedulers:
            config = msgspec.structs.replace(shape, tile_scheduler=scheduler) if scheduler else shape
            laid = self._ask(config)
            if laid is not None and self._usable(config, laid):
                yield Found(config, laid)
                continue
            if scheduler != shape.tile_scheduler or "stages" in self.given:
                continue
            if laid is None:
                if not self.refused.startswith(TOO_FEW_STAGES):
                    return
                pinned = TRIED_WITHOUT_COUNT
            elif laid.kernel_broken or laid.unusable:
                return
            else:
                pinned = range(laid.count.stages - 1, MIN_STAGES - 1, -1)
            for tile in self._epilogue_tiles(shape):
                found = next(self._pinned(msgspec.structs.replace(config, epilogue_tile=tile), pinned), None)
                if found is not None:
                    yield found
                    break

    def _pinned(self, config: KernelConfig, counts: Iterable[int]) -> Iterator[Found]:
        """The config with each of `counts` stages, as far as it is legal."""
        for stages in counts:
            other = msgspec.structs.replace(config, stages=stages)
            laid = self._ask(other)
            if laid is None:
                return
            if self._usable(other, laid):
                yield Found(other, laid)

    def _epilogue_tiles(self, shape: KernelConfig) -> list[Any]:
        """Epilogue tiles to try, the present one first."""
        if "epilogue_tile" in self.given or "no_smem" in shape.epilogue_schedule:
            return [shape.epilogue_tile]
        return [shape.epilogue_tile, *_epilogue_tiles(self.family, shape)]

    def _ask(self, config: KernelConfig) -> Laid | None:
        """The types of `config`, or None when the release refuses them."""
        self.tally["tried"] += 1
        reason = unsupported(config)
        if reason is not None:
            self.tally["unsupported"] += 1
            self.refused = reason
            self.refusals[reason] += 1
            return None
        laid = lay_out(config)
        if isinstance(laid, list):
            self.tally["illegal"] += 1
            self.refused = laid[0].text
            self.refusals[self.refused] += 1
            return None
        return laid

    def _usable(self, config: KernelConfig, laid: Laid, *, overflow_too: bool = False) -> bool:
        """Whether `fit` says that the kernel runs and is of use; `overflow_too`: or that only bytes are in the way."""
        if laid.kernel_broken:
            self.tally["illegal"] += 1
            self.refusals[laid.kernel_broken[0].text] += 1
        elif laid.smem_bytes > LIMITS[config.arch]:
            self.tally["overflow"] += 1
            return overflow_too
        elif laid.unusable is not None:
            self.tally["of no use"] += 1
            self.refusals[laid.unusable] += 1
        else:
            self.tally["legal"] += 1
            return True
        return False


def _identity(found: Found) -> tuple[Any, ...]:
    """What tells kernels apart: the policies name stages, clusters and schedules as they were resolved."""
    config, figures = found
    return (
        config.tile, config.swap_ab, config.cluster, config.tile_scheduler, figures.figures.get("epilogue_tile"),
        figures.figures.get("mainloop_policy"), figures.figures.get("epilogue_policy"),
        figures.figures.get("kernel_schedule"), figures.count.stages, figures.smem_bytes,
    )  # fmt: skip


def _schedule_names(family: str, base: KernelConfig) -> tuple[str, ...]:
    if family in ("sm100", "sm103"):
        return ("1sm", "2sm")
    if family == "sm120":
        if base.op_class == "sparse":
            return ("auto",)
        if base.op_class == "block_scaled_sparse":
            return ("cooperative", "acc2x4")
        return ("auto", "cooperative", "pingpong")
    # Fast accumulation changes the sums: it is searched when it is asked for by name.
    plain = ("cooperative", "pingpong")
    return plain if base.kind == "grouped" or base.op_class == "blockwise" else (*plain, "basic")


def _epilogue_names(family: str, schedule: str, kind: str) -> tuple[str, ...]:
    pointer = "ptr_array_" if kind == "grouped" else ""
    if family in ("sm100", "sm103"):
        side = "2sm" if "2sm" in schedule.lower() else "1sm"
        return (f"{pointer}tma_warp_specialized_{side}", f"{pointer}no_smem_warp_specialized_{side}")
    if family == "sm120":
        return ("auto", "no_smem_warp_specialized")
    direct = f"{pointer}no_smem_warp_specialized"
    if "cooperative" in schedule.lower():
        return (f"{pointer}tma_warp_specialized_cooperative", direct)
    return (f"{pointer}tma_warp_specialized{'_pingpong' if pointer else ''}", direct)


def _clusters(family: str, schedule: str) -> tuple[Cluster, ...]:
    if family == "sm120":
        return _SINGLE
    return _PAIRS if "2sm" in schedule.lower() else _CLUSTERS


def _epilogue_tiles(family: str, shape: KernelConfig) -> list[tuple[int, int]]:
    m, n, _ = shape.tile
    if family in ("sm100", "sm103"):
        rows = m // 2 if "2sm" in shape.schedule.lower() else m
        return [(rows, columns) for columns in _EPILOGUE_COLUMNS_SM100 if n % columns == 0]
    tiles = _EPILOGUE_TILES if family == "sm120" else _EPILOGUE_TILES_SM90
    return [tile for tile in tiles if m % tile[0] == 0 and n % tile[1] == 0]
