"""vLLM's own kernels: named, not wired yet."""

from __future__ import annotations

from tilewright.bench.backends.not_wired import not_wired

BACKEND = not_wired("vllm", "vllm", "vllm", {"gemm": ("bf16", "fp8", "nvfp4"), "moe": ("bf16", "nvfp4")})
