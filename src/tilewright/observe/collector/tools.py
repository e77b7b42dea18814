"""Calling programs and reading files of a host without ever failing: what cannot be had is a note."""

from __future__ import annotations

import os
import re
import subprocess

TOOL_SECONDS = 20
READ_BYTES = 1 << 20
MAX_NOTES = 50


class Notes:
    """What could not be read, one sentence each."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, text: str) -> None:
        if text not in self.lines and len(self.lines) < MAX_NOTES:
            self.lines.append(text)


def call(command: list[str], notes: Notes, seconds: float = TOOL_SECONDS, quiet: bool = False) -> str | None:
    """Standard output of a program; None, and a note, where it is missing, fails or takes too long."""
    env = {"PATH": os.environ.get("PATH", os.defpath) + ":/usr/bin:/usr/sbin:/sbin", "LC_ALL": "C", "LANG": "C"}
    try:
        done = subprocess.run(command, capture_output=True, timeout=seconds, env=env, stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        if not quiet:
            notes.add(command[0] + " is not installed")
        return None
    except (OSError, subprocess.SubprocessError) as error:
        if not quiet:
            notes.add(command[0] + " could not be run: " + type(error).__name__)
        return None
    out = done.stdout.decode("utf-8", "replace")
    if done.returncode and not quiet:
        said = (done.stderr.decode("utf-8", "replace") or out).strip().splitlines()
        notes.add(command[0] + " failed: " + (said[0][:200] if said else "exit " + str(done.returncode)))
    return out if not done.returncode else None


def read_text(path: str, limit: int = READ_BYTES) -> str | None:
    """The beginning of a file as text, or None."""
    data = read_bytes(path, limit)
    return None if data is None else data.decode("utf-8", "replace").strip()


def read_bytes(path: str, limit: int = READ_BYTES) -> bytes | None:
    try:
        with open(path, "rb") as stream:
            return stream.read(limit)
    except (OSError, ValueError):
        return None


def listing(path: str) -> list[str]:
    """Names in a folder, sorted; none where it cannot be read."""
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []


_FLOAT = re.compile(r"-?\d+(?:\.\d+)?\Z")


def number(text: str | None) -> float | None:
    """The number in a tool's cell, or None for `[N/A]` and the like."""
    text = (text or "").strip()
    return float(text) if _FLOAT.match(text) else None


def whole(text: str | None) -> int | None:
    value = number(text)
    return None if value is None else int(value)


def middle_of(values: list[float | None]) -> float | None:
    """The median of the values that are known, or None."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    half = len(known) // 2
    return known[half] if len(known) % 2 else (known[half - 1] + known[half]) / 2
