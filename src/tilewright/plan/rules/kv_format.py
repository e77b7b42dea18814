"""KV cache in FP8: how many more tokens fit, and what it needs on this GPU."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.errors import InputError
from tilewright.models.records import Mla
from tilewright.plan.evidence import published
from tilewright.plan.finding import Draft, Evidence, Fact, Fix, Gain, Outcome, Rejected
from tilewright.plan.registry import Rule
from tilewright.plan.seen import flag
from tilewright.plan.target import Target

PLENTY = 500_000
"""KV tokens from which the cache is unlikely to be what limits a server (60 requests of 8K)."""
_NAMES = {"sglang": ("--kv-cache-dtype", "fp8_e4m3"), "vllm": ("--kv-cache-dtype", "fp8")}


def run(target: Target) -> Iterator[Outcome]:
    kv, names = target.memory.kv, _NAMES.get(target.engine)
    if kv is None or names is None or target.memory.left <= 0:
        return
    sparse = isinstance(target.model.attention, Mla) and target.model.indexer is not None
    needs_backend = sparse and target.sm12x and target.engine == "sglang"
    if kv.layout != "bf16":
        if needs_backend:
            yield Fact(
                "remarks",
                [
                    f"The checkpoint asks for an {kv.layout.upper()} cache; on {target.gpu.arch.upper()} SGLang "
                    "serves it "
                    "through the flashinfer_sparse_mla DSA backend only (published, sglang 0.5.23 overrides.py:664)."
                ],
            )
        return
    if not target.reads_fp8_cache:
        if not target.cache_words:
            yield Rejected(
                "A KV cache in FP8",
                f"On {target.gpu.arch.upper()} SGLang reads one of this model with the flashinfer_sparse_mla backend "
                f"only, which {target.engine_named} does not have.",
                published("sparse_mla_fp8kv"),
            )
        return  # where the checkpoint asks for one, the advice on flags says so
    now = flag(target.snapshot, names[0])
    if now not in (None, "auto", "bf16", "bfloat16"):
        return
    try:
        smaller = target.memory_of(target.parallel, kv_layout="fp8")
    except InputError:
        return
    if smaller.kv is None or not target.memory.tokens or smaller.kv.per_token >= kv.per_token:
        return
    more = (smaller.tokens / target.memory.tokens - 1) * 100
    usage = target.snapshot.metrics.kv_usage if target.snapshot else None
    tight = usage is not None and usage > 0.9
    yield Draft(
        id="kv_fp8",
        title=f"KV cache in FP8: {more:.0f} % more tokens",
        layer="runtime",
        evidence=[
            Evidence(
                "exact",
                f"{kv.per_token:,} bytes a token and GPU in BF16, {smaller.kv.per_token:,} in FP8: "
                f"{target.memory.tokens:,} "
                f"-> {smaller.tokens:,} tokens in {target.layout}.",
                "model shapes and cache layouts (docs: models)",
            ),
            *(published("kv_fp8_tokens") if target.model.key.startswith("GLM-5") else []),
            *(published("sparse_mla_fp8kv") if needs_backend else []),
        ],
        cause="The cache is what limits how many long requests run together"
        + (", and it is full now." if tight else ", once it is full."),
        fix=Fix(
            "Switch it and check quality on your own prompts.",
            [target.launch(f"{names[0]} {names[1]}")],
        ),
        gain=Gain("KV tokens, %", round(more, 1), round(more, 1), round(more, 1), "exact"),
        metric="capacity",
        confidence=0.6 if tight else 0.3 if target.memory.tokens < PLENTY else 0.1,
        effort_h=1.0,
        risk="an attention backend without FP8 cache may be slower or missing on this GPU",
        numerics="changes: KV cache BF16 -> FP8",
        confirm="The engine logs this many KV tokens; an evaluation of yours stays within its noise.",
        undo=f"{names[0]} auto",
    )


RULE = Rule(id="kv_format", looks_at="KV cache format", run=run)
