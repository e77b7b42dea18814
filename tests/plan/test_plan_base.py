"""Ranking, version windows, published evidence, the snapshot reader, the log reader and the files of a plan."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.errors import InputError
from tilewright.observe.snapshot import Snapshot, load_snapshot, parse_snapshot
from tilewright.plan import evidence, log
from tilewright.plan.finding import Draft, Fix, Gain
from tilewright.plan.ranking import rank, score
from tilewright.report.plan_files import check_ours, seal, write_plan
from tilewright.triton_.tile import fused_moe_bytes, max_stages
from tilewright.versions import version_key, within


def draft(
    name: str, expected: float | None, confidence: float = 0.5, effort: float = 1.0, metric: Any = "decode"
) -> Draft:
    return Draft(
        id=name,
        title=name,
        layer="runtime",
        evidence=[],
        cause="",
        fix=Fix(""),
        gain=Gain("", None, expected, None, "modelled"),
        confidence=confidence,
        effort_h=effort,
        metric=metric,
        confirm="",
        undo="",
    )


DRAFTS = st.lists(
    st.builds(
        draft,
        st.text("abcdef", min_size=1, max_size=6),
        st.none() | st.floats(0, 500),
        st.floats(0, 1),
        st.floats(0, 100),
        st.sampled_from(["runs", "decode", "prefill", "capacity", "startup"]),
    ),
    max_size=12,
    unique_by=lambda item: item.id,
)


@given(DRAFTS, st.randoms(use_true_random=False))
def test_ranks_do_not_depend_on_the_order_in_which_rules_ran(drafts: list[Draft], random: Any) -> None:
    shuffled = list(drafts)
    random.shuffle(shuffled)
    assert rank(drafts) == rank(shuffled)


@given(DRAFTS)
def test_ranks_count_from_one_blockers_first_then_by_score(drafts: list[Draft]) -> None:
    by_id = {item.id: item for item in drafts}
    found = rank(drafts)
    assert [item.rank for item in found] == list(range(1, len(drafts) + 1))
    blocking = [by_id[item.id].metric == "runs" for item in found]
    assert blocking == sorted(blocking, reverse=True)
    scores = [score(by_id[item.id]) for item in found if by_id[item.id].metric != "runs"]
    assert scores == sorted(scores, reverse=True)


@given(st.floats(0.1, 100), st.floats(0.05, 1), st.floats(0.25, 50), st.floats(1.01, 5))
def test_more_gain_or_confidence_or_less_effort_never_lowers_a_score(
    gain: float, confidence: float, effort: float, factor: float
) -> None:
    base = score(draft("a", gain, confidence, effort))
    assert score(draft("a", gain * factor, confidence, effort)) > base
    assert score(draft("a", gain, min(1.0, confidence * factor), effort)) >= base
    assert score(draft("a", gain, confidence, effort * factor)) < base


@pytest.mark.parametrize(
    ("smaller", "larger"),
    [
        ("0.5.9", "0.5.10"),
        ("0.7.2", "0.7.2.post1"),
        ("0.17.0rc1", "0.17.0"),
        ("0.5.8.dev3", "0.5.8"),
        ("4.4.1", "4.4.2"),
        ("1.0", "1.0.1"),
    ],
)
def test_versions_order_as_packages_do(smaller: str, larger: str) -> None:
    assert version_key(smaller) < version_key(larger)


def test_versions_equal_where_only_zeros_or_local_parts_differ() -> None:
    assert version_key("v0.33") == version_key("0.33.0") == version_key("0.33.0+cu130")


@pytest.mark.parametrize("text", ["", "latest", "1..2", "0.5.x", "9" * 40, "１.2"])
def test_what_is_no_version_is_refused_with_one_sentence(text: str) -> None:
    with pytest.raises(InputError, match="no version number"):
        version_key(text, "engine-version")


def test_a_window_holds_fails_or_cannot_be_told() -> None:
    assert within("0.5.9", ">=0.5,<0.6") is True
    assert within("0.6.0", ">=0.5,<0.6") is False
    assert within(None, ">=0.5,<0.6") is None
    assert within(None, None) is True


def test_every_published_entry_has_a_source_a_date_and_well_formed_windows() -> None:
    for entry in evidence.entries().values():
        assert entry.text, entry.id
        assert entry.source, entry.id
        assert re.fullmatch(r"20\d\d(-\d\d){0,2}", entry.date), entry.id
        for window in entry.windows.values():
            assert within("1.0", window) in (True, False)


@pytest.mark.parametrize("make", ["missing", "folder"])
def test_a_log_that_cannot_be_read_is_one_sentence(tmp_path: Path, make: str) -> None:
    path = tmp_path / "no.log"
    if make == "folder":
        path.mkdir()
    with pytest.raises(InputError, match=r"--log .* cannot be read"):
        log.scan_log(path)


GOOD = {"schema": "tilewright/observe/1", "gpus": [{"index": 0, "power_draw_w": 235, "power_limit_w": 600}]}


def test_a_snapshot_may_leave_out_what_it_does_not_know() -> None:
    snapshot = parse_snapshot(json.dumps(GOOD).encode())
    assert snapshot.gpus[0].power_draw_w == 235
    assert snapshot.gpus[0].pcie_width is None
    assert snapshot.engine is None


def test_the_documented_snapshot_is_a_legal_one() -> None:
    text = (Path(__file__).parents[2] / "docs" / "observe-schema.md").read_text(encoding="utf-8")
    block = text.split("```json\n")[1].split("```")[0]
    snapshot = parse_snapshot(block.encode())
    assert snapshot.engine is not None
    assert snapshot.metrics.waiting == 12


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"schema": "tilewright/observe/2"}, "this version reads"),
        ({"schema": None}, "this version reads"),
        ({"gpus": None}, "Expected `array`"),
        ({"gpus": [{"index": 0}, {"index": 0}]}, "same index"),
        ({"gpus": [{"index": 0, "power_draw_w": -1}]}, "power_draw_w"),
        ({"gpus": [{"index": 0, "power_draw_w": "235"}]}, "power_draw_w"),
        ({"gpus": [{"index": 0, "voltage": 1}]}, "voltage"),
        ({"gpus": [{"index": 0, "throttle_reasons": ["too_hot"]}]}, "too_hot"),
        ({"metrics": {"kv_usage": 21}}, "kv_usage"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_a_wrong_snapshot_is_one_sentence_that_names_the_key(change: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=re.escape(says)) as caught:
        parse_snapshot(json.dumps({**GOOD, **change}).encode())
    assert "\n" not in caught.value.msg


@given(
    st.binary(max_size=300)
    | st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists).map(msgspec.json.encode)
)
def test_garbage_is_never_a_snapshot_and_never_a_traceback(raw: bytes) -> None:
    with pytest.raises(InputError):
        parse_snapshot(raw)


def test_deep_nesting_is_refused() -> None:
    raw = b'{"schema":"tilewright/observe/1","gpus":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    with pytest.raises(InputError):
        parse_snapshot(raw)


def test_a_snapshot_that_is_no_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load_snapshot(tmp_path)


def test_snapshot_survives_a_round_trip() -> None:
    snapshot = parse_snapshot(json.dumps(GOOD).encode())
    assert msgspec.json.decode(msgspec.json.encode(snapshot), type=Snapshot) == snapshot


def test_a_plan_is_rewritten_where_it_is_ours_and_kept_where_it_is_not(tmp_path: Path) -> None:
    document = b'{"schema":"tilewright/plan/1"}'
    write_plan(tmp_path, "# one", document)
    write_plan(tmp_path, "# two", document)
    markdown = tmp_path / "plan.md"
    assert markdown.read_text(encoding="utf-8").startswith("# two\n")
    markdown.write_text(markdown.read_text(encoding="utf-8").replace("two", "my notes"), encoding="utf-8")
    with pytest.raises(InputError, match="edited after"):
        write_plan(tmp_path, "# three", document)
    assert "my notes" in markdown.read_text(encoding="utf-8")
    write_plan(tmp_path, "# three", document, force=True)
    assert markdown.read_text(encoding="utf-8").startswith("# three\n")
    assert sorted(item.name for item in tmp_path.iterdir()) == ["plan.json", "plan.md"]


@pytest.mark.parametrize(("name", "text"), [("plan.md", "# my own plan\n"), ("plan.json", '{"a": 1}')])
def test_somebody_elses_file_is_never_overwritten(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="not written by tilewright"):
        write_plan(tmp_path, "# x", b'{"schema":"tilewright/plan/1"}')
    assert (tmp_path / name).read_text(encoding="utf-8") == text
    assert [item.name for item in tmp_path.iterdir()] == [name]


def test_an_output_that_is_no_folder_is_one_sentence(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("x", encoding="utf-8")
    with pytest.raises(InputError, match="--out"):
        write_plan(target, "# x", b"{}")
    with pytest.raises(InputError, match="--out"):
        write_plan(Path("a\0b"), "# x", b"{}")


def test_a_folder_named_plan_md_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plan.md").mkdir()
    with pytest.raises(InputError, match="no regular file"):
        write_plan(tmp_path, "# x", b"{}")


def test_the_seal_covers_the_text(tmp_path: Path) -> None:
    path = tmp_path / "plan.md"
    path.write_text(seal("# text"), encoding="utf-8")
    check_ours(path)


def test_triton_bytes_are_those_of_the_reports() -> None:
    """Cases C06, C07, C08 and claim W9."""
    assert [fused_moe_bytes(128, 256, 128, 1, stages) for stages in (4, 3, 2)] == [147456, 98304, 49152]
    assert max_stages(128, 256, 128, 1, 101376) == 3
    assert max_stages(128, 256, 128, 1, 232448) == 5
    assert max_stages(256, 256, 256, 1, 101376) == 0
