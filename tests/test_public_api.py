"""The public names, and that each command answers --help with an example."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright
from tilewright.cli.registry import COMMANDS


def test_every_exported_name_exists_and_nothing_else_is_promised() -> None:
    for name in tilewright.__all__:
        assert getattr(tilewright, name) is not None
    assert dir(tilewright) == sorted(tilewright.__all__)
    with pytest.raises(AttributeError):
        _ = tilewright.no_such_name


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_helps_with_an_example(cli: Any, command: str) -> None:
    result = cli(command, "--help")
    assert result.code == 0
    assert "Example:" in result.out
    assert f"tilewright {command}" in " ".join(result.out.split())


@pytest.mark.parametrize("group", [(), ("bench",), ("results",)])
def test_without_a_command_the_help_is_shown(cli: Any, group: tuple[str, ...]) -> None:
    result = cli(*group)
    assert result.code == 0
    assert result.out.startswith("Usage: tilewright")
    assert result.out.count("\n") > 5
    assert result.err == ""


def test_a_flag_without_its_value_names_the_help_of_its_command(cli: Any) -> None:
    result = cli("fit", "--tile")
    assert result.code == 2
    assert "tilewright fit --help" in result.err


def test_a_long_path_is_shown_with_its_files_name() -> None:
    from tilewright.errors import MAX_SHOWN, shown

    path = shown("/srv/" + "folder/" * 30 + "plan.html")
    assert len(path) == MAX_SHOWN
    assert path.startswith("'/srv/")
    assert path.endswith("/plan.html'")
    assert shown("x" * 300).endswith("xxx...")


def test_no_error_repeats_an_endless_word_of_its_input() -> None:
    """Whatever another library says of it: each message of ours is cut where it is made."""
    from tilewright.errors import MAX_SHOWN, MAX_WORD, ConfigError, InputError

    for kind in (InputError, ConfigError):
        error = kind("y" * 5000, f"Object has the unknown field `{'x' * 5000}` - at `$`; give another.")
        assert len(error.msg) < MAX_WORD
        assert str(error) == error.msg
        assert error.msg.endswith("... - at `$`; give another.")
        assert len(error.field) == MAX_SHOWN
    whole = f"No file is at {'/d' * (MAX_WORD // 2 - 1)}."
    assert InputError("path", whole).msg == whole
