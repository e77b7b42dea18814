"""MXFP4 weights with MXFP8 activations on SM12x: 8-bit containers in shared memory leave only small tiles."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.cutlass.config import parse_config
from tilewright.cutlass.fit import fit
from tilewright.plan.evidence import published
from tilewright.plan.finding import Draft, Evidence, Fact, Fix, Gain, Outcome
from tilewright.plan.registry import Rule
from tilewright.plan.target import Target

TILES = ((128, 128, 128), (128, 128, 256), (256, 128, 128), (128, 256, 128), (128, 64, 128), (128, 32, 128))
"""The tiles that FlashInfer's and TensorRT-LLM's SM120 MoE dispatch know (moe_gemm_template_dispatch_tma_ws.h)."""
_FLAGS = {"sglang": "--moe-runner-backend triton_kernel", "vllm": "--moe-backend marlin"}


def run(target: Target) -> Iterator[Outcome]:
    if target.expert_family != "mxfp4" or not target.sm12x:
        return
    cutlass = target.library.cutlass if target.library and target.library.cutlass else "4.5.0"
    rows: list[dict[str, object]] = []
    for tile in TILES:
        config = {
            "cutlass": cutlass, "arch": target.gpu.arch, "kind": "grouped", "op_class": "block_scaled",
            "a": "mxfp8_e4m3", "b": "mxfp4", "c": "bf16", "d": "bf16", "tile": list(tile),
        }  # fmt: skip
        budget = fit(parse_config(config))
        rows.append(
            {
                "tile": "x".join(map(str, tile)),
                "status": budget.status,
                "bytes": budget.smem_bytes,
                "stages": budget.stages,
                "rule": (budget.rules or [""])[0],
            }
        )
    yield Fact("mx_tiles", rows)
    fits = [row for row in rows if row["status"] == "fits"]
    bad = [row for row in rows if row["status"] != "fits"]
    text = "; ".join(f"{row['tile']} {row['bytes']:,} bytes, {row['stages']} stages" for row in fits)
    text += ". Not: " + ", ".join(f"{row['tile']} ({row['status']})" for row in bad) if bad else ""
    engine = target.engine
    if engine not in _FLAGS:
        return
    yield Draft(
        id="mxfp4_backend",
        title="MXFP4 experts: few CUTLASS tiles are legal here, so compare the weight-only MoE kernel",
        layer="library",
        evidence=[
            Evidence(
                "exact",
                f"MXFP8 x MXFP4 grouped, CUTLASS {cutlass}, limit {target.gpu.smem_optin_bytes:,}: {text}.",
                "tilewright fit",
            ),
            *published("mxfp4_mxfp8_tactics"),
        ],
        cause="When the operands differ in width, every element takes a byte in shared memory, FP4 as well: a stage is "
        "almost twice as large, and most tiles do not get their two stages.",
        fix=Fix(
            "Compare the weight-only kernel (activations stay in BF16) with what the engine picks by itself.",
            [target.launch(_FLAGS[engine])],
        ),
        gain=Gain("decode tok/s, %", -5.0, 5.0, 20.0, "modelled"),
        confidence=0.3,
        effort_h=1.0,
        numerics="changes: W4A8 -> W4A16",
        confirm="The log names the MoE kernel and no tactic is skipped; tok/s at 1 and at your usual number of "
        "requests.",
        undo="Start without the backend flag.",
    )


RULE = Rule(id="mxfp4_moe", looks_at="MXFP4 MoE tiles", run=run)
