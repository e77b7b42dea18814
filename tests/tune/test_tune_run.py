"""Runs with workers that hang, crash and are killed: what is kept, what is measured again, what is skipped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import drive
import pytest
from tune_fakes import fake_command  # noqa: F401 - a fixture

from tilewright.errors import InputError, TilewrightError
from tilewright.store.result import key_of
from tilewright.tune.builders import Builders
from tilewright.tune.fleet import LocalFleet
from tilewright.tune.layer import Problem
from tilewright.tune.request import Request
from tilewright.tune.run import Batch, Outcome, Run, Search
from tilewright.tune.trials import Trial, TrialStore

PROBLEM = Problem(kernel="vllm-fused-moe", layer=drive.LAYER, tokens=16)
GOOD = {
    "BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 3,
}  # fmt: skip


def asked(configs: list[dict[str, int]], command: tuple[str, ...], store: TrialStore | None = None) -> list[Trial]:
    """The trials of `configs`, measured in order on one fake worker."""
    found: list[Trial] = []

    def those(problem: Problem) -> Search:
        found.extend((yield Batch([Request(problem, config) for config in configs])))
        return Outcome(problem, None, [], 0)

    fleet = LocalFleet([0], None, lambda request: [], command=command, limit_s=4.0)
    try:
        Run(fleet, store, drive.CONTEXT, drive.Quiet()).tune([PROBLEM], those, resume=False)
    finally:
        fleet.close()
    return found


def test_a_bad_kernel_costs_its_own_trial_only(fake: tuple[str, ...], tmp_path: Path) -> None:
    """Hang, crash, wrong answer and too large a demand are typed; configs before and after are measured."""
    bad = [
        {**GOOD, "num_stages": 5, "GROUP_SIZE_M": 32, "num_warps": 8},
        {**GOOD, "GROUP_SIZE_M": 64, "num_warps": 8},
        {**GOOD, "BLOCK_SIZE_K": 256, "BLOCK_SIZE_N": 256},
        {**GOOD, "BLOCK_SIZE_M": 256},
    ]
    configs = [GOOD, bad[0], {**GOOD, "num_warps": 8}, bad[1], {**GOOD, "num_stages": 2}, bad[2], bad[3], GOOD]
    with TrialStore.append_to(tmp_path / "s.sqlite") as store:
        trials = asked(configs, fake, store)
        assert [trial.fault for trial in trials] == ["", "timeout", "", "crash", "", "wrong", "resources", ""]
        assert all((trial.time_s is None) == bool(trial.fault) for trial in trials)
        assert "SIGABRT" in trials[3].note
        kept = store.of(drive.CONTEXT, PROBLEM)
    assert [trial.fault for trial in kept] == [trial.fault for trial in trials]


def test_a_search_over_bad_kernels_finds_the_best_good_one(tmp_path: Path) -> None:
    """The space is full of configs that hang and crash; the winner is one that runs, and faults are counted."""
    [outcome] = drive.tune(str(tmp_path / "s.sqlite"), [16], 5.0)
    assert outcome.best is not None
    assert outcome.best.config["num_stages"] < 5
    assert outcome.best.config["BLOCK_SIZE_N"] == 128
    assert outcome.best.config["BLOCK_SIZE_K"] == 128


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_run_loses_at_most_the_trial_in_flight(tmp_path: Path, how: signal.Signals) -> None:
    """What was measured and not kept is one trial; with resume, kept ones are not measured again."""
    store, log = tmp_path / "s.sqlite", tmp_path / "log"
    environment = {**os.environ, "FAKE_LOG": str(log), "FAKE_SLOW_S": "0.02"}
    command = [sys.executable, str(Path(__file__).with_name("drive.py")), str(store), "16", "5"]
    first = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 20
    while len(lines(log)) < 12 and time.monotonic() < end:
        time.sleep(0.01)
    first.send_signal(how)
    first.wait(timeout=20)
    measured = lines(log)
    with TrialStore.read(store) as opened:
        kept = opened.of(drive.CONTEXT, PROBLEM)
    assert len(kept) >= 10
    assert len(measured) - len(kept) in (0, 1)
    log.unlink()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    told = Counter(line.split()[0] for line in done.stdout.splitlines())
    assert told["reused"] == len(kept)
    again = Counter(lines(log))
    # The finalists are measured several times on purpose; a look is not repeated.
    looked = {f"16 {sorted(trial.config.items())}" for trial in kept if trial.rung == "look"}
    with TrialStore.read(store) as opened:
        finished = opened.of(drive.CONTEXT, PROBLEM)
    looks = Counter(key_of(trial.config) for trial in finished if trial.rung == "look")
    assert set(looks.values()) == {1}
    assert looked
    assert sum(again.values()) == told["measured"]
    log.unlink()
    third = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert "measured" not in third.stdout
    assert lines(log) == []
    assert third.stdout.splitlines()[-1] == done.stdout.splitlines()[-1]


def test_several_workers_share_the_trials(tmp_path: Path) -> None:
    """Two processes, three problems: each is finished, both workers took part, nothing was measured twice."""
    outcomes = drive.tune(str(tmp_path / "s.sqlite"), [1, 16, 256], 5.0, devices=2)
    assert sorted(outcome.problem.tokens for outcome in outcomes) == [1, 16, 256]
    with TrialStore.read(tmp_path / "s.sqlite") as store:
        trials = [(problem.tokens, trial) for _, problem, trial in store.everything()]
    assert {trial.worker for _, trial in trials} == {"gpu0", "gpu1"}
    looks = Counter((tokens, key_of(trial.config)) for tokens, trial in trials if trial.rung == "look")
    assert set(looks.values()) == {1}
    for tokens in (1, 16, 256):  # finalists are compared on one worker
        assert len({trial.worker for count, trial in trials if count == tokens and trial.rung == "final"}) == 1


def test_another_context_is_not_reused(tmp_path: Path) -> None:
    """Trials of another driver or kernel text say nothing of this one."""
    import msgspec

    path = tmp_path / "s.sqlite"
    drive.tune(str(path), [16], 5.0)
    other = msgspec.structs.replace(drive.CONTEXT, driver="2")
    with TrialStore.read(path) as store:
        assert store.of(drive.CONTEXT, PROBLEM)
        assert store.of(other, PROBLEM) == []


def test_workers_that_cannot_start_end_the_run() -> None:
    """No torch, no GPU: one sentence instead of a fault for every config."""
    words = 'import sys; sys.stdin.readline(); print(\'{"status":"refused","note":"no GPU","fatal":true,'
    words += '"figures":{"fault":"setup"}}\', flush=True)'
    with pytest.raises(TilewrightError, match="No worker can measure here: no GPU"):
        asked([GOOD], (sys.executable, "-c", words))


def test_what_does_not_compile_never_reaches_the_gpu(tmp_path: Path) -> None:
    """A compiler that refuses, and one that crashes, are faults of the config."""
    refusing = 'import sys\nfor line in sys.stdin: print(\'{"status":"failed","note":"no","figures":{"fault":'
    refusing += '"compile"}}\', flush=True)'
    dying = "import os, sys; sys.stdin.readline(); os.abort()"
    for words in (refusing, dying):
        trials: list[Trial] = []

        def those(problem: Problem, trials: list[Trial] = trials) -> Search:
            trials.extend((yield Batch([Request(problem, GOOD)])))
            return Outcome(problem, None, [], 0)

        with Builders(1, (sys.executable, "-c", words)) as builders:
            fleet = LocalFleet([0], builders, lambda request: [{"kind": "x"}], command=("/bin/false",))
            try:
                Run(fleet, None, drive.CONTEXT, drive.Quiet()).tune([PROBLEM], those, resume=False)
            finally:
                fleet.close()
        assert [trial.fault for trial in trials] == ["compile"]


def test_a_compiler_that_is_not_there_is_no_fault_of_a_config() -> None:
    """The run ends with one sentence."""
    told = '{"status":"failed","note":"no Triton","figures":{"fault":"setup"}}'
    words = f"import sys\nfor line in sys.stdin: print({told!r}, flush=True)"

    def those(problem: Problem) -> Search:
        yield Batch([Request(problem, GOOD)])
        return Outcome(problem, None, [], 0)

    with Builders(1, (sys.executable, "-c", words)) as builders:
        fleet = LocalFleet([0], builders, lambda request: [{"kind": "x"}], command=("/bin/false",))
        try:
            with pytest.raises(TilewrightError, match="No worker can measure here: no Triton"):
                Run(fleet, None, drive.CONTEXT, drive.Quiet()).tune([PROBLEM], those, resume=False)
        finally:
            fleet.close()


def test_a_build_is_made_once() -> None:
    """However many trials need it."""
    words = 'import sys\nfor line in sys.stdin: print(\'{"status":"ok"}\', flush=True)'
    with Builders(2, (sys.executable, "-c", words)) as builders:
        first = builders.start([{"kind": "a"}, {"kind": "b"}])
        second = builders.start([{"kind": "b"}, {"kind": "a"}])
        assert [future.result().status for future in first] == ["ok", "ok"]
        assert first == second[::-1]
        assert builders.finished == 2


def test_what_is_waited_for_is_built_first() -> None:
    """Builds ahead are made when nothing else is wanted; one of them that becomes wanted moves up, and is made once."""
    words = 'import sys, time\nfor line in sys.stdin: time.sleep(0.05); print(\'{"status":"ok"}\', flush=True)'
    order: list[str] = []
    with Builders(1, (sys.executable, "-c", words)) as builders:
        ahead = builders.start([{"kind": name} for name in "abcdef"], ahead=True)
        wanted = builders.start([{"kind": "x"}, {"kind": "f"}])
        for name, future in zip("abcdefx", [*ahead, wanted[0]], strict=True):
            future.add_done_callback(lambda _, name=name: order.append(name))
        for future in (*ahead, *wanted):
            future.result(timeout=20)
        assert wanted[1] is ahead[5]
        assert builders.finished == 7
    assert order.index("x") < order.index("c")
    assert order.index("f") < order.index("c")


def test_builders_that_close_let_nobody_wait() -> None:
    """What was not begun is cancelled, what was is answered; at whatever moment it falls, none waits for a time-out."""
    words = "import sys, time\nfor line in sys.stdin: time.sleep(30)"
    begun = time.monotonic()
    for pause_s in (0.0, 0.001, 0.003, 0.01, 0.03, *[0.002] * 15):
        with Builders(1, (sys.executable, "-S", "-c", words)) as builders:
            futures = builders.start([{"kind": name} for name in "abc"])
            while not futures[0].running():
                time.sleep(0.001)
            time.sleep(pause_s)
        assert futures[0].result(timeout=5).status != "ok"
        assert all(future.cancelled() for future in futures[1:])
    assert time.monotonic() - begun < 20, "20 closings, of which each may wait 5 s"


def test_a_newer_store_is_left_alone(tmp_path: Path) -> None:
    """Byte for byte."""
    import sqlite3

    path = tmp_path / "s.sqlite"
    TrialStore.append_to(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with pytest.raises(InputError, match="newer Tilewright"):
        TrialStore.append_to(path)
    assert path.read_bytes() == before


def test_trials_cannot_be_changed(tmp_path: Path) -> None:
    """Append-only is a rule of the file."""
    import sqlite3

    path = tmp_path / "s.sqlite"
    with TrialStore.append_to(path) as store:
        store.append(drive.CONTEXT, PROBLEM, Trial(config=GOOD, rung="look", at="2026-12-02T00:00:00Z", time_s=1e-4))
    connection = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        connection.execute("DELETE FROM trials")
    connection.close()


def test_a_hanging_worker_ends_with_the_run() -> None:
    """SIGKILL of its parent leaves no process that holds the GPU."""
    worker = "import sys, time; from tilewright.bench.parent import end_with_parent; end_with_parent(0.05); "
    worker += "print('up', flush=True); time.sleep(60)"
    words = f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {worker!r}]); p.wait()"
    with subprocess.Popen([sys.executable, "-c", words], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"up\n"
        parent.kill()
        begun = time.monotonic()
        assert parent.stdout.read() == b""  # its worker had the pipe, too
        assert time.monotonic() < begun + 10
