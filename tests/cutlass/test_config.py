"""What a kernel config may hold, and what a wrong one is answered."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from strategies import GARBAGE_CONFIGS, kernel_configs
from tilewright import Budget, ConfigError, fit, parse_config
from tilewright.cutlass.config import KEYS, config_to_dict

MINIMAL: dict[str, Any] = {"arch": "sm120", "a": "nvfp4", "tile": [128, 128, 128]}


def test_defaults_are_filled() -> None:
    config = parse_config(MINIMAL)
    assert (config.b, config.op_class, config.kind, config.acc) == ("nvfp4", "block_scaled", "dense", "f32")
    assert (config.c, config.d, config.align_a, config.align_d) == ("void", "bf16", 32, 8)
    assert (config.cluster, config.stages, config.schedule) == ((1, 1, 1), "auto", "auto")
    assert set(config_to_dict(config)) == set(KEYS)


def test_finalize_scatters_through_a_void_d() -> None:
    config = parse_config(MINIMAL | {"kind": "grouped", "fusion": "finalize"})
    assert (config.d, config.c, config.final_output) == ("void", "bf16", "bf16")


def test_null_means_absent() -> None:
    assert parse_config(MINIMAL | {"b": None, "stages": None, "scale": None}) == parse_config(MINIMAL)


def test_subbyte_operands_of_mixed_mmas_are_aligned_to_128_elements() -> None:
    config = parse_config(MINIMAL | {"a": "mxfp8_e4m3", "b": "mxfp4"})
    assert (config.align_a, config.align_b) == (16, 128)
    assert parse_config(MINIMAL | {"a": "e2m1", "b": "e4m3"}).align_a == 128


@pytest.mark.parametrize(
    ("name", "meant"),
    [("sm_120a", "sm120"), ("SM120", "sm120"), ("sm120f", "sm120"), ("sm_90a", "sm90"), ("sm121", "sm121"),
     ("12.0", "sm120"), ("10.3", "sm103"), ("compute_120f", "sm120")],
)  # fmt: skip
def test_arch_takes_the_suffixes_that_compilers_use(name: str, meant: str) -> None:
    assert parse_config(MINIMAL | {"arch": name}).arch == meant


@pytest.mark.parametrize("text", ["128x256x128", "128X256X128", "128×256×128", "128, 256, 128", "128 x 256 x 128"])
def test_a_tile_is_read_as_people_write_it(text: str) -> None:
    assert parse_config(MINIMAL | {"tile": text}).tile == (128, 256, 128)


@pytest.mark.parametrize("text", ["١٢٨x128x128", "128x128x128x", "x128x128", "128xx128", "128x128*128", "1e2x128x128"])
def test_a_tile_of_other_signs_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="tile"):
        parse_config(MINIMAL | {"tile": text})


def test_formats_answer_to_common_names() -> None:
    config = parse_config(MINIMAL | {"a": "mxfp8", "b": "mxfp8", "d": "fp16"})
    assert (config.a, config.d) == ("mxfp8_e4m3", "f16")


@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        ({"tile": "128x128"}, "tile", "it takes 3"),
        ({"tile": [128, 128, 0]}, "tile", "from 1 to 65536"),
        ({"tile": [128, 128, 1.5]}, "tile", "not an integer"),
        ({"tile": [128, 128, True]}, "tile", "not an integer"),
        ({"tile": "axbxc"}, "tile", "not a shape"),
        ({"arch": "sm89"}, "arch", "sm90"),
        ({"a": "nvfp5"}, "a", "nvfp4"),
        ({"a": 4}, "a", "not a string"),
        ({"stages": "many"}, "stages", "auto"),
        ({"stages": 0}, "stages", "from 1"),
        ({"swap_ab": "perhaps"}, "swap_ab", "true or false"),
        ({"cutlass": "four"}, "cutlass", "4.2.1"),
        ({"schedule": "KernelTma; rm -rf /"}, "schedule", "cooperative"),
        ({"epilogue_schedule": "Tma<int>"}, "epilogue_schedule", "snake case"),
        ({"tiles": [1, 2, 3]}, "tiles", "tile"),
        ({"id": 7}, "id", "not a string"),
        ({"epilogue_tile": [64]}, "epilogue_tile", "it takes 2"),
        ({"align_a": -1}, "align_a", "1 to"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_legal(change: dict[str, Any], field: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(MINIMAL | change)
    assert caught.value.field == field
    assert says in caught.value.msg


@pytest.mark.parametrize("key", ["arch", "a", "tile"])
def test_a_missing_key_is_named(key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        parse_config({name: value for name, value in MINIMAL.items() if name != key})


@given(GARBAGE_CONFIGS)
@settings(max_examples=400, deadline=None)
def test_garbage_is_refused_in_one_sentence_or_is_a_config(raw: dict[str, Any]) -> None:
    try:
        config = parse_config(raw)
    except ConfigError as error:
        assert isinstance(error.field, str)
        assert "\n" not in error.msg
        assert len(error.msg) < 700
    else:
        assert isinstance(fit(config), Budget)


@given(kernel_configs())
@settings(max_examples=600, deadline=None)
def test_every_legal_combination_gets_a_verdict_and_never_an_exception(raw: dict[str, Any]) -> None:
    budget = fit(parse_config(raw))
    assert budget.status in ("fits", "overflow", "illegal", "unsupported")
    assert (budget.cause is not None) or budget.status == "fits"
    if budget.status == "illegal":
        assert budget.rules
    if budget.type_status in ("fits", "overflow"):
        assert budget.smem_bytes is not None
        assert budget.limit_bytes is not None
        assert (budget.type_status == "overflow") == (budget.smem_bytes > budget.limit_bytes)
        # A plain SM90 kernel (schedule basic) has its tensors and its pipelines, and nothing besides.
        assert sum(field.path.count(".") == 1 for field in budget.fields) >= 2


@given(kernel_configs(arch="sm120", a="nvfp4", b="nvfp4", cutlass="4.5.0"))
@settings(max_examples=200, deadline=None)
def test_brief_and_full_agree(raw: dict[str, Any]) -> None:
    config = parse_config(raw)
    brief, full = fit(config, brief=True), fit(config)
    assert (brief.status, brief.smem_bytes, brief.stages) == (full.status, full.smem_bytes, full.stages)
    assert not brief.fields
    assert not brief.fixes


@given(kernel_configs(arch="sm120", kind="grouped", a="nvfp4", b="nvfp4", op_class="block_scaled"))
@settings(max_examples=150, deadline=None)
def test_more_pinned_stages_never_take_fewer_bytes(raw: dict[str, Any]) -> None:
    sizes = []
    for stages in range(2, 6):
        budget = fit(parse_config(raw | {"stages": stages}), brief=True)
        if budget.smem_bytes is not None:
            sizes.append(budget.smem_bytes)
    assert sizes == sorted(sizes)
