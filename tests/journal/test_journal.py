"""The journal: experiments are kept as they were, judged by their spread, and a plan learns from them."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.cli.main import invoke
from tilewright.errors import InputError
from tilewright.journal import Experiment, Journal, Recorded, judge
from tilewright.journal.journal import standing
from tilewright.journal.learn import learn, same_conditions
from tilewright.plan.finding import Plan
from tilewright.plan.make import make_plan, make_target
from tilewright.report.schema import checker
from tilewright.store import Result, Store
from tilewright.store.database import APPLICATION_ID, MIGRATIONS

GLM: dict[str, Any] = {"model": "GLM-5-NVFP4", "gpu": "rtx-pro-6000-server", "gpus": 8, "engine": "sglang"}
HERE: dict[str, str | int] = {"model": "GLM-5", "gpu": "rtx-pro-6000-server", "gpus": 8, "engine": "sglang", "tp": 8}


def tried(**change: Any) -> Experiment:
    base: dict[str, Any] = {
        "at": "2026-12-02T13:00:00Z",
        "finding": "more_requests",
        "hypothesis": "more requests, more tokens",
        "change": "--max-running-requests 64",
        "verdict": "kept",
        "metric": "decode tok/s",
        "before": [427.0, 425.0, 429.0],
        "after": [547.0, 545.0, 549.0],
        "conditions": dict(HERE),
    }
    return Experiment(**{**base, **change})


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "results.sqlite"
    monkeypatch.setenv("TILEWRIGHT_STORE", str(path))
    return path


# --- the file


def test_what_is_recorded_is_kept_in_order_and_once(store: Path) -> None:
    with Journal.append_to(store) as journal:
        assert journal.record(tried()).id == 1
        assert journal.record(tried(verdict="reverted")).id == 2
        assert journal.record(tried()).id == 1
    with Journal.read(store) as journal:
        assert [item.experiment.verdict for item in journal.entries()] == ["kept", "reverted"]


def test_nothing_recorded_is_changed_or_dropped(store: Path) -> None:
    with Journal.append_to(store) as journal:
        journal.record(tried())
    connection = sqlite3.connect(store)
    for statement in ("UPDATE experiments SET finding = 'x'", "DELETE FROM experiments"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            connection.execute(statement)
    connection.close()


def test_an_entry_is_corrected_by_another(store: Path) -> None:
    with Journal.append_to(store) as journal:
        journal.record(tried())
        journal.record(tried(verdict="reverted", supersedes=1))
        assert [item.id for item in standing(journal.entries())] == [2]
        with pytest.raises(InputError, match="no such entry"):
            journal.record(tried(supersedes=9))


def test_a_store_of_before_there_were_journals_is_brought_forward(store: Path) -> None:
    """A file of schema version 1 with a result in it: readable as it is, and writable after a migration."""
    connection = sqlite3.connect(store, isolation_level=None)
    for statement in MIGRATIONS[0]:
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("PRAGMA user_version = 1")
    connection.close()
    with Journal.read(store) as journal:
        assert journal.entries() == []
    with Store.append_to(store) as results:
        results.append([Result(kind="moe", backend="x", at="2026-12-02T00:00:00Z", status="ok", time_s=1.0)])
    with Journal.append_to(store) as journal:
        assert journal.record(tried()).id == 1
    with Store.read(store) as results:
        assert len(list(results.find())) == 1


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"before": []}, "before"),
        ({"after": [float("nan")]}, "after"),
        ({"after": [-1.0]}, "after"),
        ({"change": " "}, "change"),
        ({"conditions": {"moon": "full"}}, "conditions"),
    ],
)
def test_what_cannot_be_is_refused(store: Path, change: dict[str, Any], field: str) -> None:
    with Journal.append_to(store) as journal, pytest.raises(InputError) as caught:
        journal.record(tried(**change))
    assert caught.value.field == field


# --- what samples say


def replace(item: Recorded, conditions: dict[str, str | int]) -> Recorded:
    experiment = msgspec.structs.replace(item.experiment, conditions=conditions)
    return msgspec.structs.replace(item, experiment=experiment)


def test_a_gain_beyond_the_spread_is_one_and_noise_is_not() -> None:
    clear = judge(tried())
    assert (clear.gain_pct, clear.apart, clear.suggests) == (pytest.approx(28.1, abs=0.1), True, "kept")
    assert judge(tried(before=[100, 104], after=[103, 99])).suggests == "inconclusive"
    assert judge(tried(before=[100, 101], after=[90, 91])).suggests == "reverted"
    assert judge(tried(before=[100], after=[200])).suggests == "inconclusive", "one sample has no spread"
    faster = judge(tried(better="lower", before=[20.0, 20.1], after=[10.0, 10.1]))
    assert (faster.gain_pct, faster.suggests) == (pytest.approx(99.5, abs=0.5), "kept")
    assert judge(tried(before=[0.0, 0.0], after=[1.0, 1.1])).gain_pct is None


@pytest.mark.parametrize(
    ("before", "after", "said", "gain"),
    [
        ("1.5,1.5", "3.5,3.5", "TTFT s 1.5 -> 3.5 (+133.3 %, worse: lower is better), reverted", -57.1),
        ("3,3.2", "1.55,1.55", "TTFT s 3.1 -> 1.55 (-50.0 %, better: lower is better), kept", 100),
        ("3", "3", "TTFT s 3 -> 3 (+0.0 %), inconclusive", 0),
    ],
)
def test_a_percentage_of_a_latency_is_of_the_latency(
    store: Path, capsys: pytest.CaptureFixture[str], before: str, after: str, said: str, gain: float
) -> None:
    record = [
        "record",
        "--change",
        "x",
        "--metric",
        "TTFT s",
        "--lower-is-better",
        "--before",
        before,
        "--after",
        after,
    ]
    code, out, _ = run(capsys, *record)
    assert (code, said in out) == (0, True), out
    told = said.partition("(")[2].partition("%")[0]
    assert told in run(capsys, "journal")[1]
    (entry,) = json.loads(run(capsys, "journal", "--json")[1])["entries"]
    assert entry["judgement"]["gain_pct"] == pytest.approx(gain, abs=0.05)
    with Journal.read(store) as journal:
        (row,) = learn([], [], [replace(journal.entries()[0], HERE)], HERE).tried
    assert row["gave"].startswith(told)


def test_a_change_that_is_no_number_is_none() -> None:
    said = judge(tried(before=[1e-300], after=[1e300]))
    assert (said.change_pct, said.gain_pct) == (None, None)


@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=6),
    st.lists(st.floats(0, 1e6), min_size=1, max_size=6),
    st.sampled_from(["higher", "lower"]),
)
def test_a_verdict_never_contradicts_its_samples(before: list[float], after: list[float], better: Any) -> None:
    said = judge(tried(before=before, after=after, better=better))
    if said.suggests != "inconclusive":
        good = said.after > said.before if better == "higher" else said.after < said.before
        assert said.apart
        assert good == (said.suggests == "kept")


# --- what a plan learns


def ids(plan: Plan) -> list[str]:
    return [item.id for item in plan.findings]


def learnt(*experiments: Experiment, tmp: Path) -> Plan:
    with Journal.append_to(tmp / "j.sqlite") as journal:
        for experiment in experiments:
            journal.record(experiment)
        return make_plan(make_target(**GLM), standing(journal.entries()))


def test_what_was_kept_is_done_and_listed(tmp_path: Path) -> None:
    plan = learnt(tried(), tmp=tmp_path)
    assert "more_requests" not in ids(plan)
    (row,) = plan.baseline["tried"]
    assert (row["before"], row["after"], row["gain_pct"], row["verdict"]) == (427, 547, 28.1, "kept")


def test_what_was_refuted_under_the_same_conditions_is_not_proposed_again(tmp_path: Path) -> None:
    plan = learnt(tried(verdict="reverted", note="time to first token doubled"), tmp=tmp_path)
    assert "more_requests" not in ids(plan)
    item = next(one for one in plan.rejected if one.idea.startswith("Let up to"))
    assert item.evidence[0].kind == "measured"
    assert "time to first token doubled" in item.evidence[0].text


def test_the_last_word_counts(tmp_path: Path) -> None:
    plan = learnt(tried(verdict="reverted"), tried(verdict="inconclusive", at="2026-12-03T00:00:00Z"), tmp=tmp_path)
    assert "more_requests" in ids(plan)


def test_what_failed_under_other_conditions_only_lowers_confidence(tmp_path: Path) -> None:
    plain = make_plan(make_target(**GLM))
    before = next(item for item in plain.findings if item.id == "more_requests")
    plan = learnt(tried(verdict="reverted", conditions={**HERE, "tp": 4}), tmp=tmp_path)
    after = next(item for item in plan.findings if item.id == "more_requests")
    assert after.confidence == before.confidence / 2
    assert after.rank >= before.rank
    assert "Under other conditions" in after.evidence[0].text
    elsewhere = learnt(tried(verdict="reverted", conditions={**HERE, "gpu": "b200"}), tmp=tmp_path)
    assert elsewhere.baseline["tried"] == plan.baseline["tried"], "another GPU says nothing here"


def test_what_was_kept_under_other_conditions_is_trusted_with_its_gain(tmp_path: Path) -> None:
    plan = learnt(tried(conditions={**HERE, "engine_version": "0.5.1", "tp": 4}), tmp=tmp_path)
    item = next(one for one in plan.findings if one.id == "more_requests")
    assert item.confidence == 0.8
    assert (item.gain.expected, item.gain.basis) == (28.1, "measured")


def test_a_gain_in_something_else_is_not_taken_over(tmp_path: Path) -> None:
    plan = learnt(tried(conditions={**HERE, "tp": 4}, metric="KV tokens"), tmp=tmp_path)
    item = next(one for one in plan.findings if one.id == "more_requests")
    assert item.gain.basis == "published"


def test_conditions_are_the_same_as_far_as_both_say() -> None:
    assert same_conditions({"gpu": "a"}, {"gpu": "a", "tp": 8})
    assert same_conditions({}, {"gpu": "a"})
    assert not same_conditions({"gpu": "a", "tp": 4}, {"gpu": "a", "tp": 8})


def test_learning_from_nothing_changes_nothing() -> None:
    target = make_target(**GLM)
    assert ids(make_plan(target, [])) == ids(make_plan(target))
    assert learn([], [], [], {}).tried == []


# --- the commands


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = invoke(list(args))
    out, err = capsys.readouterr()
    return code, out, err


def test_record_and_journal(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "out"
    flags = ["--model", "GLM-5-NVFP4", "--gpu", "rtx-pro-6000-server", "--gpus", "8"]
    assert run(capsys, "plan", *flags, "--out", str(folder))[0] == 0
    plan = str(folder / "plan.json")
    record = ["record", "--plan", plan, "--finding", "more_requests", "--change", "--max-running-requests 64"]
    code, out, _ = run(capsys, *record, "--before", "427.4,425.9", "--after", "547.1,545.0", "--json")
    assert code == 0
    document = json.loads(out)
    checker("record")(document)
    assert document["entry"]["experiment"]["verdict"] == "kept"
    assert document["entry"]["experiment"]["conditions"]["gpu"] == "rtx-pro-6000-server"
    assert document["entry"]["experiment"]["hypothesis"].startswith("Let up to 5")
    code, out, _ = run(capsys, "journal", "--json")
    checker("journal")(json.loads(out))
    assert "+28.0 %" in run(capsys, "journal")[1]
    assert "- finding: more_requests" in run(capsys, "journal", "--markdown")[1]
    code, out, _ = run(capsys, "plan", *flags, "--journal", "--json")
    assert code == 0
    assert "more_requests" not in [item["id"] for item in json.loads(out)["findings"]]
    assert "## What was tried" in run(capsys, "plan", *flags, "--journal", str(store))[1]


def test_a_series_is_numbered_and_never_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["plan", "--model", "GLM-5-NVFP4", "--gpu", "rtx-pro-6000-server", "--gpus", "8", "--series", str(tmp_path)]
    for number in (1, 2):
        assert run(capsys, *flags)[0] == 0
        assert (tmp_path / f"plan-{number:02d}.json").stat().st_size > 1000
    first = (tmp_path / "plan-01.md").read_bytes()
    (tmp_path / "plan-07.md").write_text("mine")
    assert run(capsys, *flags)[0] == 0
    assert (tmp_path / "plan-08.md").exists()
    assert (tmp_path / "plan-01.md").read_bytes() == first
    assert (tmp_path / "plan-07.md").read_text() == "mine"
    (tmp_path / "file").touch()
    code, _, err = run(capsys, *flags[:-1], str(tmp_path / "file"))
    assert (code, len(err.splitlines())) == (2, 1)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("record", "--change", "x", "--before", "a", "--after", "1"), "no list of numbers"),
        (("record", "--change", "x", "--before", "", "--after", "1"), "no sample"),
        (("record", "--change", "x", "--before", "1,,2", "--after", "1"), "no list of numbers"),
        (("record", "--change", "x", "--before", "1", "--after", "1,2,"), "no list of numbers"),
        (("record", "--change", "x", "--before", ";1", "--after", "1"), "no list of numbers"),
        (("record", "--change", "x", "--before", "1", "--after", "1", "--condition", "moon=full"), "NAME=VALUE"),
        (("record", "--change", "x", "--before", "1", "--after", "1", "--plan", "/none"), "no plan.json"),
        (("record", "--change", "x", "--before", "1", "--after", "nan"), "finite numbers"),
        (("record", "--before", "1", "--after", "1"), "--change"),
        (("record", "--change", "x", "--before", "1", "--after", "1", "--condition", "gpu=h2000"), "No gpu is called"),
        (("journal", "--store", "/none/at/all"), "There is no store"),
    ],
)
def test_bad_input_is_one_sentence(
    store: Path, capsys: pytest.CaptureFixture[str], args: tuple[str, ...], said: str
) -> None:
    code, out, err = run(capsys, *args)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert said in err
    assert not store.exists()


def test_a_finding_that_the_plan_has_not(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"schema": "tilewright/plan/1", "target": {}, "findings": [{"id": "a", "title": "A"}]}))
    args = ["record", "--plan", str(plan), "--finding", "b", "--change", "x", "--before", "1", "--after", "2"]
    code, _, err = run(capsys, *args)
    assert code == 2
    assert "none of the plan's: a" in err


def test_text_from_outside_is_no_markdown(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Journal.append_to(store) as journal:
        journal.record(tried(change="<script>|`x`", note="[a](b)\n# h"))
    out = run(capsys, "journal", "--markdown")[1]
    assert "<script>" not in out.replace("\\<script\\>", "")
    assert "\n# h" not in out
