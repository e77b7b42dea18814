"""How many experts a batch of tokens hits, and how many tiles their rows fill.

Modelled assumption, named wherever a figure rests on it: `uniform` routing, each token choosing its top-k distinct
experts at random. `balanced` spreads the rows as evenly as they go, which is what synthetic benchmarks do
(aiconfigurator's "balanced"). Real routing is skewed: fewer experts hit, and fuller ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from tilewright.errors import InputError, shown

__all__ = ["MAX_TOKENS", "Routing", "TileUse", "expected_experts_hit", "moe_tile_use", "tile_use", "tokens_for_rows"]

Routing = Literal["uniform", "balanced"]
MAX_TOKENS = 1 << 24
# Rows of one expert are binomial; beyond this many standard deviations their probability is below 1e-30.
_SPREAD = 12


@dataclass(frozen=True, slots=True)
class TileUse:
    """How well rows fill tiles of `tile_rows` rows: `tiles` are computed, `used` of their rows hold a token."""

    tile_rows: int
    tiles: float
    used: float


def check_routing(tokens: int, topk: int, experts: int) -> None:
    """Raises InputError unless `tokens` tokens can each choose `topk` of `experts` experts."""
    for name, value, high in (("tokens", tokens, MAX_TOKENS), ("topk", topk, experts), ("experts", experts, 1 << 16)):
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= high:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(name, f"{name} must be a whole number from 1 to {high:,}, not {shown(value)}.")


def expected_experts_hit(tokens: int, topk: int, experts: int, routing: Routing = "uniform") -> float:
    """Experts that at least one of the tokens chooses, on average.

    Uniform: E (1 - (1 - topk / E)^tokens), exact for tokens that choose independently.
    """
    check_routing(tokens, topk, experts)
    if routing == "balanced":
        return float(min(experts, tokens * topk))
    # expm1 and log1p keep the difference exact where almost none or almost all are hit.
    return float(experts) if topk == experts else -experts * math.expm1(tokens * math.log1p(-topk / experts))


def tokens_for_rows(rows_per_expert: float, topk: int, experts: int) -> int:
    """Tokens of a batch in which each expert gets `rows_per_expert` rows on average."""
    return max(1, round(rows_per_expert * experts / topk))


def tile_use(rows: int, tile_rows: int) -> TileUse:
    """How well `rows` rows fill tiles: 16 rows in a 128-row tile use 12.5% of it."""
    if rows < 1 or tile_rows < 1:
        raise InputError("tile_rows", "Rows and tile rows must be at least 1.")
    tiles = -(-rows // tile_rows)
    return TileUse(tile_rows, float(tiles), rows / (tiles * tile_rows))


@lru_cache(maxsize=4096)
def _tiles_an_expert(tokens: int, topk: int, experts: int, tile_rows: int) -> float:
    """Expected tiles of one expert, whose rows are binomial with `tokens` draws of probability topk / experts."""
    p = topk / experts
    if p >= 1:
        return float(-(-tokens // tile_rows))
    mean, deviation = tokens * p, math.sqrt(tokens * p * (1 - p))
    low = max(1, math.floor(mean - _SPREAD * deviation - _SPREAD))
    high = min(tokens, math.ceil(mean + _SPREAD * deviation + _SPREAD))
    log_p, log_q, log_n = math.log(p), math.log1p(-p), math.lgamma(tokens + 1)
    total = 0.0
    for rows in range(low, high + 1):
        log_weight = (
            log_n - math.lgamma(rows + 1) - math.lgamma(tokens - rows + 1) + rows * log_p + (tokens - rows) * log_q
        )
        total += math.exp(log_weight) * -(-rows // tile_rows)
    return total


def moe_tile_use(tokens: int, topk: int, experts: int, tile_rows: int, routing: Routing = "uniform") -> TileUse:
    """How well the rows of a mixture-of-experts layer fill tiles of `tile_rows` tokens, all experts together.

    Each expert's rows are rounded up to whole tiles of its own. Uniform routing: the expectation over all ways the
    tokens may choose, not the use at the average.
    """
    check_routing(tokens, topk, experts)
    if tile_rows < 1:
        raise InputError("tile_rows", f"tile_rows must be at least 1, not {shown(tile_rows)}.")
    rows = tokens * topk
    if routing == "balanced":
        hit = min(experts, rows)
        small, larger = rows // hit, rows % hit
        tiles = float((hit - larger) * -(-small // tile_rows) + larger * -(-(small + 1) // tile_rows))
    else:
        tiles = experts * _tiles_an_expert(tokens, topk, experts, tile_rows)
    return TileUse(tile_rows, tiles, rows / (tiles * tile_rows))
