"""Does a launch command parse in the version at hand, by argparse's own rules as far as the sources say them."""

from __future__ import annotations

import re
import shlex
from typing import Final

import msgspec

from tilewright.errors import InputError
from tilewright.libraries.engine_flags.model import Flag, FlagSet

MAX_COMMAND: Final = 100_000
"""Characters of a launch command: above what a shell's argument list of a server ever is."""
_ENV: Final = re.compile(r"[A-Za-z_]\w*=")
_NUMBER: Final = re.compile(r"-\d+$|-\d*\.\d+$")
"""What argparse (`_negative_number_matcher`) takes for a value although it starts with a dash."""
_VARIABLE: Final = re.compile(r"\$\{?\w")


class Remark(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing to say about a word of the command."""

    level: str
    """`error` (the parser stops), `warning` (accepted, and not what it seems) or `note`."""
    word: str
    message: str
    nearest: tuple[str, ...] = ()
    place: str | None = None
    """File and line of the declaration."""


class LaunchCheck(msgspec.Struct, frozen=True):
    """What a version's parser makes of a launch command."""

    command: str
    parses: bool | None
    """Whether the parser accepts it; None where a declaration that could not be followed leaves it open."""
    remarks: tuple[Remark, ...]
    given: dict[str, str]
    """Each known flag, by its first name, with the value given."""


def split_command(command: str) -> list[str]:
    """The words after the program: environment settings, `python -m ...` and `vllm serve MODEL` are taken off.

    Raises:
        InputError: it is too long or its quotes do not close.
    """
    if len(command) > MAX_COMMAND or "\0" in command:
        msg = f"--check-launch is longer than {MAX_COMMAND:,} characters or holds a NUL byte; pass one launch command."
        raise InputError("check_launch", msg)
    joined = re.sub(r"\\\r?\n", " ", command)
    try:
        words = shlex.split(joined, comments=True)
    except ValueError as error:
        msg = f"--check-launch cannot be split into words ({error}); close its quotes."
        raise InputError("check_launch", msg) from None
    first = next((i for i, word in enumerate(words) if word.startswith("-") and word != "-m"), len(words))
    for index, word in enumerate(words):
        module = index > 0 and words[index - 1] == "-m"
        if module or (word == "serve" and index and words[index - 1].rsplit("/", 1)[-1] in ("vllm", "sglang")):
            return words[index + 1 :]
        if word.endswith(("launch_server.py", "api_server.py")):
            return words[index + 1 :]
    return words[first:]


def check_launch(flags: FlagSet, command: str) -> LaunchCheck:
    """Read `command` as the parser of `flags` would."""
    words = split_command(command)
    remarks: list[Remark] = []
    given: dict[str, str] = {}
    index, open_ended = 0, bool(flags.partial)
    while index < len(words):
        word = words[index]
        index += 1
        if word == "--":
            break
        if not word.startswith("-") or word == "-" or _NUMBER.match(word):
            if flags.engine == "vllm" and index == 1:
                given["--model"] = word  # the positional model of `vllm serve`
            elif not _VARIABLE.match(word):
                remarks.append(Remark("error", word, f"{word[:80]!r} belongs to no flag."))
            continue
        name, equals, inline = word.partition("=")
        flag = _lookup(flags, name, remarks)
        if flag is None:
            if not equals:
                while index < len(words) and not _is_flag(words[index]):
                    index += 1
            continue
        values = [inline] if equals else []
        if not equals and flag.kind in ("value", "values", "optional", "unread"):
            limit = 1 if flag.kind in ("value", "optional") else len(words)
            while index < len(words) and len(values) < limit and not _is_flag(words[index]):
                values.append(words[index])
                index += 1
        open_ended |= flag.kind == "unread"
        _judge(flag, name, values, remarks)
        key = flag.names[0]
        if key in given:
            remarks.append(Remark("note", name, f"{name} is given twice; the last one counts.", place=_place(flag)))
        given[key] = " ".join(values)
    missing = [flag for flag in flags.flags if flag.required and flag.names[0] not in given]
    remarks += [Remark("error", f.names[0], f"{f.names[0]} is required.", place=_place(f)) for f in missing]
    failed = any(remark.level == "error" for remark in remarks)
    unknown_only = all(r.message.startswith("No flag") for r in remarks if r.level == "error")
    parses: bool | None = not failed
    if failed and unknown_only and open_ended and flags.partial:
        parses = None
    return LaunchCheck(command, parses, tuple(remarks), given)


def _is_flag(word: str) -> bool:
    return word.startswith("-") and len(word) > 1 and not _NUMBER.match(word) and " " not in word


def _lookup(flags: FlagSet, name: str, remarks: list[Remark]) -> Flag | None:
    flag = flags.get(name)
    if flag is None and name.startswith("--") and "." in name and flags.engine == "vllm":
        flag = flags.get(name.split(".", 1)[0])  # `--compilation-config.mode 3`: a key of a JSON flag
    if flag is not None:
        return flag
    if name.startswith("--") and len(name) > 3:
        begun = sorted({f.names[0] for known, f in flags.by_name.items() if known.startswith(name)})
        if len(begun) == 1:
            remarks.append(Remark("note", name, f"{name} is short for {begun[0]}; write it out.", tuple(begun)))
            return flags.get(begun[0])
        if begun:
            message = f"{name} is short for several flags; write one out."
            remarks.append(Remark("error", name, message, tuple(begun[:5])))
            return None
    near = tuple(flags.nearest(name))
    version = f" {flags.version}" if flags.version else ""
    remarks.append(Remark("error", name, f"No flag of this {flags.engine}{version} is called {name[:80]}.", near))
    return None


def _place(flag: Flag) -> str:
    return f"{flag.file}:{flag.line}"


def _judge(flag: Flag, name: str, values: list[str], remarks: list[Remark]) -> None:
    place = _place(flag)
    if flag.kind in ("switch", "bool") and values:
        remarks.append(Remark("error", name, f"{name} takes no value, and {values[0][:80]!r} is given.", place=place))
    if flag.kind in ("value", "values") and not values:
        remarks.append(Remark("error", name, f"{name} needs a value.", place=place))
    plain = (flag.type or "").replace("Optional[", "").replace("]", "").replace(" | None", "")
    for value in values:
        if _VARIABLE.search(value):
            continue
        if ".lower()" in plain:
            value = value.lower()
        if "replace('-', '_')" in plain:
            value = value.replace("-", "_")
        if flag.choices is not None and value not in {str(item) for item in flag.choices}:
            legal = ", ".join(str(item) for item in flag.choices)
            remarks.append(Remark("error", name, f"{name} {value[:80]} is no choice; legal are {legal}.", place=place))
        elif plain in ("int", "float") and flag.kind in ("value", "values") and flag.choices is None:
            try:
                int(value) if plain == "int" else float(value)
            except ValueError:
                if not re.fullmatch(r"\d+(\.\d+)?[kKmMgGtT]i?|auto", value):
                    message = f"{name} {value[:80]!r} is no {plain}."
                    remarks.append(Remark("error", name, message, place=place))
    if flag.deprecated:
        use = f"; use {flag.successor}" if flag.successor else ""
        remarks.append(Remark("warning", name, f"{name} is deprecated in this version{use}.", place=place))
