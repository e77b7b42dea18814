"""What each rule says where its case shows, and that it is silent where it does not. No library tree is needed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.errors import InputError
from tilewright.plan.evidence import entries
from tilewright.plan.finding import Plan
from tilewright.plan.make import make_plan, make_target
from tilewright.plan.registry import rules
from tilewright.plan.rules.all_reduce import nccl_us
from tilewright.plan.rules.fp8_moe import tuned_file
from tilewright.plan.target import article

GLM: dict[str, Any] = {"model": "GLM-5-NVFP4", "gpu": "rtx-pro-6000-server", "gpus": 8, "engine": "sglang"}


def plan_of(**change: Any) -> Plan:
    return make_plan(make_target(**{**GLM, **change}))


def ids(plan: Plan) -> set[str]:
    return {finding.id for finding in plan.findings}


def finding(plan: Plan, name: str) -> Any:
    return next(item for item in plan.findings if item.id == name)


def ideas(plan: Plan) -> str:
    return "\n".join(f"{item.idea}: {item.why}" for item in plan.rejected)


def gpu(index: int = 0, **more: Any) -> dict[str, Any]:
    base = {
        "index": index, "power_draw_w": 235, "power_limit_w": 600, "clock_sm_mhz": 2400, "clock_sm_max_mhz": 2430,
        "throttle_reasons": [], "utilization_gpu_pct": 97, "pcie_gen": 5, "pcie_gen_max": 5, "pcie_width": 16,
        "pcie_width_max": 16,
    }  # fmt: skip
    return {**base, **more}


@pytest.fixture
def observe(tmp_path: Path) -> Any:
    """`observe(gpus=..., engine=..., ...)` writes a snapshot of eight GPUs and answers its path."""

    def write(one: dict[str, Any] | None = None, **more: Any) -> Path:
        gpus = [gpu(i, **(one or {})) for i in range(8)]
        path = tmp_path / "snap.json"
        path.write_text(json.dumps({"schema": "tilewright/observe/1", "gpus": gpus, **more}), encoding="utf-8")
        return path

    return write


MATRIX = [
    ("GLM-5-NVFP4", "rtx-pro-6000-server", 8, "sglang"),
    ("GLM-5-NVFP4", "rtx-5090", 8, "vllm"),
    ("GLM-5-NVFP4", "h200", 8, "vllm"),
    ("GLM-5-NVFP4", "gb10", 4, "sglang"),
    ("GLM-5.1", "b200", 8, "trtllm"),
    ("nvidia/DeepSeek-V3.1-NVFP4", "b300", 8, "sglang"),
    ("Qwen/Qwen3-235B-A22B-FP8", "rtx-pro-6000-server", 8, "sglang"),
    ("gpt-oss-120b", "rtx-pro-6000-workstation", 1, "vllm"),
    ("DeepSeek-V4-Flash", "l40s", 8, "vllm"),
    ("Mixtral-8x7B", "rtx-4090", 4, "vllm"),
    ("Qwen3-Next-80B-A3B", "h100-sxm", 4, "sglang"),
    ("Nemotron-3-Super-120B-A12B", "rtx-pro-6000-max-q", 2, "vllm"),
]


@pytest.mark.parametrize(("model", "name", "count", "engine"), MATRIX, ids=lambda value: str(value))
def test_every_finding_is_complete_and_every_rejection_has_evidence(
    model: str, name: str, count: int, engine: str
) -> None:
    plan = plan_of(model=model, gpu=name, gpus=count, engine=engine)
    assert [item.rank for item in plan.findings] == list(range(1, len(plan.findings) + 1))
    assert len(ids(plan)) == len(plan.findings)
    for item in plan.findings:
        assert item.title, item.id
        assert item.cause, item.id
        assert item.fix.text, item.id
        assert item.confirm, item.id
        assert item.undo, item.id
        assert item.evidence, item.id
        assert all(one.text and one.source for one in item.evidence), item.id
        assert 0 < item.confidence <= 1, item.id
        assert item.effort_h > 0, item.id
        gain = item.gain
        if gain.low is not None and gain.expected is not None and gain.high is not None:
            assert gain.low <= gain.expected <= gain.high, item.id
    for item in plan.rejected:
        assert item.why, item.idea
        assert item.evidence, item.idea


def test_every_rule_has_an_id_of_its_own_and_says_what_it_looks_at() -> None:
    found = rules()
    assert len({rule.id for rule in found}) == len(found) > 25
    assert all(rule.looks_at for rule in found)


def test_every_published_entry_is_used_by_a_rule() -> None:
    folder = Path(__file__).parents[2] / "src" / "tilewright" / "plan"
    source = "\n".join(path.read_text(encoding="utf-8") for path in folder.rglob("*.py"))
    assert [name for name in entries() if f'"{name}"' not in source] == []


def test_memory_of_the_driving_case_is_what_its_checkpoint_stores() -> None:
    memory = plan_of().baseline["memory"]
    assert memory["kv_bytes_per_token"] == 78 * (576 + 132)
    assert memory["kv_layout"] == "fp8"
    assert memory["kv_replicated"] is True
    parts = {row["part"]: row for row in memory["parts"]}
    assert parts["shared experts"]["format"] == "nvfp4"
    assert parts["attention"]["format"] == "bf16"
    assert sum(row["bytes"] for row in memory["parts"]) == memory["weights_bytes"]
    assert memory["left_bytes"] > 20 << 30


def test_the_published_bf16_cache_of_glm_5_comes_out_to_the_byte() -> None:
    """Case C22: 100,152 bytes a token."""
    assert plan_of(model="GLM-5", gpu="b300", engine="vllm").baseline["memory"]["kv_bytes_per_token"] == 100152


@pytest.mark.parametrize("name", ["rtx-5090", "rtx-5080"])
def test_a_model_that_does_not_fit_is_the_first_finding_with_a_way_out(name: str) -> None:
    plan = plan_of(gpu=name)
    first = plan.findings[0]
    assert first.id == "does_not_fit"
    assert "GPUs (TP" in first.fix.text or "No layout" in first.fix.text
    assert plan.baseline["memory"]["left_bytes"] < 0


def test_the_unquantised_model_is_sent_to_a_checkpoint_that_fits() -> None:
    first = plan_of(model="GLM-5").findings[0]
    assert first.id == "does_not_fit"
    assert "nvidia/GLM-5-NVFP4 in the same layout leaves" in first.fix.text


@pytest.mark.parametrize(("tp", "legal"), [(8, False), (4, True)])
def test_block_scales_of_128_decide_which_tp_is_legal(tp: int, legal: bool) -> None:
    """Case C63: 1536 / 8 = 192 is no multiple of 128."""
    plan = plan_of(model="Qwen/Qwen3-235B-A22B-FP8", gpus=tp)
    assert ("layout_does_not_divide" in ids(plan)) is not legal
    assert plan.baseline["legal_tp"] == [1, 2, 4]
    if not legal:
        item = finding(plan, "layout_does_not_divide")
        assert item.rank == 1
        assert "192 is no multiple of" in item.evidence[0].text


def test_moe_limits_put_16_to_64_tokens_an_expert_in_the_memory_bound_part() -> None:
    moe = plan_of().baseline["moe_gemms"]
    assert (moe["w13"], moe["w2"]) == ({"n": 512, "k": 6144}, {"n": 6144, "k": 256})
    assert [row["tokens"] for row in moe["rows"]] == [2**i for i in range(13)]
    first, last = moe["band"]
    assert (first["tokens"], last["tokens"]) == (512, 2048)
    assert first["tile_used_pct"] == {"128": 12.5, "64": 25.0, "32": 50.0}
    assert first["w13"]["bound"] == "memory"
    assert first["w13"]["peak_share_pct"] == pytest.approx(4.8, abs=0.1)
    # 256 experts x (512 x 6144 x 0.5625) bytes are read whatever the tokens are.
    assert first["w13"]["mb"] == pytest.approx(256 * 512 * 6144 * 0.5625 / 1e6, rel=0.03)
    published = {row["tokens"]: row["published_layer_us"] for row in moe["rows"]}
    assert published[1] == 71.3
    assert all(row["limit_us"] < row["published_layer_us"] for row in moe["rows"])


def test_on_an_h200_nvfp4_has_no_tensor_cores_and_no_sm120_tactic_is_spoken_of() -> None:
    plan = plan_of(gpu="h200", engine="vllm")
    assert plan.baseline["hardware"]["native_fp4"] is False
    assert "w4a16_backend" in ids(plan)
    assert "zai-org/GLM-5-FP8" in finding(plan, "fp8_checkpoint").title
    assert "tiles" not in plan.baseline
    assert plan.baseline["moe_gemms"]["peak_tflops"] == 989
    assert "SM120 FP4 tactics" in ideas(plan)
    assert {"pcie_all_reduce", "weight_only_decode"}.isdisjoint(ids(plan))


def test_on_a_b200_the_limit_is_another_and_the_reports_about_sm120_do_not_apply() -> None:
    plan = plan_of(model="nvidia/DeepSeek-V3.1-NVFP4", gpu="b200")
    assert plan.baseline["hardware"]["smem_per_block_bytes"] == 232448
    assert "232,448 bytes instead of 101,376" in ideas(plan)


def test_a_bf16_model_has_no_fp4_finding() -> None:
    plan = plan_of(model="Mixtral-8x7B", gpus=4)
    assert {"weight_only_decode", "tactics_overflow", "mxfp4_backend"}.isdisjoint(ids(plan))
    assert "nvfp4" not in ideas(plan).lower()


def test_a_dense_model_gets_mlp_limits_instead_of_moe_ones(tmp_path: Path) -> None:
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 8192, "intermediate_size": 28672,
        "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256,
        "head_dim": 128, "torch_dtype": "bfloat16",
    }  # fmt: skip
    folder = tmp_path / "my llama"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    plan = plan_of(model=str(folder), gpu="h100-sxm", engine="vllm")
    assert "moe_gemms" not in plan.baseline
    rows = plan.baseline["mlp_gemms"]["rows"]
    assert rows[0]["down"]["bound"] == "memory"
    assert rows[-1]["down"]["bound"] == "compute"
    commands = [line for item in plan.findings for line in item.fix.commands if "vllm serve" in line]
    assert all("'" in line for line in commands)  # a path with a blank is quoted


def test_mxfp4_on_sm120_says_which_tiles_are_legal() -> None:
    """MXFP8 x MXFP4 grouped, bf16: 82,944 and 92,160 bytes; larger tiles get no two stages."""
    plan = plan_of(model="gpt-oss-120b", gpus=1, engine="vllm")
    tiles = {row["tile"]: row for row in plan.baseline["mx_tiles"]}
    assert (tiles["128x128x128"]["bytes"], tiles["128x128x128"]["stages"]) == (82944, 2)
    assert (tiles["128x64x128"]["bytes"], tiles["128x64x128"]["stages"]) == (92160, 3)
    assert {tiles[name]["status"] for name in ("128x256x128", "256x128x128", "128x128x256")} == {"illegal"}
    assert "82,944" in finding(plan, "mxfp4_backend").evidence[0].text


@pytest.mark.parametrize(("version", "there"), [(None, True), ("0.5.9", True), ("0.5.23", False)])
def test_the_default_triton_tile_overflows_until_the_engine_knows_small_cards(version: str | None, there: bool) -> None:
    """Cases C06, C07: 147,456 of 101,376; three stages fit."""
    plan = plan_of(model="Qwen/Qwen3-235B-A22B-FP8", gpus=4, engine_version=version)
    assert ("triton_default_tile" in ids(plan)) is there
    if there:
        text = finding(plan, "triton_default_tile").evidence[0].text
        assert "147,456" in text
        assert "98,304" in text


@pytest.mark.parametrize(
    ("engine", "name"),
    [
        ("sglang", "E=128,N=384,device_name=NVIDIA_GB10,dtype=fp8_w8a8,block_shape=[128, 128].json"),
        ("vllm", "E=128,N=384,device_name=NVIDIA_GB10,dtype=fp8_w8a8,block_shape=[128,128].json"),
    ],
)
def test_the_tuned_file_has_the_name_that_each_engine_looks_for(engine: str, name: str) -> None:
    target = make_target(model="Qwen/Qwen3-235B-A22B-FP8", gpu="gb10", gpus=4, engine=engine)
    assert tuned_file(target) == name


@pytest.mark.parametrize(
    ("version", "confident"), [("0.28.0", True), ("0.29.0", True), ("0.30.0", None), ("0.33.0", None), (None, False)]
)
def test_the_wrong_dense_kernel_is_named_in_its_window_only(version: str | None, confident: bool | None) -> None:
    """Case 5.8."""
    plan = plan_of(engine="vllm", engine_version=version)
    if confident is None:
        assert "dense_w4a16_kernel" not in ids(plan)
        return
    item = finding(plan, "dense_w4a16_kernel")
    assert (item.confidence > 0.5) is confident
    assert item.fix.commands == ["export VLLM_DISABLED_KERNELS=FlashInferCuteDslNvFp4W4A16LinearKernel"]


def test_a_checkpoint_with_bf16_dense_layers_has_no_dense_nvfp4_kernel() -> None:
    plan = plan_of(model="nvidia/GLM-5.1-NVFP4", engine="vllm", engine_version="0.28.0")
    assert "dense_w4a16_kernel" not in ids(plan)


@pytest.mark.parametrize(
    ("model", "there"), [("GLM-5-NVFP4", False), ("nvidia/GLM-5.1-NVFP4", True), ("nvidia/GLM-5.2-NVFP4", True)]
)
def test_shared_experts_must_not_be_fused_where_their_format_differs(model: str, there: bool) -> None:
    """Case 5.18, and contradiction 11 of the notes: it depends on the checkpoint, not on the model."""
    plan = plan_of(model=model)
    assert ("shared_experts_fusion" in ids(plan)) is there
    if there:
        assert "--disable-shared-experts-fusion" in finding(plan, "shared_experts_fusion").fix.commands[0]


def test_pipeline_stages_are_rejected_and_are_a_finding_when_asked_for() -> None:
    plan = plan_of()
    assert "TP4 with 2 pipeline stages: About 2x slower" in ideas(plan)
    asked = plan_of(tp=4, pp=2)
    item = finding(asked, "pipeline_stages")
    assert "--tp-size 8" in item.fix.commands[0]
    assert item.gain.expected == pytest.approx(100, abs=15)
    assert asked.target["pp"] == 2


def test_expert_parallelism_is_rejected_on_pcie_and_a_finding_when_on() -> None:
    assert "Expert parallelism (EP8)" in ideas(plan_of())
    assert "expert_parallel" in ids(plan_of(ep=8))
    assert "Expert parallelism" not in ideas(plan_of(gpu="b200"))


@pytest.mark.parametrize(
    ("engine", "version", "there"),
    [("sglang", "0.5.9", True), ("sglang", None, True), ("sglang", "0.6.0", False), ("vllm", "0.5.9", False)],
)
def test_continuous_decode_steps_do_nothing_in_sglang_0_5(engine: str, version: str | None, there: bool) -> None:
    """Case C75."""
    assert ("--num-continuous-decode-steps" in ideas(plan_of(engine=engine, engine_version=version))) is there


def test_b12x_and_cutlass_cross_between_8_and_16_requests() -> None:
    plan = plan_of()
    assert "It wins up to 8 requests and loses 26 % at 16." in ideas(plan)
    assert "b12x" in finding(plan_of(engine="vllm"), "moe_backend_b12x").fix.commands[0]


def test_speculation_comes_from_the_published_pair_of_tables() -> None:
    gain = finding(plan_of(), "speculative_decoding").gain
    assert gain.high == pytest.approx((93.6 / 50.4 - 1) * 100, abs=0.1)
    elsewhere = finding(plan_of(gpu="h200"), "speculative_decoding")
    assert elsewhere.gain.basis == "modelled", "nobody published both for that GPU"
    assert "speculative_decoding" not in ids(plan_of(gpus=4))


def test_all_reduces_are_counted_and_timed_by_the_published_table() -> None:
    fact = plan_of().baseline["all_reduce"]
    assert fact["per_step"] == 2 * 78
    assert fact["bytes_at_1"] == 6144 * 2
    assert fact["us_each"] == nccl_us(8, 12288) == 27.0
    assert fact["ms_per_step"] == pytest.approx(156 * 27.0 / 1000, abs=0.01)
    assert nccl_us(3, 4096) is None
    assert nccl_us(8, 1 << 40) is None


def test_dcp_is_no_way_to_go_faster() -> None:
    """Case C90."""
    assert "Decode context parallelism" in ideas(plan_of(engine="vllm"))


def test_sm103_is_not_sm100() -> None:
    """Case C61."""
    assert "sm103_as_sm100" in ids(plan_of(model="nvidia/DeepSeek-V3.1-NVFP4", gpu="b300"))
    assert "sm103_as_sm100" not in ids(plan_of(model="nvidia/DeepSeek-V3.1-NVFP4", gpu="b200"))


def test_a_gb10_may_lack_its_own_code() -> None:
    """Cases 5.9 and 5.17."""
    assert "no_sm121_code" in ids(plan_of(gpu="gb10", engine="vllm"))
    assert any("DSA" in line for line in plan_of(gpu="gb10").baseline["remarks"])


def test_kv_in_fp8_doubles_what_bf16_holds() -> None:
    plan = plan_of(model="gpt-oss-120b", gpus=1, engine="vllm")
    assert finding(plan, "kv_fp8").gain.expected == pytest.approx(100, abs=1)
    assert "kv_fp8" not in ids(plan_of())  # the checkpoint asks for FP8 already


# --- snapshots


def test_the_driving_case_is_not_throttled(observe: Any) -> None:
    plan = plan_of(observe=observe())
    assert "nothing throttles them" in ideas(plan)
    assert {"throttled", "spin_wait", "starved", "pcie_link", "power_cap"}.isdisjoint(ids(plan))
    assert plan.baseline["snapshot"]["power_share_pct"] == pytest.approx(39.2, abs=0.1)


def test_full_utilisation_at_idle_power_is_a_wait_in_a_collective(observe: Any) -> None:
    """Cases C73 (140 of 600 W) and 5.14 (85 W)."""
    for watts in (140, 85):
        plan = plan_of(observe=observe({"power_draw_w": watts, "utilization_gpu_pct": 100}))
        item = finding(plan, "spin_wait")
        assert any("all_reduce_perf" in line for line in item.fix.commands)
    assert "spin_wait" not in ids(plan_of(observe=observe({"power_draw_w": 300, "utilization_gpu_pct": 100})))


def test_low_power_at_low_clocks_is_waiting_for_work_not_throttling(observe: Any) -> None:
    plan = plan_of(observe=observe({"power_draw_w": 90, "clock_sm_mhz": 400, "utilization_gpu_pct": 3}))
    item = finding(plan, "starved")
    assert "not throttling" in item.cause
    assert "throttled" not in ids(plan)


def test_real_throttling_names_the_gpus(observe: Any, tmp_path: Path) -> None:
    path = observe()
    snapshot = json.loads(path.read_text(encoding="utf-8"))
    snapshot["gpus"][3] |= {"throttle_reasons": ["hw_thermal_slowdown"], "clock_sm_mhz": 1200}
    path.write_text(json.dumps(snapshot), encoding="utf-8")
    item = finding(plan_of(observe=path), "throttled")
    assert item.title == "GPU 3 throttled at 1200 MHz, the others at 2400"
    assert item.gain.high == pytest.approx(100)


def test_a_fault_of_the_machine_is_mended_before_anything_is_tuned(observe: Any) -> None:
    """However large the gain of speculation: while GPUs spin or throttle no other measurement means anything."""
    spinning = plan_of(observe=observe({"power_draw_w": 100, "utilization_gpu_pct": 100}))
    assert spinning.findings[0].id == "spin_wait"
    hot = plan_of(observe=observe({"throttle_reasons": ["hw_thermal_slowdown"]}))
    assert hot.findings[0].id == "throttled"
    assert any("throttled" in line for line in hot.baseline["summary"])


def test_a_part_at_its_highest_limit_is_said_to_be_there(observe: Any) -> None:
    full = {"power_draw_w": 299, "power_limit_w": 300, "power_limit_max_w": 300}
    plan = plan_of(observe=observe(full, metrics={"running": 64}))
    assert "power_cap" not in ids(plan)
    assert any("299 of 300 W, the highest limit of this part" in line for line in plan.baseline["summary"])


def test_no_source_is_a_number_of_our_own_lists() -> None:
    """A reader has no list of ours to look `case C51` up in."""
    for entry in entries().values():
        assert not re.search(r"\bcases? [CW]?\d|project issue|DESIGN", str(entry)), entry


def test_a_power_cap_costs_nothing_at_few_requests(observe: Any) -> None:
    capped = {"power_draw_w": 298, "power_limit_w": 300, "power_limit_max_w": 600, "throttle_reasons": ["sw_power_cap"]}
    few = plan_of(observe=observe(capped, metrics={"running": 2}))
    assert "power_cap" not in ids(few)
    assert "Raise the power limit from 300 to 600 W" in ideas(few)
    many = plan_of(observe=observe(capped, metrics={"running": 64}))
    assert finding(many, "power_cap").fix.commands == ["sudo nvidia-smi -pl 600"]
    loose = plan_of(observe=observe({"power_draw_w": 200, "power_limit_w": 300, "power_limit_max_w": 600}))
    assert "do not reach the limit" in ideas(loose)


@pytest.mark.parametrize(
    ("change", "title"),
    [
        ({"pcie_width": 8}, "PCIe link at Gen5 x8, could be Gen5 x16"),
        ({"pcie_gen": 4}, "PCIe link at Gen4 x16, could be Gen5 x16"),
        ({"pcie_gen": 1, "utilization_gpu_pct": 0, "power_draw_w": 30}, None),
        ({}, None),
    ],
)
def test_a_narrow_link_counts_always_and_a_slow_one_under_load(
    observe: Any, change: dict[str, Any], title: str | None
) -> None:
    plan = plan_of(observe=observe(change))
    if title is None:
        assert "pcie_link" not in ids(plan)
    else:
        assert title in finding(plan, "pcie_link").title


def test_acs_with_a_translating_iommu_comes_first(observe: Any) -> None:
    """Cases 5.12 and 5.29: the capability is no evidence."""
    pairs = [{"source": 0, "target": 1, "capable": True}]
    plan = plan_of(observe=observe(host={"iommu": "translated", "acs_redirect": True}, p2p=pairs))
    assert plan.findings[0].id == "peer_copies_lost"
    assert "peer_copies_lost" not in ids(plan_of(observe=observe(host={"iommu": "passthrough", "acs_redirect": True})))
    lost = plan_of(observe=observe(p2p=[{"source": 0, "target": 1, "capable": True, "works": False}]))
    assert lost.findings[0].id == "peer_copies_lost"
    off = plan_of(observe=observe(p2p=[{"source": 2, "target": 1, "capable": False}]))
    assert "p2p_off" in ids(off)


def test_requests_that_wait_while_memory_is_free_lift_the_cap(observe: Any) -> None:
    engine = {
        "name": "sglang",
        "version": "0.5.9",
        "flags": {"max-running-requests": 8, "num_continuous_decode_steps": 4},
    }
    metrics = {"running": 8, "waiting": 12, "kv_usage": 0.2}
    plan = plan_of(observe=observe(engine=engine, metrics=metrics))
    item = finding(plan, "request_cap")
    assert item.fix.commands == ["--max-running-requests 20"]
    assert item.undo == "--max-running-requests 8"
    assert "Your server sets it to 4" in ideas(plan)
    assert plan.target["engine_version"] == "0.5.9"
    full = plan_of(observe=observe(engine=engine, metrics={**metrics, "kv_usage": 0.95}))
    assert "request_cap" not in ids(full)


def test_what_the_server_already_does_is_not_proposed(observe: Any) -> None:
    engine = {
        "name": "sglang",
        "flags": {"speculative-algorithm": "EAGLE", "mem-fraction-static": 0.92},
        "env": {"SGLANG_ENABLE_PCIE_IPC_ALLREDUCE": "1"},
    }
    plan = plan_of(observe=observe(engine=engine))
    assert {"speculative_decoding", "pcie_all_reduce", "decode_graph_batch"}.isdisjoint(ids(plan))
    assert plan.baseline["memory"]["share"] == 0.92


def test_a_flag_that_does_not_serve_this_gpu_is_to_be_removed(observe: Any) -> None:
    engine = {"name": "sglang", "flags": {"enable-flashinfer-allreduce-fusion": True}}
    assert "reduce_fusion_off" in ids(plan_of(observe=observe(engine=engine)))


def test_a_batch_above_the_largest_graph_is_seen(observe: Any) -> None:
    """Case 5.21."""
    engine = {"name": "sglang", "flags": {"cuda-graph-max-bs": 24}}
    plan = plan_of(observe=observe(engine=engine, metrics={"running": 32}))
    assert "the largest captured graph holds 24" in finding(plan, "graph_batch").title


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"gpus": 16}, "shows 8 GPUs and --gpus says 16"),
        ({"engine": "vllm"}, "shows SGLang"),
    ],
)
def test_a_snapshot_of_another_machine_is_refused(observe: Any, change: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        plan_of(observe=observe(engine={"name": "sglang"}), **change)


def test_a_snapshot_of_another_gpu_is_refused(observe: Any) -> None:
    with pytest.raises(InputError, match="pass --gpu rtx-5090"):
        plan_of(observe=observe({"name": "NVIDIA GeForce RTX 5090"}))
    plan_of(observe=observe({"name": "NVIDIA RTX PRO 6000 Blackwell Server Edition"}))


@settings(max_examples=60, deadline=None)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "power_draw_w": st.floats(0, 700),
            "power_limit_w": st.sampled_from([0, 150, 300, 600]),
            "power_limit_max_w": st.sampled_from([0, 300, 600]),
            "clock_sm_mhz": st.integers(0, 3000),
            "clock_sm_max_mhz": st.sampled_from([0, 2430]),
            "utilization_gpu_pct": st.floats(0, 100),
            "throttle_reasons": st.lists(st.sampled_from(["gpu_idle", "sw_power_cap", "hw_slowdown", "sync_boost"])),
            "pcie_gen": st.integers(1, 6),
            "pcie_gen_max": st.integers(1, 6),
            "pcie_width": st.sampled_from([1, 4, 8, 16]),
            "pcie_width_max": st.sampled_from([8, 16]),
        },
    ),
    st.fixed_dictionaries(
        {},
        optional={
            "running": st.floats(0, 1000),
            "waiting": st.floats(0, 1000),
            "kv_usage": st.floats(0, 1),
        },
    ),
)
def test_any_legal_snapshot_gives_a_whole_plan(
    tmp_path_factory: Any, one: dict[str, Any], metrics: dict[str, Any]
) -> None:
    from tilewright.report.plan_text import markdown

    path = tmp_path_factory.mktemp("snap") / "s.json"
    gpus = [{"index": i, **one} for i in range(8)]
    path.write_text(json.dumps({"schema": "tilewright/observe/1", "gpus": gpus, "metrics": metrics}), encoding="utf-8")
    assert "## The machine now" in markdown(plan_of(observe=path))


# --- logs


def test_a_log_is_counted_and_quoted(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text(
        "ok\nMoE grouped GEMM requires 102400 bytes shared memory but device supports 101376\n" * 2, encoding="utf-8"
    )
    log = plan_of(log=path).baseline["log"]
    assert [(hit["id"], hit["count"], hit["first_line"]) for hit in log] == [("smem_required", 2, 2)]


def test_a_triton_overflow_in_the_log_stops_the_server_and_comes_first(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text("OutOfResources: shared memory, Required: 147456, Hardware limit: 101376\n", encoding="utf-8")
    plan = plan_of(model="Qwen/Qwen3-235B-A22B-FP8", gpus=4, log=path)
    assert plan.findings[0].id == "triton_default_tile"


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("RTX PRO 6000", "an"),
        ("GeForce RTX 5090", "a"),
        ("H200 SXM 141 GB", "an"),
        ("B200", "a"),
        ("A100", "an"),
        ("L4", "an"),
        ("GB10", "a"),
    ],
)
def test_articles(name: str, word: str) -> None:
    assert article(name) == word
