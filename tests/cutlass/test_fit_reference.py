"""The reference figures of the driving case and of public reports, by name."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright import Budget, fit, parse_config
from tilewright.cutlass.versions import KNOWN

LIMIT = 101376


def nvfp4(tile: tuple[int, int, int], **keys: Any) -> Budget:
    base: dict[str, Any] = {"cutlass": "4.2.1", "arch": "sm120", "kind": "grouped", "a": "nvfp4", "b": "nvfp4"}
    base |= {"c": "bf16", "epilogue_schedule": "tma_warp_specialized", "tile": tile}
    return fit(parse_config(base | keys))


FINALIZE = {"fusion": "finalize"}

# tile, fusion keys -> stages, mainloop tensors, mainloop, epilogue, kernel (cases.md, "Reproduced reference numbers")
REFERENCE = [
    ((128, 128, 128), {}, 4, 73728, 74752, 13312, 89088),
    ((128, 128, 128), FINALIZE, 4, 73728, 74752, 17408, 93184),
    ((128, 128, 256), {}, 2, 73728, 74752, 13312, 89088),
    ((128, 128, 256), FINALIZE, 2, 73728, 74752, 17408, 93184),
    ((128, 256, 128), {}, 3, 82944, 83968, 13312, 98304),
    ((256, 128, 128), {}, 3, 82944, 83968, 13312, 98304),
    ((128, 256, 128), FINALIZE, 3, 82944, 83968, 17408, 102400),
    ((256, 128, 128), FINALIZE, 3, 82944, 83968, 17408, 102400),
]


@pytest.mark.parametrize("version", ["4.2.1", "4.4.1", "4.4.2", "4.5.0", "4.7.0"])
@pytest.mark.parametrize(("tile", "keys", "stages", "tensors", "mainloop", "epilogue", "kernel"), REFERENCE)
def test_driving_case_tiles(
    version: str,
    tile: tuple[int, int, int],
    keys: dict[str, Any],
    stages: int,
    tensors: int,
    mainloop: int,
    epilogue: int,
    kernel: int,
) -> None:
    budget = nvfp4(tile, cutlass=version, **keys)
    figures = (budget.stages, budget.mainloop_tensor_bytes, budget.mainloop_bytes, budget.epilogue_bytes)
    assert figures == (stages, tensors, mainloop, epilogue)
    assert budget.smem_bytes == kernel
    assert budget.limit_bytes == LIMIT
    assert budget.status == ("overflow" if kernel > LIMIT else "fits")
    assert budget.excess_bytes == max(0, kernel - LIMIT)


@pytest.mark.parametrize(
    ("tile", "default", "finalize"),
    [
        ((128, 64, 128), (6, 101376), (5, 91136)),
        ((128, 64, 256), (3, 101376), (2, 76800)),
        ((128, 32, 128), (7, 101376), (6, 93184)),
    ],
)
@pytest.mark.parametrize("version", ["4.5.0", "4.7.0"])
def test_small_n_tiles_from_4_5_on(
    version: str, tile: tuple[int, int, int], default: tuple[int, int], finalize: tuple[int, int]
) -> None:
    for keys, want in (({}, default), (FINALIZE, finalize)):
        budget = nvfp4(tile, cutlass=version, **keys)
        assert (budget.stages, budget.smem_bytes, budget.status) == (*want, "fits")


def test_small_n_tiles_before_4_5_have_no_scales_and_no_kernel() -> None:
    """The type compiles with an SFB of zero bytes; the kernel does not."""
    budget = nvfp4((128, 64, 128), cutlass="4.2.1")
    assert budget.type_status == "fits"
    assert budget.status == "illegal"
    assert budget.sf_short is True


def test_pinned_stages_and_swap_ab_are_the_fixes_that_the_model_verifies() -> None:
    budget = nvfp4((128, 256, 128), **FINALIZE)
    first = budget.fixes[0]
    assert (first.change, first.smem_bytes) == ({"stages": 2}, 74752)
    swapped = next(fix for fix in budget.fixes if "swap_ab" in fix.change)
    assert swapped.smem_bytes == 74752
    assert nvfp4((128, 256, 128), stages=2, **FINALIZE).smem_bytes == 74752
    assert nvfp4((128, 256, 128), swap_ab=True, **FINALIZE).stages == 2
    assert budget.cause is not None
    assert "977 bytes more in reserve would have made it 2" in budget.cause


def test_every_fix_is_itself_a_config_that_fits() -> None:
    keys = {"arch": "sm120", "kind": "grouped", "a": "nvfp4", "b": "nvfp4", "cutlass": "4.2.1"}
    for tile in ((128, 256, 128), (256, 128, 128), (256, 256, 128), (128, 128, 512), (64, 64, 128), (128, 16, 128)):
        for fusion in ("finalize", "linear_combination"):
            raw = keys | {"tile": tile, "fusion": fusion}
            for fix in fit(parse_config(raw)).fixes:
                fixed = fit(parse_config(raw | fix.change))
                assert (fixed.status, fixed.smem_bytes) == ("fits", fix.smem_bytes), (raw, fix)


def test_c01_example_79d_fits() -> None:
    """87,040 bytes: the Error Internal of that report was not shared memory."""
    budget = nvfp4(
        (128, 128, 128), c="f16", d="nvfp4", fusion="block_scale_out", schedule="cooperative", epilogue_schedule="auto"
    )
    figures = (budget.mainloop_bytes, budget.epilogue_bytes, budget.smem_bytes, budget.stages, budget.status)
    assert figures == (74752, 11264, 87040, 4, "fits")


@pytest.mark.parametrize("tile", [(256, 128, 128), (128, 256, 128)])
def test_c04_mxfp8_two_stages_never_fit(tile: tuple[int, int, int]) -> None:
    """111,616 bytes: A, B and scales alone take the whole limit."""
    raw = {"arch": "sm120", "a": "mxfp8_e4m3", "b": "mxfp8_e4m3", "tile": tile, "stages": 2}
    for arch in ("sm120", "sm121"):
        budget = fit(parse_config(raw | {"arch": arch}))
        assert (budget.smem_bytes, budget.mainloop_tensor_bytes) == (111616, LIMIT)
        assert budget.status == "overflow"
        assert "no epilogue fits" in (budget.cause or "")
    assert fit(parse_config(raw | {"c": "bf16"})).smem_bytes == 115712


@pytest.mark.parametrize(
    ("tile", "default", "finalize", "stages"),
    [
        ((128, 128, 128), 82944, 87040, (2, 2)),
        ((128, 64, 128), 92160, 96256, (3, 3)),
        ((128, 32, 128), 101376, 83968, (4, 3)),
    ],
)
def test_mixed_mxfp8_mxfp4_grouped(
    tile: tuple[int, int, int], default: int, finalize: int, stages: tuple[int, int]
) -> None:
    keys = {"a": "mxfp8_e4m3", "b": "mxfp4", "cutlass": "4.5.0"}
    for extra, want, count in (({}, default, stages[0]), (FINALIZE, finalize, stages[1])):
        budget = nvfp4(tile, **keys, **extra)
        assert (budget.smem_bytes, budget.stages) == (want, count)


@pytest.mark.parametrize("tile", [(128, 256, 128), (256, 128, 128), (128, 128, 256)])
def test_mixed_mxfp8_mxfp4_larger_tiles_do_not_compile(tile: tuple[int, int, int]) -> None:
    budget = nvfp4(tile, a="mxfp8_e4m3", b="mxfp4")
    assert budget.type_status == "illegal"
    assert budget.rules[0].startswith("Specialization requires Stages set to value 2 or more.")


def test_dense_nvfp4_with_void_c() -> None:
    keys = {"kind": "dense", "c": "void"}
    assert nvfp4((128, 128, 128), **keys).smem_bytes == 83968
    assert nvfp4((128, 128, 256), **keys).smem_bytes == 83968
    assert nvfp4((256, 128, 128), **keys).smem_bytes == 93184
    for tile in ((128, 128, 512), (256, 128, 256)):
        assert nvfp4(tile, **keys).type_status == "illegal"


@pytest.mark.parametrize(
    ("version", "stages", "smem"), [("4.2.1", 9, 102400), ("4.4.2", 8, 93184), ("4.2.2", 8, 93184), ("4.3.6", 8, 93184)]
)
def test_pipeline_term_of_the_stage_count(version: str, stages: int, smem: int) -> None:
    """16 bytes a stage up to 4.3.5, 128 from 4.4.0 on and in the patch releases 4.2.2 and 4.3.6."""
    budget = nvfp4((128, 128, 64), cutlass=version, **FINALIZE)
    assert (budget.stages, budget.smem_bytes) == (stages, smem)


def test_finalize_overflows_by_1024_in_every_release_that_has_it() -> None:
    for version in KNOWN:
        budget = nvfp4((128, 256, 128), cutlass=version, **FINALIZE)
        if version < "4":
            assert budget.type_status == "illegal"
        else:
            assert (budget.type_status, budget.excess_bytes) == ("overflow", 1024), version


def test_the_limit_is_99_kib_on_both_sm120_and_sm121() -> None:
    """Not 228 KiB, not 100 KiB, not 102,400 (which is a multiprocessor's)."""
    for arch in ("sm120", "sm121", "sm_120a", "sm120f"):
        assert nvfp4((128, 128, 128), arch=arch).limit_bytes == LIMIT


def test_an_unknown_release_is_unsupported_and_names_the_nearest() -> None:
    newer = nvfp4((128, 128, 128), cutlass="4.9.0")
    assert newer.status == "unsupported"
    assert newer.smem_bytes is None
    assert "4.7.0" in (newer.cause or "")


def test_swap_ab_transposes_the_layout_of_the_generated_scales() -> None:
    """Compiled as types on CUTLASS 4.4.2: grouped kernels take row-major scales only, which is what col becomes."""
    keys: dict[str, Any] = {"cutlass": "4.4.2", "c": "f16", "d": "nvfp4", "fusion": "block_scale_out", "stages": 2}
    assert nvfp4((128, 128, 128), swap_ab=True, layout_sfd="col", **keys).type_status == "fits"
    assert nvfp4((128, 128, 128), swap_ab=True, layout_sfd="row", **keys).type_status == "illegal"
    assert nvfp4((128, 128, 128), layout_sfd="row", **keys).type_status == "fits"


@pytest.mark.parametrize(
    ("final_output", "d", "c", "epilogue", "smem"),
    [("bf16", "f32", "void", 18432, 93184), ("f32", "bf16", "bf16", 13312, 89088)],
)
def test_finalize_with_a_d_of_its_own_stages_d_and_takes_the_bias_as_scattered(
    final_output: str, d: str, c: str, epilogue: int, smem: int
) -> None:
    """Compiled as types on CUTLASS 4.2.1: shared memory holds D, only the bias has the scattered type."""
    budget = nvfp4((128, 128, 128), fusion="finalize", final_output=final_output, d=d, c=c)
    assert (budget.epilogue_bytes, budget.smem_bytes) == (epilogue, smem)
