"""Every command in README.md and docs/ runs, and prints what the page shows."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import zipfile
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import pytest
from shell_blocks import TILEWRIGHT, Block, Command, blocks, commands, matches

from conftest import REPO
from tilewright.cli.registry import COMMANDS

WHEEL = "flashinfer_python-0.6.2-py3-none-any.whl"
NEEDS: dict[str, Callable[[], bool]] = {
    "wheel": lambda: (REPO / ".cache" / "wheels" / WHEEL).exists(),
    "compiler": lambda: shutil.which("nvcc") is not None,
    "gpu": lambda: shutil.which("nvidia-smi") is not None,
    "triton": lambda: find_spec("triton") is not None,
    "numpy": lambda: find_spec("numpy") is not None,
    **dict.fromkeys(("network", "ssh", "server", "make", "git", "engine", "client", "data"), lambda: False),
}
"""What a block may need beyond a core install, and whether it is here: a compiler, a host that answers ssh, a running
server, make or git, an installed vLLM or SGLang, an MCP client, a data file of the reader's own."""
SLOW = frozenset({"compiler", "gpu", "triton"})
"""Needs whose blocks take minutes: they run with the slow tests."""
PAGES = [
    REPO / "README.md",
    *sorted(
        page
        for page in (REPO / "docs").rglob("*.md")
        if not {"reference", "notes"} & set(page.relative_to(REPO / "docs").parts)
    ),
]
NOTES = sorted((REPO / "docs" / "notes").glob("*.md"))


def parse(words: tuple[str, ...]) -> None:
    """Let click parse `tilewright ARGS...` without running it: the command and its options exist and take these."""
    name, *rest = words[1:]
    if name.startswith("-"):
        return  # --help, --version
    assert name in COMMANDS, f"there is no command {name}"
    command: click.Command = import_module(COMMANDS[name].module).command
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        assert rest[0] in command.commands, f"there is no command {name} {rest[0]}"
        command, rest = command.commands[rest[0]], rest[1:]
    with contextlib.suppress(click.exceptions.Exit):  # --help
        command.make_context(name, rest)


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """FlashInfer 0.6.2 as an installer leaves it, or None where the wheel could not be had."""
    wheel = REPO / ".cache" / "wheels" / WHEEL
    if not wheel.exists():
        return None
    folder = tmp_path_factory.mktemp("installed") / "site-packages"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture
def desk(tmp_path: Path, unpacked: Path | None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that a reader works in: the example files, the wheel, an installed copy of it."""
    for file in (REPO / "docs" / "examples").iterdir():
        shutil.copy(file, tmp_path / file.name)
    if unpacked is not None:
        (tmp_path / WHEEL).symlink_to(REPO / ".cache" / "wheels" / WHEEL)
        for name in ("site-packages", "OLD", "NEW"):
            (tmp_path / name).symlink_to(unpacked)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path / "store.db"))
    monkeypatch.setenv("HF_HUB_CACHE", os.devnull)
    monkeypatch.setenv("NO_COLOR", "1")
    return tmp_path


def run_shell(block: Block, cli: Any) -> str:
    """Run a `sh` block; what it prints."""
    printed = ""
    found = commands(block)
    for number, command in enumerate(found):
        code, out = run_one(block, command, cli)
        expected = block.exit if number == len(found) - 1 else 0
        assert code == expected, f"{block.where}: {' '.join(command.words)}\n{out}"
        printed += out
    return printed


def run_one(block: Block, command: Command, cli: Any) -> tuple[int, str]:
    if command.words[0] == "cat":
        return 0, "".join(Path(name).read_text() for name in command.words[1:])
    assert command.words[0] == TILEWRIGHT, f"{block.where}: {command.words[0]} is not run; mark the block with needs:"
    assert not command.piped, f"{block.where}: pipelines are not run; mark the block with needs:"
    result = cli(*command.words[1:])
    if command.to is not None:
        Path(command.to).write_text(result.out)
        return result.code, ""
    return result.code, result.out or result.err


def run_python(block: Block, names: dict[str, Any]) -> str:
    """Run a `python` block; the blocks of a page share their names."""
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream):
        exec(compile(block.text, block.where, "exec"), names)
    return stream.getvalue()


def walk(page: Path, cli: Any, *, slow: bool) -> None:
    """Parse every command of a page, run those whose needs are met, and hold what they print against the page."""
    names: dict[str, Any] = {}
    for block in blocks(page):
        unknown = block.needs - NEEDS.keys()
        assert not unknown, f"{block.where}: needs {unknown}; say one of {', '.join(NEEDS)}"
        if block.language == "sh":
            for command in commands(block):
                if command.words[0] == TILEWRIGHT:
                    parse(command.words)
        if (block.needs & SLOW and not slow) or not all(NEEDS[need]() for need in block.needs):
            continue
        printed = run_python(block, names) if block.language == "python" else run_shell(block, cli)
        if block.expected is not None:
            missing = matches(block.expected, printed)
            assert missing is None, f"{block.where}: not printed, or not there: {missing}\n---\n{printed}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(REPO).as_posix())
def test_the_commands_of_a_page_run_and_print_what_it_shows(page: Path, desk: Path, cli: Any) -> None:
    walk(page, cli, slow=False)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(REPO).as_posix())
def test_the_slow_commands_of_a_page_run_too(page: Path, desk: Path, cli: Any) -> None:
    walk(page, cli, slow=True)


@pytest.mark.tree
def test_the_plan_that_the_readme_shows_is_what_make_plan_prints(desk: Path, flashinfer_062: Path, cli: Any) -> None:
    recipe = re.search(r"tilewright (plan .*) --library", (REPO / "Makefile").read_text())
    shown = re.search(r"^```text\n(.*?) on 8x RTX.*?^```", (REPO / "README.md").read_text(), re.M | re.S)
    assert recipe is not None
    assert shown is not None
    printed = cli(*recipe[1].split(), "--library", str(flashinfer_062), "--out", "plan-out").out
    expected = shown[0].removeprefix("```text\n").removesuffix("```")
    missing = matches(expected, printed)
    assert missing is None, f"README.md shows what make plan no longer prints, from {missing!r} on; paste its output"


@pytest.mark.parametrize("page", NOTES, ids=lambda page: page.name)
def test_the_commands_of_the_notes_exist(page: Path) -> None:
    for block in blocks(page):
        if block.language == "sh":
            for command in commands(block):
                if command.words[0] == TILEWRIGHT:
                    parse(command.words)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_example_of_help_is_a_command_that_exists(name: str, tmp_path: Path) -> None:
    """And of each subcommand."""
    pending: list[click.Command] = [import_module(COMMANDS[name].module).command]
    while pending:
        command = pending.pop()
        pending += command.commands.values() if isinstance(command, click.Group) else []
        example = (command.epilog or "").partition("Example: ")[2]
        assert example or isinstance(command, click.Group), f"{name}: no example"
        page = tmp_path / "help.md"
        page.write_text(f"```sh\n{example}\n```\n")
        for one in blocks(page):
            for part in commands(one):
                if part.words[0] == TILEWRIGHT:
                    parse(part.words)


def test_the_example_of_a_space_is_one() -> None:
    from tilewright.sweep.space_file import read_space

    space = read_space(str(REPO / "docs" / "examples" / "space.toml"))
    assert "max-running-requests" in {item.name for item in space.parameters}


def test_a_page_that_shows_something_else_is_found() -> None:
    assert matches("a\n...\nc", "a\nb\nc\n") is None
    assert matches("a\n...", "a\nb\nc\n") is None
    assert matches("a\n\nb", "a\n\nb") is None
    assert matches("a\nb", "a\nc") == "b"
    assert matches("a", "a\nb") is not None
    assert matches("a b...", "a b c") is None
    assert matches("a b...", "a c") == "a b..."
    assert matches("+29 % (modelled)", "+30 % (modelled)") is None
    assert matches("+29 % (modelled)", "+59 % (modelled)") is not None
    assert matches("+29 % (exact)", "+30 % (exact)") is not None
    assert matches("a\n...\nz", "a\nb") == "z"
