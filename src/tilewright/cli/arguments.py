"""What is wrong with a command's words, where click's own message would name a word and not what is missing.

click takes the words behind an option for its values, whatever they are: of `fit --compare 4.2.1 --arch sm120` it says
that `sm120` is one argument too many. Here a value that is missing is told by its option, with how to write it, and a
word too many by the option that it stands behind.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import click

from tilewright.errors import shown

__all__ = ["misplaced"]


_EXTENTS = re.compile(r"\w(x\w)+")
"""What the help calls extents, as in MxNxK."""
_HELP = frozenset({"-h", "--help"})
_QUOTES = "a value with blanks in it stands in quotes"


class _Given(NamedTuple):
    """An option as it was typed and the values behind it."""

    option: click.Option
    name: str
    values: list[str]


def misplaced(command: click.Command, args: Sequence[str], path: str = "") -> tuple[str, str] | None:
    """The first option that lacks a value, or the first word too many: (`path` with the subcommands that it is for,
    what to say of it); None where there is neither. `args` are the words behind the command's name."""
    own = [item for item in command.params if isinstance(item, click.Option)]
    options = {name: item for item in own for name in (*item.opts, *item.secondary_opts)}
    positional = 0
    last: _Given | None = None
    index = 0
    while index < len(args):
        word = args[index]
        index += 1
        if word == "--":
            return None
        name, equals, inline = word.partition("=") if word.startswith("--") else (word, "", "")
        option = options.get(name)
        if word in _HELP:
            continue
        if option is None and word.startswith("-") and word != "-":
            return None  # no such option, or short ones joined: click says so, or knows what they are
        if option is not None and option.nargs == 1 and (option.is_flag or option.count):
            last = None
            continue
        if option is not None and getattr(option, "_flag_needs_value", False):  # click's name for a value that may lack
            if not equals and index < len(args) and not args[index].startswith("-"):
                index += 1
            last = None
            continue
        if option is not None:
            values = [inline] if equals else []
            while len(values) < option.nargs:
                if index >= len(args) or args[index].partition("=")[0] in {*options, *_HELP}:
                    return path, _missing(option, name, values, args[index] if index < len(args) else None)
                values.append(args[index])
                index += 1
            last = _Given(option, name, values)
            continue
        if isinstance(command, click.Group):
            inner = command.commands.get(word)
            return None if inner is None else misplaced(inner, args[index:], f"{path} {word}")
        positional += 1
        if positional > _room(command):
            helping = _HELP.intersection(args)  # then click shows the help
            return None if helping else (path, _too_many(command, word, last))
    return None


def _room(command: click.Command) -> float:
    """How many words that belong to no option the command takes."""
    counts = [item.nargs for item in command.params if isinstance(item, click.Argument)]
    return float("inf") if any(count < 0 for count in counts) else sum(counts)


def _names(option: click.Option) -> list[str]:
    """What the help calls the option's values: as many as it takes, or one name for them all."""
    named = option.metavar or option.name or "value"
    words = named.split() if len(named.split()) == option.nargs else [named] * option.nargs
    return [word.upper() if option.metavar is None else word for word in words]


def _missing(option: click.Option, name: str, values: list[str], follower: str | None) -> str:
    names = _names(option)
    lacking = names[len(values) :]
    there = "nothing follows it" if follower is None else f"the next flag, {follower.partition('=')[0]}, follows"
    if values:
        there = f"{shown(values[-1])} is the last one given" if follower is None else f"{there} {shown(values[-1])}"
    if len(names) == 1:
        return f"{name} needs a value and {there}; write {name} {names[0].rstrip('.')}."
    legal = " and ".join(names)
    return (
        f"{name} takes {len(names)} values, {legal}, and {there}: {' and '.join(lacking)} "
        f"{'is' if len(lacking) == 1 else 'are'} missing; write {name} {' '.join([*values, *lacking])}."
    )


def _too_many(command: click.Command, word: str, last: _Given | None) -> str:
    if last is None:
        takes = [item.human_readable_name.upper() for item in command.params if isinstance(item, click.Argument)]
        only = f"takes {' and '.join(takes)} alone" if takes else "takes flags alone"
        return f"{shown(word)} is one word too many: the command {only}."
    option, name, values = last
    if option.multiple:
        return (
            f"{shown(word)} belongs to no flag: {name} takes one value at a time; "
            f"write {name} {values[-1]} {name} {word}."
        )
    if "," in (option.metavar or "") and not word.startswith(","):
        joined = f"{values[-1].rstrip(',')},{word}"
        return f"{shown(word)} belongs to no flag: {name} takes several values joined by commas; write {name} {joined}."
    if option.nargs > 1:
        return f"{shown(word)} belongs to no flag: {name} takes {option.nargs} values and has them."
    how = f"write it as {option.metavar}" if _EXTENTS.fullmatch(option.metavar or "") else _QUOTES
    return f"{shown(word)} belongs to no flag: {name} takes one value, here {shown(values[-1])}; {how}."
