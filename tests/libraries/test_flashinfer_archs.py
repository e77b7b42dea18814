"""FlashInfer's kernels for other architectures than SM120, and those in the CuTe DSL."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from mini_flashinfer import FILES, GENERATOR, write_tree

from tilewright.collectives.tree import open_tree
from tilewright.cutlass.config import parse_config
from tilewright.cutlass.fit import fit
from tilewright.libraries.flashinfer.dsl import read_dsl_kernels
from tilewright.libraries.flashinfer.model import DslKernel, Report
from tilewright.libraries.flashinfer.tactics import read_report
from tilewright.libraries.flashinfer.target import target_of

DSL = '''import cutlass.cute as cute
from cutlass import utils


class ToyKernel:
    """A kernel."""

    def __init__(self, sf_vec_size, mma_tiler_mn=(128, 64), cluster_shape_mn=(1, 1), eps=1e-6):
        self.capacity = utils.get_smem_capacity_in_bytes("sm_120")
        coarse_tile = (128, 128)

    @staticmethod
    def _compute_stages(tile, capacity):
        return 2

    # GPU device kernel
    @cute.kernel
    def kernel(self, a):
        pass


@cute.kernel
def free_kernel(a):
    pass


class Helper:
    def kernel(self):
        pass
'''


def report(root: Path, op: Any, arch: str) -> Report:
    with open_tree(root) as tree:
        return read_report(tree, op, arch)


def kernels(root: Path, arch: str | None = None) -> list[DslKernel]:
    with open_tree(root) as tree:
        return read_dsl_kernels(tree, arch)


def test_an_architecture_names_its_own_build_functions_generators_and_units() -> None:
    sm100 = target_of("sm100")
    assert sm100.builder.fullmatch("gen_cutlass_fused_moe_sm100_module")
    assert not sm100.builder.fullmatch("gen_cutlass_fused_moe_sm120_module")
    assert sm100.others.fullmatch("generate_sm90_operations")
    assert not sm100.others.fullmatch("generate_sm100_operations")
    assert not target_of("sm103").others.fullmatch("generate_sm100_operations")  # its module compiles SM100's too
    assert target_of("sm121").builder.fullmatch("gen_cutlass_fused_moe_sm120_module")


def test_another_architectures_kernels_are_not_sm120s(tmp_path: Path) -> None:
    """The small library builds none for SM90: said, not guessed."""
    entry = FILES["flashinfer/jit/fused_moe.py"].replace("sm120", "sm90").replace('"120"', '"90"')
    generator = GENERATOR.replace("generate_sm120_operations", "generate_sm90_operations").replace(
        "has_arch(120)", "has_arch(90)"
    )
    root = write_tree(
        tmp_path, {"flashinfer/jit/fused_moe.py": entry, "flashinfer/jit/gemm/cutlass/generate_kernels.py": generator}
    )
    answer = report(root, "moe", "sm90")
    assert all(tactic.verdict.status != "fits" for tactic in answer.tactics)  # their launcher spells Sm120 types


def test_dsl_kernels_are_listed_with_what_is_literal(tmp_path: Path) -> None:
    path = "flashinfer/experimental/b12x/gemm/toy.py"
    root = write_tree(tmp_path, {path: DSL, "flashinfer/data/cutlass/examples/python/toy.py": DSL})
    toy, free = kernels(root)
    assert (toy.name, toy.source.file, toy.experimental) == ("ToyKernel.kernel", path, True)
    assert DSL.splitlines()[toy.source.line - 1].strip() == "def kernel(self, a):"
    assert (toy.archs, toy.smem_of) == (["sm120"], ["sm120"])
    assert toy.parameters == ["sf_vec_size", "mma_tiler_mn = (128, 64)", "cluster_shape_mn = (1, 1)"]
    assert "coarse_tile = (128, 128)" in toy.tiles
    assert [DSL.splitlines()[place.line - 1].strip() for place in toy.counted_by] == [
        "def _compute_stages(tile, capacity):"
    ]
    assert (toy.verdict, "fix no config" in toy.reason) == ("unsupported", True)
    assert (free.name, free.archs, free.parameters) == ("free_kernel", [], [])
    assert [item.name for item in kernels(root, "sm90")] == ["free_kernel"]  # names none, so it may be for any


@pytest.mark.parametrize(
    "text", ["@cute.kernel", "@cute.kernel\n" * 2000, "class A:\n    @cute.kernel\n    def", "\x00"]
)
def test_broken_dsl_sources_list_nothing(tmp_path: Path, text: str) -> None:
    assert kernels(write_tree(tmp_path, {"flashinfer/toy.py": text})) == []


def test_the_command_keeps_the_counts_of_tactics_apart(tmp_path: Path, cli: Any) -> None:
    root = str(write_tree(tmp_path, {"flashinfer/gemm/kernels/toy_sm12x.py": DSL}))
    answer = cli("tactics", "flashinfer", "--root", root, "--op", "dsl", "--json", "--quiet")
    assert answer.code == 0
    assert (answer.json["tactics"], answer.json["summary"]["total"], len(answer.json["dsl"])) == ([], 0, 2)
    assert answer.json["dsl"][0]["archs"] == ["sm120", "sm121"]
    shown = cli("tactics", "flashinfer", "--root", root, "--op", "dsl")
    assert "ToyKernel.kernel" in shown.out
    assert "No verdict" in shown.out
    plain = cli("tactics", "flashinfer", "--root", root, "--json", "--quiet")
    assert (plain.json["dsl"], plain.json["summary"]["total"]) == ([], 16)


@pytest.mark.tree
def test_062_hopper_moe_kernels_all_fit(flashinfer_062: Path) -> None:
    """360 of SM90's CUTLASS kernels; mixed input and weight-only ones use builders of the library's own."""
    answer = report(flashinfer_062, "moe", "sm90")
    assert (answer.summary.total, answer.summary.fits, answer.summary.overflow) == (1154, 360, 0)
    judged = [tactic for tactic in answer.tactics if tactic.verdict.status == "fits"]
    assert Counter((tactic.config or {})["a"] for tactic in judged) == {"e4m3": 144, "f16": 72, "bf16": 72, "tf32": 72}
    for tactic in judged[::40]:
        config = parse_config({**(tactic.config or {}), "id": ""})
        assert config.arch == "sm90"
        assert fit(config).smem_bytes == tactic.verdict.smem_bytes
        assert (tactic.verdict.smem_bytes or 0) <= 232_448
    assert all(tactic.verdict.cause for tactic in answer.tactics if tactic.verdict.status == "unsupported")


@pytest.mark.tree
@pytest.mark.slow
def test_062_blackwell_moe_kernels(flashinfer_062: Path) -> None:
    """672 with a fixed cluster fit; as many take their cluster at launch, which no config says."""
    answer = report(flashinfer_062, "moe", "sm100")
    assert (answer.summary.total, answer.summary.fits, answer.summary.unsupported) == (1344, 672, 672)
    assert {(tactic.verdict.cause or "").partition(": ")[2] for tactic in answer.tactics if tactic.config is None} == {
        "a shape Shape<int32_t, int32_t, Int<1>> that is not fixed when it is compiled."
    }
    schedules = {(tactic.config or {})["epilogue_schedule"] for tactic in answer.tactics if tactic.config}
    assert schedules <= {
        f"ptr_array_{kind}_warp_specialized_{side}" for kind in ("tma", "no_smem") for side in ("1sm", "2sm")
    }
