"""Launch lines of layouts: every packaged release takes its own, with a context and a cache that the budget counts."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tilewright.libraries.engine_flags import FlagSet, check_launch, snapshot, snapshot_versions
from tilewright.libraries.engine_flags.concepts import name_of
from tilewright.libraries.engine_flags.launch import Remark
from tilewright.models.memory import Parallel
from tilewright.serving.launch import launch_line
from tilewright.serving.layout import layout, layouts_of
from tilewright.serving.memory import server_memory
from tilewright.serving.questions import DecodeQuestion
from tilewright.serving.scenario import scenario_of

VERSIONS = [(engine, version) for engine in ("sglang", "vllm") for version in snapshot_versions(engine)]
SERVERS: list[dict[str, Any]] = [
    {"model": "GLM-5-NVFP4", "gpu": "rtx-pro-6000-server", "gpus": 8},
    {"model": "gpt-oss-120b", "gpu": "h200", "gpus": 4},
    {"model": "DeepSeek-R1", "gpu": "b200", "gpus": 8, "speculative_tokens": 2},
    {"model": "Qwen3-30B-A3B", "gpu": "rtx-5090", "gpus": 4, "kv_dtype": "fp8"},
    {"model": "MiniMax-M2.5-NVFP4", "gpu": "rtx-pro-6000-server", "gpus": 4, "kv_dtype": "bf16"},
]


def errors(flags: FlagSet, line: str) -> list[Remark]:
    return [item for item in check_launch(flags, line).remarks if item.level != "note"]


def value(flags: FlagSet, line: str, concept: str) -> int:
    return int(line.split()[line.split().index(name_of(flags, concept) or "") + 1])


@pytest.mark.parametrize("server", SERVERS, ids=lambda item: str(item["model"]))
@pytest.mark.parametrize(("engine", "version"), VERSIONS)
def test_every_release_accepts_the_lines_of_its_layouts(engine: str, version: str, server: dict[str, Any]) -> None:
    flags = snapshot(engine, version)
    got = layout(DecodeQuestion(engine=engine, engine_version=version, **server), context=2048)
    lines = 0
    for item in got.layouts:
        if item.status != "fits":
            continue
        if item.launch is None:
            assert any("no launch line" in note for note in item.notes)
            continue
        lines += 1
        judged = check_launch(flags, item.launch)
        assert judged.parses, (item.launch, judged.remarks)
        assert not errors(flags, item.launch), item.launch
        own = (item.kv_tokens or 0) // (item.attention_dp * item.copies)
        assert 0 < value(flags, item.launch, "context") <= own
    assert lines or (version, server.get("kv_dtype")) == ("0.4.9.post6", "bf16"), "it has no word for a BF16 cache"


def test_a_layout_that_a_release_has_no_flag_for_is_none_of_it() -> None:
    asked = DecodeQuestion(model="GLM-5-NVFP4", gpu="rtx-pro-6000-server", engine="vllm", context=4096)
    base = scenario_of(asked)
    flags = snapshot("vllm", "0.33.0")
    few = msgspec.structs.replace(
        flags,
        version="0.9.0",
        snapshot=False,
        flags=tuple(item for item in flags.flags if "--decode-context-parallel-size" not in item.names),
    )
    assert any(item.dcp > 1 and item.status == "fits" for item in layouts_of(base, 8, flags=flags).layouts)
    got = layouts_of(base, 8, flags=few)
    spread = [item for item in got.layouts if item.dcp > 1]
    assert spread
    assert {item.status for item in spread} == {"illegal"}
    assert any(item.why == "vllm 0.9.0 has no flag for decode context parallelism" for item in spread)
    assert not any("DCP" in name for name in got.best.values())
    # What a release between packaged ones has is not known: no verdict, and no line either.
    packaged = msgspec.structs.replace(few, snapshot=True)
    between = layouts_of(replace(base, engine_version="0.10.0"), 8, flags=packaged)
    some = next(item for item in between.layouts if item.dcp > 1 and item.status == "fits")
    assert some.launch is None
    assert any("no flag for decode context parallelism" in note for note in some.notes)


def test_a_cache_that_a_release_cannot_read_is_not_started() -> None:
    """SGLang 0.5.9 reads no FP8 cache of GLM-5 on SM120; the budget is the one of the cache that it gets."""
    asked = DecodeQuestion(model="GLM-5-NVFP4", gpu="rtx-pro-6000-server", gpus=8, engine="sglang")
    old, new = (layout(msgspec.structs.replace(asked, engine_version=item)) for item in ("0.5.9", "0.5.23"))
    first, other = (next(item for item in got.layouts if item.name == "TP8") for got in (old, new))
    assert "--kv-cache-dtype bf16" in (first.launch or "")
    assert "--kv-cache-dtype fp8_e4m3" in (other.launch or "")
    assert (first.kv_bytes_per_token or 0) > 1.5 * (other.kv_bytes_per_token or 0)
    assert any("BF16 instead" in note for note in old.notes)
    elsewhere = layout(DecodeQuestion(model="GLM-5-NVFP4", gpu="b200", gpus=8, engine="sglang", engine_version="0.5.9"))
    assert elsewhere.kv_layout == "fp8"


def test_defaults_are_those_of_the_release() -> None:
    """vLLM took 0.9 of a GPU's memory before it took 0.92."""
    asked = DecodeQuestion(model="gpt-oss-120b", gpu="h200", gpus=2, engine="vllm")
    old, new = (layout(msgspec.structs.replace(asked, engine_version=item)) for item in ("0.17.0", "0.33.0"))
    assert (old.mem_fraction, new.mem_fraction) == (0.9, 0.92)
    assert old.mem_fraction_source == "vLLM 0.17.0 --gpu-memory-utilization, default"
    assert all("--gpu-memory-utilization 0.9 " in (item.launch or "") for item in old.layouts if item.launch)
    assert layout(asked, mem_fraction=0.8).mem_fraction_source == "given"


def test_plain_defaults_of_a_tree_count() -> None:
    """A tree of the user's that declares its chunk, graphs and requests is believed."""
    base = scenario_of(DecodeQuestion(model="gpt-oss-120b", gpu="h200", engine="vllm", context=4096))
    flags = snapshot("vllm", "0.33.0")
    plain = {"--max-num-batched-tokens": 65_536, "--max-cudagraph-capture-size": 16}
    own = msgspec.structs.replace(
        flags,
        flags=tuple(
            msgspec.structs.replace(flag, default=plain.get(flag.names[0], flag.default)) for flag in flags.flags
        ),
    )
    usual, other = (layouts_of(base, 2, flags=item).layouts[0].memory for item in (flags, own))
    assert usual is not None
    assert other is not None
    assert other.activations > 4 * usual.activations
    assert other.cuda_graphs < usual.cuda_graphs


def test_flags_that_a_tree_lacks_are_left_out() -> None:
    base = scenario_of(DecodeQuestion(model="gpt-oss-120b", gpu="h200", gpus=2, tp=2, engine="vllm"))
    flags = snapshot("vllm", "0.33.0")
    few = msgspec.structs.replace(flags, flags=tuple(item for item in flags.flags if item.names[0] != "--max-num-seqs"))
    line = launch_line(base, server_memory(base.at(1, 0)), 64, few)
    assert "max-num-seqs" not in line
    assert re.search(r"--tensor-parallel-size 2 ", line)
    assert base.parallel == Parallel(tp=2)


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_a_cache_that_nobody_knows_the_size_of_makes_no_claims(engine: str, cli: Any) -> None:
    """DeepSeek V4: the line has the context that was asked, and nothing is said to fit."""
    asked = ["--model", "DeepSeek-V4-Flash", "--gpu", "rtx-pro-6000-server", "--gpus", "4"]
    got = cli("layout", *asked, "--engine", engine, "--context", "10000", "--json").json
    first = got["layouts"][0]
    assert first["kv_tokens"] is None
    assert first["room"] == []
    assert first["max_context"] == 10000
    flag = "--context-length" if engine == "sglang" else "--max-model-len"
    assert f"{flag} 10000 " in first["launch"]
    made = cli("flags", engine, "--advise", *asked, "--context", "10000", "--concurrency", "16", "--json").json
    assert made["kv_tokens"] is None
    assert f"{flag} 10000 " in made["launch"]
    for words in (["layout", *asked, "--engine", engine], ["flags", engine, "--advise", *asked]):
        text = cli(*words).out
        assert "not known" in text
        for absurd in ("1,073,741,824", "4,294,967,296", " 0 tokens", " 0 bytes"):
            assert absurd not in text


@pytest.mark.parametrize("context", [1, 100, 255])
def test_short_contexts_are_no_zero(context: int, cli: Any) -> None:
    made = cli(
        "flags", "vllm", "--advise", "--model", "DeepSeek-V4-Flash", "--gpu", "h200", "--gpus", "4", "--context",
        str(context), "--json",
    ).json  # fmt: skip
    assert f"--max-model-len {context} " in made["launch"]
