"""Public reports of Triton kernels that ran out of shared memory, with their bytes."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.triton_.config import parse_triton
from tilewright.triton_.fit import fit_triton

SGLANG_DEFAULT: dict[str, Any] = {
    "kernel": "sglang-fused-moe", "dtype": "fp8_w8a8", "block_m": 128, "block_n": 256, "block_k": 128, "group_m": 32,
    "num_warps": 8,
}  # fmt: skip


@pytest.mark.parametrize("gpu", ["gb10", "rtx-pro-6000-server", "rtx-pro-6000-workstation", "l40s", "rtx-4090"])
@pytest.mark.parametrize(("stages", "size"), [(4, 147_456), (3, 98_304), (2, 49_152)])
def test_the_default_fp8_tile_of_sglang_by_stages(gpu: str, stages: int, size: int) -> None:
    """https://github.com/sgl-project/sglang/issues/28019 (GB10), /issues/8513 (RTX PRO 6000) and /pull/24975 (Ada).

    The last says that 3 stages take 144 KB too; they take 96, and 2 take 48."""
    verdict = fit_triton(parse_triton({**SGLANG_DEFAULT, "gpu": gpu, "num_stages": stages}))
    assert (verdict.smem_bytes, verdict.limit_bytes) == (size, 101_376)
    assert verdict.status == ("overflow" if stages == 4 else "fits")
    if stages == 4:
        assert (verdict.fixes[0].change, verdict.fixes[0].smem_bytes) == ({"num_stages": 3}, 98_304)


def test_qwen3_coder_480b_fp8_on_h20e() -> None:
    """https://github.com/QwenLM/Qwen3-Coder/issues/461: required 263,168, limit 232,448, vLLM 0.10.1 on SM90.

    256x256x128 with 4 stages and 128x128 block scales: 4 x 512 x 128, and 1,024 for the scales' exchange."""
    verdict = fit_triton(
        parse_triton(
            {
                "kernel": "vllm-fused-moe",
                "version": "0.10.1",
                "gpu": "h20",
                "dtype": "fp8_w8a8",
                "block_m": 256,
                "block_n": 256,
                "block_k": 128,
                "num_warps": 8,
                "num_stages": 4,
                "block_shape": [128, 128],
            }
        )
    )
    assert (verdict.status, verdict.basis) == ("overflow", "exact")
    assert (verdict.smem_bytes, verdict.limit_bytes, verdict.excess_bytes) == (263_168, 232_448, 30_720)
    assert (verdict.fixes[0].change, verdict.fixes[0].smem_bytes) == ({"num_stages": 3}, 197_632)
