"""A value that is missing, and a word too many, are told by the option that they are missing at or stand behind."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import click
import pytest

from tilewright.cli.arguments import misplaced
from tilewright.cli.registry import COMMANDS

OPTIONAL = (["plan", "--journal"],)
"""Options that may stand without their value."""


def commands() -> Iterator[tuple[list[str], click.Command]]:
    """Every command and subcommand with its path."""
    for name, entry in COMMANDS.items():
        command: click.Command = import_module(entry.module).command
        yield [name], command
        if isinstance(command, click.Group):
            yield from (([name, inner], item) for inner, item in command.commands.items())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("fit --compare 4.2.1", "NEW is missing; write --compare 4.2.1 NEW"),
        ("fit --compare 4.2.1 --arch sm120 --a nvfp4", "--arch, follows '4.2.1': NEW is missing"),
        ("fit --compare=4.2.1 --arch=sm120", "--arch, follows '4.2.1': NEW is missing"),
        ("fit --compare --arch sm120", "OLD and NEW are missing; write --compare OLD NEW"),
        ("fit --compare 4.2.1 4.6.0 4.7.0 --arch sm120", "'4.7.0' belongs to no flag: --compare takes 2 values"),
        ("fit --arch --a nvfp4", "--arch needs a value and the next flag, --a, follows"),
        ("fit --tile 128 256 128 --arch sm120", "write it as MxNxK"),
        ("plan --model --gpu h200", "--model needs a value"),
        ("probe --root a b", "write --root a --root b"),
        ("results list --where a=1 b=2", "write --where a=1 --where b=2"),
        ("bench gemm --backend a b", "write --backend a --backend b"),
        ("record --before 1 2 --after 3", "write --before 1,2"),
        ("collectives --root a b", "--root takes one value, here 'a'; a value with blanks in it stands in quotes"),
        ("results compare x", "'x' is one word too many: the command takes flags alone"),
        ("gpus h200 b200", "'b200' is one word too many: the command takes NAME alone"),
    ],
)
def test_what_is_missing_is_said_and_how_to_write_it(cli: Any, words: str, said: str) -> None:
    done = cli(*words.split())
    assert done.code == 2
    assert done.out == ""
    assert said in done.err
    assert (
        f"tilewright {' '.join(words.split()[: 2 if words.startswith(('results', 'bench')) else 1])} --help" in done.err
    )
    assert len(done.err.strip().splitlines()) == 1


def test_every_option_that_takes_values_says_which_are_missing(cli: Any) -> None:
    seen = 0
    for path, command in commands():
        for option in command.params:
            if not isinstance(option, click.Option) or option.is_flag or option.count or path + option.opts in OPTIONAL:
                continue
            for name in option.opts:
                for words in (
                    ([name], [name, "--json"]) if any("--json" in p.opts for p in command.params) else ([name],)
                ):
                    done = cli(*path, *words)
                    assert done.code == 2, (path, words)
                    assert f"{name} needs a value" in done.err or f"{name} takes 2 values" in done.err, done.err
                    seen += 1
    assert seen > 400


def test_no_example_and_no_usual_line_is_refused() -> None:
    seen = 0
    for path, command in commands():
        example = (command.epilog or "").partition("Example: ")[2]
        words = shlex.split(example.replace("\\\n", " "))
        if "tilewright" not in words or words[words.index("tilewright") + 1] != path[0]:
            continue
        words = words[words.index("tilewright") + 1 :]
        if words[: len(path)] == path:
            assert misplaced(command, words[len(path) :]) is None, example
            seen += 1
    assert seen > 20
    fit: click.Command = import_module("tilewright.cli.fit").command
    for line in (["-q"], ["--", "a", "b"], ["--tile", "-1x2"], ["--from", "-"], ["--no-such", "x"], ["--id", "--"], []):
        assert misplaced(fit, line) is None, line
    plan: click.Command = import_module("tilewright.cli.plan").command
    for line in (["--journal", "--series", "x"], ["--journal"], ["--journal", "f", "--json"], ["--journal=f", "-q"]):
        assert misplaced(plan, line) is None, line
    flags: click.Command = import_module("tilewright.cli.flags").command
    assert misplaced(flags, ["vllm", "a", "b", "c", "--launch", "--tp 8"]) is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("layout", "--gpus", "{}"), "Invalid value for '--gpus'"),
        (("layout", "--gpus={}",), "is not a valid integer"),
        (("layout", "--goal", "{}"), "is not one of 'throughput', 'latency'"),
        (("layout", "--{}"), "No such option"),
        (("layout", "--{}=1"), "No such option"),
        (("flags", "{}"), "is not one of 'sglang', 'vllm'"),
        (("results", "{}"), "No such command"),
        (("{}",), "There is no command"),
        (("record", "--before", "1", "{}"), "--before takes several values joined by commas"),
        (("layout", "--gpus", "{}'\n\""), "is not a valid integer"),
    ],
)  # fmt: skip
def test_a_long_word_is_not_repeated_whole(cli: Any, words: tuple[str, ...], said: str) -> None:
    done = cli(*(word.format("x" * 5000) for word in words))
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
    assert said in done.err
    assert len(done.err) < 600
    assert "x" * 40 in done.err


def test_the_help_is_shown_whatever_else_is_there(cli: Any) -> None:
    for words in (("fit", "a", "--help"), ("fit", "-h", "a", "b")):
        done = cli(*words)
        assert done.code == 0
        assert done.out.startswith("Usage: tilewright fit")


def test_a_byte_that_is_no_utf8_is_told(cli: Any, tmp_path: Any) -> None:
    words = ("record", "--change", "a\udcff", "--before", "1", "--after", "2")
    done = cli(*words, "--store", str(tmp_path / "store.sqlite"))
    assert done.code == 2
    assert done.err == "tilewright: 'a\\udcff' is not UTF-8 text; write it in UTF-8.\n"
