"""One reader of the names of architectures: every command takes what another takes."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.arch import arch_name

WRITTEN = ["sm120", "SM_120a", "sm_120f", "compute_120f", "120", "120a", "12.0", " sm120 "]


@pytest.mark.parametrize("text", WRITTEN)
def test_every_way_of_writing_it_is_the_same_architecture(text: str) -> None:
    assert arch_name(text) == "sm120"


@pytest.mark.parametrize("text", ["", "sm", "sm12", "sm1200", "smsm120", "120x", "1.2.0", "١٢٠", "sm120aa", "ada"])
def test_anything_else_stays_as_it_is_or_names_another(text: str) -> None:
    assert arch_name(text) in (text, "sm12")


@pytest.mark.parametrize("text", WRITTEN)
@pytest.mark.parametrize(
    "words",
    [
        ("fit", "--a", "nvfp4", "--tile", "128x128x128"),
        ("tactics", "flashinfer", "--root", "nowhere"),
        ("fix", "flashinfer", "--root", "nowhere", "--write", "patch"),
        ("fit", "--compare", "4.2.1", "4.7.0", "--library", "nowhere"),
        ("collectives", "--root", "nowhere"),
    ],
    ids=" ".join,
)
def test_no_command_refuses_what_another_takes(cli: Any, words: tuple[str, ...], text: str) -> None:
    answer = cli(*words, "--arch", text)
    assert "--arch" not in answer.err
    assert answer.code == 0 or "nothing at 'nowhere'" in answer.err


@pytest.mark.parametrize("text", ["", "sm12", "ada"])
def test_an_unknown_one_is_refused_with_the_legal_ones(cli: Any, text: str) -> None:
    for words in (
        ("fit", "--a", "nvfp4", "--tile", "128x128x128"),
        ("tactics", "flashinfer", "--root", "nowhere"),
        ("fix", "flashinfer", "--root", "nowhere", "--write", "patch"),
        ("fit", "--compare", "4.2.1", "4.7.0", "--library", "nowhere"),
    ):
        answer = cli(*words, "--arch", text)
        assert answer.code == 2
        assert "sm120" in answer.err
