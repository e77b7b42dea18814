"""Public reports about CUTLASS kernels, each as the config that it is about, with the figure that compiling it gives.

`ROWS` holds what no other test has; `ELSEWHERE` names the test of every other report with byte figures, so that each
is checked once. Reports about Triton, static shared memory and other generators are tested where their readers are.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tilewright import fit, parse_config, resolve_gpu
from tilewright.cutlass.budget import Budget
from tilewright.errors import ConfigError

TESTS = Path(__file__).parent.parent
LIMIT = 101_376
GROUPED: dict[str, Any] = {"arch": "sm120", "kind": "grouped", "a": "nvfp4", "cutlass": "4.2.1", "c": "bf16",
                           "epilogue_schedule": "tma_warp_specialized"}  # fmt: skip
FINALIZE = {"fusion": "finalize"}
OVER = {"status": "overflow", "smem_bytes": 102_400, "excess_bytes": 1_024, "stages": 3}

# case id, what it is about, config, expected members of the budget, how the first rule begins
ROWS: list[tuple[str, str, dict[str, Any], dict[str, Any], str]] = [
    # C02: tile and figure as reported, on GB10; on the release it was reported for and the one said to fix it
    *(
        ("C02", f"CtaShape128x256x64B on SM121, CUTLASS {version}",
         {**GROUPED, **FINALIZE, "arch": "sm121", "cutlass": version, "tile": "128x256x128"}, OVER, "")
        for version in ("4.4.1", "4.4.2")
    ),
    ("C02", "the same with two stages", {**GROUPED, **FINALIZE, "arch": "sm121", "cutlass": "4.4.1",
     "tile": "128x256x128", "stages": 2}, {"status": "fits", "smem_bytes": 74_752}, ""),
    ("C02", "the same without the fused scatter", {**GROUPED, "arch": "sm121", "cutlass": "4.4.1",
     "tile": "128x256x128"}, {"status": "fits", "smem_bytes": 98_304}, ""),
    # C10: a filter claimed 131,072, 65,536, 98,304, 98,304, 262,144 and 196,608 bytes; K counts bytes there
    ("C10", "128x128x128B, claimed 131,072 and refused", {**GROUPED, "tile": "128x128x256"},
     {"status": "fits", "smem_bytes": 89_088, "stages": 2}, ""),
    ("C10", "128x128x128B with finalize", {**GROUPED, **FINALIZE, "tile": "128x128x256"},
     {"status": "fits", "smem_bytes": 93_184, "stages": 2}, ""),
    ("C10", "128x128x64B, claimed 65,536", {**GROUPED, "tile": "128x128x128"},
     {"status": "fits", "smem_bytes": 89_088, "stages": 4}, ""),
    ("C10", "256x128x64B with finalize, claimed 98,304 and allowed", {**GROUPED, **FINALIZE, "tile": "256x128x128"},
     OVER, ""),
    ("C10", "128x256x64B with finalize, claimed 98,304 and allowed", {**GROUPED, **FINALIZE, "tile": "128x256x128"},
     OVER, ""),
    ("C10", "128x128x256B, claimed 262,144", {**GROUPED, "tile": "128x128x512"}, {"status": "illegal"},
     "Specialization requires Stages set to value 2 or more."),
    ("C10", "256x128x128B, claimed 196,608", {**GROUPED, "tile": "256x128x256"}, {"status": "illegal"},
     "Specialization requires Stages set to value 2 or more."),
    # C12: which of the stock tiles overflow. "Only two stages fit" holds for the two large ones with finalize alone.
    ("C12", "128x128x128 with finalize, four stages", {**GROUPED, **FINALIZE, "tile": "128x128x128"},
     {"status": "fits", "smem_bytes": 93_184, "stages": 4, "slack_bytes": 8_192}, ""),
    ("C12", "SM100 has 232,448 bytes", {"arch": "sm100", "a": "nvfp4", "tile": "128x128x256", "schedule": "1sm"},
     {"limit_bytes": 232_448}, ""),
    # C31: dense FP4 tiles said to need more than 99 KiB; their K counts elements
    ("C31", "dense 128x128x256", {"arch": "sm120", "a": "nvfp4", "cutlass": "4.2.1", "tile": "128x128x256"},
     {"status": "fits", "smem_bytes": 83_968}, ""),
    ("C31", "dense 256x128x128", {"arch": "sm120", "a": "nvfp4", "cutlass": "4.2.1", "tile": "256x128x128"},
     {"status": "fits", "smem_bytes": 93_184}, ""),
    # C35: the log names sm120_M256_BS_group0
    ("C35", "M256 without finalize fits", {**GROUPED, "tile": "256x128x128"},
     {"status": "fits", "smem_bytes": 98_304, "slack_bytes": 3_072}, ""),
    # C41: "kSharedMemLimit 101376, kStages 2 found by hand"
    ("C41", "the largest tile, stages counted by hand", {"arch": "sm120", "a": "nvfp4", "cutlass": "4.2.1",
     "tile": "128x256x128", "stages": 2}, {"status": "fits", "limit_bytes": LIMIT, "stages": 2}, ""),
    # C43: the grouped SM100 kernel's capacity assert, with the bytes that its message leaves out
    ("C43", "SM100 grouped with eight stages", {"arch": "sm100", "a": "bf16", "kind": "grouped", "c": "f32", "d": "f32",
     "tile": "256x256x64", "schedule": "2sm", "cluster": "2x1x1", "stages": 8,
     "epilogue_schedule": "ptr_array_tma_warp_specialized_2sm"},
     {"status": "overflow", "smem_bytes": 332_800, "excess_bytes": 100_352}, "SMEM usage exceeded capacity."),
    # C44: the generator's e5m2 output over 8 columns
    ("C44", "e5m2 D of an N = 8 tile", {"arch": "sm120", "a": "e4m3", "d": "e5m2", "tile": "128x8x128"},
     {"status": "illegal", "smem_bytes": None}, "BLK_K0 must be a multiple of size<1>(GMMA::Layout_K_INTER_Atom"),
    # C45: sparse tiles
    ("C45", "sparse 256x128x256", {"arch": "sm120", "a": "e4m3", "op_class": "sparse", "tile": "256x128x256"},
     {"status": "illegal"}, "Specialization requires Stages set to value 2 or more."),
    ("C45", "sparse 128x128x128", {"arch": "sm120", "a": "e4m3", "op_class": "sparse", "tile": "128x128x128"},
     {"status": "fits", "smem_bytes": 90_112, "stages": 3}, ""),
    ("C45", "block-scaled sparse 128x128x128", {"arch": "sm120", "a": "nvfp4", "op_class": "block_scaled_sparse",
     "schedule": "cooperative", "tile": "128x128x128"}, {"status": "illegal"}, "TileShape_K must be a multiple of"),
    # C46: grouped FP8 with tensor scales: no builder up to 4.5, one from 4.6
    ("C46", "grouped FP8 on 4.5.0", {"arch": "sm120", "a": "e4m3", "kind": "grouped", "cutlass": "4.5.0",
     "schedule": "cooperative", "tile": "128x128x128"}, {"status": "illegal"},
     "PtrArray kernel is not supported for this collective builder."),
    ("C46", "grouped FP8 on 4.6.0", {"arch": "sm120", "a": "e4m3", "kind": "grouped", "cutlass": "4.6.0",
     "schedule": "cooperative", "tile": "128x128x128"}, {"status": "fits", "smem_bytes": 75_776, "stages": 2}, ""),
    # 5.4b: the peer's NVFP4 proposals, A, B and scales alone 110,592 bytes
    ("5.4b", "256x128x256 with two stages", {"arch": "sm120", "a": "nvfp4", "tile": "256x128x256", "stages": 2},
     {"status": "overflow", "smem_bytes": 120_832, "excess_bytes": 19_456}, ""),
    ("5.4b", "its cluster", {"arch": "sm120", "a": "nvfp4", "tile": "128x128x128", "cluster": "2x1x1"},
     {"status": "illegal"}, "no programmatic multicast on this arch"),
    # W10: "20, 36 and 28 KB, all fit": one stage of each and no epilogue
    ("W10", "256x128x128 with finalize", {**GROUPED, **FINALIZE, "tile": "256x128x128"}, OVER, ""),
]  # fmt: skip

ELSEWHERE = {
    "reference table": "cutlass/test_fit_reference.py::test_driving_case_tiles",
    "C01": "cutlass/test_fit_reference.py::test_c01_example_79d_fits",
    "C04": "cutlass/test_fit_reference.py::test_c04_mxfp8_two_stages_never_fit",
    "C04 tactics": "libraries/test_flashinfer_wheels.py::test_later_versions_are_read_by_the_same_method",
    "C37": "libraries/test_flashinfer_wheels.py::test_062_autotuner_ids_name_the_tactic_that_logs_skip",
    "C40": "cutlass/test_fit_reference.py::test_small_n_tiles_from_4_5_on",
    "W1": "cutlass/test_fit_reference.py::test_the_limit_is_99_kib_on_both_sm120_and_sm121",
    "W2": "cutlass/test_fit_reference.py::test_finalize_overflows_by_1024_in_every_release_that_has_it",
    "Triton, static and other generators (C06-C09, C13, C14, C17, C20, C22, C28, 5.23)":
        "diagnose/test_explain.py::test_triton_reports_by_their_bytes",
    "C28": "diagnose/test_explain.py::test_a_request_below_the_limit_that_was_refused_points_at_static_memory",
}  # fmt: skip


def judged(config: dict[str, Any]) -> Budget:
    return fit(parse_config(config))


@pytest.mark.parametrize(("case", "what", "config", "expected", "rule"), ROWS, ids=[f"{r[0]}: {r[1]}" for r in ROWS])
def test_the_report_gets_the_right_figure(
    case: str, what: str, config: dict[str, Any], expected: dict[str, Any], rule: str
) -> None:
    budget = judged(config)
    assert {key: getattr(budget, key) for key in expected} == expected
    if rule:
        assert budget.rules[0].startswith(rule)
    if budget.status not in ("fits", "unsupported"):
        assert budget.cause
        for fix in budget.fixes:
            assert judged({**config, **fix.change}).status == "fits"


@pytest.mark.parametrize("case", sorted(ELSEWHERE))
def test_the_other_reports_have_a_test(case: str) -> None:
    file, _, name = ELSEWHERE[case].partition("::")
    assert re.search(rf"^def {name}\(", (TESTS / file).read_text(encoding="utf-8"), re.M)


def test_the_overflow_says_what_is_missing_and_not_alignment() -> None:
    """C12 and W3: not alignas(1024) padding of A and B, whose stages are multiples of 1,024; what is not counted."""
    budget = judged({**GROUPED, **FINALIZE, "tile": "128x256x128"})
    stages = {item.path: item.bytes for item in budget.fields if item.path in ("mainloop.tensors.smem_A",
                                                                               "mainloop.tensors.smem_B")}  # fmt: skip
    assert {size // 3 % 1_024 for size in stages.values()} == {0}
    assert "977 bytes more in reserve would have made it 2" in (budget.cause or "")


def test_a_stage_alone_is_what_one_report_took_for_the_kernel() -> None:
    """W10 gave 20, 36 and 28 KB: one stage of 128x128x256, 256x128x256 and 128x256x128 or so, without an epilogue."""
    budget = judged({**GROUPED, **FINALIZE, "tile": "256x128x128"})
    assert budget.mainloop_tensor_bytes == 82_944
    assert budget.mainloop_tensor_bytes // (budget.stages or 1) == 27_648


def test_c18_w17_the_limit_of_a_block_is_not_that_of_an_sm() -> None:
    """102,400 is a multiprocessor's, a block may have 1,024 less; ((256*32*4)+(64*32*4))*4 = 163,840 fits neither."""
    for name in ("rtx-pro-6000-server", "rtx-5090", "gb10"):
        gpu = resolve_gpu(name)
        assert (gpu.smem_optin_bytes, gpu.value("smem_per_sm_bytes")) == (LIMIT, 102_400)
    need = ((256 * 32 * 4) + (64 * 32 * 4)) * 4
    assert need == 163_840
    assert need > (resolve_gpu("rtx-4090").smem_optin_bytes or 0)


def test_c43_an_arch_without_a_model_is_said_so() -> None:
    """SM110 (Thor): the keys name the architectures that are covered instead of guessing."""
    with pytest.raises(ConfigError, match="sm90, sm100, sm103, sm120, sm121"):
        parse_config({"arch": "sm110", "a": "bf16", "tile": "128x128x64"})


def test_the_units_trap_of_dispatch_names() -> None:
    """In the grouped dispatch K counts bytes, 64B = 128 elements of FP4: read as elements the answer is another."""
    as_bytes = judged({**GROUPED, **FINALIZE, "tile": "128x256x128"})
    as_elements = judged({**GROUPED, **FINALIZE, "tile": "128x256x64"})
    assert (as_bytes.status, as_bytes.smem_bytes) == ("overflow", 102_400)
    assert (as_elements.smem_bytes, as_elements.stages) != (as_bytes.smem_bytes, as_bytes.stages)
