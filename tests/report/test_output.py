"""What a command writes: text from files and journals cannot steer the terminal or break a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tilewright.report.output import Output, visible

NASTY = "a\x1b[31mred\nline\x07 \x9b2J\u202eback"


@pytest.mark.parametrize("text", ["plain", "tab\tand\nline", "ünïcode · █", ""])
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert visible(text) == text


def test_control_characters_are_written_out(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output()
    out.line(NASTY)
    out.heading(NASTY)
    out.table(("name", "n"), [(NASTY, 1), ("b", 22)], right=(1,))
    text = capsys.readouterr().out
    assert not set(text) & set("\x1b\x07\x9b\u202e")
    assert r"\x1b[31mred" in text
    rows = text.splitlines()[-3:]
    assert [row.split()[-1] for row in rows] == ["n", "1", "22"]
    assert len({len(row) for row in rows}) == 1


def test_a_journal_of_odd_text_stays_a_table(cli: Any, tmp_path: Path) -> None:
    store = ("--store", str(tmp_path / "s.sqlite"))
    assert cli("record", "--change", NASTY, "--hypothesis", "h", "--before", "1", "--after", "2", *store).code == 0
    told = cli("journal", *store)
    assert told.code == 0
    assert "\x1b" not in told.out
    assert len(told.out.splitlines()) == 2
