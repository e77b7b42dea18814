"""The all-reduces of tensor parallelism over PCIe: how many a token, what they cost, what shortens them."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.data.measurements import measurement
from tilewright.plan.evidence import entries, published
from tilewright.plan.finding import Draft, Evidence, Fact, Fix, Gain, Outcome
from tilewright.plan.registry import Rule
from tilewright.plan.target import Target

BF16 = 2
TABLE = "aic_allreduce_rtxpro6000"
_SWITCH = {
    "sglang": "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE=1",
    "vllm": "VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC=1",
}
_RANKS = (2, 4, 8)
TUNED_TP8_HIDDEN = 6144
"""Smallest hidden size that FlashInfer's PCIe all-reduce is tuned for at 8 ranks (evidence `pcie_ipc_holes`)."""
TUNED_TP4_HIDDEN = 4096
"""The hidden size that it is tuned for at 4 ranks (same evidence)."""
FEW = 8
"""Requests for which the message size is shown."""


def count(target: Target) -> int:
    """All-reduces a forward step: one after each token mixer and one after each MLP, in every main layer."""
    return sum((layer.mixer != "none") + (layer.mlp != "none") for layer in target.model.main_layers)


def covered(ranks: int, hidden: int) -> bool:
    """Whether the launch table of FlashInfer's PCIe all-reduce has the shape; outside it NCCL runs all the same."""
    if ranks == 8:
        return hidden >= TUNED_TP8_HIDDEN
    return ranks == 4 and hidden == TUNED_TP4_HIDDEN


def peers(target: Target) -> bool:
    """Whether peer-to-peer copies were seen to work here, or were published for this kind of GPU."""
    snapshot = target.snapshot
    if snapshot is not None and snapshot.p2p:
        return all(pair.works is not False for pair in snapshot.p2p) and any(pair.works for pair in snapshot.p2p)
    return target.gpu.key.startswith("rtx-pro-6000")


def nccl_us(gpus: int, size: int) -> float | None:
    """Published NCCL time of one all-reduce on RTX PRO 6000 over PCIe, microseconds: the next larger size tabulated."""
    rows = measurement(TABLE).table.get(f"{gpus}gpu nccl 2.29.2 half")
    if not isinstance(rows, dict):
        return None
    sizes = sorted(int(key) for key in rows if int(key) >= size)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return float(rows[str(sizes[0])]) if sizes else None  # pyright: ignore[reportUnknownArgumentType]


def run(target: Target) -> Iterator[Outcome]:
    ranks = target.parallel.tp
    if ranks < 2 or not target.pcie:
        return
    steps, one = count(target), target.model.hidden * BF16
    known = target.gpu.key.startswith("rtx-pro-6000")
    us = nccl_us(ranks, one) if known else None
    total_ms = steps * us / 1e3 if us else None
    yield Fact(
        "all_reduce",
        {
            "per_step": steps,
            "bytes_at_1": one,
            "bytes_at_8": one * FEW,
            "us_each": us,
            "ms_per_step": round(total_ms, 2) if total_ms else None,
            "basis": "count and bytes exact, time published (NCCL 2.29.2, 8 GPUs a node)"
            if us
            else "count and bytes exact",
        },
    )
    entry = entries()["pcie_ipc_switch"]
    holds = entry.holds(target.engine, target.engine_version)
    env = target.snapshot.engine.env if target.snapshot and target.snapshot.engine else {}
    switch = _SWITCH.get(target.engine)
    if switch is None or ranks not in _RANKS or not target.sm12x or switch.partition("=")[0] in env:
        return
    if not covered(ranks, target.model.hidden) or not peers(target):
        return
    count_text = (
        f"{steps} all-reduces a step ({len(target.model.main_layers)} layers), {one:,} bytes each at one request"
        + (f"; NCCL takes {us:.1f} us for that on {ranks} of these GPUs: {total_ms:.1f} ms a step." if us else ".")
    )
    needs = ""
    if holds is None:
        needs = f" The switch was read in {target.engine_title} {entry.since(target.engine)}; check that yours has it."
    elif holds is False:
        needs = f" The switch was read in {entry.since(target.engine)}; {target.engine_named} may be too old for it."
    glm = target.model.key.startswith("GLM-5") and ranks == 8
    yield Draft(
        id="pcie_all_reduce",
        title="Shorten the all-reduces: they run over PCIe"
        + (f" and take {total_ms:.1f} ms of every decode step" if total_ms else ""),
        layer="runtime",
        evidence=[
            Evidence(
                "exact" if us is None else "published",
                count_text,
                f"model shapes; packaged measurement {TABLE}" if us else "model shapes",
            ),
            *published("pcie_all_reduce_off", "pcie_ipc_gain", "pcie_ipc_holes", "pcie_ipc_switch", "nccl_tuning"),
            *(published("oneshot_ab") if glm else []),
        ],
        cause="Without NVLink every reduction goes through NCCL's ring, which is built for bandwidth: at decode "
        "sizes it "
        "is latency, once or twice a layer, and it does not shrink with a faster GEMM.",
        fix=Fix(
            "Switch on FlashInfer's PCIe all-reduce and measure at your own number of requests, with and without "
            "speculative decoding: with larger messages it can lose."
            + needs
            + " Tune NCCL as well: it stays in use for "
            "prefill.",
            [f"export {switch}", "export NCCL_MIN_NCHANNELS=8"],
        ),
        gain=Gain("decode tok/s, %", -4.0, 8.0, 16.0, "published"),
        confidence=0.55 if holds else 0.4,
        effort_h=1.0,
        risk="a first version lost 2 to 4 % at 8 and more requests; one host never completed it: watch for 100 % "
        "utilisation at idle power",
        numerics="unchanged up to the order of the sum",
        confirm="Time a token at 1, 8 and 32 requests, before and after, same prompts; the log names the all-reduce "
        "in use.",
        undo=f"`unset {switch.partition('=')[0]} NCCL_MIN_NCHANNELS` and restart.",
    )


RULE = Rule(id="all_reduce", looks_at="all-reduces over PCIe", run=run)
