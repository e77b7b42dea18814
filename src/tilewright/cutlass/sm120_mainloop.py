"""The mainloop of an SM120 config: which builder its operation class and schedule tag go to."""

from __future__ import annotations

from functools import lru_cache

from tilewright.cutlass import sm120_blockscaled, sm120_blockwise, sm120_dense, sm120_tags
from tilewright.cutlass.caches import LAYOUTS
from tilewright.cutlass.config import DEFAULT_GRANULARITY, KernelConfig
from tilewright.cutlass.operands import Operands, operands
from tilewright.cutlass.sm120_collective import Mainloop
from tilewright.cutlass.verdict import Broken, no_collective
from tilewright.cutlass.versions import rules_for


def mainloop(config: KernelConfig, carveout: int) -> Mainloop | Broken:
    """Lay out the mainloop of `config`; `carveout` is sizeof the epilogue's SharedStorage.

    Returns the first rule that the config breaks, in the order in which the compiler would meet them.
    """
    return _mainloop(
        config.cutlass,
        config.op_class,
        config.kind == "grouped",
        operands(config),
        config.acc,
        config.tile,
        config.cluster,
        config.schedule,
        None if config.stages == "auto" else config.stages,
        config.scale_granularity,
        carveout,
    )


@lru_cache(maxsize=LAYOUTS)
def _mainloop(
    version: str,
    op_class: str,
    grouped: bool,
    ops: Operands,
    acc: str,
    tile: tuple[int, int, int],
    cluster: tuple[int, int, int],
    schedule: str,
    stages: int | None,
    granularity: tuple[int, int, int] | None,
    carveout: int,
) -> Mainloop | Broken:
    rules = rules_for(version)
    assert rules is not None, "callers check the release first"
    tag = sm120_tags.resolve(schedule, op_class, grouped)
    if tag is None:
        return no_collective(
            f"No SM120 {op_class} builder accepts the schedule {schedule}; leave it at auto.",
        )
    if op_class == "block_scaled":
        return sm120_blockscaled.lay_out(rules, grouped, ops, acc, tile, cluster, tag, stages, carveout)
    if op_class == "tensor_op":
        return sm120_dense.lay_out(rules, grouped, ops, acc, tile, cluster, tag, stages, carveout)
    return sm120_blockwise.lay_out(
        grouped, ops, acc, tile, cluster, tag, stages, granularity or DEFAULT_GRANULARITY, carveout
    )
