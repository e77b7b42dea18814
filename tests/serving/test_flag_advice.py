"""Advice on server flags: only what the version has, values from cache and load, a line that its parser accepts."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.errors import InputError
from tilewright.libraries.engine_flags import FlagSet, check_launch, snapshot, snapshot_versions
from tilewright.serving.advice import Advice, AdviceQuestion, Suggestion, advise

VERSIONS = [(engine, version) for engine in ("sglang", "vllm") for version in snapshot_versions(engine)]
GLM: dict[str, Any] = {"model": "GLM-5-NVFP4", "gpu": "rtx-pro-6000-server", "gpus": 8}
SERVERS: list[dict[str, Any]] = [
    GLM | {"tp": 8},
    GLM | {"tp": 8, "attention_dp": 8, "concurrency": 100},
    GLM | {"goal": "latency"},
    {"model": "DeepSeek-R1", "gpu": "h200", "gpus": 8, "concurrency": 256},
    {"model": "gpt-oss-120b", "gpu": "rtx-5090", "gpus": 4, "concurrency": 600, "context": 2048},
    {"model": "MiniMax-M2", "gpu": "rtx-pro-6000-workstation", "gpus": 4, "kv_dtype": "fp8"},
    {"model": "Qwen3-235B-A22B", "gpu": "b200", "gpus": 4, "tp": 2, "pp": 2},
]


def made(engine: str, version: str | None, **asked: Any) -> Advice:
    return advise(AdviceQuestion(**asked), snapshot(engine, version))


def item(advice: Advice, concept: str) -> Suggestion | None:
    return next((one for one in advice.suggestions if one.concept == concept), None)


def legal(flags: FlagSet, words: list[str]) -> bool:
    """Whether the flag exists and a value is among its choices."""
    flag = flags.get(words[0])
    if flag is None:
        return words[0].partition("=")[0] in flags.environment
    return flag.choices is None or len(words) < 2 or words[1] in {str(choice) for choice in flag.choices}


@pytest.mark.parametrize("server", SERVERS, ids=lambda server: f"{server['model']}-{server['gpu']}")
@pytest.mark.parametrize(("engine", "version"), VERSIONS)
def test_every_release_gets_a_line_that_it_accepts(engine: str, version: str, server: dict[str, Any]) -> None:
    flags = snapshot(engine, version)
    advice = advise(AdviceQuestion(**server), flags)
    judged = check_launch(flags, advice.launch)
    assert judged.parses is not False, judged.remarks
    assert not [remark for remark in judged.remarks if "deprecated" in remark.message]
    length = int(judged.given["--context-length" if engine == "sglang" else "--max-model-len"])
    ranks = advice.kv_tokens // length
    assert advice.context <= length == advice.max_context
    assert ranks >= 1, "one request of the full context fits"
    for one in advice.suggestions:
        assert not one.words or legal(flags, one.words), one.words
        assert all(effect.basis in ("modelled", "published") for effect in one.effects)


def test_a_limit_below_the_load_is_raised_to_what_the_cache_holds() -> None:
    """The driving case: requests wait behind a limit although there is room for them."""
    line = "python3 -m sglang.launch_server --model-path x --tp-size 8 --max-running-requests 16"
    advice = made("sglang", "0.5.23", **GLM, concurrency=64, launch=line)
    change = item(advice, "max_requests")
    assert change is not None
    assert change.action == "change"
    assert change.given == "--max-running-requests 16"
    value = int(change.words[1])
    assert 16 < value <= 64
    room = advice.kv_tokens // advice.context
    assert value <= room
    rows = {rate.concurrency: rate for rate in advice.rates}
    assert rows[64].running_now == 16
    assert rows[64].running == value
    gains = {effect.concurrency: effect.gain_percent for effect in change.effects if effect.phase == "decode"}
    assert 8 not in gains, "eight requests were never held back"
    assert (gains[64] or 0) > 20


@pytest.mark.parametrize(
    ("engine", "version", "asked", "value"),
    [
        # SGLang divides the server's limit by the attention's ranks; vLLM's is each rank's own.
        ("sglang", "0.5.23", {"tp": 8, "attention_dp": 8}, 64),
        ("vllm", "0.33.0", {"tp": 8, "attention_dp": 8}, 8),
        ("sglang", "0.5.23", {"tp": 8}, 64),
        ("vllm", "0.33.0", {"tp": 8}, 64),
    ],
)
def test_limits_count_as_each_engine_counts(engine: str, version: str, asked: dict[str, Any], value: int) -> None:
    advice = made(engine, version, **GLM, **asked, concurrency=64, context=2048)
    change = item(advice, "max_requests")
    assert change is not None
    assert int(change.words[1]) == value


def test_drafts_only_where_the_checkpoint_has_prediction_layers() -> None:
    assert item(made("sglang", None, **GLM, tp=8, concurrency=8), "drafting") is not None
    for model in ("gpt-oss-120b", "Qwen3-235B-A22B"):
        advice = made("sglang", None, model=model, gpu="h200", gpus=4, concurrency=8)
        assert item(advice, "drafting") is None
        assert "speculative" not in advice.launch
    staged = made("sglang", None, **GLM, tp=4, pp=2, context=2048)
    assert item(staged, "drafting") is None


def test_graphs_reach_the_requests_that_run() -> None:
    """vLLM captures tokens: a request brings one and its drafts."""
    advice = made(
        "vllm", "0.33.0", model="gpt-oss-120b", gpu="rtx-pro-6000-server", gpus=4, tp=4, concurrency=900, context=512
    )
    graphs = item(advice, "graph_batch")
    requests = item(advice, "max_requests")
    assert graphs is not None
    assert requests is not None
    assert int(graphs.words[1]) >= int(requests.words[1]) > 512


def test_eager_execution_is_taken_out_and_a_length_kept() -> None:
    line = "vllm serve /m -tp 4 --enforce-eager --max-model-len 4k -O2 --no-enable-prefix-caching"
    advice = made("vllm", "0.33.0", model="MiniMax-M2", gpu="rtx-pro-6000-workstation", gpus=4, launch=line)
    removed = item(advice, "no_graphs")
    assert removed is not None
    assert removed.action == "remove"
    assert item(advice, "graph_batch") is None
    assert advice.context == 4000
    assert "enforce-eager" not in advice.launch
    assert "--max-model-len 4000 " in advice.launch
    assert advice.launch.endswith("--optimization-level 2 --no-enable-prefix-caching")


def test_a_share_that_no_engine_takes_is_replaced() -> None:
    line = "vllm serve m -tp 4 --gpu-memory-utilization 1.5"
    advice = made("vllm", "0.33.0", model="gpt-oss-120b", gpu="rtx-pro-6000-server", gpus=4, launch=line)
    assert ("--gpu-memory-utilization 1.5", "refused") in {(judged.word, judged.verdict) for judged in advice.judged}
    assert "1.5" not in advice.launch
    assert "--gpu-memory-utilization 0.92" in advice.launch


def test_words_that_are_not_predicted_are_said_to_be_counted_otherwise() -> None:
    line = "vllm serve m -tp 4 --kv-cache-dtype turboquant_k8v4 --moe-backend emulation --max-num-batched-tokens -1"
    advice = made("vllm", "0.33.0", model="MiniMax-M2.5", gpu="rtx-pro-6000-server", gpus=4, launch=line)
    assert sum("of your line is not predicted" in note for note in advice.notes) == 3
    assert "--kv-cache-dtype turboquant_k8v4" in advice.launch


def test_secrets_of_a_line_are_not_repeated() -> None:
    line = "HF_TOKEN=hf_abc NCCL_DEBUG=INFO vllm serve m -tp 4 --api-key sk-123 --max-num-batched-tokens 8192"
    advice = made("vllm", "0.33.0", model="MiniMax-M2.5", gpu="rtx-pro-6000-server", gpus=4, launch=line)
    text = json.dumps(msgspec.to_builtins(advice))
    assert "hf_abc" not in text
    assert "sk-123" not in text
    assert "HF_TOKEN=$HF_TOKEN NCCL_DEBUG=INFO vllm serve m" in advice.launch
    assert "--api-key $API_KEY" in advice.launch
    assert "--max-num-batched-tokens 8192" in advice.launch


def test_the_first_token_has_bounds() -> None:
    advice = made("sglang", "0.5.23", **GLM, tp=8, concurrency=8)
    assert advice.ttft_low_s < advice.ttft_s < advice.ttft_high_s


def test_a_release_that_is_not_packaged_is_said(cli: Any) -> None:
    asked = ["flags", "vllm", "--advise", "--model", "gpt-oss-20b", "--gpu", "h200", "--engine-version", "0.20.5"]
    notes = cli(*asked, "--json").json["notes"]
    assert any("0.20.5 is not packaged: this is for 0.17.0" in note for note in notes)
    assert not any("not packaged" in note for note in cli(*asked[:-1], "0.17.0", "--json").json["notes"])


def test_names_follow_the_release() -> None:
    newer = made("sglang", "0.5.23", **GLM, tp=8, attention_dp=8, concurrency=64)
    older = made("sglang", "0.5.9", **GLM, tp=8, attention_dp=8, concurrency=64)
    assert "--attn-dp-size 8" in newer.launch
    assert "--enable-dp-attention --dp-size 8" in older.launch
    assert "--cuda-graph-max-bs-decode" not in older.launch
    graphs = item(older, "graph_batch")
    assert graphs is not None
    assert graphs.words[0] == "--cuda-graph-max-bs"


def test_a_cache_that_no_attention_reads_is_avoided() -> None:
    """GLM's checkpoint asks for FP8; SGLang 0.5.9 has no backend for that on SM120, 0.5.23 has."""
    older = item(made("sglang", "0.5.9", **GLM, tp=8), "kv_dtype")
    assert older is not None
    assert older.start
    assert older.words == ["--kv-cache-dtype", "bf16"]
    assert item(made("sglang", "0.5.23", **GLM, tp=8), "kv_dtype") is None
    assert item(made("sglang", "0.5.9", model="GLM-5-NVFP4", gpu="b200", gpus=8, tp=8), "kv_dtype") is None


LINE = (
    "SGLANG_NO_SUCH=1 NCCL_DEBUG=INFO docker run --gpus all -p 30000:30000 img python3 -m sglang.launch_server "
    "--model-path /models/glm --tp 8 --cuda-graph-max-bs 64 --num-continuous-decode-steps 8 --disable-cuda-graph "
    "--enable-flashinfer-allreduce-fusion --host 0.0.0.0 --port 30000 --context-length 300000 --enable-ep-moe "
    "--moe-runner-backend flashinfer_trtllm --json-model-override-args '{\"a\": 1}' --no-such-flag 3"
)


def test_words_of_a_line_that_are_not_what_they_seem() -> None:
    advice = made("sglang", "0.5.23", **GLM, launch=LINE)
    verdicts = {(judged.word, judged.verdict) for judged in advice.judged}
    assert {
        ("SGLANG_NO_SUCH", "no effect"),
        ("--num-continuous-decode-steps", "no effect"),
        ("--cuda-graph-max-bs", "renamed"),
        ("--enable-ep-moe", "gone"),
        ("--no-such-flag", "refused"),
        ("--moe-runner-backend flashinfer_trtllm", "not for this GPU"),
        ("--enable-flashinfer-allreduce-fusion", "not for this GPU"),
        ("--enable-flashinfer-allreduce-fusion", "deprecated"),
        ("--disable-cuda-graph", "deprecated"),
        ("--context-length 300000", "refused"),
        ("--port 30000", "default"),
    } <= verdicts
    line = advice.launch
    assert line.startswith("NCCL_DEBUG=INFO python3 -m sglang.launch_server --model-path /models/glm --tp-size 8 ")
    assert "--json-model-override-args '{\"a\": 1}'" in line
    assert "--host 0.0.0.0" in line
    for word in ("num-continuous", "ep-moe", "trtllm", "no-such", "allreduce-fusion", "cuda-graph-backend"):
        assert word not in line
    assert check_launch(snapshot("sglang", "0.5.23"), line).parses


def test_b12x_is_ranked_by_the_load() -> None:
    """It wins at few requests and loses at many; a release without it is not told to try it."""
    few = made("vllm", "0.33.0", **GLM, tp=8, concurrency=1)
    many = made("vllm", "0.33.0", **GLM, tp=8, concurrency=64)
    tried = item(few, "moe_backend")
    assert tried is not None
    assert tried.action == "try"
    assert "b12x" not in few.launch
    assert item(many, "moe_backend") is None
    assert item(made("vllm", "0.17.0", **GLM, tp=8, concurrency=1), "moe_backend") is None


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    version=st.sampled_from(VERSIONS),
    model=st.sampled_from(["GLM-5-NVFP4", "DeepSeek-R1", "gpt-oss-20b", "MiniMax-M2", "Qwen3-30B-A3B"]),
    gpu=st.sampled_from(["rtx-pro-6000-server", "rtx-5090", "h200", "b200", "gb10", "l40s"]),
    gpus=st.sampled_from([1, 2, 4, 8]),
    concurrency=st.integers(1, 4096),
    context=st.integers(1, 200_000),
    goal=st.sampled_from(["latency", "throughput"]),
    words=st.lists(
        st.sampled_from(
            ["--max-num-seqs 4", "--max-running-requests 9", "-tp 2", "--tp 4", "--enforce-eager",
             "--mem-fraction-static 0.7", "--gpu-memory-utilization 2", "--kv-cache-dtype fp8",
             "--speculative-config {}", "--chunked-prefill-size 0", "--max-num-batched-tokens 64", "--x", "y",
             "--moe-backend marlin", "--no-enable-prefix-caching", "-O3"]
        ), max_size=5,
    ),
)  # fmt: skip
def test_any_server_has_a_line_or_one_error(
    version: tuple[str, str],
    model: str,
    gpu: str,
    gpus: int,
    concurrency: int,
    context: int,
    goal: Any,
    words: list[str],
) -> None:
    engine, release = version
    start = "vllm serve m" if engine == "vllm" else "python -m sglang.launch_server --model-path m"
    flags = snapshot(engine, release)
    try:
        advice = advise(
            AdviceQuestion(
                model=model, gpu=gpu, gpus=gpus, concurrency=concurrency, context=context, goal=goal,
                launch=" ".join([start, *words]) if words else None,
            ),
            flags,
        )  # fmt: skip
    except InputError as error:
        assert error.msg.endswith((".", "?"))
        return
    assert check_launch(flags, advice.launch).parses is not False
    assert all(rate.running <= rate.concurrency for rate in advice.rates)


def test_the_command(cli: Any) -> None:
    asked = ["flags", "sglang", "--advise", "--model", "GLM-5-NVFP4", "--gpu", "rtx-pro-6000-server", "--gpus", "8"]
    result = cli(*asked, "--tp", "8", "--concurrency", "32", "--json")
    assert result.code == 0
    assert result.json["schema"] == "tilewright/flags-advice/1"
    assert result.json["packaged"] is True
    text = cli(*asked, "--launch", LINE)
    assert "renamed: --cuda-graph-max-bs" in text.out
    assert "python3 -m sglang.launch_server" in text.out
    assert cli(*asked, "--launch", LINE, "--check").code == 1
    assert cli(*asked, "--tp", "8", "--check").code == 0


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["--advise"], "--model"),
        (["--advise", "--model", "GLM-5-NVFP4"], "--gpu"),
        (["--advise", "--model", "no-such", "--gpu", "h200"], "no-such"),
        (["--advise", "--model", "GLM-5-NVFP4", "--gpu", "h200", "--gpus", "1"], "does not fit"),
        (["--advise", "--model", "GLM-5-NVFP4", "--gpu", "h200", "--gpus", "0"], "gpus must be"),
        (["--advise", "--model", "GLM-5-NVFP4", "--gpu", "h200", "--gpus", "0", "--tp", "8"], "gpus must be"),
        (["--advise", "--model", "GLM-5-NVFP4", "--gpu", "h200", "--gpus", "8", "--context", "9000000"], "context"),
        (["--advise", "--model", "GLM-5-NVFP4", "--gpu", "h200", "--gpus", "8", "--concurrency", "0"], "concurrency"),
        (["--advise", "--model", "GLM-5-NVFP4", "--gpu", "h200", "--gpus", "8", "--tp", "3"], "3"),
        (["--advise", "--model", "x", "--gpu", "h200", "--check-launch", "vllm serve x"], "--launch"),
        (["--tp", "8"], "--advise"),
        (["--advise", "--model", "GLM-5-NVFP4", "--gpu", "h200", "--gpus", "8", "--launch", "vllm serve 'x"], "quotes"),
    ],
)
def test_what_cannot_be_is_one_sentence(cli: Any, words: list[str], names: str) -> None:
    result = cli("flags", "vllm", *words)
    assert result.code == 2
    assert names in result.err
    assert result.err.count("\n") == 1
    assert json.dumps(result.err)
