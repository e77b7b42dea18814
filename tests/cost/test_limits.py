"""Limits from bytes and rates: the driving case, published measurements that none may beat, and odd hardware."""

from __future__ import annotations

import pytest

from tilewright.cost import MoeLimit, gemm_limit, moe_layer_limits, moe_sweep
from tilewright.data.measurements import measurement
from tilewright.errors import InputError
from tilewright.hardware import resolve_gpu
from tilewright.models import load_model, resolve_model, uniform_checkpoint


def glm5(tokens: int, gpu: str = "rtx-pro-6000-server", tp: int = 8, ep: int = 1) -> MoeLimit:
    return moe_layer_limits(resolve_model("GLM-5-NVFP4"), None, resolve_gpu(gpu), tp, ep, tokens)


def test_the_driving_case_has_the_shapes_that_are_known() -> None:
    sliced = glm5(512)
    assert (sliced.w13.n, sliced.w13.k, sliced.w2.n, sliced.w2.k) == (512, 6144, 6144, 256)
    assert (sliced.experts, sliced.rows, sliced.rows_per_expert_of_all) == (256, 4096, 16)
    dealt = glm5(512, ep=8)
    assert (dealt.w13.n, dealt.w13.k, dealt.w2.n, dealt.w2.k) == (4096, 6144, 6144, 2048)
    assert dealt.experts == 32
    assert dealt.w13.weight_bytes == pytest.approx(sliced.w13.weight_bytes, rel=1e-4)


def test_bytes_are_the_weights_of_the_experts_hit_and_the_tokens() -> None:
    one = glm5(1)
    # 8 experts x (512 x 6144 x 0.5625 B + two FP32 scalars for each of gate and up, less what is shared)
    assert one.w13.weight_bytes == pytest.approx(8 * 512 * 6144 * 0.5625, rel=1e-4)
    assert one.w2.weight_bytes == pytest.approx(8 * 6144 * 256 * 0.5625, rel=1e-4)
    assert one.w13.activation_bytes == round(6144 * 0.5625 + 8 * 512 * 2)
    assert one.w2.activation_bytes == round(8 * 256 * 0.5625 + 8 * 6144 * 2)
    assert one.w13.flops == 2 * 8 * 512 * 6144


@pytest.mark.parametrize(
    ("tokens", "w13_weight", "w13_act", "w2_weight", "w2_act"),
    [(64, 401.7, 1.3, 200.8, 6.6), (128, 445.9, 2.6, 223.0, 13.1), (1024, 453.0, 21.0, 226.5, 104.9),
     (4096, 453.0, 83.9, 226.5, 419.4)],
)  # fmt: skip
def test_bytes_are_those_of_the_h200_measurements(
    tokens: int, w13_weight: float, w13_act: float, w2_weight: float, w2_act: float
) -> None:
    # facts/h200_nvfp4_moe.md counts in MB; its draw of experts differs from the expectation by up to 2%.
    limit = glm5(tokens, "h200")
    assert limit.w13.weight_bytes / 1e6 == pytest.approx(w13_weight, rel=0.025)
    assert limit.w2.weight_bytes / 1e6 == pytest.approx(w2_weight, rel=0.025)
    assert limit.w13.activation_bytes / 1e6 == pytest.approx(w13_act, abs=0.06)
    assert limit.w2.activation_bytes / 1e6 == pytest.approx(w2_act, abs=0.06)


def test_sixteen_to_sixty_four_tokens_an_expert_are_memory_bound() -> None:
    for tokens, share in ((512, 0.048), (1024, 0.095), (2048, 0.185)):
        limit = glm5(tokens)
        assert limit.w13.bound == limit.w2.bound == "memory"
        assert limit.w13.peak_share == pytest.approx(share, abs=0.001), "the most of the peak that it can reach"
        ridge = limit.w13.rates.ridge
        assert ridge is not None
        assert limit.w13.intensity < ridge
    ridge = glm5(1).w13.rates.ridge
    assert ridge == pytest.approx(1871.2e12 / 1597e9)


def test_enough_tokens_are_compute_bound() -> None:
    limit = glm5(65536)
    assert limit.w13.bound == "compute"
    assert limit.w13.peak_share == 1
    assert limit.w13.attainable_tflops == pytest.approx(1871.2)


def test_both_bandwidths_are_given_and_labelled() -> None:
    limit = glm5(64).w13
    assert (limit.rates.bandwidth.kind, limit.rates.reached.kind) == ("published", "measured")
    assert limit.memory_s is not None
    assert limit.memory_reached_s is not None
    assert limit.memory_reached_s / limit.memory_s == pytest.approx(1597 / 1450)
    assert glm5(64, "b200").w13.memory_reached_s is None, "nobody measured it: unknown, not guessed"


ROWS = [
    ("aic_moe_glm5_rtx_pro_6000_server_sglang_nvfp4", "rtx_pro_6000_server", "GLM-5-NVFP4"),
    ("aic_moe_glm5_rtx_pro_6000_server_trtllm_nvfp4", "rtx_pro_6000_server", "GLM-5-NVFP4"),
    ("aic_moe_glm5_rtx_pro_6000_server_sglang_fp8_block", "rtx_pro_6000_server", "GLM-5-FP8"),
    ("aic_moe_glm5_b200_sxm_sglang_nvfp4", "b200_sxm", "GLM-5-NVFP4"),
    ("aic_moe_glm5_h200_sxm_sglang_fp8_block", "h200_sxm", "GLM-5-FP8"),
]


@pytest.mark.parametrize(("name", "gpu", "model"), ROWS)
def test_no_published_measurement_beats_the_limit(name: str, gpu: str, model: str) -> None:
    best = 0.0
    for key, row in measurement(name).table.items():
        tp, ep = (int(part[2:]) for part in key.split("_"))
        for tokens, microseconds in row.items():
            limit = moe_layer_limits(
                resolve_model(model), None, resolve_gpu(gpu), tp * ep, ep, int(tokens), routing="balanced"
            ).limit_s
            assert limit is not None
            best = max(best, limit * 1e6 / microseconds)
    assert 0.85 < best < 1, "measured kernels come near the limit where bandwidth decides, and never below it"


def test_the_measured_bandwidth_is_the_one_that_its_measurement_gives() -> None:
    table = measurement("aic_moe_glm5_rtx_pro_6000_server_sglang_nvfp4").table
    limit = glm5(32, tp=1)
    weights = 256 * 3 * 6144 * 2048 * 0.5625
    assert weights / table["tp1_ep1"]["32"] / 1e3 == pytest.approx(1453, abs=1)
    assert limit.w13.rates.reached.value == 1450


def test_tensor_cores_without_the_type_run_in_bf16() -> None:
    hopper = glm5(64, "h200").w13
    assert hopper.rates.operand == "bf16"
    assert hopper.rates.activation == "bf16"
    assert "decoded" in hopper.rates.note
    ampere = gemm_limit(resolve_gpu("a100"), 16, 4096, 4096, "fp8_block")
    assert ampere.rates.operand == "bf16"


def test_a_rate_that_nobody_published_leaves_the_bound_unknown() -> None:
    limit = glm5(64, "rtx-pro-6000-max-q")
    assert limit.w13.memory_s is not None
    assert limit.w13.compute_s is None
    assert limit.w13.bound == "unknown"
    assert limit.limit_s is None
    thor = gemm_limit(resolve_gpu("thor"), 1, 128, 128, "bf16")
    assert thor.memory_s is None
    assert thor.rates.ridge is None


def test_mxfp8_takes_the_fp8_peak_only_where_sums_run_at_full_rate() -> None:
    full = gemm_limit(resolve_gpu("rtx-pro-6000-server"), 64, 4096, 4096, "mxfp8")
    assert full.rates.peak.value == 935.6
    assert "that of FP8 is taken" in full.rates.note
    half = gemm_limit(resolve_gpu("5090"), 64, 4096, 4096, "mxfp8")
    assert half.compute_s is None


def test_a_dense_gemm() -> None:
    limit = gemm_limit(resolve_gpu("rtx-pro-6000-server"), 16, 4096, 6144, "nvfp4")
    assert limit.weight_bytes == 4096 * 6144 * 9 // 16 + 8
    assert limit.activation_bytes == round(16 * 6144 * 0.5625 + 16 * 4096 * 2)
    assert limit.limit_s == limit.memory_s


def test_the_sweep_is_monotonic_and_weights_saturate() -> None:
    sweep = moe_sweep(resolve_model("GLM-5-NVFP4"), None, resolve_gpu("b200"), 8)
    times = [item.limit_s or 0 for item in sweep]
    assert times == sorted(times)
    assert [item.tokens for item in sweep][0::12] == [1, 4096]
    assert sweep[-1].experts_hit == pytest.approx(256)
    assert sweep[9].tile(128).used == pytest.approx(0.125, abs=1e-6)


def test_other_models_and_checkpoints_change_the_limits() -> None:
    gpu = resolve_gpu("rtx-pro-6000-server")
    latent = moe_layer_limits(resolve_model("Nemotron-3-Super-120B-A12B"), None, gpu, 1, 1, 8)
    assert (latent.w13.n, latent.w13.k) == (2688, 1024), "no gate, and experts of a latent width"
    model = resolve_model("GLM-5")
    w4 = moe_layer_limits(model, uniform_checkpoint("nvfp4_w4a16", ["experts"]), gpu, 8, 1, 64)
    assert w4.w13.rates.operand == "bf16"
    bf16 = moe_layer_limits(model, None, gpu, 8, 1, 64)
    assert bf16.w13.weight_bytes > 3 * w4.w13.weight_bytes


def test_what_makes_no_sense_is_refused_by_name(tmp_path: object) -> None:
    gpu, model = resolve_gpu("b200"), resolve_model("GLM-5")
    with pytest.raises(InputError, match="tokens must be"):
        moe_layer_limits(model, None, gpu, 8, 1, 0)
    with pytest.raises(InputError, match="ep must divide"):
        moe_layer_limits(model, None, gpu, 8, 3, 1)
    with pytest.raises(InputError, match="m must be"):
        gemm_limit(gpu, 0, 1, 1, "bf16")
    with pytest.raises(InputError, match="No weight format"):
        gemm_limit(gpu, 1, 1, 1, "fp3")


def test_a_dense_model_has_no_expert_gemms(tmp_path: object) -> None:
    from pathlib import Path

    dense = {
        "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 1,
        "intermediate_size": 128, "vocab_size": 100, "torch_dtype": "bfloat16",
    }  # fmt: skip
    folder = Path(str(tmp_path))
    (folder / "config.json").write_text(__import__("json").dumps(dense))
    with pytest.raises(InputError, match="no routed experts"):
        moe_layer_limits(load_model(folder), None, resolve_gpu("b200"), 1, 1, 1)
