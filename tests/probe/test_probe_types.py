"""From a config to C++: what is written, and that nothing a user supplies is ever pasted."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from probe_trees import FILES

from conftest import truth_rows
from strategies import kernel_configs
from tilewright.cutlass.config import KEYS, LEGAL, KernelConfig, parse_config
from tilewright.cutlass.fit import fit
from tilewright.errors import ConfigError
from tilewright.probe.cpp import kernel_types
from tilewright.probe.sampling import sample_configs
from tilewright.probe.schedules import Unsupported
from tilewright.probe.tags import EPILOGUE_POLICIES, KERNEL_POLICIES, TagIndex, snake_case, tag_index
from tilewright.probe.unit import config_text

TAGS = tag_index("4.2.1", FILES[KERNEL_POLICIES], FILES[EPILOGUE_POLICIES])
BASE = parse_config({"arch": "sm120", "a": "nvfp4", "tile": [128, 128, 128]})

ALLOWED = re.compile(r"[A-Za-z0-9_:<>,.*()\s]*")
"""Every character that a type written by the probe is made of: no quote, semicolon, brace, backslash or #."""

HOSTILE = (
    "int>; system(\"id\"); //", "x\"\n#include \"/etc/passwd\"", "$(touch /tmp/pwned)", "`id`", "../../etc", "a b",
    "KernelTmaWarpSpecialized; }", "Kernel\u0000X", "sm120a -Xcompiler -fplugin=x.so", "-o /etc/passwd", "\U0001f600",
)  # fmt: skip


class EveryTag(TagIndex):
    """A tree that has every tag asked for: truth rows name tags of many versions."""

    def kernel(self, name: str) -> str | None:
        return f"cutlass::gemm::{name}"

    def epilogue(self, snake: str) -> str | None:
        return "cutlass::epilogue::X"


def test_tags_are_the_plain_structs_of_the_headers_and_their_aliases_and_nothing_else() -> None:
    assert TAGS.kernel("KernelAnotherName") == "cutlass::gemm::KernelAnotherName"
    assert TAGS.kernel("KernelTmaWarpSpecialized1SmSm100") == "cutlass::gemm::KernelTmaWarpSpecialized1SmSm100"
    assert TAGS.epilogue("no_smem_warp_specialized_1sm") == "cutlass::epilogue::NoSmemWarpSpecialized1Sm"
    for absent in ("KernelInAComment", "KernelATemplate", "KernelOfNothing", "NotASchedule", "KernelNope"):
        assert TAGS.kernel(absent) is None
    assert TAGS.epilogue("sm90_tma_warp_specialized") is None


@pytest.mark.parametrize(
    ("tag", "snake"),
    [
        ("TmaWarpSpecializedCooperative", "tma_warp_specialized_cooperative"),
        ("PtrArrayNoSmemWarpSpecialized1Sm", "ptr_array_no_smem_warp_specialized_1sm"),
        ("TmaWarpSpecialized2SmMxf8f6f4", "tma_warp_specialized_2sm_mxf8f6f4"),
        ("SparseTmaWarpSpecializedCooperativeSm120", "sparse_tma_warp_specialized_cooperative_sm120"),
    ],
)
def test_epilogue_tags_are_spelled_as_in_configs(tag: str, snake: str) -> None:
    assert snake_case(tag) == snake


@pytest.mark.parametrize("name", ["sm120", "sm121", "sm90", "sm100", "sm103"])
def test_every_compiled_family_has_its_types(name: str) -> None:
    """There is C++ for every truth row, made of the allowed characters only."""
    tags = EveryTag("4.7.0", frozenset(), frozenset())
    for row in truth_rows(name):
        types = kernel_types(parse_config(row["config"]), tags)
        assert types.arch == row["how"]["nvcc_arch"]
        for text in (types.epilogue, types.mainloop, types.kernel):
            assert ALLOWED.fullmatch(text), text
            assert text.count("<") == text.count(">")


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("key", KEYS)
def test_hostile_strings_are_refused_or_not_written(key: str, text: str) -> None:
    """Whatever key they stand in, also in a KernelConfig that never went through parse_config."""
    config = msgspec.structs.replace(BASE, **{key: text})
    try:
        types = kernel_types(config, TAGS)
    except (ConfigError, Unsupported):
        return
    written = config_text(0, types)
    assert key in ("id", "cutlass")  # the two keys that are free text, and that no type is made from
    assert text not in written


@given(st.sampled_from(KEYS), st.text(min_size=1, max_size=40))
def test_no_text_from_outside_reaches_a_type(key: str, text: str) -> None:
    """Types that are written at all are written in the allowed characters, whatever the config holds."""
    try:
        types = kernel_types(msgspec.structs.replace(BASE, **{key: text}), TAGS)
    except (ConfigError, Unsupported):
        return
    for part in (types.epilogue, types.mainloop, types.kernel):
        assert ALLOWED.fullmatch(part)


@given(kernel_configs())
def test_every_legal_config_has_types_or_a_sentence_why_not(raw: dict[str, Any]) -> None:
    """A value added to the config's enumerations has to be added here too."""
    try:
        types = kernel_types(parse_config(raw), EveryTag("4.7.0", frozenset(), frozenset()))
    except (ConfigError, Unsupported) as no:
        assert str(no).endswith((".", ")."))
        return
    for part in (types.epilogue, types.mainloop, types.kernel):
        assert ALLOWED.fullmatch(part)
        assert part.count("<") == part.count(">")


@given(st.from_regex(r"Kernel[A-Za-z0-9]{1,40}", fullmatch=True))
def test_a_tag_by_name_is_looked_up_in_the_tree(name: str) -> None:
    config = msgspec.structs.replace(BASE, schedule=name)
    if name in TAGS.kernel_tags:
        assert f"cutlass::gemm::{name}>" in kernel_types(config, TAGS).mainloop
    else:
        with pytest.raises(Unsupported, match="has no schedule tag"):
            kernel_types(config, TAGS)


def test_swap_ab_exchanges_operands_and_transposes_outputs_but_not_the_tile() -> None:
    raw = {"arch": "sm120", "a": "mxfp8_e4m3", "b": "mxfp4", "tile": [128, 64, 128], "kind": "grouped"}
    plain, swapped = (kernel_types(parse_config({**raw, "swap_ab": swap}), TAGS) for swap in (False, True))
    mx8, mx4 = "cutlass::mx_float8_t<cutlass::float_e4m3_t>", "cutlass::mx_float4_t<cutlass::float_e2m1_t>"
    row, col = "cutlass::layout::RowMajor*", "cutlass::layout::ColumnMajor*"
    assert f"{mx8}, {row}, 16, {mx4}, {col}, 128," in plain.mainloop
    assert f"{mx4}, {row}, 128, {mx8}, {col}, 16," in swapped.mainloop
    assert f"{row}, 8," in plain.epilogue
    assert f"{col}, 8," in swapped.epilogue
    assert "cute::Shape<cute::Int<128>, cute::Int<64>, cute::Int<128>>" in swapped.epilogue


def test_a_schedule_without_a_tag_says_which_ones_there_are() -> None:
    config = msgspec.structs.replace(BASE, schedule="2sm")
    with pytest.raises(Unsupported, match="known there: auto, cooperative, pingpong"):
        kernel_types(config, TAGS)


def test_grouped_plain_fp8_takes_the_new_tags_from_4_6_on() -> None:
    config = parse_config(
        {"arch": "sm120", "kind": "grouped", "a": "e4m3", "tile": [128, 128, 128], "schedule": "pingpong"}
    )
    new = EveryTag("4.6.0", frozenset(), frozenset())
    assert "KernelPtrArrayTmaWarpSpecializedPingpongSm120<2>" in kernel_types(config, new).mainloop
    assert "KernelPtrArrayTmaWarpSpecializedPingpong>" in kernel_types(config, TAGS).mainloop


def test_samples_are_legal_configs_the_same_for_a_seed_and_cover_the_space() -> None:
    raws = sample_configs(3000, 7, ["4.2.1", "4.7.0"])
    assert raws == sample_configs(3000, 7, ["4.2.1", "4.7.0"])
    assert raws != sample_configs(3000, 8, ["4.2.1", "4.7.0"])
    configs = [parse_config(raw) for raw in raws]
    for key, expected in {
        "cutlass": {"4.2.1", "4.7.0"},
        "kind": {"dense", "grouped"},
        "swap_ab": {True, False},
        **{key: set(LEGAL[key]) for key in ("arch", "op_class", "a", "b", "c", "d", "acc", "fusion", "layout_b")},
        **{key: {None, *LEGAL[key]} for key in ("final_output", "activation", "scale", "zero", "narrow", "layout_sfd")},
        "tile_scheduler": {None, "static_persistent", "stream_k"},
    }.items():
        assert {getattr(config, key) for config in configs} == expected
    assert any(config.epilogue_tile != "auto" for config in configs)
    assert any(config.stages != "auto" for config in configs)
    assert any(config.fusion == "finalize" and config.d not in ("void", config.final_output) for config in configs)


def test_most_samples_are_what_cutlass_takes_and_nearly_all_have_an_answer() -> None:
    statuses = [fit(parse_config(raw), brief=True).status for raw in sample_configs(2000, 11, ["4.2.1", "4.7.0"])]
    assert statuses.count("fits") + statuses.count("overflow") > len(statuses) * 0.3
    assert statuses.count("unsupported") < len(statuses) * 0.02


@pytest.mark.parametrize("arch", ["sm90", "sm_100a", "sm103", "sm121"])
def test_a_sample_keeps_what_is_fixed(arch: str) -> None:
    raws = sample_configs(200, 5, ["4.2.1"], fixed={"arch": arch, "stages": "3"})
    configs = [parse_config(raw) for raw in raws]
    assert {config.arch for config in configs} == {"sm" + arch.removeprefix("sm_").removeprefix("sm").rstrip("a")}
    assert {config.stages for config in configs} == {3}
    grouped = sample_configs(50, 5, ["4.2.1"], fixed={"arch": arch, "op_class": "block_scaled", "kind": "grouped"})
    assert {(raw["op_class"], raw["kind"]) for raw in grouped} == {("block_scaled", "grouped")}


def test_samples_without_the_scatter_header_have_no_finalize() -> None:
    assert all(raw["fusion"] != "finalize" for raw in sample_configs(300, 1, ["4.2.1"], finalize=False))


def test_equal_types_give_equal_text_whatever_the_id() -> None:
    """Which is what the cache and the merging of equal jobs rest on."""
    other = msgspec.structs.replace(BASE, id="another", cutlass="4.7.0")
    assert isinstance(other, KernelConfig)
    assert config_text(3, kernel_types(BASE, TAGS)) == config_text(3, kernel_types(other, TAGS))
