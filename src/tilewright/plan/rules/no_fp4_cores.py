"""An FP4 checkpoint on a GPU without FP4 tensor cores: weights are decoded, products run in 16 bits."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.models.legality import tp_verdict
from tilewright.models.memory import gpu_memory
from tilewright.plan.engines import launch, layout_flags
from tilewright.plan.evidence import published
from tilewright.plan.finding import Draft, Evidence, Fact, Fix, Gain, Outcome, Rejected
from tilewright.plan.registry import Rule
from tilewright.plan.target import Target
from tilewright.serving.launch import served_name
from tilewright.versions import within


def run(target: Target) -> Iterator[Outcome]:
    families = target.families & {"nvfp4", "mxfp4"}
    if not families or target.fp4_cores:
        return
    name = "NVFP4" if "nvfp4" in families else "MXFP4"
    arch = target.gpu.arch.upper()
    hopper = target.gpu.arch == "sm90"
    text = f"{arch} has no FP4 tensor cores: {name} weights are decoded and multiplied in 16 bits (W4A16)."
    yield Fact("summary", [(5, text)])
    yield Rejected(
        f"FlashInfer's SM120 FP4 tactics, other {name} tiles, or CUTLASS block-scaled kernels",
        f"They are for GPUs that multiply FP4 in their tensor cores; {arch} has no such instruction. Shared memory is "
        f"no question here (a block gets {target.gpu.smem_optin_bytes:,} bytes).",
        [
            Evidence(
                "exact",
                f"{target.gpu.name} is {arch}; block-scaled MMAs exist for sm100, sm103, sm120, sm121.",
                "CUTLASS gemm/collective/builders",
            )
        ],
    )
    humming = hopper and target.engine == "vllm" and within(target.engine_version, ">=0.33") is not False
    evidence = [
        Evidence(
            "exact",
            f"{arch} has no FP4 MMA: {name} weights are decoded to BF16 on the way (W4A16).",
            f"catalogue: {target.gpu.key}",
        ),
        *(published("h200_nvfp4") if hopper else []),
        *(published("humming_hopper") if hopper and target.engine == "vllm" else []),
    ]
    flags = {
        "vllm": "--moe-backend humming" if hopper else "--moe-backend marlin",
        "sglang": "--moe-runner-backend humming" if hopper else "--moe-runner-backend marlin",
    }
    if target.model.moe is not None and target.engine in flags:
        yield Draft(
            id="w4a16_backend",
            title=f"{name} runs as W4A16 on {arch}: choose the weight-only MoE kernel by measurement",
            layer="library",
            evidence=evidence,
            cause="The kernel is bound by decoding weights on the CUDA cores (about 4.3 instructions a weight), not "
            "by memory "
            "and not by the tensor cores."
            if hopper
            else "Without FP4 tensor cores each weight is decoded first.",
            fix=Fix(
                "Compare Humming and Marlin at your own token counts"
                + ("; vLLM prefers Humming here by itself." if humming else "."),
                [target.launch(flags[target.engine])],
            ),
            gain=Gain("MoE GEMM time, %", 0.0, 5.0, 30.0, "measured" if hopper else "modelled"),
            confidence=0.5 if hopper else 0.3,
            effort_h=1.0,
            numerics="unchanged: W4A16 either way",
            confirm="The log names the MoE kernel; time a token at 1, 16 and 64 requests.",
            undo="Start without the backend flag.",
        )
    for checkpoint in target.model.checkpoints:
        if (
            not any(fmt.startswith("fp8") for fmt in checkpoint.formats)
            or "nvfp4" in checkpoint.formats
            or target.gpu.arch not in ("sm89", "sm90")
        ):
            continue
        parallel = target.parallel
        if not tp_verdict(target.model, parallel, checkpoint).legal:
            continue
        memory = gpu_memory(target.model, target.gpu, checkpoint, parallel, fraction=target.memory_share[0])
        if memory.left <= 0:
            continue
        yield Draft(
            id="fp8_checkpoint",
            title=f"For prefill and large batches, compare {checkpoint.name}: FP8 runs on these tensor cores",
            layer="model",
            evidence=[
                Evidence(
                    "exact",
                    f"It takes {memory.weights.runtime / 2**30:.1f} GiB a GPU in {target.layout} (this one "
                    f"{target.memory.weights.runtime / 2**30:.1f}) and leaves room for {memory.tokens:,} KV tokens.",
                    "as stored",
                ),
                Evidence(
                    "published",
                    f"FP8 peak {target.gpu.peak('fp8').value:,} TFLOPS, BF16 {target.gpu.peak('bf16').value:,}.",
                    target.gpu.peak("fp8").source,
                ),
            ],
            cause="With W4A16 the products run at the BF16 rate; FP8 runs at twice that, and reads more bytes a "
            "weight.",
            fix=Fix(
                "Serve it beside this one and compare prefill and decode.",
                [
                    launch(
                        target.engine,
                        served_name(target.model, checkpoint),
                        layout_flags(target.engine, parallel.tp, parallel.pp, parallel.ep),
                    )
                ],
            ),
            gain=Gain("prefill tok/s, %", 0.0, 40.0, 100.0, "modelled"),
            metric="prefill",
            confidence=0.4,
            effort_h=3.0,
            risk="decode at few requests reads 1.8 times the bytes",
            numerics=f"changes: {name} W4A16 -> FP8 W8A8",
            confirm="Time to the first token at your prompt length and tok/s at your usual number of requests, both.",
            undo="Serve the former checkpoint.",
        )
        return


RULE = Rule(id="no_fp4_cores", looks_at="FP4 without FP4 tensor cores", run=run)
