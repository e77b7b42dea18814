"""Peer-to-peer copies: switched off, or reported as working by a host that drops them (cases 5.12, 5.29)."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.plan.evidence import published
from tilewright.plan.finding import Draft, Evidence, Fix, Gain, Outcome
from tilewright.plan.registry import Rule
from tilewright.plan.target import Target


def run(target: Target) -> Iterator[Outcome]:
    snapshot = target.snapshot
    assert snapshot is not None
    if target.gpus < 2:
        return
    broken = [pair for pair in snapshot.p2p if pair.works is False]
    trap = snapshot.host.iommu == "translated" and snapshot.host.acs_redirect is True
    if broken or trap:
        pairs = ", ".join(f"{pair.source}->{pair.target}" for pair in broken[:8])
        text = f"Copies whose content was checked failed between GPUs {pairs}." if broken else ""
        text += " The IOMMU translates and a root port redirects peer requests (ACS)." if trap else ""
        yield Draft(
            id="peer_copies_lost",
            title="Peer copies fail on this host" if broken else "This host's IOMMU and ACS setting breaks peer copies",
            layer="system",
            evidence=[Evidence("measured", text.strip(), target.snapshot_source), *published("acs_hang")],
            cause="With a translating IOMMU and ACS redirection, peer traffic is sent through the root complex and "
            "dropped or stalled. The driver still reports the capability: that is no evidence.",
            fix=Fix(
                "Switch ACS off (BIOS, or setpci on the root ports) and boot with iommu=pt. Until then use the "
                "workaround: no P2P in NCCL and no custom all-reduce.",
                [
                    "sudo lspci -vvv | grep -E 'ACSCtl'",
                    "sudo sed -i 's/^GRUB_CMDLINE_LINUX=\"/&iommu=pt /' /etc/default/grub && sudo update-grub",
                    target.launch("--disable-custom-all-reduce", env="NCCL_P2P_DISABLE=1") + "   # workaround",
                ],
            ),
            gain=Gain("the server starts and its output can be trusted", None, None, None, "published"),
            metric="runs",
            confidence=0.8 if broken else 0.6,
            effort_h=1.5,
            risk="a host without IOMMU isolation is no place for untrusted virtual machines",
            confirm="A copy with checked content succeeds between every ordered pair, and "
            "`all_reduce_perf -b 4K -e 64M -f 2 -c 1` reports no wrong value.",
            undo="Restore the former kernel command line and BIOS setting.",
        )
        return
    off = [pair for pair in snapshot.p2p if pair.capable is False]
    if not off:
        return
    yield Draft(
        id="p2p_off",
        title=f"P2P is not available between {len(off)} of {len(snapshot.p2p)} GPU pairs",
        layer="system",
        evidence=[
            Evidence("measured", f"First such pair: {off[0].source}->{off[0].target}.", target.snapshot_source),
            *published("p2p_bandwidth"),
        ],
        cause="Without P2P every collective goes through host memory: 14 us a message instead of less than 0.5.",
        fix=Fix(
            "Use a driver that allows P2P on this card, put the GPUs under one root complex or switch, set iommu=pt "
            "and "
            "switch ACS off; then let NCCL use it.",
            [
                "nvidia-smi topo -p2p r",
                target.launch(env="NCCL_P2P_LEVEL=SYS NCCL_DEBUG=INFO") + "   # the log names the transport",
            ],
        ),
        gain=Gain("decode tok/s, %", 0.0, 15.0, 40.0, "modelled"),
        confidence=0.5,
        effort_h=3.0,
        confirm="`nvidia-smi topo -p2p r` says OK for all pairs and a copy with checked content succeeds.",
        undo="Unset NCCL_P2P_LEVEL.",
    )


RULE = Rule(id="peer_copies", looks_at="P2P, ACS and IOMMU", run=run, needs=("observe",))
