"""Ctrl-C ends the program quietly, with the signal's exit status, whenever it comes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tilewright.cli.main import STOPPED_BY

START = """
import sys, tilewright.__main__ as m
def hear(event, words):
    if event == "import" and words[0] == "tilewright.cli":
        print(".", flush=True)
sys.addaudithook(hear)
m.run()
"""
"""The program, with a word on stdout when its first lines have run; before them is the start of the interpreter."""
FIT = ("fit", "--arch", "sm120", "--a", "nvfp4", "--tile", "128x128x128", "--json")


def stopped_after(seconds: float, words: tuple[str, ...], code: str = START) -> tuple[int, str]:
    """(exit status, stderr) of a run to which SIGINT is sent `seconds` after its first line."""
    command = [sys.executable, "-c", code, *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as child:  # type: ignore[call-overload]
        assert child.stdout.readline() == b".\n"
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:  # sleep() is too coarse for the first moments
            pass
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=60)
    return child.returncode, err.decode()


@pytest.mark.parametrize("words", [FIT, ("flags", "vllm", "--json"), ("gpus",)], ids=lambda words: words[0])
def test_at_whatever_moment_it_comes_no_traceback_is_shown(words: tuple[str, ...]) -> None:
    """Every moment of start-up, of the command and of the interpreter's end, on a scale that is finest at first."""
    codes: set[int] = set()
    for step in range(28):
        code, err = stopped_after(0.0005 * 1.25**step, words)
        assert code in (0, -signal.SIGINT), (step, err)
        assert "Traceback" not in err, (step, err)
        assert "Exception ignored" not in err, (step, err)
        assert len(err.strip().splitlines()) <= 1, (step, err)
        codes.add(code)
    assert -signal.SIGINT in codes


def test_before_the_command_line_is_imported_it_ends_without_a_word() -> None:
    slow = START.replace("flush=True)", "flush=True); import time; time.sleep(30)")
    assert stopped_after(0.05, FIT, slow) == (-signal.SIGINT, "")


def test_a_callback_that_may_not_raise_does_not_swallow_it() -> None:
    """The interpreter prints a Ctrl-C in a destructor as ignored, and goes on; here it still ends the run."""
    code = (
        "import sys, time, tilewright.__main__ as m, tilewright.cli.main as c\n"
        "class Slow:\n"
        "    def __del__(self):\n"
        "        print('.', flush=True); time.sleep(30)\n"
        "def invoke():\n"
        "    try:\n"
        "        Slow(); time.sleep(30)\n"
        "    except KeyboardInterrupt:\n"
        "        return 130\n"
        "c.invoke = invoke\n"
        "m.run()"
    )
    assert stopped_after(0.1, (), code) == (-signal.SIGINT, "")


def test_a_loop_in_a_shell_stops_with_it(tmp_path: Path) -> None:
    """The process dies of the signal: a shell answers 130, after what was registered for the end has run."""
    done = tmp_path / "done"
    code = (
        "import atexit, os, pathlib, signal, tilewright.__main__ as m, tilewright.cli.main as c\n"
        "def invoke():\n"
        f"    atexit.register(lambda: pathlib.Path({str(done)!r}).write_text('in order'))\n"
        "    print('kept')\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "c.invoke = invoke\n"
        "m.run()"
    )
    script = f"'{sys.executable}' -c \"$1\"; echo $?"
    shell = subprocess.run(["sh", "-c", script, "sh", code], capture_output=True, text=True, timeout=60, check=True)
    assert shell.stdout.split() == ["kept", "130"]
    assert shell.stderr == ""
    assert done.read_text() == "in order"


def test_who_starts_it_with_ctrl_c_ignored_has_it_ignored() -> None:
    script = f"trap '' INT; '{sys.executable}' -c \"$1\" fit --from - --json"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(["sh", "-c", script, "sh", START], start_new_session=True, **pipes) as child:  # type: ignore[call-overload]
        assert child.stdout.readline() == b".\n"
        for _ in range(5):
            os.killpg(child.pid, signal.SIGINT)
            time.sleep(0.05)
        out, err = child.communicate(b'{"arch": "sm120", "a": "nvfp4", "tile": [128, 128, 128]}\n', timeout=60)
    assert child.returncode == 0, err
    assert b'"status":"fits"' in out


def test_the_exit_codes_are_those_of_a_shell() -> None:
    assert STOPPED_BY == {129: signal.SIGHUP, 130: signal.SIGINT, 143: signal.SIGTERM}
