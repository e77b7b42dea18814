"""DeepGEMM's FP8 GEMMs with scales a block: named, not wired yet."""

from __future__ import annotations

from tilewright.bench.backends.not_wired import not_wired

BACKEND = not_wired("deep_gemm", "deep_gemm", "deep-gemm", {"gemm": ("bf16", "fp8")})
