"""Running one program on the GPU, in a process that it can lose: hang, fault or die, it takes nothing with it."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from tilewright.probe.compiler import run
from tilewright.verify.build import supervised
from tilewright.verify.model import Call, Run, Values

__all__ = ["parse_steps", "read_sizes", "run_program"]

_MARK: Final = "@tw "
_MAX_LINES: Final = 200
_SIZES_TIMEOUT_S: Final = 60.0
_SIGNALS_FROM: Final = 128
"""`supervise.py` answers 128 + n for a program that signal n ended, as shells do."""
_ALARM: Final = 14
"""SIGALRM: the program's own time limit."""
GRACE_S: Final = 15.0
"""What the program's own limit is shorter than ours."""
_FAILED: Final = 1


def parse_steps(output: str) -> list[dict[str, Any]]:
    """The lines that the program wrote for us; everything else is passed over."""
    steps: list[dict[str, Any]] = []
    for line in output.splitlines():
        if not line.startswith(_MARK) or len(steps) >= _MAX_LINES:
            continue
        try:
            value: Any = msgspec.json.decode(line[len(_MARK) :].encode("utf-8", "replace"))
        except msgspec.DecodeError:
            continue  # cut short where the program died
        if isinstance(value, dict):
            steps.append(cast("dict[str, Any]", value))
    return steps


def _start(command: list[str], timeout_s: float) -> tuple[int | None, str, bool]:
    folder = Path(tempfile.mkdtemp(prefix="tilewright-verify-"))
    try:
        done = run(supervised(command), folder, timeout_s)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return done.code, done.output, done.timed_out


def read_sizes(program: Path) -> tuple[int | None, int | None]:
    """(bytes of shared memory, threads) of the built kernel; needs no GPU."""
    _, output, _ = _start([str(program), "sizes"], _SIZES_TIMEOUT_S)
    told = [step for step in parse_steps(output) if step.get("step") == "sizes"]
    sizes: dict[str, Any] = told[0] if told else {}
    return _int(sizes, "smem_bytes"), _int(sizes, "threads")


def _int(step: dict[str, Any], key: str) -> int | None:
    value: Any = step.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def run_program(program: Path, device: int, timeout_s: float) -> Run:
    """The program on the GPU `device`, ended after `timeout_s` seconds at the latest."""
    started = time.monotonic()
    own = max(1, round(timeout_s))
    code, output, timed_out = _start([str(program), str(device), str(own)], timeout_s + GRACE_S)
    seconds = round(time.monotonic() - started, 1)
    return read_run(parse_steps(output), output, code, timed_out=timed_out, seconds=seconds)


def read_run(steps: list[dict[str, Any]], output: str, code: int | None, *, timed_out: bool, seconds: float) -> Run:
    """What the program's lines and its end say."""
    named = {str(step.get("step")): step for step in steps}
    calls = [
        Call(str(step["step"]), cast("int", _int(step, "code")), str(step["name"]))
        for step in steps
        if "name" in step and _int(step, "code") is not None
    ]
    signal = code - _SIGNALS_FROM if code is not None and code > _SIGNALS_FROM else None
    if timed_out or signal == _ALARM:
        end = "hung"
    elif code == 0:
        end = "finished"
    elif code == _FAILED:
        end = "failed"
    else:
        end = "died"
    problem, function = named.get("problem", {}), named.get("function", {})
    return Run(
        calls=calls,
        end=end,
        signal=signal,
        seconds=seconds,
        limit_bytes=_int(named.get("device", {}), "limit_bytes"),
        registers=_int(function, "registers"),
        local_bytes=_int(function, "local_bytes"),
        blocks_per_sm=_int(named.get("occupancy", {}), "blocks_per_sm"),
        problem=[_int(problem, key) or 0 for key in ("groups", "m", "n", "k")] if problem else None,
        values=_values(named.get("values")),
        last_words=None if end == "finished" else _last_words(output),
    )


def _values(step: dict[str, Any] | None) -> Values | None:
    if step is None:
        return None
    try:
        return msgspec.convert({key: value for key, value in step.items() if key != "step"}, Values)
    except msgspec.ValidationError:
        return None


def _last_words(output: str) -> str | None:
    """The last line that is not ours: what a runtime or the loader said."""
    lines = [line.strip() for line in output.splitlines() if line.strip() and not line.startswith(_MARK)]
    return lines[-1][:300] if lines else None
