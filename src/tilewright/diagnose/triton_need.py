"""Which tile of the engines' fused-MoE kernels takes a number of bytes, and what fits instead."""

from __future__ import annotations

from itertools import product
from typing import Final

from tilewright.triton_.tile import fused_moe_bytes, max_stages

BLOCKS: Final = (16, 32, 64, 128, 256)
"""Block sizes that vLLM's and SGLang's tuners and defaults use (benchmark_moe.py)."""
DEPTHS: Final = (64, 128, 256)
STAGES: Final = (2, 3, 4, 5)
LIKELY: Final = ((128, 256, 128), (128, 128, 128), (64, 128, 128), (128, 128, 64), (64, 256, 128))
"""Tiles of the engines' defaults (vllm fused_moe.py, sglang fused_moe_triton_config.py), looked at first."""
MOST: Final = 2
"""Candidates that are named: more than one tile can take the same bytes."""
_HOPPER_LIMIT: Final = 232448
"""Opt-in limit of a block on SM90 (and SM100), bytes; its pipelines keep barriers beside the buffers."""
_TYPES: Final = ((1, "FP8 or INT8"), (2, "BF16"))


def _candidates(need: int, sm: int) -> list[tuple[int, int, int, int, str, int]]:
    found = [
        (m, n, k, size, name, stages)
        for (size, name), m, n, k, stages in product(_TYPES, BLOCKS, BLOCKS, DEPTHS, STAGES)
        if fused_moe_bytes(m, n, k, size, stages, sm) == need
    ]
    return sorted(found, key=lambda item: (LIKELY.index(item[:3]) if item[:3] in LIKELY else len(LIKELY), -item[5]))


def explain_bytes(need: int, limit: int) -> list[str]:
    """Sentences on the fused-MoE tiles that take `need` bytes, likeliest first; empty where none does."""
    lines: list[str] = []
    sm = 90 if limit == _HOPPER_LIMIT else 120
    found = _candidates(need, sm)
    for m, n, k, size, name, stages in found[:MOST]:
        text = f"A fused-MoE tile of {m}x{n}x{k} in {name} with {stages} stages"
        # Barriers and the output's own buffer come on top in some tiles: then the product alone is not the sum.
        if (stages - 1) * (m + n) * k * size == need:
            text += f": ({stages} - 1) x ({m} + {n}) x {k} x {size} = {need:,}."
        else:
            text += f" takes {need:,}."
        most = max_stages(m, n, k, size, limit, sm)
        if most >= 2:
            text += f" num_stages = {most} takes {fused_moe_bytes(m, n, k, size, most, sm):,} and fits."
        else:
            text += " No number of stages fits: a smaller block is needed."
        lines.append(text)
    if len(found) > MOST:
        lines.append(f"{len(found) - MOST} further tiles take as many bytes; the log's configuration says which it is.")
    return lines
