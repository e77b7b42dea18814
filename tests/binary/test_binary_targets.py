"""On which devices code runs: the rules of the CUDA programming guide, as pairs."""

from __future__ import annotations

from typing import Any

import pytest

from conftest import DATA
from tilewright.binary.advice import build_flags
from tilewright.binary.target import Target, parse_target, rule_ptx, rule_sass


def target(text: str) -> Target:
    parsed = parse_target(text)
    assert parsed is not None
    return parsed


@pytest.mark.parametrize(
    ("code", "device", "runs"),
    [
        ("sm_120", 120, "native"),
        ("sm_120", 121, "native"),
        ("sm_120a", 120, "native"),
        ("sm_120a", 121, "no"),
        ("sm_120f", 121, "native"),
        ("sm_121", 120, "no"),
        ("sm_121f", 120, "no"),
        ("sm_121a", 121, "native"),
        ("sm_100a", 103, "no"),
        ("sm_100f", 103, "native"),
        ("sm_100f", 120, "no"),
        ("sm_100", 120, "no"),
        ("sm_103", 100, "no"),
        ("sm_90a", 90, "native"),
        ("sm_90", 100, "no"),
        ("sm_80", 86, "native"),
        ("sm_80", 89, "native"),
        ("sm_89", 86, "no"),
        # Jetson parts and the others do not share binaries
        ("sm_86", 87, "no"),
        ("sm_87", 89, "no"),
    ],
)
def test_sass(code: str, device: int, runs: str) -> None:
    ruling = rule_sass(target(code), device)
    assert ruling.outcome == runs
    assert code in ruling.why


@pytest.mark.parametrize(
    ("code", "device", "runs"),
    [
        ("compute_80", 121, "jit"),
        ("compute_120", 121, "jit"),
        ("compute_90", 120, "jit"),
        ("compute_90a", 120, "no"),
        ("compute_90a", 90, "jit"),
        ("compute_120a", 121, "no"),
        ("compute_120f", 121, "jit"),
        ("compute_100f", 103, "jit"),
        ("compute_100f", 120, "no"),
        ("compute_103f", 100, "no"),
        ("compute_121", 120, "no"),
    ],
)
def test_ptx(code: str, device: int, runs: str) -> None:
    assert rule_ptx(target(code), device, "9.0").outcome == runs


def test_a_jit_compile_says_which_ptx_the_driver_must_know() -> None:
    assert "PTX 8.7" in rule_ptx(target("compute_80"), 120, "8.7").why


@pytest.mark.parametrize("text", ["", "sm120", "sm_", "sm_120x", "compute_1", "sm_120ab", "sm_1200"])
def test_other_names_are_no_targets(text: str) -> None:
    assert parse_target(text) is None


def test_what_to_build_for_a_device() -> None:
    assert "sm_120a" in build_flags("12.0")
    assert "compute_120f,code=sm_120f" in build_flags("12.1")
    assert "compute_100f" in build_flags("10.3")
    assert build_flags("9.0") == "-gencode arch=compute_90a,code=sm_90a"
    assert build_flags("8.9") == "-gencode arch=compute_89,code=sm_89"


@pytest.mark.parametrize(
    ("name", "warned"),
    [("tiny.sm_120.cubin", True), ("tiny.sm_120f.cubin", False), ("toy.sm_120a.cubin", False)],
)
def test_code_for_the_plain_target_is_said_to_lack_the_tensor_core_instructions(
    cli: Any, name: str, warned: bool
) -> None:
    """It loads and launches; a CUTLASS kernel for FP4 then stops with a message of its own."""
    result = cli("inspect", str(DATA / "binary" / name), "--gpu", "rtx-pro-6000-server")
    assert ("Arch conditional MMA instruction used without" in result.out) is warned
    assert ("compute_120a" in result.out) is warned
