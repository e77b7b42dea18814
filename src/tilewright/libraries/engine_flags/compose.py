"""A launch command out of what it is kept in: a shell script of several lines, a Docker Compose or Kubernetes file."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any, Final, cast

__all__ = ["from_yaml", "one_line"]

_KEY: Final = re.compile(r"^(\s*(?:-\s+)?)(command|args|entrypoint|environment|env)\s*:\s*(.*)$")
_ITEM: Final = re.compile(r"^(\s*)-\s+(.*)$")
_PAIR: Final = re.compile(r"^(\s*)(?:-\s+)?([A-Za-z_]\w*)\s*[:=]\s*(.*)$")
_MARK: Final = re.compile(r"^[ \t-]*(services|containers|spec|image|version):", re.MULTILINE)
_SCALAR: Final = re.compile(r"^[>|][+-]?\d*$")


def one_line(command: str) -> str:
    """The command with what ends a shell's line made `;`: newlines outside quotes, unless a flag follows them (people
    paste such lines without their backslashes). Comments are left out."""
    out: list[str] = []
    quote = ""
    index, size = 0, len(command)
    while index < size:
        char = command[index]
        if quote:
            if char == "\\" and quote == '"' and index + 1 < size:
                out.append(command[index : index + 2])
                index += 2
                continue
            quote = "" if char == quote else quote
        elif char == "\\" and index + 1 < size:
            out.append(command[index : index + 2])
            index += 2
            continue
        elif char in "'\"":
            quote = char
        elif char == "#" and (index == 0 or command[index - 1].isspace()):
            end = command.find("\n", index)
            index = size if end < 0 else end
            continue
        elif char == "\n":
            rest = index + 1
            while rest < size and command[rest].isspace():
                rest += 1
            out.append(" " if rest < size and command[rest] == "-" else " ; ")
            index = rest
            continue
        out.append(char)
        index += 1
    return "".join(out)


def _plain(text: str) -> str:
    """A YAML scalar of one line without its quotes and comment."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text.partition(" #")[0].rstrip()


def _flow(text: str) -> list[str] | None:
    """The items of a YAML list in brackets, where it is written as JSON."""
    try:
        read: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return [str(item) for item in cast("list[Any]", read)] if isinstance(read, list) else None


def _deeper(lines: list[str], start: int, indent: int) -> list[str]:
    """The lines from `start` on that belong to a key with `indent` blanks before it; list items may stand as far left
    as their key."""
    out: list[str] = []
    for line in lines[start:]:
        if line.strip():
            own = len(line) - len(line.lstrip())
            if own < indent or (own == indent and not line.lstrip().startswith("- ")):
                break
        out.append(line)
    return out


def _words(text: str, lines: list[str], start: int, indent: int) -> str:
    """The value of a `command`, `args` or `entrypoint` key as a shell writes it."""
    text = text.strip()
    if text.startswith("["):
        for end in range(start, min(len(lines), start + 200) + 1):
            items = _flow(" ".join([text, *lines[start:end]]))
            if items is not None:
                return shlex.join(items)
        inside = " ".join([text, *lines[start : start + 200]]).partition("]")[0]  # items without quotes
        return shlex.join(_plain(item) for item in inside[1:].split(",") if item.strip())
    block = _deeper(lines, start, indent)
    if not text:
        items = [_plain(hit[2]) for line in block if (hit := _ITEM.match(line))]
        # `- bash`, `-c`, `- |` and a block: the block is the command
        if items and _SCALAR.match(items[-1]):
            at = next(i for i, line in enumerate(block) if _SCALAR.match(line.strip().removeprefix("- ").strip()))
            return " ".join(line.strip().removesuffix("\\") for line in block[at + 1 :])
        return shlex.join(items)
    if _SCALAR.match(text):
        return " ".join(line.strip().removesuffix("\\") for line in block)
    # a plain scalar may go on in deeper lines
    more = [line.strip() for line in block if line.strip() and not line.lstrip().startswith("- ")]
    return " ".join([_plain(text), *more])


def _settings(lines: list[str], start: int, indent: int) -> list[str]:
    out: list[str] = []
    name = ""
    for line in _deeper(lines, start, indent):
        hit = _PAIR.match(line.replace("- ", "  ", 1)) if line.strip() else None
        if hit is None:
            continue
        key, value = hit[2], _plain(hit[3])
        if key == "name":  # Kubernetes: a name, and its value in the next line
            name = value
        elif key == "value" and name:
            out.append(f"{name}={shlex.quote(value)}")
            name = ""
        elif key not in ("valueFrom", "secretKeyRef", "key"):
            out.append(f"{key}={shlex.quote(value)}")
    return out


def from_yaml(text: str) -> str | None:
    """The launch command of the first service of a Docker Compose or Kubernetes text that has one, variables before
    it; None where the text is none. Only block and JSON-like lists and scalars are read, no anchors."""
    if "\n" not in text or _MARK.search(text) is None:
        return None
    lines = text.splitlines()
    parts: dict[str, str] = {}
    settings: list[str] = []
    for index, line in enumerate(lines):
        hit = _KEY.match(line)
        if hit is None:
            continue
        indent, key, value = len(hit[1]), hit[2], hit[3]
        if key in ("environment", "env"):
            settings = settings or _settings(lines, index + 1, indent)
        elif key not in parts:
            parts[key] = _words(value, lines, index + 1, indent)
    command = " ".join(parts[key] for key in ("entrypoint", "command", "args") if parts.get(key))
    return " ".join([*settings, command]) if command.strip() else None
