"""Which layers a pipeline stage holds."""

from __future__ import annotations

from itertools import accumulate

from tilewright.errors import InputError

__all__ = ["stage_bounds", "stage_of"]


def stage_bounds(layers: int, stages: int) -> list[int]:
    """For each pipeline stage, the number of the layer after its last one.

    Mirrors vLLM's `distributed/utils.py:get_pp_indices`: layers that do not divide go to the stages before the last
    one, backwards. Raises InputError when there are more stages than layers.
    """
    if stages > layers:
        raise InputError("pp", f"pp must not exceed the model's {layers:,} layers, and {stages:,} does.")
    sizes = [layers // stages] * stages
    for i in range(layers % stages):
        sizes[-(i + 2) % stages] += 1
    return list(accumulate(sizes))


def stage_of(layer: int, bounds: list[int]) -> int:
    """The stage that holds the layer; layers beyond the last main one (prediction layers) are on the last stage."""
    return next((stage for stage, bound in enumerate(bounds) if layer < bound), len(bounds) - 1)
