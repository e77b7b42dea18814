"""The index of a tree: each collective once, with the builders that give it and the tags that they accept."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from mini_cutlass import FILES, HEAD, collective, cutlass_fixture, own_cache, write_wheel  # noqa: F401

from tilewright.collectives.answer import Answer
from tilewright.collectives.model import Collective, ScheduleTag
from tilewright.collectives.policies import describe
from tilewright.collectives.query import Filters, collectives
from tilewright.collectives.tree import open_tree

Write = Callable[..., Path]


def by_policy(answer: Answer) -> dict[str, Collective]:
    return {item.policy: item for item in answer.collectives}


def tags(answer: Answer) -> dict[str, ScheduleTag]:
    return {tag.name: tag for tag in answer.schedules}


def test_what_a_collective_is_and_who_gives_it(cutlass: Write) -> None:
    found = by_policy(collectives(cutlass("x/include").parent))
    assert set(found) == {
        "MainloopSm120TmaWarpSpecialized",
        "MainloopSm120TmaWarpSpecializedBlockwiseScaling",
        "MainloopSm120ArrayTmaWarpSpecializedBlockwiseScaling",
    }
    dense = found["MainloopSm120TmaWarpSpecialized"]
    assert dense.name == "CollectiveMma<MainloopSm120TmaWarpSpecialized>"
    assert (dense.file, dense.line) == ("include/cutlass/gemm/collective/sm120_mma_tma.hpp", 4)
    assert (dense.arch, dense.runs_on, dense.operation) == ("sm120", ("sm120",), "mma")
    assert (dense.array, dense.scaling, dense.sparse, dense.mixed_input) == (False, "none", False, False)
    assert dense.schedules == ("KernelTmaWarpSpecializedCooperative", "KernelScheduleAuto")
    (builder,) = dense.builders
    assert (builder.file, builder.line) == ("include/cutlass/gemm/collective/builders/sm120_mma_builder.inl", 4)
    assert builder.op_class == "tensor_op"
    assert dense.operands == ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")
    assert {(need.what, need.value) for need in dense.requires} == {("stages", ">= 2"), ("cluster", "1x1x1")}
    array = found["MainloopSm120ArrayTmaWarpSpecializedBlockwiseScaling"]
    assert (array.array, array.scaling) == (True, "blockwise")
    assert array.schedules == ("KernelTmaWarpSpecializedBlockwiseCooperativeSm120",)


def test_tags_that_no_builder_accepts_say_why(cutlass: Write) -> None:
    found = tags(collectives(cutlass()))
    accepted = found["KernelTmaWarpSpecializedCooperative"]
    assert [builder.line for builder in accepted.builders] == [4]
    assert accepted.note is None
    refused = found["KernelPtrArrayTmaWarpSpecializedCooperative"]
    assert refused.builders == ()
    assert [one.message for one in refused.refused] == ["PtrArray kernel is not supported for this collective builder."]
    assert found["KernelTmaWarpSpecializedLonelySm120"].builders == ()
    assert "no CollectiveBuilder specialization" in (found["KernelTmaWarpSpecializedLonelySm120"].note or "")
    assert found["KernelOtherNameSm120"].alias_of == "KernelTmaWarpSpecializedLonelySm120"
    assert found["KernelScheduleSm120Blockwise"].role == "category"
    assert found["KernelTmaWarpSpecializedCooperativeSm120"].role == "chosen"


def test_a_tag_that_passes_only_as_its_base_is_not_said_to_be_accepted(cutlass: Write) -> None:
    """What it adds (fast accumulation, software scales) would silently not happen."""
    tag = tags(collectives(cutlass()))["KernelTmaWarpSpecializedCooperativeFP8FastAccum"]
    assert tag.builders == ()
    assert "as its base KernelTmaWarpSpecializedCooperative" in (tag.note or "")


def test_a_collective_without_a_builder_and_a_policy_without_a_collective_are_said(cutlass: Write) -> None:
    answer = collectives(
        cutlass(files={"cutlass/gemm/collective/sm120_x.hpp": collective("MainloopSm120TmaWarpSpecializedExtra")})
    )
    extra = by_policy(answer)["MainloopSm120TmaWarpSpecializedExtra"]
    assert extra.builders == ()
    assert "No CollectiveBuilder specialization in this tree gives it" in (extra.note or "")
    nobody = {policy.name: policy for policy in answer.unused_policies}["MainloopSm120TmaWarpSpecializedNobody"]
    assert "no collective in this tree" in (nobody.note or "")


def test_one_collective_however_many_copies_lie_under_the_root(cutlass: Write, tmp_path: Path) -> None:
    cutlass("root/a/include")
    cutlass("root/b/include", newline="\r\n")
    (tmp_path / "root" / "c").symlink_to(tmp_path / "root" / "b")
    answer = collectives(tmp_path / "root")
    assert len(answer.collectives) == 3
    dense = by_policy(answer)["MainloopSm120TmaWarpSpecialized"]
    rest = "cutlass/gemm/collective/sm120_mma_tma.hpp"
    assert dense.file == f"a/include/{rest}"
    assert dense.copies == (f"b/include/{rest}", f"c/include/{rest}")
    assert len(answer.trees) == 1


def test_different_trees_are_indexed_each_and_told_apart(cutlass: Write, tmp_path: Path) -> None:
    cutlass("root/a/include")
    cutlass("root/b/include", {"cutlass/gemm/collective/builders/sm120_mma_builder.inl": "// none\n"})
    answer = collectives(tmp_path / "root")
    assert [tree.include for tree in answer.trees] == ["a/include", "b/include"]
    dense = [item for item in answer.collectives if item.policy == "MainloopSm120TmaWarpSpecialized"]
    assert [(item.tree, bool(item.builders)) for item in dense] == [(0, True), (1, False)]


def test_a_wheel_gives_the_same_index_as_a_folder(cutlass: Write, tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path / "w.whl", "x/include")
    folder = cutlass("y/x/include").parent.parent
    one, other = collectives(wheel), collectives(folder)
    assert one.collectives == other.collectives
    assert one.schedules == other.schedules


def test_filters_narrow_the_answer(cutlass: Write) -> None:
    root = cutlass()

    def count(filters: Filters) -> int:
        return len(collectives(root, filters).collectives)

    assert count(Filters(arch="sm120", scaling="blockwise")) == 2
    assert count(Filters(arch="sm121", scaling="blockwise", array=True)) == 1
    assert count(Filters(arch="sm90")) == 0
    assert count(Filters(scaling="block_scaled")) == 0
    assert count(Filters(operation="epilogue")) == 0
    assert count(Filters(array=False)) == 2


def test_what_cannot_be_understood_is_left_out_and_the_rest_answered(cutlass: Write) -> None:
    answer = collectives(
        cutlass(
            files={
                "cutlass/gemm/collective/sm120_mma_tma.hpp": 'struct CollectiveMma<<<<((("\0/* struct CollectiveMma<',
                "cutlass/gemm/collective/builders/sm120_mma_builder.inl": "template <" * 1000,
            }
        )
    )
    assert set(by_policy(answer)) == {
        "MainloopSm120TmaWarpSpecializedBlockwiseScaling",
        "MainloopSm120ArrayTmaWarpSpecializedBlockwiseScaling",
    }


def test_a_builder_that_demands_a_member_refuses_tags_without_it(cutlass: Write) -> None:
    """As SM120's grouped f8f6f4 builder of CUTLASS 4.6 does with the plain tags."""
    builder = (
        "namespace cutlass::gemm::collective {\n"
        + HEAD
        + "struct CollectiveBuilder<arch::Sm120, arch::OpClassTensorOp, "
        "ElementA, LayoutA, AlignmentA, ElementB, LayoutB, AlignmentB, Acc, TileShape_MNK, ClusterShape_MNK, "
        "StageCountType, BuilderScheduleTag, cute::enable_if_t<is_base_of_v<KernelTmaWarpSpecializedPingpong, "
        "BuilderScheduleTag>>> {\n"
        "  static constexpr int Count = BuilderScheduleTag::SchedulerPipelineStageCount;\n"
        "  using CollectiveOp = CollectiveMma<MainloopSm120TmaWarpSpecialized<2, int, int>, TileShape_MNK>;\n"
        "};\n}\n"
    )
    found = tags(collectives(cutlass(files={"cutlass/gemm/collective/builders/sm120_new_builder.inl": builder})))
    tag = found["KernelTmaWarpSpecializedPingpong"]
    assert tag.builders == ()
    assert [one.message for one in tag.refused] == ["the tag has no member SchedulerPipelineStageCount"]


class TestCache:
    def test_a_second_look_reads_no_header(self, cutlass: Write, monkeypatch: pytest.MonkeyPatch) -> None:
        root = cutlass()
        for path in root.rglob("*"):
            os.utime(path, (1, 1))
        _outlive_the_clock(monkeypatch)
        first = collectives(root)
        reads: list[str] = []
        with open_tree(root) as tree:
            original = type(tree).read
            monkeypatch.setattr(type(tree), "read", lambda self, path: reads.append(path) or original(self, path))
        assert collectives(root) == first
        assert reads == []

    def test_any_change_is_seen_at_once(self, cutlass: Write, monkeypatch: pytest.MonkeyPatch) -> None:
        """Same size and same time stamp included: the inode's change time tells."""
        _outlive_the_clock(monkeypatch)
        root = cutlass()
        header = root / "cutlass/gemm/collective/sm120_mma_tma.hpp"
        os.utime(header, ns=(10**9, 10**9))
        assert by_policy(collectives(root))["MainloopSm120TmaWarpSpecialized"].requires[0].value == ">= 2"
        header.write_text(header.read_text().replace(">= 2", ">= 3").replace("value 2", "value 3"))
        os.utime(header, ns=(10**9, 10**9))
        assert by_policy(collectives(root))["MainloopSm120TmaWarpSpecialized"].requires[0].value == ">= 3"
        header.unlink()
        assert "MainloopSm120TmaWarpSpecialized" not in by_policy(collectives(root))

    def test_a_wheel_replaced_by_another_is_read_again(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        _outlive_the_clock(monkeypatch)
        wheel = write_wheel(tmp_path / "w.whl", "x/include")
        assert len(collectives(wheel).collectives) == 3
        write_wheel(wheel, "x/include", {"cutlass/gemm/collective/sm120_mma_tma.hpp": "//\n"})
        assert len(collectives(wheel).collectives) == 2

    def test_a_damaged_cache_is_as_good_as_none(self, cutlass: Write, monkeypatch: pytest.MonkeyPatch) -> None:
        _outlive_the_clock(monkeypatch)
        root = cutlass()
        first = collectives(root)
        entries = [path for path in Path(os.environ["TILEWRIGHT_CACHE_DIR"]).rglob("*") if path.is_file()]
        assert len(entries) == 3, "the headers' fingerprint, the index, the nearest known tree"
        for junk in (
            b"",
            b"\0\xff",
            b"[]",
            b'{"version":1}',
            b'{"version":"9.8.7","fingerprint":"0","collectives":[3]}',
        ):
            for path in entries:
                path.write_bytes(junk)
            assert collectives(root) == first

    def test_a_cache_that_cannot_be_written_is_done_without(
        self, cutlass: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        blocked = tmp_path / "file"
        blocked.write_text("not a folder")
        monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(blocked / "cache"))
        assert len(collectives(cutlass()).collectives) == 3

    def test_headers_written_a_moment_ago_are_not_trusted_to_their_time_stamps(self, cutlass: Write) -> None:
        with open_tree(cutlass()) as tree:
            assert tree.signature(("cutlass",)) is None


def _outlive_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let signatures vouch for files that were written just now, as they do two seconds later."""
    monkeypatch.setattr("tilewright.collectives.folder.CLOCK_GRAIN_NS", 0)
    monkeypatch.setattr("tilewright.collectives.wheel.CLOCK_GRAIN_NS", 0)


@pytest.mark.parametrize(
    ("policy", "arch", "array", "scaling"),
    [
        ("MainloopSm120ArrayTmaWarpSpecializedBlockwiseScaling", "sm120", True, "blockwise"),
        ("MainloopSm120TmaWarpSpecializedBlockScaled", "sm120", False, "block_scaled"),
        ("MainloopSm90TmaGmmaWarpSpecializedBlockScalingFP8", "sm90", False, "blockwise"),
        ("MainloopSm90ArrayTmaGmmaWarpSpecializedBlockwise", "sm90", True, "blockwise"),
        ("MainloopSm100RCGroupGemmTmaUmmaWarpSpecializedBlockScaled", "sm100", True, "block_scaled"),
        ("Sm90PtrArrayTmaWarpSpecialized", "sm90", True, "none"),
        ("Nonsense", "unknown", False, "none"),
    ],
)
def test_hardware_and_software_scaling_are_never_mixed_up(policy: str, arch: str, array: bool, scaling: str) -> None:
    """SM90's policies say BlockScaling, and SM90 has no MMA that takes scales."""
    assert describe(policy)[:3] == (arch, array, scaling)


def test_the_answer_is_one_json_document_with_its_schema(cutlass: Write) -> None:
    raw = msgspec.json.decode(msgspec.json.encode(collectives(cutlass())))
    assert raw["schema"] == "tilewright/collectives/1"
    wanted = {"name", "file", "line", "arch", "operation", "policy", "array", "scaling", "sparse", "mixed_input"}
    for item in raw["collectives"]:
        assert wanted | {"schedules", "builders", "copies"} <= set(item)
    assert FILES  # the miniature is what was read
