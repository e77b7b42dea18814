"""Paths on the command line: an empty one is refused, `~` is the home folder, a launch line may come from stdin."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from tilewright.cli.main import invoke
from tilewright.cli.paths import PATH
from tilewright.cli.registry import COMMANDS
from tilewright.errors import shown

NAMES = ("FILE", "DIR", "PATH", "PLAN.json", "FILE.json", "CONFIG.json", "FILE|WHEEL|FOLDER", "FILE|-", "STORE")
"""How the help calls files and folders. A DIR_OR_WHEEL has a reader of its own, which refuses and expands too."""


def _paths() -> list[tuple[str, list[str], click.Parameter]]:
    from importlib import import_module

    found: list[tuple[str, list[str], click.Parameter]] = []
    for name, entry in COMMANDS.items():
        command: click.Command = import_module(entry.module).command
        inner = [([name, key], item) for key, item in getattr(command, "commands", {}).items()] or [([name], command)]
        found += [
            (" ".join([*path, item.opts[0]]), path, item)
            for path, one in inner
            for item in one.params
            if item.metavar in NAMES
        ]
    return found


PATHS = _paths()


@pytest.mark.parametrize(("path", "option"), [pytest.param(p, o, id=name) for name, p, o in PATHS])
def test_an_empty_path_is_refused_before_anything_is_read(cli: Any, path: list[str], option: click.Parameter) -> None:
    """An unset variable in a script is neither this folder nor `nothing given`."""
    given = [""] if isinstance(option, click.Argument) else [option.opts[0], ""]
    command = next(item for _, one, item in PATHS if one == path and item is option)
    assert command.type is PATH
    words = [*path, *(["flashinfer"] if path[0] in ("tactics", "fix") else []), *given]
    answer = cli(*words)
    assert answer.code == 2
    assert not answer.out
    assert len(answer.err.splitlines()) == 1


def test_there_are_paths_to_test() -> None:
    assert len(PATHS) > 45


@pytest.mark.parametrize("words", [("mcp", "--list", "--root", ""), ("inspect", ""), ("inspect", "  ")])
def test_an_empty_path_is_told_as_such(cli: Any, words: tuple[str, ...]) -> None:
    assert "it is empty; name a path" in cli(*words).err


def test_a_tilde_that_the_shell_left_is_the_home_folder(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, here = tmp_path / "home", tmp_path / "here"
    home.mkdir()
    here.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(here)
    assert cli("record", "--change", "x", "--before", "1", "--after", "2", "--store=~/s.db").code == 0
    assert (home / "s.db").is_file()
    assert not list(here.iterdir())
    (home / "q.jsonl").write_text('{"arch":"sm120","a":"nvfp4","tile":[128,128,128]}\n')
    assert cli("fit", "--json", "--brief", "--from=~/q.jsonl").json["status"] == "fits"


def test_a_tilde_with_the_name_of_nobody_stays_as_it_is(cli: Any) -> None:
    answer = cli("fit", "--from", "~nobody-of-that-name/x")
    assert answer.code == 2
    assert "'~nobody-of-that-name/x' cannot be read" in answer.err


@pytest.mark.parametrize("name", ["launch.sh", "my launch.sh", "no suffix here"])
def test_a_launch_command_is_read_from_a_file_whatever_it_is_called(cli: Any, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("\ufeffvllm serve some/model -tp 8\n")
    answer = cli("flags", "vllm", "--json", "--check-launch", str(tmp_path / name)).json
    assert answer["launch"]["accepted"]


def test_a_launch_command_is_read_from_stdin(monkeypatch: pytest.MonkeyPatch, capfdbinary: Any) -> None:
    line = b"vllm serve some/model --tensor-parallel-sice 8\n"
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(line)))
    assert invoke(["flags", "vllm", "--check", "--check-launch", "-"]) == 1
    assert b"--tensor-parallel-size" in capfdbinary.readouterr().out


def test_a_line_longer_than_a_file_name_may_be_is_a_line(cli: Any) -> None:
    line = f"vllm serve some/model --served-model-name {'m' * 5000}"
    assert cli("flags", "vllm", "--check", "--check-launch", line).code == 0


def test_a_folder_with_blanks_in_its_name_is_no_command(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    answer = cli("flags", "vllm", "--check-launch", str(tmp_path / "a b"))
    assert answer.code == 2
    assert os.sep in answer.err


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (["a", None], '["a", null]'),
        ({"a": False}, '{"a": false}'),
        ("x'y", '"x\'y"'),
        ({1: {2}}, "{1: {2}}"),
        (1.5, "1.5"),
    ],
)
def test_a_value_from_json_is_repeated_as_json_writes_it(value: object, text: str) -> None:
    assert shown(value) == text


def test_a_value_nested_too_deeply_for_json_is_still_shown() -> None:
    value: list[Any] = []
    for _ in range(400):
        value = [value]
    assert len(shown(value)) == 80


def test_an_empty_architecture_is_not_the_default_one(cli: Any) -> None:
    answer = cli("tactics", "flashinfer", "--root", "nowhere", "--arch", "")
    assert answer.code == 2
    assert "--arch: the tactics of '' are not read; legal are sm90" in answer.err
