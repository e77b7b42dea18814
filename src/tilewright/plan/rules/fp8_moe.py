"""FP8 MoE layers on GPUs with 99 KiB of shared memory: SM89 tiles, and Triton's default that does not fit."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tilewright.plan.evidence import entries, published
from tilewright.plan.finding import Draft, Evidence, Fix, Gain, Outcome, Rejected
from tilewright.plan.registry import Rule
from tilewright.plan.target import Target
from tilewright.triton_.tile import fused_moe_bytes, max_stages

_ADDED = re.compile(r"\s*(\(.*\)|\d+ GB)\s*$")
DEFAULT_TILE = (128, 256, 128)
DEFAULT_STAGES = 4
"""SGLang's FP8 default without a tuned file: BLOCK 128x256x128, num_stages 4 (case C06)."""


def device_name(target: Target) -> str:
    """The name that torch gives this GPU: NVIDIA and the product's name, without what the catalogue adds to it."""
    return "NVIDIA " + _ADDED.sub("", target.gpu.name).strip()


def tuned_file(target: Target) -> str:
    """The name of the tuned file that the engine looks for (its own rules for blanks; see docs)."""
    moe, fmt = target.model.moe, target.expert_format
    assert moe is not None
    assert fmt is not None
    device = device_name(target).replace(" ", "_")
    experts, rows = moe.experts // target.parallel.ep, moe.inter // target.parallel.expert_tp
    block = ""
    if fmt.scaling == "block":
        gap = " " if target.engine == "sglang" else ""
        block = f",block_shape=[{fmt.block[0]},{gap}{fmt.block[1]}]"
    return f"E={experts},N={rows},device_name={device},dtype=fp8_w8a8{block}.json"


def run(target: Target) -> Iterator[Outcome]:
    limit = target.gpu.smem_optin_bytes
    if target.expert_family != "fp8" or target.model.moe is None or limit is None:
        return
    sm = int(target.gpu.arch.removeprefix("sm"))
    need = fused_moe_bytes(*DEFAULT_TILE, 1, DEFAULT_STAGES, sm)
    if need <= limit:
        return
    stages = max_stages(*DEFAULT_TILE, 1, limit, sm)
    line = target.log.get("triton_out_of_resources") if target.log else None
    entry = entries()["triton_low_smem_branch"]
    cured = target.engine == "sglang" and entry.holds("sglang", target.engine_version) is True
    name = tuned_file(target)
    if not cured and target.engine != "trtllm":
        yield Draft(
            id="triton_default_tile",
            title=f"The default Triton tile needs {need:,} of {limit:,} bytes: give the engine a tuned file",
            layer="kernel",
            evidence=[
                Evidence(
                    "exact",
                    f"128x256x128 with {DEFAULT_STAGES} stages: ({DEFAULT_STAGES} - 1) x (128 + 256) x 128 = "
                    f"{need:,} bytes; "
                    f"with {stages} stages {fused_moe_bytes(*DEFAULT_TILE, 1, stages):,}, which fit.",
                    f"limit a block of {target.gpu.key}",
                ),
                *([Evidence("measured", f"Line {line.first_line}: {line.quoted}", target.log_source)] if line else []),
                *published("triton_default_oom", "triton_low_smem_branch"),
            ],
            cause="Without a tuned file for this shape and device the engine takes a default made for GPUs with 227 "
            "KiB.",
            fix=Fix(
                f"Put a file named {name} where the engine looks for it, with num_stages at most {stages} for this "
                "tile, or "
                "upgrade to a version with a default for small shared memory. Tune it with the engine's own tuner.",
                ["python3 -c 'import torch; print(torch.cuda.get_device_name())'   # the name must hold this device"],
            ),
            gain=Gain("the server starts", None, None, None, "exact")
            if line
            else Gain("MoE time, %", 0.0, 10.0, 30.0, "published"),
            metric="runs" if line else "decode",
            confidence=0.9 if line else 0.5,
            effort_h=1.5,
            confirm="No OutOfResources in the log; the engine logs that it uses the file.",
            undo="Remove the file.",
        )
    if target.sm12x:
        yield Rejected(
            "FlashInfer's FP8 x FP8 MoE kernels",
            f"FlashInfer has none for {target.gpu.arch.upper()} and runs SM89 tiles instead. CUTLASS's blockwise "
            "collectives "
            "for SM120 exist, but the engines do not build the grouped ones: Triton is the path that works.",
            published("sm120_fp8_moe", "deepgemm_sm120"),
        )


RULE = Rule(id="fp8_moe", looks_at="FP8 MoE tiles", run=run)
