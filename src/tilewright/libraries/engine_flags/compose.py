"""A launch command out of what it is kept in: a shell script of several lines, a Docker Compose or Kubernetes file."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Final, NamedTuple

from tilewright.libraries.engine_flags.interpolate import Filled, of_compose, of_kubernetes
from tilewright.libraries.engine_flags.yaml_text import Node, documents

__all__ = ["Kept", "from_yaml", "one_line"]

_MARK: Final = re.compile(r"^[ \t-]*(services|containers|spec|image|version|command|args|entrypoint):", re.MULTILINE)
_COMMANDS: Final = ("entrypoint", "command", "args")
"""Keys whose words make the command, in this order: Compose has the first two, Kubernetes the last two."""
_NO_CONTAINER: Final = frozenset(
    {"build", "develop", "environment", "env", "healthcheck", "initContainers", "labels", "lifecycle",
     "livenessProbe", "readinessProbe", "startupProbe", "x-build"}
)  # fmt: skip
"""Keys below which a `command` or `args` starts no server."""
_SERVER: Final = re.compile(
    r"\b(?:vllm|sglang)\s+serve\b|vllm\.entrypoints|sglang\.launch_server|(?:launch|api)_server\.py"
)
_ENGINE: Final = re.compile(r"vllm|sglang", re.IGNORECASE)


class Kept(NamedTuple):
    """A launch command that a file keeps."""

    command: str
    """As a shell writes it, variables before it."""
    others: int
    """Further commands in the file that start a server."""
    filled: Filled
    """The variables of the command that Compose fills in."""
    elsewhere: tuple[str, ...]
    """Files that set more variables (`env_file`), and other places that do (`envFrom`)."""


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


def _containers(root: Node) -> Iterator[dict[str, Node]]:
    """Every map that has a command of its own, in the file's order; an aliased one once."""
    seen: set[int] = set()
    waiting: list[Node] = [root]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, dict | list) or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, list):
            waiting += reversed(node)
            continue
        if any(isinstance(node.get(key), str | list) for key in _COMMANDS):
            yield node
            continue
        waiting += [value for key, value in reversed(node.items()) if key not in _NO_CONTAINER]


def _words(value: Node) -> list[str]:
    """The words of a command: a list's items as they are, a text as Compose splits it."""
    if isinstance(value, list):
        return [item for item in value if isinstance(item, str)]
    if not isinstance(value, str):
        return []
    lines = "\n".join(line for line in value.split("\n") if not line.lstrip().startswith("#"))
    return shlex.split(lines.replace("\\\n", " "))


def _settings(value: Node) -> Iterator[tuple[str, str]]:
    """The variables of an `environment` or `env` key that have a value: a map, `A=1` items, or Kubernetes' pairs."""
    if isinstance(value, dict):
        yield from ((name, text) for name, text in value.items() if isinstance(text, str))
    for item in value if isinstance(value, list) else []:
        if isinstance(item, str):
            name, equals, text = item.partition("=")
            if equals:
                yield name, text
        elif isinstance(item, dict):
            name, text = item.get("name"), item.get("value")
            if isinstance(name, str) and isinstance(text, str):
                yield name, text
            elif "name" not in item:
                yield from _settings(item)


def _filled(value: Node, found: Filled) -> Node:
    """A command as Compose fills it in; what it found on the way goes to `found`."""
    if isinstance(value, list):
        return [_filled(item, found) if isinstance(item, str) else item for item in value]
    if not isinstance(value, str):
        return value
    made = of_compose(value)
    found.add(made)
    return made.text


def _elsewhere(container: dict[str, Node]) -> tuple[str, ...]:
    """What else sets variables of a container: the names of `env_file`, `envFrom`."""
    value = container.get("env_file")
    items = value if isinstance(value, list) else [value]
    paths = [item.get("path") if isinstance(item, dict) else item for item in items]
    found = [f"env_file {path}" for path in paths if isinstance(path, str) and path]
    return (*found, "envFrom") if container.get("envFrom") else tuple(found)


def _command(container: dict[str, Node], compose: bool, found: Filled) -> str:
    """The command of one service or container; a text whose quotes do not close stands as it is."""
    texts = [_filled(container.get(key), found) if compose else container.get(key) for key in _COMMANDS]
    try:
        words = [word for text in texts for word in _words(text)]
    except ValueError:
        return " ".join(text for text in texts if isinstance(text, str))
    settings = dict(item for key in ("environment", "env") for item in _settings(container.get(key)))
    if not words:
        return ""
    if compose:
        settings = {name: of_compose(text).text for name, text in settings.items()}
    else:
        words = [of_kubernetes(word, settings) for word in words]
    given = [f"{name}={shlex.quote(text)}" for name, text in settings.items() if name.isidentifier()]
    return " ".join([*given, shlex.join(words)])


def _weight(container: dict[str, Node]) -> int:
    """How plainly a container is a server of an engine: 2 by its command, 1 by its image or a word."""
    values = [container.get(key) for key in (*_COMMANDS, "image")]
    texts = [" ".join(item for item in v if isinstance(item, str)) if isinstance(v, list) else v for v in values]
    text = " ".join(item for item in texts if isinstance(item, str))
    return 2 if _SERVER.search(text) else 1 if _ENGINE.search(text) else 0


def from_yaml(text: str) -> Kept | None:
    """The launch command that a Docker Compose or Kubernetes text keeps: that of the first service that is plainly an
    engine's server, else of the first that has a command. None where the text is no such file."""
    if "\n" not in text or _MARK.search(text) is None:
        return None
    found: list[tuple[int, Kept]] = []
    for document in documents(text):
        compose = isinstance(document, dict) and "services" in document
        root = document["services"] if isinstance(document, dict) and "services" in document else document
        for container in _containers(root):
            filled = Filled()
            command = _command(container, compose, filled)
            if command:
                found.append((_weight(container), Kept(command, 0, filled, _elsewhere(container))))
    if not found:
        return None
    best = max(weight for weight, _ in found)
    servers = [kept for weight, kept in found if weight == best]
    return servers[0]._replace(others=len(servers) - 1 if best else 0)
