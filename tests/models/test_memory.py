"""Bytes of weights and KV cache on one GPU, against what people measured."""

from __future__ import annotations

import pytest

from tilewright.errors import InputError
from tilewright.hardware import resolve_gpu
from tilewright.models import Parallel, disk_bytes, gpu_memory, kv_cache, resolve_model, weight_bytes
from tilewright.models.formats import FORMATS, weight_format
from tilewright.models.stages import stage_bounds

GIB = 1 << 30


def test_kv_bytes_of_glm5_reproduce_what_sglang_logs() -> None:
    # 78 x (576 x 2 + 132); 314,304 tokens of it are the 29.32 GiB of the log (measurements: glm5_8xpro6000_memory).
    cache = kv_cache(resolve_model("GLM-5"), "bf16", parallel_ranks=8)
    assert cache.per_token == 78 * (576 * 2 + 132) == 100_152
    assert cache.per_token * 314_304 / GIB == pytest.approx(29.32, abs=0.01)
    assert cache.replicated


def test_kv_bytes_of_glm51_reproduce_what_vllm_logs() -> None:
    # 79 x (656 + 132) over the main layers and the prediction layer (measurements: glm51_vllm_kv_bytes).
    cache = kv_cache(resolve_model("GLM-5.1"), "fp8_ds_mla", parallel_ranks=8, mtp=True)
    assert cache.per_token == 79 * (656 + 132) == 62_252
    assert pytest.approx(cache.per_token, rel=2e-4) == 19.12 * GIB / 329_792


def test_a_latent_cache_is_replicated_over_tensor_parallel_ranks_and_divided_by_dcp() -> None:
    model = resolve_model("GLM-5")
    assert kv_cache(model, "bf16", parallel_ranks=1).per_token == kv_cache(model, "bf16", parallel_ranks=8).per_token
    assert kv_cache(model, "bf16", parallel_ranks=8, dcp=4).per_token == 100_152 // 4


def test_kv_heads_are_shared_out_and_repeated_when_there_are_too_few() -> None:
    model = resolve_model("Qwen3-235B-A22B")
    sizes = [kv_cache(model, "bf16", parallel_ranks=ranks).per_token for ranks in (1, 2, 4, 8)]
    assert sizes[0] == 94 * 2 * 4 * 128 * 2
    assert sizes == [sizes[0], sizes[0] // 2, sizes[0] // 4, sizes[0] // 4]


def test_sliding_windows_stop_growing_and_states_do_not_grow() -> None:
    cache = kv_cache(resolve_model("gpt-oss-120b"), "bf16")
    assert cache.window == 128
    assert cache.growing_per_token * 2 == cache.per_token
    assert cache.bytes_for(1000) == cache.per_token * 128 + cache.growing_per_token * 872
    assert cache.tokens_in(cache.bytes_for(1000)) == 1000
    hybrid = kv_cache(resolve_model("Qwen3-Next-80B-A3B"), "bf16")
    assert hybrid.layers == 12
    assert hybrid.fixed > 0


def test_glm52_nvfp4_has_the_size_that_its_users_report() -> None:
    # cases2 5.18: 433 GB in all, 56 GB a GPU at TP8, TP4 does not fit (GB there are GiB).
    model, gpu = resolve_model("GLM-5.2-NVFP4"), resolve_gpu("rtx-pro-6000-server")
    assert disk_bytes(model) / GIB == pytest.approx(433, abs=0.5)
    assert weight_bytes(model, parallel=Parallel(tp=8), mtp=True).runtime / GIB == pytest.approx(56, rel=0.02)
    assert gpu_memory(model, gpu, parallel=Parallel(tp=8)).fits
    refused = gpu_memory(model, gpu, parallel=Parallel(tp=4))
    assert not refused.fits
    assert refused.tokens == 0
    assert refused.weights.runtime > gpu.value("memory_bytes")


@pytest.mark.parametrize("name", ["GLM-5-NVFP4", "GLM-5.1-NVFP4"])
def test_the_other_glm5_checkpoints_are_of_that_size_and_do_not_fit_on_four(name: str) -> None:
    model, gpu = resolve_model(name), resolve_gpu("rtx-pro-6000-server")
    assert disk_bytes(model) / GIB == pytest.approx(433, rel=0.015)
    assert weight_bytes(model, parallel=Parallel(tp=8)).runtime / GIB == pytest.approx(56, rel=0.03)
    assert not gpu_memory(model, gpu, parallel=Parallel(tp=4), fraction=1.0).fits


def test_glm5_weights_are_near_what_sglang_loaded() -> None:
    # measurements: glm5_8xpro6000_memory, 57.06 GiB a GPU with everything but routed experts in BF16.
    held = weight_bytes(resolve_model("GLM-5-NVFP4-experts-only"), parallel=Parallel(tp=8))
    assert held.runtime / GIB == pytest.approx(57.06, rel=0.035)


def test_kimi_k25_nvfp4_on_b200_holds_17_to_29_sequences_and_not_96() -> None:
    # cases2 5.1: attention and head stay BF16, so 152 GiB a GPU and not 147; 8,192 in and 1,024 out.
    model = resolve_model("Kimi-K2.5-NVFP4")
    parallel = Parallel(tp=4, ep=4, attention_dp=4, replicate_dense=True)
    held = weight_bytes(model, parallel=parallel)
    assert held.runtime / GIB == pytest.approx(152, rel=0.01)
    memory = gpu_memory(model, resolve_gpu("b200"), parallel=parallel, fraction=0.92, kv_layout="bf16", total=179 * GIB)
    assert 17 <= memory.sequences(8192 + 1024) <= 29


def test_a_byte_model_takes_the_checkpoint_not_the_model() -> None:
    sizes = {name: disk_bytes(resolve_model(name)) for name in ("GLM-5-NVFP4", "GLM-5-FP8", "GLM-5")}
    assert sizes["GLM-5-NVFP4"] < sizes["GLM-5-FP8"] < sizes["GLM-5"]


def test_nvfp4_takes_half_a_byte_and_a_sixteenth() -> None:
    assert FORMATS["nvfp4"].bytes_per_parameter == 0.5625
    assert weight_format("nvfp4").disk_bytes(4096, 6144) == 4096 * 6144 // 2 + 4096 * 384 + 8


def test_scales_are_padded_to_128_by_4_where_kernels_read_them_so() -> None:
    nvfp4 = weight_format("nvfp4")
    assert nvfp4.runtime_bytes(512, 6144) == nvfp4.disk_bytes(512, 6144)
    assert nvfp4.runtime_bytes(300, 176) - nvfp4.disk_bytes(300, 176) == 384 * 12 - 300 * 11
    model = resolve_model("gpt-oss-120b")  # 2,880 = 90 scale columns, padded to 92 (cases: C66)
    held = weight_bytes(model)
    # w13: 5,760 rows and w2: 2,880 rows of 90 columns; 36 layers of 128 experts.
    assert held.padding == 36 * 128 * ((5760 * 92 + 2944 * 92) - (5760 * 90 + 2880 * 90))


def test_shards_add_up_to_the_whole_where_nothing_is_replicated() -> None:
    model = resolve_model("Qwen3-235B-A22B")
    one, eight = weight_bytes(model).components, weight_bytes(model, parallel=Parallel(tp=8)).components
    for name in ("experts_w13", "experts_w2", "embedding", "lm_head"):
        assert eight[name] * 8 == one[name]
    assert eight["router"] == one["router"]
    assert eight["attention"] > one["attention"] / 8, "four KV heads are repeated on eight ranks"


def test_expert_parallelism_moves_whole_experts_and_keeps_the_bytes() -> None:
    model = resolve_model("GLM-5-NVFP4")
    sliced = weight_bytes(model, parallel=Parallel(tp=8))
    dealt = weight_bytes(model, parallel=Parallel(tp=8, ep=8))
    # Each expert's own scalars are kept once instead of on each rank: the only difference.
    assert dealt.components["experts_w13"] < sliced.components["experts_w13"]
    assert dealt.components["experts_w13"] == pytest.approx(sliced.components["experts_w13"], rel=1e-4)


def test_pipeline_stages_share_the_layers_and_the_fullest_is_reported() -> None:
    assert stage_bounds(78, 4) == [19, 39, 59, 78]
    assert stage_bounds(10, 4) == [2, 5, 8, 10]
    model = resolve_model("GLM-5-NVFP4")
    held = weight_bytes(model, parallel=Parallel(tp=4, pp=2))
    assert len(held.stages) == 2
    assert held.runtime == max(held.stages)
    whole = weight_bytes(model, parallel=Parallel(tp=4)).runtime
    assert sum(held.stages) == whole


def test_what_is_unknown_or_out_of_range_is_refused_by_name() -> None:
    model = resolve_model("GLM-5")
    with pytest.raises(InputError, match="ep must divide tp"):
        Parallel(tp=8, ep=3)
    with pytest.raises(InputError, match="dcp must divide"):
        Parallel(tp=8, attention_dp=8, dcp=2)
    with pytest.raises(InputError, match="tp must be a whole number"):
        Parallel(tp=0)
    with pytest.raises(InputError, match="No cache layout"):
        kv_cache(model, "fp7")
    with pytest.raises(InputError, match="latent"):
        kv_cache(model, "nvfp4")
    with pytest.raises(InputError, match="is unknown"):
        gpu_memory(model, resolve_gpu("thor"))
    with pytest.raises(InputError, match="fraction"):
        gpu_memory(model, resolve_gpu("b200"), fraction=1.5)
    with pytest.raises(InputError, match="pp must not exceed"):
        weight_bytes(model, parallel=Parallel(pp=79))


def test_a_cache_that_is_not_known_is_said_to_be_unknown() -> None:
    memory = gpu_memory(resolve_model("DeepSeek-V4-Flash"), resolve_gpu("b200"), parallel=Parallel(tp=2))
    assert memory.fits
    assert memory.kv is None
    assert "unknown" in memory.note
