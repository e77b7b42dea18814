"""Does a launch command parse in the version at hand, by argparse's own rules as far as the sources say them."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import msgspec

from tilewright.errors import InputError, nearest
from tilewright.libraries.engine_flags.command_line import LaunchWords, take_apart
from tilewright.libraries.engine_flags.json_keys import unknown_keys
from tilewright.libraries.engine_flags.limits import legal, limits_of, outside
from tilewright.libraries.engine_flags.model import Flag, FlagSet
from tilewright.libraries.engine_flags.pairs import apart
from tilewright.libraries.engine_flags.reading import refusal
from tilewright.libraries.engine_flags.withhold import kept_value, shown_line, without
from tilewright.withheld import holds_secret

_LEVEL: Final = "--optimization-level"
_POSITIONAL: Final = "--model"
"""What the positional model of `vllm serve` is kept as."""
_NUMBER: Final = re.compile(r"-\d+$|-\d*\.\d+$")
"""What argparse (`_negative_number_matcher`) takes for a value although it starts with a dash."""
_VARIABLE: Final = re.compile(r"\$[\w({]|`")
_LONG_DASH: Final = "\u2010\u2011\u2012\u2013\u2014\u2212"
"""Hyphens and dashes that word processors put in the place of `-` and `--`."""
_CURLY: Final = "\u2018\u2019\u201c\u201d\u201e"
_ENGINES: Final = {"sglang": "SGLang", "vllm": "vLLM"}
_STARTS: Final = {"sglang": "python3 -m sglang.launch_server", "vllm": "vllm serve MODEL"}


class Remark(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing to say about a word of the command."""

    level: str
    """`error` (the parser stops), `refused` (the parser takes it and the engine stops at it), `warning` (accepted, and
    not what it seems) or `note`."""
    word: str
    message: str
    nearest: tuple[str, ...] = ()
    place: str | None = None
    """File and line of the declaration."""

    @property
    def stops(self) -> bool:
        """Whether the server does not start because of it."""
        return self.level in ("error", "refused")


class LaunchCheck(msgspec.Struct, frozen=True):
    """What a version's parser makes of a launch command."""

    command: str
    parses: bool | None
    """Whether the parser accepts it; None where a declaration that could not be followed leaves it open."""
    accepted: bool | None
    """Whether the engine's own limits of its flags hold as well, as far as they are known; else as `parses`."""
    remarks: tuple[Remark, ...]
    given: dict[str, str]
    """Each known flag, by its first name, with the value given."""
    environment: dict[str, str] = {}
    """Variables that the command sets."""


class Group(NamedTuple):
    """One flag of a command: how it is spelt, its declaration (None: no such flag), and the words that follow it."""

    name: str
    flag: Flag | None
    values: tuple[str, ...]


def groups(flags: FlagSet, words: list[str], remarks: list[Remark]) -> list[Group]:
    """The words of a parser as flags with their values; what belongs to none goes to `remarks`. The model that stands
    first after `vllm serve` is spelt `--model`."""
    out: list[Group] = []
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if word == "--":
            break
        if not word.startswith("-") or word == "-" or _NUMBER.match(word):
            if flags.engine == "vllm" and index == 1:
                out.append(Group(_POSITIONAL, flags.get(_POSITIONAL), (word,)))
            elif not _VARIABLE.match(word):
                blank = "" if word.strip() else " (a blank behind a line's backslash: the line ends there)"
                remarks.append(Remark("error", word, f"{word[:80]!r} belongs to no flag{blank}."))
            continue
        name, equals, inline = word.partition("=")
        if flags.engine == "vllm" and flags.has(_LEVEL) and name.startswith("-O") and "." not in name:
            # `-O3`, `-O 3` (vllm/utils/argparse_utils.py, FlexibleArgumentParser.parse_args)
            name, equals, inline = _LEVEL, equals or ("=" if len(name) > 2 else ""), inline or name[2:]
        short = name[:2]
        if not equals and not name.startswith("--") and len(name) > 2 and not flags.has(name) and flags.has(short):
            name, equals, inline = short, "=", name[2:]  # `-q4`, as argparse reads it
        flag = _lookup(flags, name, remarks)
        values = [inline] if equals else []
        kind = "values" if flag is None else flag.kind  # what follows a flag that is not there goes with it
        if not equals and kind in ("value", "values", "optional", "unread"):
            limit = 1 if kind in ("value", "optional") else len(words)
            while index < len(words) and len(values) < limit and not _is_flag(words[index]):
                values.append(words[index])
                index += 1
        out.append(Group(name, flag, tuple(values)))
    return out


def check_launch(flags: FlagSet, command: str) -> LaunchCheck:
    """Read `command` as the parser of `flags` would. Raises InputError where it cannot be split into words, is empty
    or starts another engine."""
    parts = take_apart(command)
    if not parts.words and not parts.program:
        raise InputError("launch", "The launch command is empty; pass one, as in 'vllm serve MODEL'.")
    other = _other_engine(flags.engine, parts.program)
    if other is not None:
        msg = f"The launch command starts {_ENGINES[other]}; ask for the flags of {other}, not of {flags.engine}."
        raise InputError("launch", msg)
    if not parts.server:
        start = shown_line(parts.program)[:80]
        msg = (
            f"{start!r} starts no server that is known; pass a line that has `{_STARTS[flags.engine]}` in it "
            "(variables, `docker run IMAGE`, numactl and the like may stand before it), the flags alone, or a script, "
            "Compose or Kubernetes file that holds one."
        )
        raise InputError("launch", msg)
    secrets = {value for name, value in parts.environment.items() if kept_value(name, value) != value}
    secrets |= {word for word in parts.words if holds_secret(word)}
    remarks = [*_of_file(parts), *_variables(flags, parts.environment), *_typeset(parts.words)]
    given: dict[str, str] = {}
    spelt: dict[str, str] = {}
    open_ended = bool(flags.partial)
    for name, found, values in groups(flags, parts.words, remarks):
        secrets |= {value for value in values if kept_value(name, value) != value}
        if name == _POSITIONAL and flags.engine == "vllm" and (found is None or not parts.words[0].startswith("-")):
            given[_POSITIONAL] = " ".join(values)
            continue
        if found is None:
            continue
        flag = found
        open_ended |= flag.kind == "unread"
        remarks += _of_keys(flag, name, values)
        if flags.engine == "vllm" and "." in name:
            flag = msgspec.structs.replace(flag, reads=None, choices=None)  # one key of a JSON flag
        _judge(flag, name, list(values), remarks, flags.engine, flags.unused)
        remarks += _out_of_range(flags, flag, name, values, parts.words)
        key = flag.names[0]
        if key in given:
            remarks.append(Remark("note", name, f"{name} is given twice; the last one counts.", place=_place(flag)))
        given[key], spelt[key] = " ".join(values), name
    unknown = any(_VARIABLE.match(word) for word in parts.words)
    for name, message, place in apart(flags, given, spelt, open_=unknown):
        remarks.append(Remark("refused", name, message, place=place))
    missing = [flag for flag in flags.flags if flag.required and flag.names[0] not in given]
    remarks += [Remark("error", f.names[0], f"{f.names[0]} is required.", place=_place(f)) for f in missing]
    failed = any(remark.level == "error" for remark in remarks)
    unknown_only = all(r.message.startswith("No flag") for r in remarks if r.level == "error")
    parses: bool | None = not failed
    if failed and unknown_only and open_ended and flags.partial:
        parses = None
    remarks = [_without(remark, secrets) for remark in remarks]
    accepted = False if any(remark.level == "refused" for remark in remarks) else parses
    return LaunchCheck(command, parses, accepted, tuple(remarks), given, parts.environment)


def _without(remark: Remark, secrets: set[str]) -> Remark:
    word, message = without(remark.word, secrets), without(remark.message, secrets)
    return msgspec.structs.replace(remark, word=word, message=message)


def withheld(check: LaunchCheck) -> LaunchCheck:
    """The verdict as it may be shown: the command as it was read, without its secrets."""
    parts = take_apart(check.command)
    return msgspec.structs.replace(
        check,
        command=shown_line([*parts.program, *parts.words], parts.environment),
        given={name: kept_value(name, value) for name, value in check.given.items()},
        environment={name: kept_value(name, value) for name, value in check.environment.items()},
    )


def _of_file(parts: LaunchWords) -> list[Remark]:
    """What a Compose or Kubernetes file leaves open: other servers, and variables that it does not say."""
    kept = parts.kept
    if kept is None:
        return []
    out: list[Remark] = []
    if kept.others:
        more = f"{kept.others} more servers: they are" if kept.others > 1 else "one more server: it is"
        out.append(Remark("note", "services", f"The file starts {more} not checked; pass its command alone."))
    if kept.filled.defaults:
        taken = ", ".join(f"{name}={kept_value(name, value)[:80]}" for name, value in kept.filled.defaults.items())
        text = (
            f"Taken at their defaults: {taken}. The environment or .env that Compose is started in may say otherwise."
        )
        out.append(Remark("note", next(iter(kept.filled.defaults)), text))
    unknown = kept.filled.unknown
    if unknown:
        text = f"Compose fills in {', '.join(unknown)} from its environment or .env: what they are is not checked."
        out.append(Remark("note", unknown[0], text))
    own = [name for name in unknown if name in parts.environment]
    if own:
        text = f"Compose does not look at the service's own environment, where {', '.join(own)} is set, for this."
        out.append(Remark("warning", own[0], f"{text} A shell in the container does: write $${own[0]} for it."))
    if kept.filled.wrong:
        text = f"Compose refuses the file at {kept.filled.wrong[0]!r}: write $$ for a dollar that is no variable's."
        out.append(Remark("refused", kept.filled.wrong[0], text))
    if kept.elsewhere:
        text = f"{', '.join(kept.elsewhere)}: not read; variables that are set there are not checked."
        out.append(Remark("note", kept.elsewhere[0], text))
    return out


def _variables(flags: FlagSet, environment: dict[str, str]) -> list[Remark]:
    """Remarks on variables of the engine that this version does not declare."""
    known = set(flags.environment)
    prefix = f"{flags.engine.upper()}_"
    version = f"{flags.engine} {flags.version}" if flags.version else f"this {flags.engine}"
    return [
        Remark("warning", name, f"{name} is not among the variables that {version} declares: it probably does nothing.")
        for name in environment
        if known and name.startswith(prefix) and name not in known
    ]


def _other_engine(engine: str, program: list[str]) -> str | None:
    """The engine that the program plainly is, where that is another one."""
    for word in program:
        name = word.rsplit("/", 1)[-1].split(".")[0]
        if name in _ENGINES and name != engine:
            return name
    return None


def _typeset(words: list[str]) -> list[Remark]:
    """Warnings about characters that a word processor put in the place of a shell's."""
    out: list[Remark] = []
    for word in words:
        if word[:1] and word[0] in _LONG_DASH:
            text = f"{word[:80]!r} begins with a typographic dash: it is no flag; write '-' or '--'."
        elif any(char in _CURLY for char in (word[:1], word[-1:]) if char):
            text = f"{word[:80]!r} has typographic quotes: they are part of the word; write ' or \"."
        else:
            continue
        out.append(Remark("warning", word, text))
    return out


def _is_flag(word: str) -> bool:
    return word.startswith("-") and len(word) > 1 and not _NUMBER.match(word) and " " not in word


def _lookup(flags: FlagSet, name: str, remarks: list[Remark]) -> Flag | None:
    flag = flags.get(name)
    if flag is None and "." in name and flags.engine == "vllm":
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
    message = f"No flag of this {flags.engine}{version} is called {name[:80]}."
    if flags.has(name.split(" ", 1)[0]):
        message = f"{name[:80]!r} is one word; give the flag and its value as two items."
    remarks.append(Remark("error", name, message, near))
    return None


def _place(flag: Flag) -> str:
    return f"{flag.file}:{flag.line}"


def _judge(
    flag: Flag, name: str, values: list[str], remarks: list[Remark], engine: str, unused: tuple[str, ...]
) -> None:
    place = _place(flag)
    if flag.kind in ("switch", "bool") and values:
        remarks.append(Remark("error", name, f"{name} takes no value, and {values[0][:80]!r} is given.", place=place))
    if flag.kind in ("value", "values") and not values:
        remarks.append(Remark("error", name, f"{name} needs a value.", place=place))
    plain = flag.type or ""
    for value in values:
        if _VARIABLE.search(value):
            continue
        if ".lower()" in plain:
            value = value.lower()
        if "replace('-', '_')" in plain:
            value = value.replace("-", "_")
        if flag.choices is not None:
            legal = {str(item) for item in flag.choices}
            known = {item.lower() for item in legal} if flag.any_case else legal
            if (value.lower() if flag.any_case else value) not in known and not (flag.nullable and not value):
                listed = ", ".join(str(item) for item in flag.choices)
                message = f"{name} {value[:80]} is no choice; legal are {listed}."
                remarks.append(Remark("error", name, message, place=place))
        elif (why := refusal(flag, engine, value)) is not None:
            remarks.append(Remark("error", name, f"{name} {value[:80]!r} {why}.", place=place))
    if flag.names[0] in unused:
        message = f"{name} does nothing in this version: no other line reads its value."
        remarks.append(Remark("warning", name, message, place=place))
    if flag.deprecated:
        use = f"; use {flag.successor}" if flag.successor else ""
        remarks.append(Remark("warning", name, f"{name} is deprecated in this version{use}.", place=place))


def _of_keys(flag: Flag, name: str, values: tuple[str, ...]) -> list[Remark]:
    """Keys of a JSON object that its config class refuses: where the parser makes it, or at start-up."""
    level = "error" if flag.reads == "config" else "refused"
    out: list[Remark] = []
    for path, keys in unknown_keys(flag, name, values):
        message = f"{flag.names[0]} has no key {path[:80]} in this version."
        near = tuple(nearest(path.rpartition(".")[2], keys))
        out.append(Remark(level, path[:80], message, near, _place(flag)))
    return out


def _out_of_range(flags: FlagSet, flag: Flag, name: str, values: tuple[str, ...], words: list[str]) -> list[Remark]:
    """Numbers that the parser takes and the engine does not."""
    limits = limits_of(flags, flag)
    bad = next((v for v in values if outside(limits, flag, flags.engine, v)), None) if limits is not None else None
    if limits is None or bad is None:
        return []
    why = f"{limits.stops} refuses it at start-up" if limits.stops else limits.because
    level = "refused"
    if limits.only_with is not None and limits.only_with not in words:
        level = "warning"
        why = f"{limits.stops} refuses it with {limits.only_with}"
    message = f"{name} {bad[:80]} is out of range: it is {legal(limits)}; {why}."
    return [Remark(level, name, message, place=limits.source)]
