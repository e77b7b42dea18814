"""SM90 beyond the truth rows: configs at random over many releases, and the rules that changed between them."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from test_fit_truth import differences

from conftest import DATA
from tilewright import Budget, fit, parse_config
from tilewright.cutlass.versions import KNOWN

LIMIT = 232448


def sm90(tile: tuple[int, int, int] = (128, 128, 64), **keys: Any) -> Budget:
    """A bf16 cooperative kernel, unless `keys` say otherwise."""
    base: dict[str, Any] = {"cutlass": "4.2.1", "arch": "sm90", "a": "bf16", "b": "bf16", "tile": tile}
    base |= {"schedule": "cooperative", "epilogue_schedule": "tma_warp_specialized_cooperative"}
    return fit(parse_config(base | keys))


PINGPONG = {"schedule": "pingpong", "epilogue_schedule": "tma_warp_specialized"}
GROUPED = {"kind": "grouped", "epilogue_schedule": "ptr_array_tma_warp_specialized_cooperative"}
GROUPED_PINGPONG = GROUPED | {"schedule": "pingpong", "epilogue_schedule": "ptr_array_tma_warp_specialized_pingpong"}
FP8 = {"a": "e4m3", "b": "e4m3"}
BLOCKWISE = FP8 | {"op_class": "blockwise", "scale_granularity": [1, 128, 128], "scale_major": "mn"}


def test_configs_chosen_at_random_over_all_families_and_thirteen_releases() -> None:
    """Compiled by the probe, legal and not; every figure, every field, every status."""
    with gzip.open(DATA / "compiled" / "sm90.jsonl.gz", "rt", encoding="utf-8") as stream:
        rows = [json.loads(line) for line in stream]
    wrong = {row["config"]["id"]: diff for row in rows if (diff := differences(row))}
    assert not wrong
    assert len(rows) >= 400
    assert len({row["config"]["cutlass"] for row in rows}) >= 13


def test_every_release_lays_the_same_plain_kernel_out() -> None:
    """What is said to change with a release changes nothing else."""
    for keys in ({}, PINGPONG, GROUPED, {"op_class": "sparse", "align_a": 16}):
        figures = {(b.smem_bytes, b.stages, b.status) for v in KNOWN if v >= "4" and (b := sm90(cutlass=v, **keys))}
        assert len(figures) == 1, (keys, figures)


def test_grouped_reserves_the_scheduler_from_4_0_on() -> None:
    """At the edge a stage is lost to 128 bytes."""
    tiles = [(m, n, k) for m in (64, 128, 256) for n in (32, 64, 128, 192, 256) for k in (32, 64, 128)]
    old = [sm90(tile, cutlass="3.9.2", **GROUPED_PINGPONG).stages or 0 for tile in tiles]
    new = [sm90(tile, cutlass="4.0.0", **GROUPED_PINGPONG).stages or 0 for tile in tiles]
    assert all(a >= b for a, b in zip(old, new, strict=True))


@pytest.mark.parametrize(("version", "status"), [("4.2.2", "illegal"), ("4.3.0", "fits"), ("4.7.0", "fits")])
def test_pinned_stages_where_a_comes_from_registers(version: str, status: str) -> None:
    mixed = {"op_class": "mixed_input", "a": "int4", "narrow": "a", "scale": "bf16", "stages": 3}
    budget = sm90(cutlass=version, **mixed)
    assert budget.status == status
    if status == "illegal":
        assert 'has no member "bytes"' in budget.rules[0]
        assert any(fix.change == {"stages": "auto"} for fix in budget.fixes)


def test_blockwise_kernels_by_release() -> None:
    tile = (128, 128, 128)
    assert sm90(tile, cutlass="3.9.0", **BLOCKWISE).status == "fits"
    assert sm90(tile, cutlass="3.9.0", **BLOCKWISE | PINGPONG).status == "illegal"
    assert sm90(tile, cutlass="3.9.1", **BLOCKWISE | PINGPONG).status == "fits"
    assert "BlockScaling" in (sm90(tile, cutlass="4.1.0", **BLOCKWISE).mainloop_policy or "")
    assert "Blockwise" in (sm90(tile, cutlass="4.2.0", **BLOCKWISE).mainloop_policy or "")
    small = (64, 128, 128)
    assert sm90(small, cutlass="4.2.1", **BLOCKWISE | PINGPONG).type_status == "fits"
    assert sm90(small, cutlass="4.3.0", **BLOCKWISE | PINGPONG).type_status == "illegal"
    grouped = BLOCKWISE | GROUPED_PINGPONG
    assert sm90(small, cutlass="4.4.0", **grouped).type_status == "illegal"
    assert sm90(small, cutlass="4.4.1", **grouped).type_status == "fits"


def test_an_8_bit_output_asked_for_64_columns_up_to_3_9() -> None:
    tile = (64, 96, 128)
    assert sm90(tile, cutlass="3.9.2", d="e4m3", **FP8, **PINGPONG).epilogue_tile == (64, 32)
    assert sm90((64, 80, 128), cutlass="3.9.2", d="e4m3", **FP8, **PINGPONG).epilogue_tile == (64, 16)
    assert sm90((64, 40, 128), cutlass="3.9.2", d="e4m3", align_d=16, **FP8, **PINGPONG).type_status == "illegal"
    assert sm90((64, 128, 128), d="e4m3", **FP8, **PINGPONG).epilogue_tile == (64, 64)


@pytest.mark.parametrize(("version", "status"), [("4.5.3", "illegal"), ("4.6.0", "fits")])
def test_a_stage_that_does_not_divide_the_swizzle(version: str, status: str) -> None:
    """N = 24 of 16-bit: the ptr-array collective's own types; a dense kernel shows it when it is instantiated."""
    assert sm90((64, 24, 64), cutlass=version, **GROUPED_PINGPONG).type_status == status
    dense = sm90((64, 24, 64), cutlass=version, **PINGPONG)
    assert (dense.type_status, dense.status) == ("fits", status)


def test_rules_that_only_the_whole_kernel_shows_keep_the_bytes() -> None:
    small = sm90((64, 128, 64))
    assert (small.type_status, small.status, small.smem_bytes) == ("fits", "illegal", 230400)
    assert "128 along the M-dimension" in small.rules[0]
    assert "pingpong" in (small.cause or "")
    mismatched = sm90(epilogue_schedule="tma_warp_specialized")
    assert (mismatched.type_status, mismatched.status) == ("fits", "illegal")
    assert mismatched.rules[0].startswith("MMA_TILE_M must divide EPI_TILE_M")
    assert any(fix.change == {"epilogue_schedule": "tma_warp_specialized_cooperative"} for fix in mismatched.fixes)
    one_group = sm90(**GROUPED_PINGPONG | {"epilogue_schedule": "ptr_array_tma_warp_specialized"})
    assert (one_group.type_status, one_group.status) == ("fits", "illegal")


def test_an_overflow_says_what_the_union_of_a_one_tile_kernel_holds() -> None:
    budget = sm90((256, 128, 64), schedule="basic", epilogue_schedule="tma_warp_specialized", stages=5)
    assert budget.status == "overflow"
    assert budget.limit_bytes == LIMIT
    assert budget.excess_bytes == (budget.smem_bytes or 0) - LIMIT
    assert "take their place" in (budget.cause or "")
    assert budget.fixes[0].change == {"stages": 4}


def test_kernel_tma_has_no_struct_and_takes_the_larger_of_its_collectives() -> None:
    budget = sm90(schedule="tma", epilogue_schedule="auto")
    assert (budget.smem_bytes, budget.stages, budget.threads) == (229488, 7, 128)
    assert budget.fields == []
    assert budget.mainloop_tensor_bytes == -1


def test_auto_is_pingpong_for_64_rows_cooperative_otherwise_and_cp_async_where_tma_cannot() -> None:
    auto = {"schedule": "auto", "epilogue_schedule": "auto"}
    assert (sm90((64, 128, 64), **auto).kernel_schedule or "").endswith("KernelTmaWarpSpecializedPingpong")
    assert (sm90((128, 128, 64), **auto).kernel_schedule or "").endswith("KernelTmaWarpSpecializedCooperative")
    assert (sm90(align_a=2, align_b=2, **auto).kernel_schedule or "").endswith("KernelCpAsyncWarpSpecialized")


def test_what_sm90_cannot_do_is_illegal_and_never_uncovered() -> None:
    for keys in (
        {"a": "nvfp4", "b": "nvfp4", "op_class": "block_scaled"},
        {"a": "mxfp8_e4m3", "b": "mxfp8_e4m3", "op_class": "block_scaled_sparse"},
        {"schedule": "1sm"},
        {"schedule": "KernelTmaWarpSpecialized1SmSm100"},
        {"epilogue_schedule": "tma_warp_specialized_1sm"},
        {"a": "f16"},
        {"acc": "f16"},
    ):
        budget = sm90(**keys)
        assert budget.status == "illegal", keys
        assert budget.rules
        assert budget.cause


def test_every_fix_is_itself_a_config_that_fits() -> None:
    seen = 0
    for keys in (
        {"tile": (96, 128, 64)},
        {"tile": (128, 36, 64)},
        {"cluster": (3, 1, 1)},
        {"align_a": 4},
        {"align_d": 2},
        {"epilogue_tile": [64, 32]},
        {"epilogue_schedule": "ptr_array_tma_warp_specialized_pingpong"},
        {"stages": 9},
        {"tile": (256, 256, 128)},
        {"a": "int8", "b": "int8", "acc": "f32", "tile": (128, 128, 128)},
        {"tile_scheduler": "stream_k"} | PINGPONG,
        BLOCKWISE | {"stages": 3, "tile": (128, 128, 128)},
        BLOCKWISE | {"tile": (128, 64, 128)},
        GROUPED | {"schedule": "basic"},
    ):
        raw: dict[str, Any] = {"cutlass": "4.2.1", "arch": "sm90", "a": "bf16", "b": "bf16", "tile": (128, 128, 64)}
        raw |= {"schedule": "cooperative", "epilogue_schedule": "tma_warp_specialized_cooperative"} | keys
        budget = fit(parse_config(raw))
        assert budget.status in ("illegal", "overflow"), keys
        for fix in budget.fixes:
            fixed = fit(parse_config(raw | fix.change))
            assert (fixed.status, fixed.smem_bytes) == ("fits", fix.smem_bytes), (keys, fix)
            seen += 1
    assert seen >= 25
