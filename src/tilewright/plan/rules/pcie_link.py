"""A GPU whose PCIe link is narrower or slower than its slot could be."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.plan.evidence import published
from tilewright.plan.finding import Draft, Evidence, Fix, Gain, Outcome
from tilewright.plan.registry import Rule
from tilewright.plan.seen import gpu_list, under_load
from tilewright.plan.target import Target

GBS_PER_LANE = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
"""GB/s a lane and direction by generation (PCI-SIG; after line coding)."""


def run(target: Target) -> Iterator[Outcome]:
    snapshot = target.snapshot
    assert snapshot is not None
    narrow = [g for g in snapshot.gpus if g.pcie_width and g.pcie_width_max and g.pcie_width < g.pcie_width_max]
    # An idle link trains down in generation by itself (not in width), so only a loaded GPU's generation counts.
    slow = [g for g in snapshot.gpus if g.pcie_gen and g.pcie_gen_max and g.pcie_gen < g.pcie_gen_max and under_load(g)]
    hit = {gpu.index: gpu for gpu in (*narrow, *slow)}
    if not hit:
        return
    first = hit[min(hit)]
    lanes, best_lanes = first.pcie_width or first.pcie_width_max or 16, first.pcie_width_max or first.pcie_width or 16
    gen, best_gen = first.pcie_gen or first.pcie_gen_max or 5, first.pcie_gen_max or first.pcie_gen or 5
    if not under_load(first):
        gen = best_gen
    now, full = (GBS_PER_LANE.get(g, 0) * w for g, w in ((gen, lanes), (best_gen, best_lanes)))
    many = target.gpus > 1
    yield Draft(
        id="pcie_link",
        title=f"{gpu_list(hit)}: PCIe link at Gen{gen} x{lanes}, could be Gen{best_gen} x{best_lanes}",
        layer="system",
        evidence=[
            Evidence(
                "measured",
                f"{gpu_list(g.index for g in narrow)} narrower than the slot."
                if narrow
                else "All links at full width.",
                target.snapshot_source,
            ),
            Evidence("exact", f"{now:.1f} GB/s a direction against {full:.1f}.", "PCI-SIG rates times lanes"),
            *(published("p2p_bandwidth") if many else []),
        ],
        cause="Every all-reduce of the tensor-parallel group waits for its slowest link."
        if many
        else "Loading weights and copying inputs wait for this link; decode on one GPU hardly uses it.",
        fix=Fix(
            "Reseat the card or the riser, check the slot's bifurcation and the BIOS link speed, then read the link "
            "under load.",
            [
                "nvidia-smi --query-gpu=index,pcie.link.gen.current,pcie.link.width.current --format=csv",
                "sudo lspci -vv | grep -E 'VGA|3D|LnkSta:'",
            ],
        ),
        gain=Gain(
            "prefill tok/s and all-reduce of large messages, %",
            0.0,
            20.0 if many else 1.0,
            (full / now - 1) * 100 if now else None,
            "modelled",
        ),
        metric="prefill",
        confidence=0.7 if narrow else 0.5,
        effort_h=1.5,
        confirm=f"Gen{best_gen} x{best_lanes} under load, and all_reduce_perf of 8 MB and more as fast as between "
        "the other GPUs.",
        undo="Nothing to undo.",
    )


RULE = Rule(id="pcie_link", looks_at="PCIe links below their slot", run=run, needs=("observe",))
