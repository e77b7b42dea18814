"""Space files: what they mean, and every fault named before anything starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.errors import InputError
from tilewright.libraries.engine_flags.snapshots import snapshot
from tilewright.sweep import Question, parse_goal, parse_space, read_space
from tilewright.sweep.engines import ENGINES, Installed, check_space, command_of, flag_words
from tilewright.sweep.propose import Proposer
from tilewright.sweep.seeds import advised_lines, command_seeds, from_command


def vllm(space: Any) -> list[str]:
    flags = snapshot("vllm", "0.33.0")
    return check_space(Installed(ENGINES["vllm"], "vllm", flags, "0.33.0"), space)


def test_conditions_make_a_tree_that_is_counted_and_walked() -> None:
    space = parse_space(
        {
            "flags": {
                "block-size": {"values": [16, 32], "when": {"max-num-seqs": [8]}},
                "max-num-seqs": [4, 8],
                "load-format": "dummy",
            },
            "env": {"A": ["0", "1"], "B": 3},
            "load": {"concurrency": [2, 4], "output_tokens": 8},
        }
    )
    everything = list(space.assignments())
    assert space.count == len(everything) == (1 + 2) * 2 * 2
    assert all(space.holds(item) for item in everything)
    assert not space.holds({**everything[0], "block-size": 64})
    assert space.fixed_flags == {"load-format": "dummy"}
    assert space.env(everything[-1]) == {"A": "1", "B": "3"}
    assert space.load_of(everything[-1]).concurrency == 4
    assert space.baseline["max-num-seqs"] is None
    assert space.baseline["load.concurrency"] == 2


@pytest.mark.parametrize(
    ("tree", "names"),
    [
        ([], "sections"),
        ({"flgs": {}}, "[flags]"),
        ({"flags": {"a b": 1}}, "a b"),
        ({"flags": {"x": []}}, "no values"),
        ({"flags": {"x": {"min": 2, "max": 1}}}, "below max"),
        ({"flags": {"x": {"min": 1}}}, "min and max"),
        ({"flags": {"x": {"min": 1, "max": 2, "sep": 1}}}, "'sep'"),
        ({"flags": {"x": {"values": [1], "when": {"y": [1]}}}}, "'y'"),
        ({"flags": {"x": {"values": [1], "when": {"y": [3]}}, "y": [1, 2]}}, "never is"),
        ({"flags": {"x": {"values": [1], "when": {"y": 1}}, "y": {"values": [1], "when": {"x": 1}}}}, "itself"),
        ({"flags": {"x": {"min": 0, "max": 8, "log": True}}}, "above 0"),
        ({"flags": {"x": "a\0b"}}, "x"),
        ({"load": {"concurency": 2}}, "concurrency"),
        ({"load": {"requests": 2, "duration_s": 3}}, "both"),
        ({"load": {"requests": [1, 2]}}, "cannot vary"),
        ({"load": {"concurrency": [0]}}, "above 0"),
        ({"load": {"concurrency": "x"}}, "load"),
        ({"server": {"command": ["x"]}}, "{port}"),
        ({"flags": {"x": [1, 2]}, "baseline": {"z": 1}}, "z"),
        ({"flags": {"x": [1, 2]}, "seed": [{"x": 3}]}, "not in the space"),
    ],
)
def test_every_fault_is_named(tree: Any, names: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_space(tree)
    assert names in caught.value.msg


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["flags", "env", "load", "server", "baseline", "seed"]), JSON))
def test_no_tree_breaks_the_reader(tree: Any) -> None:
    try:
        space = parse_space(tree)
    except InputError:
        return
    assert space.count >= 1


@pytest.mark.parametrize("raw", [b"", b"\x00\xff", b"[flags", b"[" * 100_000, b'{"a":' * 100_000])
def test_hostile_files_are_refused_or_empty(tmp_path: Path, raw: bytes) -> None:
    for name in ("space.toml", "space.json"):
        path = tmp_path / name
        path.write_bytes(raw)
        try:
            assert read_space(str(path)).parameters == ()
        except InputError as error:
            assert "space" in error.msg


def test_flags_are_held_against_the_engines_own() -> None:
    assert vllm(parse_space({"flags": {"max-num-seqs": [8, 16], "enable-prefix-caching": [True, False]}})) == []
    for flags, names in (
        ({"max-num-seq": [8]}, "--max-num-seqs"),
        ({"max-num-seqs": ["many"]}, "many"),
        ({"dtype": ["auto", "fp9"]}, "fp9"),
        ({"max-num-seqs": [True]}, "needs a value"),
        ({"max-num-seqs": [False]}, "or_unset"),
        ({"enforce-eager": [1]}, "true or false"),
        ({"port": 8000}, "--port"),
        ({"-tp": [1, 2], "tensor-parallel-size": [1, 2]}, "two spellings"),
    ):
        with pytest.raises(InputError) as caught:
            vllm(parse_space({"flags": flags}))
        assert names in caught.value.msg


def test_words_of_a_command() -> None:
    flags = snapshot("vllm", "0.33.0")
    space = parse_space({"flags": {"load-format": "dummy"}})
    made = {
        "max-num-seqs": 8, "enable-prefix-caching": False, "enforce-eager": True, "gpu-memory-utilization": 0.85,
        "cudagraph-capture-sizes": [1, 2], "compilation-config": {"level": 3}, "block-size": None,
        "async-scheduling": True,
    }  # fmt: skip
    words = command_of(Installed(ENGINES["vllm"], "/v/bin/vllm", flags, None), space, made, "/m", 18000)
    assert words[:3] == ["/v/bin/vllm", "serve", "/m"]
    assert " ".join(words[7:]) == (
        "--max-num-seqs 8 --no-enable-prefix-caching --enforce-eager --gpu-memory-utilization 0.85 "
        '--cudagraph-capture-sizes 1 2 --compilation-config {"level":3} --async-scheduling'
    )
    assert flag_words("x", False, None) == []


def test_a_search_meets_every_candidate_once_and_then_ends() -> None:
    pytest.importorskip("optuna")
    space = parse_space({"flags": {"a": [1, 2, 3], "b": {"values": ["x", "y"], "when": {"a": [2]}}}})
    proposer = Proposer(space, maximise=True, seed=3)
    seen = []
    while (found := proposer.ask()) is not None:
        seen.append(json.dumps(found, sort_keys=True))
        proposer.tell(found, float(found["a"]) if found["a"] != 3 else None, [])
    assert len(seen) == len(set(seen)) == space.count == 4


def test_the_search_finds_a_narrow_optimum_and_heeds_limits() -> None:
    pytest.importorskip("optuna")
    space = parse_space({"flags": {"x": {"min": 0.0, "max": 100.0}, "y": {"min": 1, "max": 64}}})
    proposer = Proposer(space, maximise=True, seed=1)
    best = 0.0
    for _ in range(60):
        item = proposer.ask()
        assert item is not None
        value, limit = 200 - abs(item["x"] - 62) - abs(item["y"] - 30), item["x"] - 60  # x may be 60 at most
        proposer.tell(item, value, [limit / 60])
        best = max(best, value) if limit <= 0 else best
    assert best > 185, "random search among 60 gives 170 on average"


def test_advice_and_layouts_seed_the_search_with_what_the_space_has() -> None:
    space = parse_space(
        {
            "flags": {
                "tp-size": [1, 2, 4, 8],
                "max-running-requests": {"min": 1, "max": 512},
                "kv-cache-dtype": ["auto"],
            },
            "load": {"concurrency": 32, "input_tokens": 2048},
        }
    )
    flags = snapshot("sglang")
    question = Question(
        engine="sglang", space=space, goal=parse_goal("max output_tok_s"), store=Path("x"), model="GLM-5-NVFP4"
    )
    found = command_seeds(space, flags, advised_lines(question, flags, "rtx-pro-6000-server", 8))
    assert {"tp-size": 8, "max-running-requests": 32} in found
    assert all(space.parameters[0].holds(item["tp-size"]) for item in found)
    assert from_command(space, flags, {"--tp-size": "3", "--max-running-requests": "many"}) == {}
