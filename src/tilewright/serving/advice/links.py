"""All-reduces over PCIe: variables that switch a faster path on, where the version declares them."""

from __future__ import annotations

from typing import Final

from tilewright.serving.advice.answer import Effect, Left, Suggestion
from tilewright.serving.advice.context import SM12X, Context, Found, ground, over_pcie

__all__ = ["advise_all_reduce"]

_SWITCHES: Final = {"sglang": "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE", "vllm": "VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC"}
_TUNED: Final = {4: (4096, 4096), 8: (6144, 1 << 30)}
"""Ranks -> hidden sizes that FlashInfer's PCIe all-reduce is tuned for (evidence `pcie_ipc_holes`)."""


def advise_all_reduce(context: Context, found: Found) -> None:
    """FlashInfer's PCIe all-reduce, as something to try; what the engines' own custom all-reduce does is said."""
    scenario = context.now.scenario
    ranks = scenario.parallel.tp
    if ranks < 2 or not over_pcie(context.gpu):
        return
    switch = _SWITCHES[context.engine]
    low, high = _TUNED.get(ranks, (1, 0))
    if context.gpu.arch not in SM12X or not low <= context.model.hidden <= high:
        return
    if switch not in context.flags.environment:
        found.left.append(Left("all_reduce", switch, f"{context.named} does not declare it"))
        return
    if context.present is not None and switch in context.present.check.environment:
        found.left.append(Left("all_reduce", switch, "your line sets it"))
        return
    found.suggestions.append(
        Suggestion(
            concept="all_reduce", title="all-reduces over PCIe", flag=switch, words=[f"{switch}=1"], action="try",
            without="NCCL, or the engine's own kernel, which switch off beyond two GPUs on PCIe",
            why="At decode sizes an all-reduce is latency, twice a layer. A variable, not a flag: measure at your own "
            "number of requests, and with drafts too.",
            effects=[
                Effect(
                    "decode", "tok/s of all requests", "published", gain_percent=8.0, low_percent=-4.0,
                    high_percent=16.0,
                )
            ],
            evidence=ground("pcie_ipc_gain", "pcie_ipc_holes", "pcie_all_reduce_off", "nccl_tuning"),
            conflicts=["larger messages, as drafting makes them: there it lost 4 to 16 %"],
            numerics="unchanged up to the order of the sum", confidence=0.4, effort_h=1.0,
        )
    )  # fmt: skip
    found.environment.append(f"{switch}=1")
