"""Flags that an engine refuses together."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tilewright.libraries.engine_flags import check_launch, snapshot, snapshot_versions
from tilewright.libraries.engine_flags.pairs import Together, pairs
from tilewright.versions import release_of


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        ("--max-num-batched-tokens 64 --max-num-seqs 128", True),
        ("--max-num-seqs=1025 --max-num-batched-tokens=1000", True),
        ("--max-num-batched-tokens 128 --max-num-seqs 128", False),
        ("--max-num-batched-tokens 8k --max-num-seqs 128", False),
        ("--max-num-batched-tokens 64", False),
        ("--max-num-batched-tokens $T --max-num-seqs 128", False),
    ],
)
def test_a_step_has_a_token_for_each_request(words: str, refused: bool) -> None:
    for version in snapshot_versions("vllm"):
        made = check_launch(snapshot("vllm", version), f"vllm serve m {words}")
        told = [item.level for item in made.remarks if "is less than" in item.message]
        assert told == (["refused"] if refused else [])


STARTS = {"vllm": "vllm serve m", "sglang": "python3 -m sglang.launch_server --model-path m"}
REFUSED: tuple[tuple[str, str, str, str], ...] = (
    ("vllm", "--no-enable-chunked-prefill --max-model-len 8k --max-num-batched-tokens 2048", "8,000", "0.34.0"),
    ("vllm", "--max-model-len 8192 --long-prefill-token-threshold 10000", "threshold 10,000", "0.33.0"),
    ("vllm", "--data-parallel-size-local 2", "--data-parallel-size 1 is less", "0.34.0"),
    ("vllm", "-tp 8 -dcp 3", "no multiple of --decode-context-parallel-size 3", "0.34.0"),
    ("vllm", "--enable-eplb", "needs --enable-expert-parallel", "0.34.0"),
    ("vllm", "--enable-eplb --no-enable-expert-parallel", "needs --enable-expert-parallel", "0.34.0"),
    ("sglang", "--tp 8 --dp-size 3 --enable-dp-attention", "no multiple of --dp-size 3", "0.5.9"),
    ("sglang", "--tp 8 --attn-dp-size 3", "no multiple of --attn-dp-size 3", "0.5.23"),
    ("sglang", "--tp 8 --attn-dp-size 2 --dp-size 2", "both above 1", "0.5.23"),
    ("sglang", "--tp 8 --dp-size 2 --nnodes 2", "both above 1", "0.5.9"),
    (
        "sglang",
        "--tp 8 --pp-size 2 --nnodes 3",
        "--tp-size 8 x --pp-size 2 is no multiple of --nnodes 3",
        "0.4.9.post6",
    ),
    ("sglang", "--nnodes 2", "--tp-size 1 x --pp-size 1 is no multiple", "0.5.9"),
    ("sglang", "--tp 8 --ep 3", "no multiple of --ep-size 3", "0.5.9"),
    ("sglang", "--ep-size 2", "--tp-size 1 is no multiple of --ep-size 2", "0.5.23"),
    ("sglang", "--tp 8 --moe-dense-tp-size 2", "neither 1 nor --tp-size 8", "0.5.9"),
    ("sglang", "--chunked-prefill-size 1000 --page-size 64", "no multiple of --page-size 64", "0.5.9"),
    ("sglang", "--enable-hierarchical-cache --disable-radix-cache", "exclude each other", "0.5.9"),
    ("sglang", "--disable-cuda-graph-padding --enable-torch-compile", "exclude each other", "0.5.12"),
    ("sglang", "--speculative-algorithm EAGLE --speculative-eagle-topk 1", "needs --speculative-num-steps", "0.5.23"),
    ("sglang", "--speculative-algorithm EAGLE --speculative-num-draft-tokens 4", "num-steps", "0.4.9.post6"),
)


def told(engine: str, version: str, words: str) -> list[str]:
    made = check_launch(snapshot(engine, version), f"{STARTS[engine]} {words}")
    sources = {item.source for item in pairs()}
    return [item.message for item in made.remarks if item.level == "refused" and item.place in sources]


@pytest.mark.parametrize(("engine", "words", "said", "version"), REFUSED)
def test_flags_that_do_not_go_together_are_refused(engine: str, words: str, said: str, version: str) -> None:
    (message,) = told(engine, version, words)
    assert said in message


@pytest.mark.parametrize(
    ("engine", "words", "version"),
    [
        ("vllm", "--enable-chunked-prefill --max-model-len 8192 --max-num-batched-tokens 2048", "0.34.0"),
        ("vllm", "--no-enable-chunked-prefill --max-model-len auto --max-num-batched-tokens 2048", "0.34.0"),
        ("vllm", "-tp 8 -dcp 3 -pcp 2", "0.34.0"),
        ("vllm", "--no-enable-eplb", "0.34.0"),
        ("vllm", "--enable-eplb --enable-expert-parallel -tp 2", "0.34.0"),
        ("vllm", "--enable-eplb $MORE", "0.34.0"),
        ("vllm", "--enable-eplb --config more.yaml", "0.34.0"),
        ("sglang", "--tp 8 --dp-size 3", "0.5.9"),
        ("sglang", "--tp 8 --dp-size 8 --enable-dp-attention --nnodes 2", "0.5.9"),
        ("sglang", "--tp $TP --ep 8", "0.5.9"),
        ("sglang", "--ep 8 --config more.yaml", "0.5.23"),
        ("sglang", "--tp 8 --ep 3 --moe-a2a-backend deepep", "0.5.9"),
        ("sglang", "--tp 8 --moe-dense-tp-size 1", "0.5.9"),
        ("sglang", "--chunked-prefill-size -1 --page-size 64", "0.5.9"),
        ("sglang", "--chunked-prefill-size 1000 --page-size 64 --disaggregation-mode decode", "0.5.9"),
        ("sglang", "--speculative-algorithm NGRAM --speculative-num-draft-tokens 4", "0.5.9"),
        ("sglang", "--disable-cuda-graph-padding --enable-torch-compile", "0.5.9"),
    ],
)
def test_flags_that_go_together_are_not(engine: str, words: str, version: str) -> None:
    assert told(engine, version, words) == []


@pytest.mark.parametrize("item", pairs(), ids=lambda item: f"{item.left[0]} {item.form} {item.right}")
def test_every_check_has_its_flags_in_a_release_that_was_read_and_a_case_above(item: Together) -> None:
    versions = [v for v in snapshot_versions(item.engine) if not item.since or release_of(v) >= release_of(item.since)]
    names = (*item.left, item.right, *(word.split("=")[0] for word in (*item.when, *item.unless)))
    gone = {"--max-num-partial-prefills", "--max-long-partial-prefills"}  # of releases before the packaged ones
    has: Callable[[str], bool] = lambda name: any(snapshot(item.engine, version).has(name) for version in versions)  # noqa: E731
    missing = [name for name in names if not has(name)]
    assert set(missing) <= gone
    assert re.search(r"\d\.\d+\.\d+\S* \S+\.py:\d+|\d\.\d+\.\d+:\d+", item.source)
    if not missing and item.right != "--max-num-seqs":
        said = [m for engine, words, _, version in REFUSED for m in told(engine, version, words) if item.why in m]
        assert said
