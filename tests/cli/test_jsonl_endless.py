"""Lines that are too long, and a stream whose line never ends."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from tilewright.cli.jsonl import read_lines


class Endless(io.RawIOBase):
    """Zeros for ever, as /dev/zero gives them."""

    given = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        buffer[:] = bytes(len(buffer))
        self.given += len(buffer)
        return len(buffer)


def test_a_line_without_an_end_ends_the_stream() -> None:
    source = Endless()
    found = list(read_lines(io.BufferedReader(source), limit=1000, most=1 << 20))
    assert [number for number, _ in found] == [1]
    assert "does not end within 1,048,576 bytes" in getattr(found[0][1], "message", "")
    assert source.given < 1 << 21


def test_a_line_that_is_too_long_is_passed_over() -> None:
    found = list(read_lines(io.BytesIO(b"x" * 5000 + b"\n{}\n"), limit=1000, most=1 << 20))
    assert "longer than 1,000 bytes" in getattr(found[0][1], "message", "")
    assert found[1] == (2, b"{}\n")


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no /dev/zero here")
def test_commands_give_an_endless_device_up(cli: Any, tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite"
    for words in (("results", "import", "/dev/zero", "--store", str(store)), ("explain", "/dev/zero")):
        told = cli(*words)
        assert told.code == 2
        assert "'/dev/zero' is a device that never ends; give " in told.err
    assert not store.exists()
    assert cli("explain", "/dev/null").code == 0
