"""A sweep of a real vLLM on this machine, killed with SIGKILL half-way and resumed: `make sweep-demo`.

    python tools/sweep_demo.py --root ENV --model FOLDER --out FOLDER [--aiperf FILE] [--trials 10] [--repeats 3]

ENV is a virtual environment with vLLM, FOLDER a model that it serves with `--load-format dummy`. Writes `first.err`,
`sweep.json` and `facts.json` (what was running before and after the kill) into `--out`, and prints the verdict.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

SPACE = Path(__file__).parent.parent / "tests" / "sweep" / "engine_space.toml"
GOAL = "max output_tok_s s.t. p95_ttft_s < 2"
KILL_IN = 5
"""The run in whose first measurement the sweep is killed."""
GONE_S = 60


def running(marks: tuple[str, ...]) -> list[str]:
    """Processes of the sweep's servers and of what guards and loads them, by their command lines."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
            alive = entry.name.isdigit() and (entry / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            continue
        if alive and any(mark in line for mark in marks) and int(entry.name) != os.getpid():
            found.append(line[:120])
    return found


def main() -> int:
    """Sweep, kill, resume. Exit code 0: as it should be."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--aiperf")
    parser.add_argument("--trials", default="10")
    parser.add_argument("--repeats", default="3")
    parser.add_argument("--confirm", default="1")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable, "-m", "tilewright", "sweep", "--engine", "vllm", "--root", given.root, "--model", given.model,
        "--space", str(SPACE), "--goal", GOAL, "--store", str(given.out / "sweep.sqlite"), "--trials", given.trials,
        "--repeats", given.repeats, "--confirm", given.confirm, "--ready-timeout", "600", "--seed", "1", "--json",
        *(["--aiperf", given.aiperf] if given.aiperf else ["--load-generator", "own"]),
    ]  # fmt: skip
    marks = ("VLLM::", f"{given.root}/bin/vllm", "sweep/supervise.py", "aiperf profile")
    facts: dict[str, object] = {}
    began = False
    with (
        (given.out / "first.err").open("w") as log,
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process,
    ):
        assert process.stderr is not None
        for line in process.stderr:
            log.write(line)
            log.flush()
            print(line, end="", flush=True)
            began = began or line.startswith(f"[{KILL_IN}]")
            if began and line.startswith("    1/"):
                break
        facts["running_before_kill"] = running(marks)
        os.kill(process.pid, signal.SIGKILL)
        begun = time.monotonic()
    while running(marks) and time.monotonic() - begun < GONE_S:
        time.sleep(0.2)
    facts["gone_after_s"] = round(time.monotonic() - begun, 1)
    facts["running_after_kill"] = running(marks)
    print(f"killed with SIGKILL; nothing of it was left after {facts['gone_after_s']} s", flush=True)
    done = subprocess.run([*command, "--resume"], stdout=subprocess.PIPE, check=False)
    (given.out / "sweep.json").write_bytes(done.stdout)
    facts["running_at_end"] = running(marks)
    facts["exit_code"] = done.returncode
    (given.out / "facts.json").write_text(json.dumps(facts, indent=1))
    if done.returncode:
        return done.returncode
    found = json.loads(done.stdout)
    states = [item["status"] for item in found["candidates"]]
    print(found["verdict"]["text"])
    print(f"{len(states)} candidates, {states.count('measured')} measured, {found['seconds'] / 60:.1f} min of runs")
    left = facts["running_after_kill"] or facts["running_at_end"]
    return 1 if left or states.count("measured") < 6 or len(states) - states.count("measured") < 2 else 0


if __name__ == "__main__":
    sys.exit(main())
