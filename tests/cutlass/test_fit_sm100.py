"""SM100 and SM103 beyond the truth rows: configs at random over many releases, tensor memory, fixes, odd kernels."""

from __future__ import annotations

import gzip
import json
from typing import Any

import msgspec
import pytest
from test_fit_truth import differences

from conftest import DATA, truth_rows
from tilewright import Budget, fit, parse_config
from tilewright.cutlass.config import config_to_dict

LIMIT = 232448
PAIR: dict[str, Any] = {"schedule": "2sm", "epilogue_schedule": "tma_warp_specialized_2sm", "cluster": [2, 1, 1]}
GROUPED: dict[str, Any] = {"kind": "grouped", "epilogue_schedule": "ptr_array_tma_warp_specialized_1sm"}
FP8: dict[str, Any] = {"a": "e4m3", "b": "e4m3"}
ULTRA: dict[str, Any] = {"arch": "sm103", "op_class": "block_scaled", "a": "nvfp4", "b": "nvfp4"}


def raw(tile: tuple[int, int, int] = (128, 128, 64), **keys: Any) -> dict[str, Any]:
    """A dense bf16 1sm kernel, unless `keys` say otherwise."""
    base: dict[str, Any] = {"cutlass": "4.2.1", "arch": "sm100", "a": "bf16", "b": "bf16", "tile": tile}
    return base | {"schedule": "1sm", "epilogue_schedule": "tma_warp_specialized_1sm"} | keys


def sm100(tile: tuple[int, int, int] = (128, 128, 64), **keys: Any) -> Budget:
    return fit(parse_config(raw(tile, **keys)))


def test_configs_chosen_at_random_over_all_families_and_releases() -> None:
    """Compiled by the probe, legal and not; every figure, every field, every status."""
    with gzip.open(DATA / "compiled" / "sm100.jsonl.gz", "rt", encoding="utf-8") as stream:
        rows = [json.loads(line) for line in stream]
    wrong = {row["config"]["id"]: diff for row in rows if (diff := differences(row))}
    assert not wrong
    assert len(rows) >= 850
    assert len({row["config"]["cutlass"] for row in rows}) >= 10
    assert {row["config"]["arch"] for row in rows} == {"sm100", "sm103"}


@pytest.mark.parametrize(("n", "one", "half", "pair"), [(64, 4, 4, 4), (128, 4, 4, 4), (192, 2, 4, 2), (256, 2, 4, 2)])
def test_accumulators_are_what_512_columns_of_tensor_memory_hold(n: int, one: int, half: int, pair: int) -> None:
    """Four at most; M of 64 takes half of the lanes, so that two share the columns."""
    assert sm100((128, n, 64)).accumulator_stages == one
    assert sm100((64, n, 64)).accumulator_stages == half
    assert sm100((256, n, 64), **PAIR).accumulator_stages == pair


def test_scales_and_metadata_leave_tensor_memory_for_one_wide_accumulator() -> None:
    scaled = {"op_class": "block_scaled", "a": "nvfp4", "b": "nvfp4"}
    assert [sm100((128, n, 256), **scaled).accumulator_stages for n in (128, 192, 256)] == [2, 2, 1]
    sparse = {"op_class": "sparse", "align_a": 16}
    assert [sm100((128, n, 128), **sparse).accumulator_stages for n in (192, 224, 256)] == [2, 2, 1]
    assert [sm100((128, n, 768), **ULTRA).accumulator_stages for n in (128, 192, 256)] == [2, 2, 1]


@pytest.mark.parametrize("version", ["3.9.2", "4.2.2", "4.3.0", "4.7.0"])
def test_the_capacity_assert_makes_an_overflow(version: str) -> None:
    budget = sm100(cutlass=version, stages=9)
    assert (budget.status, budget.limit_bytes) == ("overflow", LIMIT)
    assert budget.smem_bytes == LIMIT + (budget.excess_bytes or 0) > LIMIT
    assert "SMEM usage exceeded capacity" in budget.rules[0]
    assert "does not compile" in (budget.cause or "")
    assert f"{budget.excess_bytes:,} over the {LIMIT:,}" in (budget.cause or "")
    assert budget.fixes[0].change == {"stages": 6}


def test_the_cause_of_an_overflow_adds_up() -> None:
    """Mainloop, epilogue and what is named besides are the whole kernel."""
    budget = sm100(stages=9)
    top = [field for field in budget.fields if field.path.count(".") == 1]
    assert max(field.abs_offset + field.bytes for field in top) <= (budget.smem_bytes or 0)
    cause = budget.cause or ""
    assert f"{budget.mainloop_tensor_bytes:,} bytes (mainloop tensors) + {budget.epilogue_tensor_bytes:,}" in cause
    rest = (budget.smem_bytes or 0) - (budget.mainloop_tensor_bytes or 0) - (budget.epilogue_tensor_bytes or 0)
    assert f"+ {rest:,} (what the kernel keeps besides" in cause


def test_one_stage_must_be_cut_off_the_swizzle_before_4_6() -> None:
    """24 rows of bf16 do not divide a 128-byte swizzle; of FP8 they do."""
    assert sm100((128, 24, 64), cutlass="4.5.3").rules[0].startswith("Stride Divisibility Condition")
    assert sm100((128, 24, 64), cutlass="4.6.0").status == "fits"
    assert sm100((128, 24, 128), cutlass="4.5.3", **FP8).status == "fits"


def test_columns_that_the_mma_takes_became_finer_in_4_2() -> None:
    assert "multiple of 16" in sm100((128, 8, 128), cutlass="4.1.0", **FP8).rules[0]
    assert sm100((128, 8, 128), cutlass="4.2.0", **FP8).status == "fits"


def test_grouped_kernels_got_warps_for_descriptors_in_4_3() -> None:
    before, after = sm100(cutlass="4.2.2", **GROUPED), sm100(cutlass="4.3.0", **GROUPED)
    assert (before.threads, after.threads) == (256, 384)
    assert sm100(cutlass="4.3.0").threads == 256


def test_sparse_integers_take_any_eight_bits_beside_them() -> None:
    """The sparse builder compares 16- and 32-bit types only; the atom looks at widths."""
    tile = (128, 128, 256)
    sparse = {"op_class": "sparse", "cutlass": "4.2.1", "align_a": 32, "align_b": 16}
    assert sm100(tile, a="int8", b="e4m3", acc="int32", **sparse).status == "fits"
    assert sm100(tile, a="e4m3", b="int8", acc="f32", **sparse).status == "fits"
    assert "Ambiguous Input Type" in sm100(tile, a="uint8", b="int8", acc="int32", **sparse).rules[0]
    mixed = sm100((128, 128, 128), a="bf16", b="f16", op_class="sparse", align_a=16)
    assert mixed.rules[0].startswith("ElementA and ElementBMma must match.")
    unpacked = sm100(tile, a="e2m1", b="e4m3", acc="f32", **sparse | {"align_a": 256})
    packed = sm100(tile, a="e2m1", b="int8", acc="f32", **sparse | {"align_a": 256})
    assert packed.stages == unpacked.stages
    sizes = [next(f for f in b.fields if f.path == "mainloop.tensors.smem_A").bytes for b in (packed, unpacked)]
    assert sizes[1] == 2 * sizes[0]


def test_only_the_1sm_integer_atoms_ask_for_integer_accumulators() -> None:
    """As their static_asserts have it (`cute/arch/mma_sm100_umma.hpp`), though the 2sm kernel makes no sense either."""
    integers = {"a": "int8", "b": "int8", "acc": "f32"}
    assert "can only be int32_t" in sm100((128, 128, 128), **integers).rules[0]
    assert sm100((256, 128, 128), **integers, **PAIR).type_status == "fits"


def test_sm103_counts_a_and_b_apart_from_scales() -> None:
    budget = sm100((128, 128, 768), **ULTRA)
    assert budget.status == "fits"
    assert budget.stages == budget.load_ab_stages
    assert (budget.load_sf_stages or 0) >= (budget.load_ab_stages or 0)


def test_sm103_begins_with_4_2_and_takes_scaled_fp4_only() -> None:
    assert 'no member "Sm103"' in sm100((128, 128, 768), **ULTRA | {"cutlass": "4.1.0"}).rules[0]
    assert "arch sm100" in sm100(arch="sm103").rules[0]
    assert "768" in sm100((128, 128, 256), **ULTRA).rules[0]
    assert "leave stages at auto" in sm100((128, 128, 768), stages=3, **ULTRA).rules[0]


def test_a_kernel_without_a_stage_is_said_to_be_of_no_use() -> None:
    """The types and the whole kernel compile (compiled with nvcc), and nothing asserts."""
    budget = sm100((128, 256, 768), c="f32", d="f32", **ULTRA)
    assert (budget.status, budget.stages, budget.load_ab_stages) == ("fits", 0, 0)
    assert "do not launch it" in (budget.cause or "")
    assert budget.fixes
    for fix in budget.fixes:
        again = fit(parse_config(raw((128, 256, 768), c="f32", d="f32", **ULTRA) | fix.change))
        assert (again.stages or 0) > 0


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ({"schedule": "2sm"}, {"cluster": [2, 1, 1], "epilogue_schedule": "tma_warp_specialized_2sm"}),
        ({"kind": "grouped"}, {"epilogue_schedule": "ptr_array_tma_warp_specialized_1sm"}),
        ({"tile": (256, 128, 64)}, {"schedule": "2sm", **PAIR}),
        ({"acc": "f16", "d": "f32"}, {"acc": "f32"}),
        ({"align_d": 4}, {"align_d": 8}),
    ],
)
def test_fixes_of_one_broken_rule(keys: dict[str, Any], wanted: dict[str, Any]) -> None:
    budget = fit(parse_config(raw() | keys))
    assert budget.status == "illegal"
    assert wanted in [fix.change for fix in budget.fixes]


def test_several_broken_rules_get_one_change_of_several_keys() -> None:
    """K, N and the pinned stage count: no change of one key makes this one run."""
    budget = sm100((128, 96, 512), stages=3, **ULTRA)
    assert budget.status == "illegal"
    assert [fix.change for fix in budget.fixes] == [{"tile": [128, 128, 768], "stages": "auto"}]


@pytest.mark.parametrize("name", ["sm100", "sm103"])
def test_every_fix_of_every_compiled_row_does_what_it_says(name: str) -> None:
    offered = 0
    for row in truth_rows(name):
        config = parse_config(row["config"])
        budget = fit(config)
        if budget.status not in ("illegal", "overflow"):
            assert budget.stages == 0 or not budget.fixes
            continue
        assert budget.fixes, row["config"]["id"]
        for fix in budget.fixes:
            changed = fit(parse_config(config_to_dict(config) | fix.change), brief=True)
            assert (changed.status, changed.smem_bytes) == ("fits", fix.smem_bytes)
            offered += 1
    assert offered > 50


def test_grouped_and_dense_parts_do_not_mix() -> None:
    auto = fit(parse_config(raw(kind="grouped", schedule="auto", epilogue_schedule=GROUPED["epilogue_schedule"])))
    assert "make_tensor" in auto.rules[0]
    tag = sm100(schedule="KernelPtrArrayTmaWarpSpecialized1SmSm100")
    assert "UnderlyingProblemShape" in tag.rules[0]
    direct = fit(parse_config(raw(kind="grouped", epilogue_schedule="no_smem_warp_specialized_1sm")))
    assert "InternalStrideC" in direct.rules[0]


def test_a_tile_of_any_extent_is_a_verdict() -> None:
    for m in (1, 2, 3, 63, 129, 257):
        for keys in ({}, PAIR, {"schedule": "auto", "epilogue_schedule": "auto", "cluster": [2, 1, 1]}):
            assert sm100((m, 128, 64), **keys).status == "illegal"


def test_brief_and_full_answers_agree() -> None:
    for row in truth_rows("sm100")[::11] + truth_rows("sm103")[::11]:
        config = parse_config(row["config"])
        full, brief = fit(config), fit(config, brief=True)
        assert msgspec.structs.replace(full, fields=[], cause=None, fixes=[]) == brief


@pytest.mark.parametrize(
    ("keys", "epilogue"),
    [
        ({"epilogue_schedule": "tma_warp_specialized_2sm", "cluster": [2, 1, 1]}, "tma_warp_specialized_1sm"),
        ({"tile": (256, 128, 64), "schedule": "2sm", "cluster": [2, 1, 1]}, "tma_warp_specialized_2sm"),
    ],
)
def test_halves_that_do_not_agree_are_said_to_be_of_no_use(keys: dict[str, Any], epilogue: str) -> None:
    """Types and whole kernels compile (compiled with nvcc): 128 rows computed, 64 or 256 stored."""
    budget = fit(parse_config(raw() | keys))
    assert budget.status == "fits"
    assert "do not agree" in (budget.cause or "")
    assert {"epilogue_schedule": epilogue} in [fix.change for fix in budget.fixes]
