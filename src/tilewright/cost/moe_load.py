"""How the tokens of a batch fall on the experts of one GPU, under the distributions that kernels were measured with.

`balanced` and `power_law_<alpha>` are those of NVIDIA's aiconfigurator collector (its `collector/helper.py`:
`balanced_logits`, `_generate_power_law_distribution`): under a power law the expert-parallel rank with the largest
load is measured. It draws at random and averages; here the draws are the quantiles of the same law, so that equal
questions get equal answers. `uniform`: every token chooses its experts at random.
"""

from __future__ import annotations

import re
from functools import lru_cache
from math import ceil, log, sqrt
from typing import Final, NamedTuple

from tilewright.cost.routing import expected_experts_hit
from tilewright.errors import InputError, shown

__all__ = ["TILE_ROWS", "MoeLoad", "check_distribution", "moe_load"]

TILE_ROWS: Final = (16, 32, 64, 128)
_POINTS: Final = 96
"""Quantiles that stand for the experts of a GPU; more experts than this share one."""
_MAX_OF: Final = {1: 0.0, 2: 0.564, 4: 1.029, 8: 1.424, 16: 1.766, 32: 2.070, 64: 2.344, 128: 2.6, 256: 2.83}
"""Expected maximum of that many standard normal draws."""
_POWER_LAW: Final = re.compile(r"power_law_(\d(?:\.\d{1,4})?)")


class MoeLoad(NamedTuple):
    """`rows` tokens x top-k on this GPU, `hit` of its `experts` experts with at least one, `largest` rows of one
    expert; `tiles[i]`: tiles of `TILE_ROWS[i]` rows, all experts together. Expectations, so fractions."""

    rows: float
    hit: float
    experts: float
    largest: float
    tiles: tuple[float, ...]


@lru_cache(maxsize=64)
def check_distribution(name: str) -> float | None:
    """The exponent of a power law, None for `balanced`, 0 for `uniform`. Raises InputError for anything else."""
    if name == "balanced":
        return None
    if name == "uniform":
        return 0.0
    found = _POWER_LAW.fullmatch(name)
    alpha = float(found[1]) if found else 0.0
    if not 0.1 <= alpha <= 4:
        raise InputError(
            "distribution",
            f"distribution must be balanced, uniform or power_law_<alpha> with alpha from 0.1 to 4 "
            f"(1.01 and 1.2 were measured), not {shown(name)}.",
        )
    return alpha


@lru_cache(maxsize=1 << 15)
def moe_load(
    tokens: int, topk: int, experts: int, ep: int, distribution: str, groups: tuple[int, int] | None = None
) -> MoeLoad:
    """The load of the measured rank of `ep`: rank 0 when balanced, the fullest under a power law.

    `groups` (n, kept): the router looks for a token's experts in `kept` of `n` groups only (DeepSeek-V3's grouped
    top-k). The synthetic balanced scores tie in every group, so the first ones are kept.
    """
    alpha = check_distribution(distribution)
    local = experts / ep
    if alpha is None:
        return _balanced(tokens, topk, experts, ep) if groups is None else _grouped(tokens, topk, experts, ep, groups)
    if alpha == 0.0:
        hit = expected_experts_hit(tokens, topk, experts) / ep
        rows = tokens * topk / ep
        each = rows / hit
        spread = each + 2.0 * sqrt(max(each - 1.0, 0.0))
        return MoeLoad(rows, hit, local, min(float(tokens), spread), _tiles([(hit, each)]))
    return _power_law(tokens, topk, experts, ep, alpha)


def _tiles(groups: list[tuple[float, float]]) -> tuple[float, ...]:
    """Tiles of `groups` (experts, rows of each), for every tile size."""
    return tuple(sum(count * ceil(rows / size - 1e-9) for count, rows in groups if rows > 0) for size in TILE_ROWS)


def _balanced(tokens: int, topk: int, experts: int, ep: int) -> MoeLoad:
    """Token t takes experts (t + i * stride) mod experts, where stride = ceil(experts / topk)."""
    local = max(1, experts // ep)
    stride = -(-experts // topk)
    counts = [0] * local
    if tokens >= stride:
        # Whole cycles fill every expert alike; what is left is counted out.
        cycles, left = divmod(tokens, experts)
        counts = [cycles * topk] * local
        for i in range(topk):
            start = i * stride % experts
            for expert in range(local):
                counts[expert] += (expert - start) % experts < left
    else:
        for token in range(tokens):
            offset = token * stride / tokens
            for i in range(topk):
                expert = int((offset + i * stride) % experts)
                if expert < local:
                    counts[expert] += 1
    rows = sum(counts)
    # A rank on which no token falls still runs its kernels.
    if rows == 0:
        return MoeLoad(0.0, 0.0, float(local), 0.0, (0.0,) * len(TILE_ROWS))
    seen: dict[int, int] = {}
    for count in counts:
        seen[count] = seen.get(count, 0) + 1
    groups = [(float(many), float(count)) for count, many in seen.items()]
    return MoeLoad(float(rows), float(local - seen.get(0, 0)), float(local), float(max(counts)), _tiles(groups))


def _grouped(tokens: int, topk: int, experts: int, ep: int, groups: tuple[int, int]) -> MoeLoad:
    """Balanced scores under grouped top-k: the experts that a token keeps, and as many ties from the first ones.

    A token's experts lie one in a group, so those in the kept groups stay; the places that are left go to experts
    with no score at all, which tie, and the lowest numbers win.
    """
    count, kept = groups
    reach = experts * kept // count
    stay = topk * kept / count
    local = max(1, experts // ep)
    inside = min(local, reach)
    plain = tokens * stay / reach
    hit = min(float(inside), tokens * stay * inside / reach)
    first = min(topk - stay, float(local))
    rows = tokens * stay * inside / reach + tokens * first
    parts = [(max(hit - first, 0.0), max(plain, 1.0) if plain > 0 else 0.0), (first, tokens + plain)]
    return MoeLoad(rows, max(hit, first), float(local), tokens + plain, _tiles(parts))


def _power_law(tokens: int, topk: int, experts: int, ep: int, alpha: float) -> MoeLoad:
    total = tokens * topk
    low, high = (1.0, max(tokens * 0.8, 1.0)) if total > experts else (0.01, 2.0)
    power = 1.0 - alpha
    local = experts / ep
    law = _quantiles(low, high, power, _POINTS)
    mean = sum(law) / _POINTS
    share = 1.0
    if ep > 1:
        deviation = sqrt(sum((load - mean) ** 2 for load in law) / _POINTS)
        above = _MAX_OF.get(ep) or 0.9 * sqrt(2.0 * log(ep))
        top = _quantiles(low, high, power, experts)[-1]
        # Many experts a rank: the largest of `ep` sums. Few: the rank that holds the largest expert of all.
        one = (top + (local - 1.0) * mean) / (top + (experts - 1.0) * mean) * ep
        share = min(float(ep), max(1.0 + above * deviation / sqrt(local) / mean, one))
    points = min(_POINTS, max(1, round(local)))
    each = local / points
    loads = law if points == _POINTS else _quantiles(low, high, power, points)
    mean = sum(loads) / points
    rows = min(total / ep * share, tokens * local)
    scale = rows / (mean * local)
    groups: list[tuple[float, float]] = []
    hit = over = 0.0
    placed = 0.0
    for load in loads:
        count = float(round(load * scale))
        if count > tokens:
            over += (count - tokens) * each
            count = float(tokens)
        if count > 0:
            hit += each
        placed += count * each
        groups.append((each, count))
    # Rounding and the cap leave some rows over: the collector gives them to the emptiest experts, one each.
    spare = rows - placed
    if spare > 0:
        fresh = min(spare, local - hit)
        hit += fresh
        groups = [(count, value) for count, value in groups if value > 0]
        if fresh > 0:
            groups.append((fresh, max(1.0, spare / max(local - hit + fresh, 1.0))))
    return MoeLoad(rows, max(hit, min(1.0, rows)), local, max(value for _, value in groups), _tiles(groups))


def _quantiles(low: float, high: float, power: float, count: int) -> list[float]:
    """The middle quantiles of a power law between `low` and `high`; `power` is 1 - alpha."""
    if abs(power) < 1e-9:
        return [low * (high / low) ** ((i + 0.5) / count) for i in range(count)]
    a, b = low**power, high**power
    return [((b - a) * (i + 0.5) / count + a) ** (1.0 / power) for i in range(count)]
