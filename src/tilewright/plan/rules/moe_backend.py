"""b12x against CUTLASS for the MoE layers: which is faster turns round with the number of requests."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.plan.evidence import entries, published
from tilewright.plan.finding import Draft, Evidence, Fix, Gain, Outcome, Rejected
from tilewright.plan.registry import Rule
from tilewright.plan.seen import flag
from tilewright.plan.tables import moe_backends
from tilewright.plan.target import Target

NUMERICS = "changes: W4A4 -> W4A16 where b12x keeps activations in 16 bits; compare outputs"


def run(target: Target) -> Iterator[Outcome]:
    if not target.sm12x or target.expert_family != "nvfp4":
        return
    pair = moe_backends(target)
    now = flag(target.snapshot, "--moe-runner-backend", "--moe-backend")
    evidence = [
        *(
            [
                Evidence(
                    "published",
                    f"tok/s CUTLASS -> b12x, no speculation ({pair.weights}): {pair.text()} requests.",
                    pair.source,
                )
            ]
            if pair
            else []
        ),
        *published("b12x_decode_only", "b12x_numerics"),
    ]
    turn = ""
    if pair:
        wins = [requests for requests, gain in pair.gains() if gain > 0]
        losses = [(requests, gain) for requests, gain in pair.gains() if gain < 0]
        if wins and losses:
            turn = f"It wins up to {max(wins)} requests and loses {-losses[0][1]:.0f} % at {losses[0][0]}."
    if target.engine == "sglang":
        yield Rejected(
            "Switch the MoE layers to b12x",
            f"{turn} SGLang itself offers no b12x backend (0.5.23); auto resolves to flashinfer_cutlass here.".strip(),
            [*evidence, *published("b12x_sglang", "sglang_auto_moe")],
        )
        return
    if target.engine != "vllm" or now in ("b12x", "flashinfer_b12x"):
        return
    entry = entries()["b12x_vllm"]
    holds = entry.holds("vllm", target.engine_version)
    yield Draft(
        id="moe_backend_b12x",
        title="Try the b12x MoE backend if you serve few requests at a time",
        layer="runtime",
        evidence=[*evidence, entry.evidence],
        cause="vLLM never selects b12x by itself, and its CUTLASS tiles have 128 rows for a handful of tokens an "
        "expert.",
        fix=Fix(
            f"Compare at your own concurrency. {turn}".strip()
            + ("" if holds else f" Read in vLLM {entry.since('vllm')}; check `vllm serve --help` for it."),
            [target.launch("--moe-backend b12x")],
        ),
        gain=Gain("decode tok/s at up to 8 requests, %", -26.0, 5.0, 17.0, "published"),
        confidence=0.4,
        effort_h=1.0,
        risk="loses at 16 and more requests in the published tables",
        numerics=NUMERICS,
        confirm="tok/s at 1, 8 and 32 requests with both; the log names the MoE backend.",
        undo="Start without --moe-backend.",
    )


RULE = Rule(id="moe_backend", looks_at="MoE backends", run=run)
