"""The index of a real tree (FlashInfer 0.6.2, CUTLASS 4.2.1), against plain text counts and against compiled rows."""

from __future__ import annotations

import re
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from mini_cutlass import own_cache  # noqa: F401

from conftest import truth_rows
from tilewright.collectives.answer import Answer
from tilewright.collectives.known import first_seen, identify, known_trees, nearest_known
from tilewright.collectives.query import Filters, collectives
from tilewright.collectives.suit import suited
from tilewright.collectives.survey import index_of, schedule_tags
from tilewright.collectives.tree import open_tree
from tilewright.cutlass.config import parse_config

pytestmark = pytest.mark.tree

INCLUDE = "flashinfer/data/cutlass/include/"
NVFP4_GROUPED = {
    "arch": "sm120",
    "kind": "grouped",
    "cutlass": "4.2.1",
    "a": "nvfp4",
    "b": "nvfp4",
    "tile": [128, 256, 128],
    "fusion": "finalize",
}


@pytest.fixture(scope="module")
def everything(flashinfer_062: Path) -> Answer:
    return collectives(flashinfer_062)


def without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", lambda m: "\n" * m[0].count("\n"), text, flags=re.S)


def places_in_text(wheel: Path, name: str, folder: str) -> Counter[tuple[str, int]]:
    """Where `struct NAME<` or `class NAME<` stands in the comment-stripped text of the wheel's headers."""
    found: Counter[tuple[str, int]] = Counter()
    pattern = re.compile(rf"\b(?:struct|class)\b(?:\s*\[\[[^\]]*\]\])?\s+{name}\s*<")
    with zipfile.ZipFile(wheel) as archive:
        for path in archive.namelist():
            if path.startswith(INCLUDE + folder) and path.endswith((".hpp", ".inl", ".h")):
                text = without_comments(archive.read(path).decode())
                for match in pattern.finditer(text):
                    found[path, text.count("\n", 0, match.start()) + 1] += 1
    return found


def test_every_specialisation_that_a_text_search_finds_is_indexed_once(
    everything: Answer, flashinfer_062: Path
) -> None:
    for operation, name, folder, count in (
        ("mma", "CollectiveMma", "cutlass/gemm", 42),
        ("epilogue", "CollectiveEpilogue", "cutlass/epilogue", 10),
    ):
        mine = Counter((item.file, item.line) for item in everything.collectives if item.operation == operation)
        assert mine == places_in_text(flashinfer_062, name, folder)
        assert sum(mine.values()) == count


def test_every_builder_that_a_text_search_finds_is_read(everything: Answer, flashinfer_062: Path) -> None:
    """39 stand on one line as `struct CollectiveBuilder<`, which is what makes 91 with the collectives; 3 do not."""
    places = places_in_text(flashinfer_062, "CollectiveBuilder", "cutlass/gemm") + places_in_text(
        flashinfer_062, "CollectiveBuilder", "cutlass/epilogue"
    )
    assert everything.trees[0].builders == sum(places.values()) == 42
    named = {(ref.file, ref.line) for item in everything.collectives for ref in item.builders}
    assert named <= set(places)


def test_sm120_blockwise_shows_both_collectives_and_offers_sm90_as_the_reference(flashinfer_062: Path) -> None:
    answer = collectives(flashinfer_062, Filters(arch="sm120", scaling="blockwise"))
    kinds = {(item.policy, item.array) for item in answer.collectives}
    assert kinds == {
        ("MainloopSm120ArrayTmaWarpSpecializedBlockwiseScaling", True),
        ("MainloopSm120TmaWarpSpecializedBlockwiseScaling", False),
    }
    for item in answer.collectives:
        assert [ref.line for ref in item.builders] == [109]
        assert item.builders[0].file.endswith("builders/sm120_blockwise_mma_builder.inl")
        assert "KernelTmaWarpSpecializedBlockwisePingpongSm120" in item.schedules
        assert ("layout", "TN") in {(need.what, need.value) for need in item.requires}
    assert {(item.arch, item.array, item.operands) for item in answer.references} == {
        ("sm90", True, ("e4m3", "e5m2")),
        ("sm90", False, ("e4m3", "e5m2")),
    }


def test_the_demand_for_a_single_cta_cluster_is_where_the_header_asserts_it(everything: Answer) -> None:
    """Five SM120 mainloops assert it; the two with blockwise scaling do not."""
    sm120 = [item for item in everything.collectives if item.arch == "sm120"]
    demanding = {item.policy for item in sm120 if ("cluster", "1x1x1") in {(n.what, n.value) for n in item.requires}}
    assert demanding == {item.policy for item in sm120 if item.scaling != "blockwise"}
    assert len(demanding) == 5


def test_sm120_kernels_use_sm90s_epilogues(flashinfer_062: Path) -> None:
    answer = collectives(flashinfer_062, Filters(arch="sm120", operation="epilogue"))
    assert {(item.arch, item.policy) for item in answer.collectives} == {
        ("sm90", "Sm90TmaWarpSpecialized"),
        ("sm90", "Sm90PtrArrayTmaWarpSpecialized"),
    }


def test_tags_with_no_builder_name_the_release_that_first_has_one(everything: Answer) -> None:
    """The tags of the grouped FP8 kernel that people looked for in vain up to CUTLASS 4.5."""
    tag = next(t for t in everything.schedules if t.name == "KernelPtrArrayTmaWarpSpecializedCooperativeSm120")
    assert tag.builders == ()
    assert tag.note is not None
    assert "Schedule tag present, no CollectiveBuilder specialization" in tag.note
    assert tag.note.endswith("First present in CUTLASS 4.6.0.")
    policy = next(p for p in everything.unused_policies if p.name == "MainloopSm120ArrayTmaWarpSpecialized")
    assert "4.6.0" in (policy.note or "")


def test_the_tree_is_known_by_its_content(flashinfer_062: Path, everything: Answer) -> None:
    with open_tree(flashinfer_062) as tree:
        (root,) = tree.cutlass_roots()
        known = identify(root)
        assert known is not None
        assert (known.version, known.ruleset) == ("4.2.1", "4.2.1")
        assert "flashinfer-python 0.6.2" in known.names
        near = nearest_known(root)
        assert (near.tree, near.differing) == (known, 0)
        tags = schedule_tags(root)
        assert {"KernelScheduleAuto", "KernelTmaWarpSpecializedPingpong", "TmaWarpSpecialized"} <= tags
        assert "int" not in tags
        assert index_of(root).version == "4.2.1"
    assert everything.trees[0].library == "flashinfer 0.6.2"
    assert everything.cutlass == "4.2.1"


def test_a_changed_tree_is_unknown_and_names_the_nearest(flashinfer_062: Path, tmp_path: Path) -> None:
    changed = tmp_path / "include"
    with zipfile.ZipFile(flashinfer_062) as archive:
        for path in archive.namelist():
            if path.startswith((INCLUDE + "cutlass/", INCLUDE + "cute/")) and not path.endswith("/"):
                target = changed / path[len(INCLUDE) :]
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.read(path))
    header = changed / "cutlass/gemm/dispatch_policy.hpp"
    header.write_text(header.read_text() + "// patched\n")
    answer = collectives(changed)
    assert answer.trees[0].known is None
    assert (answer.trees[0].nearest or "").startswith("CUTLASS 4.2.1, 1 of ")
    assert len(answer.collectives) == 52


def mainloop(name: str | None) -> str | None:
    return name.split("<")[0].split("::")[-1] if name else None


@pytest.mark.parametrize("family", ["sm120", "sm121", "sm90", "sm100", "sm103"])
def test_what_could_run_a_config_is_what_compiling_it_gave(everything: Answer, family: str) -> None:
    """Every compiled row of CUTLASS 4.2.1: the collective that the compiler ended at is among those that could; where
    the row says a schedule, it is the only one; where a builder refused the config, none could."""
    rows = [row for row in truth_rows(family) if row["config"]["cutlass"] == "4.2.1"]
    assert len(rows) > 5
    for row in rows:
        config = parse_config(row["config"])
        verdicts = suited(everything.collectives, config)
        able = [one.policy for one in verdicts if one.can and one.operation == "mma"]
        truth: dict[str, Any] = row["truth"]
        policy, epilogue = mainloop(truth.get("mainloop_policy")), mainloop(truth.get("epilogue_policy"))
        if policy is not None:
            assert policy in able, (row["config"]["id"], able)
            if config.schedule != "auto" or config.arch in ("sm120", "sm121"):
                assert able == [policy], row["config"]["id"]
        elif any(
            text in (truth.get("error") or "") for text in ("programmatic multicast", "Only TN", "PtrArray kernel")
        ):
            assert able == [], row["config"]["id"]
        if epilogue is not None and epilogue.startswith("Sm"):  # others are plain classes, no CollectiveEpilogue
            # The NoSmem collectives derive from others and report the base's policy.
            given = [one.policy for one in verdicts if one.can and one.operation == "epilogue"]
            assert {epilogue, f"{epilogue}WarpSpecialized"} & set(given), row["config"]["id"]


def test_nvfp4_has_one_collective_and_blockwise_is_no_way_around(flashinfer_062: Path) -> None:
    answer = collectives(flashinfer_062, config=parse_config(NVFP4_GROUPED))
    judged = answer.for_config
    assert judged is not None
    verdicts = {one.policy: one for one in judged.verdicts}
    assert [one.policy for one in judged.verdicts if one.can and one.operation == "mma"] == [
        "MainloopSm120ArrayTmaWarpSpecializedBlockScaled"
    ]
    assert [item.policy for item in answer.collectives if item.operation == "mma"] == [
        "MainloopSm120ArrayTmaWarpSpecializedBlockScaled"
    ]
    blockwise = verdicts["MainloopSm120ArrayTmaWarpSpecializedBlockwiseScaling"]
    assert not blockwise.can
    (reason,) = blockwise.reasons
    for words in ("No way around", "in software", "FP8", "nvfp4", "operation"):
        assert words in reason
    assert "one problem a launch" in verdicts["MainloopSm120TmaWarpSpecializedBlockScaled"].reasons[0]
    assert "wgmma" in verdicts["MainloopSm90ArrayTmaGmmaWarpSpecializedBlockwise"].reasons[0]
    assert "tcgen05" in verdicts["MainloopSm100ArrayTmaUmmaWarpSpecializedBlockScaled"].reasons[0]
    assert "2:4" in verdicts["MainloopSm120TmaWarpSpecializedSparseBlockScaled"].reasons[0]
    assert judged.fit is not None
    assert (judged.fit.status, judged.fit.smem_bytes, judged.fit.excess_bytes) == ("overflow", 102_400, 1_024)


def test_a_cluster_is_refused_by_the_collective_and_not_by_the_gpu(flashinfer_062: Path) -> None:
    answer = collectives(flashinfer_062, config=parse_config({**NVFP4_GROUPED, "cluster": [2, 1, 1]}))
    judged = answer.for_config
    assert judged is not None
    first = next(o for o in judged.verdicts if o.policy == "MainloopSm120ArrayTmaWarpSpecializedBlockScaled")
    assert not first.can
    assert "demands a 1x1x1 cluster, yours is 2x1x1" in first.reasons[0]
    assert "SM120 has clusters, up to 8 CTAs, only without TMA multicast" in first.reasons[0]
    assert judged.fit is None


def test_a_cluster_that_no_header_forbids_is_let_through_with_a_warning(flashinfer_062: Path) -> None:
    """SM120's blockwise builder asserts no cluster, and its types compile with 2x1x1."""
    raw = {"arch": "sm120", "op_class": "blockwise", "a": "e4m3", "tile": [128, 128, 128], "cluster": [2, 1, 1]}
    judged = collectives(flashinfer_062, config=parse_config({**raw, "scale_granularity": [1, 128, 128]})).for_config
    assert judged is not None
    assert [o.policy for o in judged.verdicts if o.can and o.operation == "mma"] == [
        "MainloopSm120TmaWarpSpecializedBlockwiseScaling"
    ]
    assert any("TMA multicast, which SM120 does not have" in note for note in judged.notes)


def test_grouped_fp8_on_sm120_names_the_first_release_that_has_it(flashinfer_062: Path) -> None:
    config = parse_config({"arch": "sm121", "kind": "grouped", "a": "e4m3", "tile": [128, 128, 128]})
    judged = collectives(flashinfer_062, config=config).for_config
    assert judged is not None
    assert not any(one.can and one.operation == "mma" for one in judged.verdicts)
    assert (judged.first_release, judged.first_policy) == ("4.6.0", "MainloopSm120ArrayTmaWarpSpecialized")


def test_the_known_trees_are_in_order_and_complete() -> None:
    trees = known_trees()
    names = [name for tree in trees.values() for name in tree.names]
    assert len(names) == len(set(names))
    releases = {name.removeprefix("CUTLASS ") for name in names if name.startswith("CUTLASS ")}
    assert {"3.9.2", "4.2.1", "4.3.6", "4.4.2", "4.5.0", "4.7.0"} <= releases
    assert all(tree.ruleset in releases for tree in trees.values())
    seen = first_seen()
    assert (seen.oldest, seen.newest) == ("3.9.0", "4.7.0")
    assert set(seen.built) <= set(seen.collectives)
    bundle = next(tree for tree in trees.values() if "flashinfer-python 0.7.4" in tree.names)
    assert (bundle.version, bundle.ruleset) == ("4.5.0", "4.5.0")
    assert "CUTLASS 4.5.0" not in bundle.names, "it reports 4.5.0 and differs from the tag"
