"""What `verify` asks of a config, how it judges an answer, the recorded H200 bundle, and the command line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fake_build import make_tree, write_nvcc
from hypothesis import given
from hypothesis import strategies as st

from conftest import DATA
from tilewright.cutlass.config import parse_config
from tilewright.cutlass.fit import fit
from tilewright.report.schema import checker
from tilewright.verify.execute import parse_steps, read_run
from tilewright.verify.judge import judge
from tilewright.verify.model import Build, Call, Predicted, Run, Values, Verification
from tilewright.verify.source import depth_of, problems

SM90 = {"arch": "sm90", "a": "bf16", "tile": "128x128x64"}
FLAGS = ("--arch", "sm90", "--a", "bf16", "--tile", "128x128x64", "--schedule", "cooperative")


@pytest.fixture(scope="module")
def h200() -> Verification:
    with gzip.open(DATA / "verify_h200.json.gz") as stream:
        return msgspec.json.decode(stream.read(), type=Verification)


def test_what_an_h200_did_is_what_fit_says_today(h200: Verification) -> None:
    """24 kernels built and launched on an H200 on 2026-12-02: bytes, refusals, values, against the model as it is."""
    assert h200.machine is not None
    assert (h200.machine.gpu, h200.machine.limit_bytes) == ("NVIDIA H200", 232448)
    for case in h200.cases:
        budget = fit(parse_config(case.config), brief=True)
        assert budget.status == case.predicted.status, case.id
        assert case.build is not None
        assert budget.smem_bytes == case.build.smem_bytes
        predicted = Predicted(
            status=budget.status,
            smem_bytes=budget.smem_bytes,
            limit_bytes=budget.limit_bytes,
            stages=budget.stages,
            status_basis=budget.status_basis,
        )
        outcome, why = judge(predicted, case.build, case.run, launched=depth_of(parse_config(case.config)).launch)
        assert (outcome, why) == (case.outcome, case.why)
        assert outcome == "agree"


def test_the_h200_ran_kernels_without_a_byte_to_spare(h200: Verification) -> None:
    full = [case for case in h200.cases if case.build and case.build.smem_bytes == 232448]
    assert len(full) == 3
    assert all(case.run and case.run.values and case.run.values.wrong == 0 for case in full)
    refused = [case for case in h200.cases if case.predicted.status == "overflow"]
    assert len(refused) == 6
    for case in refused:
        assert case.run is not None
        told = {call.step: call.name for call in case.run.calls if call.code}
        assert told == {"cudaFuncSetAttribute": "cudaErrorInvalidValue", "initialize": "Error Internal"}


def predicted(status: str, smem: int | None = 1000) -> Predicted:
    return Predicted(status=status, smem_bytes=smem, limit_bytes=2000, stages=2, status_basis="derived")


def ran(*calls: tuple[str, int], end: Any = "finished", wrong: int | None = 0) -> Run:
    values = None if wrong is None else Values(total=10, wrong=wrong, not_finite=0, unwritten=0, worst=1.0)
    return Run(calls=[Call(step, code, "x" if code else "ok") for step, code in calls], end=end, values=values)


GRANTED = ("cudaFuncSetAttribute", 0)
REFUSED = ("cudaFuncSetAttribute", 1)
DONE = ("cudaDeviceSynchronize", 0)
BUILT = Build(ok=True, smem_bytes=1000)


@pytest.mark.parametrize(
    ("status", "build", "run", "launched", "outcome"),
    [
        ("fits", BUILT, ran(GRANTED, DONE), True, "agree"),
        ("fits", BUILT, ran(GRANTED, DONE, wrong=None), True, "agree"),
        ("fits", BUILT, ran(GRANTED, wrong=None), False, "agree"),
        ("fits", BUILT, ran(GRANTED, wrong=None), True, "differ"),
        ("fits", BUILT, ran(GRANTED, DONE, wrong=1), True, "differ"),
        ("fits", BUILT, ran(REFUSED, end="failed"), True, "differ"),
        ("fits", BUILT, ran(GRANTED, end="hung"), True, "differ"),
        ("fits", BUILT, ran(("cudaSetDevice", 100), end="failed"), True, "not_run"),
        ("fits", BUILT, None, True, "agree"),
        ("fits", Build(ok=True, smem_bytes=1001), None, True, "differ"),
        ("fits", Build(ok=False, errors=["no"]), None, True, "differ"),
        ("overflow", BUILT, ran(REFUSED, end="failed"), True, "agree"),
        ("overflow", BUILT, ran(GRANTED, DONE), True, "differ"),
        ("overflow", BUILT, ran(("cudaSetDevice", 100), end="failed"), True, "not_run"),
        ("overflow", Build(ok=False, capacity_assert=True, errors=["SMEM"]), None, True, "agree"),
        ("overflow", Build(ok=False, errors=["other"]), None, True, "differ"),
        ("illegal", Build(ok=False, errors=["rule"]), None, True, "agree"),
        ("illegal", BUILT, ran(GRANTED, DONE), True, "differ"),
        ("unsupported", BUILT, ran(GRANTED, DONE), True, "no_prediction"),
        ("unsupported", Build(ok=False), None, True, "no_prediction"),
    ],
)
def test_judgement(status: str, build: Build, run: Run | None, launched: bool, outcome: str) -> None:
    found, why = judge(predicted(status, None if status == "illegal" else 1000), build, run, launched=launched)
    assert found == outcome
    assert why.strip()


@given(st.text(max_size=400), st.one_of(st.none(), st.integers(-300, 300)), st.booleans())
def test_any_output_is_read(text: str, code: int | None, timed_out: bool) -> None:
    output = "\n".join(
        [text, "@tw " + text, '@tw {"step":1,"code":true,"name":{}}', '@tw {"step":"values","total":"x"}']
    )
    run = read_run(parse_steps(output), output, code, timed_out=timed_out, seconds=0.1)
    assert run.end in ("finished", "failed", "hung", "died")
    judge(predicted("fits"), BUILT, run, launched=True)
    msgspec.json.encode(run)


@pytest.mark.parametrize(
    ("config", "launch", "values"),
    [
        (SM90, True, True),
        ({**SM90, "op_class": "sparse"}, False, False),
        (
            {"arch": "sm120", "a": "nvfp4", "d": "nvfp4", "fusion": "block_scale_out", "tile": "128x128x128"},
            True,
            False,
        ),
        ({"arch": "sm120", "kind": "grouped", "a": "nvfp4", "fusion": "finalize", "tile": "128x128x128"}, True, True),
        ({**SM90, "a": "int4", "b": "bf16", "op_class": "mixed_input", "narrow": "a", "scale": "bf16"}, False, False),
    ],
)
def test_how_far_a_config_can_be_taken(config: dict[str, Any], launch: bool, values: bool) -> None:
    depth = depth_of(parse_config(config))
    assert (depth.launch, depth.values) == (launch, values)
    assert bool(depth.why) != values


def test_grouped_problems_hold_a_ragged_group_on_the_side_of_the_tokens() -> None:
    config = {**SM90, "kind": "grouped"}
    plain = problems(parse_config(config))
    assert [m for m, _, _ in plain] == [128, 256, 64]
    swapped = problems(parse_config({**config, "swap_ab": True}))
    assert [n for _, n, _ in swapped] == [128, 256, 64]
    assert {k for _, _, k in plain + swapped} == {512}


def test_without_a_gpu_one_sentence_says_what_works(tmp_path: Path, cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.verify.device.load_driver", lambda: None)
    result = cli("verify", "--root", str(make_tree(tmp_path)), *FLAGS, "--out", str(tmp_path / "b.json"))
    assert (result.code, result.out) == (2, "")
    assert "--build-only" in result.err
    assert not (tmp_path / "b.json").exists()


def test_build_only_writes_a_bundle_that_keeps_to_its_schema(
    tmp_path: Path, cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    size = fit(parse_config({**SM90, "schedule": "cooperative", "cutlass": "4.2.1"}), brief=True).smem_bytes
    nvcc = write_nvcc(tmp_path, {"auto": f"sizes({size})", "2": "sizes(7)"})
    out = tmp_path / "b.json"
    arguments = ("verify", "--root", str(make_tree(tmp_path / "t")), "--nvcc", str(nvcc), "--build-only", "--check")
    result = cli(*arguments, *FLAGS, "--out", str(out))
    assert result.code == 0, result.err
    assert "agree" in result.out
    document = json.loads(out.read_text())
    checker("verify")(document)
    assert document["schema"] == "tilewright/verify/1"
    assert str(tmp_path) not in out.read_text()
    again = cli(*arguments, *FLAGS, "--out", str(out))
    assert again.code == 2
    assert "--force" in again.err
    wrong = cli(*arguments, *FLAGS, "--stages", "2", "--json")
    assert wrong.code == 1
    assert wrong.json["summary"]["differ"] == 1


def test_a_stream_is_checked_before_anything_is_built(tmp_path: Path, cli: Any) -> None:
    source = tmp_path / "c.jsonl"
    for text, why in (
        ('{"arch":"sm90","a":"bf16","tile":"128x128x64"}\n{"arch":"sm1"}\n', "Line 2"),
        ("[1]\n", "one JSON object"),
        ("\n", "no config"),
    ):
        source.write_text(text)
        result = cli("verify", "--root", str(make_tree(tmp_path / "t")), "--from", str(source), "--build-only")
        assert (result.code, result.out) == (2, "")
        assert why in result.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("--build-only",),
        FLAGS,
        (*FLAGS, "--root", "x", "--library", "y"),
        (*FLAGS, "--root", "x", "--only", "y"),
        (*FLAGS, "--root", "x", "--force", "--build-only"),
        (*FLAGS, "--root", "x", "--device", "-1"),
    ],
)
def test_bad_arguments_are_refused(arguments: tuple[str, ...], cli: Any) -> None:
    result = cli("verify", *arguments)
    assert (result.code, result.out) == (2, "")


@pytest.mark.tree
def test_the_tactics_of_a_library_are_the_configs(
    tmp_path: Path, cli: Any, flashinfer_062: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    nvcc = write_nvcc(tmp_path, {"auto": "sizes(102400)"})
    result = cli(
        "verify", "--library", str(flashinfer_062), "--only", "FINALIZE_128_256", "--nvcc", str(nvcc), "--build-only",
        "--json",
    )  # fmt: skip
    document = result.json
    assert document["library"] == "flashinfer 0.6.2"
    assert [(case["predicted"]["status"], case["outcome"]) for case in document["cases"]].count(
        ("overflow", "agree")
    ) == 2
    assert document["summary"]["total"] == 4


@pytest.mark.compiler
def test_a_real_kernel_builds_with_the_bytes_that_fit_says(
    tmp_path: Path, cli: Any, flashinfer_062: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    result = cli(
        "verify", "--root", str(flashinfer_062), "--arch", "sm90", "--a", "f16", "--d", "f16", "--tile", "64x16x64",
        "--schedule", "basic", "--epilogue-schedule", "tma_warp_specialized", "--build-only", "--json",
    )  # fmt: skip
    assert result.code == 0, result.err
    case = result.json["cases"][0]
    assert case["outcome"] == "agree", case["why"]
    assert case["build"]["smem_bytes"] == case["predicted"]["smem_bytes"]
