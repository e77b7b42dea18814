"""A launch command taken apart: environment settings, the program, and the words that its parser sees.

Commands come as people paste them: over several lines, with variables before them, inside `docker run IMAGE ...`, a
script or a Compose file, and with redirections behind them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from tilewright.errors import InputError
from tilewright.libraries.engine_flags.compose import Kept, from_yaml, one_line
from tilewright.libraries.engine_flags.interpolate import of_shell

__all__ = ["MAX_COMMAND", "LaunchWords", "split_command", "take_apart"]

MAX_COMMAND: Final = 100_000
"""Characters of a launch command: above what a shell's argument list of a server ever is."""
_SETTING: Final = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_CONTAINERS: Final = frozenset({"docker", "podman", "nerdctl"})
_RUNS: Final = frozenset({"run", "create"})
_SWITCHES: Final = frozenset(
    {"--detach", "--disable-content-trust", "--help", "--init", "--interactive", "--no-healthcheck", "--no-hosts",
     "--oom-kill-disable", "--privileged", "--publish-all", "--quiet", "--read-only", "--replace", "--rm", "--rmi",
     "--sig-proxy", "--tty", "--use-api-socket"}
)  # fmt: skip
"""Options of `docker run` (CLI reference, 28.x) and `podman run` that take no value; every other long one takes one."""
_SHORT_SWITCHES: Final = frozenset("ditPq")
_OPERATORS: Final = frozenset({"&&", "||", "|", "|&", ";", "&"})
_REDIRECT: Final = re.compile(r"(\d*|&)(>>?|<)(&?\S*)")
ENGINES: Final = ("sglang", "vllm")
_SCRIPTS: Final = ("launch_server.py", "api_server.py")
_PREPARING: Final = frozenset({"export", "cd", "set", "source", ".", "ulimit", "sleep", "unset", "conda", "nvidia-smi"})
"""Commands that stand before a server's in one line."""
_SHELLS: Final = frozenset({"bash", "sh", "/bin/bash", "/bin/sh"})


@dataclass(frozen=True, slots=True)
class LaunchWords:
    """`words` after the program, `environment` the variables set for it, `program` the words before them."""

    words: list[str]
    environment: dict[str, str] = field(default_factory=lambda: dict[str, str]())
    program: list[str] = field(default_factory=lambda: list[str]())
    server: bool = True
    """Whether the program is one that starts a server (or cannot be told: a container's own)."""
    kept: Kept | None = None
    """The Compose or Kubernetes file that the command was taken from."""


def take_apart(command: str, *, nested: int = 0) -> LaunchWords:
    """The parts of one launch command.

    Raises:
        InputError: it is too long, holds a NUL byte, or its quotes do not close.
    """
    if len(command) > MAX_COMMAND or "\0" in command:
        msg = f"The launch command is longer than {MAX_COMMAND:,} characters or holds a NUL byte; pass one command."
        raise InputError("launch", msg)
    command = command.replace("\r\n", "\n")
    kept = from_yaml(command)
    joined = kept.command if kept is not None else one_line(re.sub(r"\\\n", " ", command))
    try:
        words = shlex.split(joined)
    except ValueError as error:
        msg = f"The launch command cannot be split into words ({error}); close its quotes."
        raise InputError("launch", msg) from None
    words, environment = _before(_own(words))
    image = ""
    container = _container_at(words)
    if container is not None:
        image, words, given = _in_container(words[container + 1 :])
        environment |= given
        words, more = _before(words)
        environment |= more
    if len(words) > 2 and words[0] in _SHELLS and words[1].startswith("-") and words[1].endswith("c") and nested < 2:
        open_ = kept.filled.unknown if kept is not None else ()  # Compose fills those, before there is a shell
        known = {name: value for name, value in environment.items() if name not in open_ and "$" not in value}
        inner = take_apart(of_shell(words[2], known).text, nested=nested + 1)
        environment |= inner.environment
        return LaunchWords(inner.words, environment, inner.program, inner.server, kept)
    start, server = _program_end(words)
    if image and not server:
        # The image starts its own program: flags follow, or (vllm/vllm-openai) the model and flags.
        server = start == 0 or (start == 1 and "vllm" in image)
    elif not words and kept is not None:
        server = True
    return LaunchWords(words[start:], environment, words[:start], server, kept)


def split_command(command: str) -> list[str]:
    """The words after the program: environment settings, `docker run IMAGE`, `python -m ...` and `vllm serve` are
    taken off. Raises InputError as `take_apart`."""
    return take_apart(command).words


def _own(words: list[str]) -> list[str]:
    """The words of the first command that starts a server or a container, else of the first that is no `export` or
    `cd`; settings before it included, without redirections."""
    settings: list[str] = []
    first: list[str] = []
    for out in _commands(words):
        if any(_starts(out, index) for index in range(len(out))) or _container_at(out) is not None:
            return settings + out
        if out[0] in _PREPARING or all(_SETTING.fullmatch(item) for item in out):
            settings += [item for item in out if _SETTING.fullmatch(item)]
        elif not first:
            first = settings + out
    return first or settings


def _commands(words: list[str]) -> Iterator[list[str]]:
    """The commands of a script, without redirections."""
    out: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
            continue
        hit = _REDIRECT.fullmatch(word)
        if hit is not None:
            skip = not hit[3]
            continue
        ends = word in _OPERATORS
        if not ends:
            out.append(word[:-1] if word.endswith(";") else word)
            ends = word.endswith(";")
        if ends and out:
            yield out
            out = []
    if out:
        yield out


def _container_at(words: list[str]) -> int | None:
    """Where `docker` stands, in a command that runs a container."""
    found = next((i for i, word in enumerate(words) if word in _CONTAINERS or word.endswith("/docker")), None)
    runs = found is not None and any(word in _RUNS for word in words[found + 1 : found + 3])
    return found if runs else None


def _before(words: list[str]) -> tuple[list[str], dict[str, str]]:
    """(`words` from the first that sets no variable, variables set before it): `A=1 env B=2 sudo vllm serve`."""
    environment: dict[str, str] = {}
    for index, word in enumerate(words):
        hit = _SETTING.fullmatch(word)
        if hit is not None:
            environment[hit[1]] = hit[2]
        elif word not in ("env", "sudo", "exec", "nohup", "time", "export"):
            return words[index:], environment
    return [], environment


def _in_container(words: list[str]) -> tuple[str, list[str], dict[str, str]]:
    """(the image, the words after it, variables set with -e) of what follows `docker`."""
    environment: dict[str, str] = {}
    index = next(i for i, word in enumerate(words) if word in _RUNS) + 1
    while index < len(words):
        word = words[index]
        index += 1
        if not word.startswith("-") or word == "-":
            return word, words[index:], environment
        name, equals, value = word.partition("=")
        if name.startswith("--"):
            if not equals and name not in _SWITCHES and index < len(words):
                value = words[index]
                index += 1
        elif not set(word[1:]) <= _SHORT_SWITCHES:
            # A short option with a value: `-p 80:80`, `-p80:80`, `-itv /a:/b`.
            at = next(i for i, letter in enumerate(word[1:], 1) if letter not in _SHORT_SWITCHES)
            name, value = "-" + word[at], word[at + 1 :]
            if not value and index < len(words):
                value = words[index]
                index += 1
        if name in ("-e", "--env") and (hit := _SETTING.fullmatch(value)):
            environment[hit[1]] = hit[2]
    return "", [], environment


def _starts(words: list[str], index: int) -> bool:
    """Whether the parser of a server reads the words behind the one at `index`."""
    word, before = words[index], words[index - 1] if index else ""
    if before == "-m":
        return any(part.startswith(ENGINES) for part in word.split("."))
    if word == "serve":
        return index == 0 or before.rsplit("/", 1)[-1] in ENGINES  # the entry point of vllm/vllm-openai is `vllm`
    return word.endswith(_SCRIPTS)


def _program_end(words: list[str]) -> tuple[int, bool]:
    """(where the words that the engine's parser sees begin, whether what stands before them starts a server)."""
    first = next((i for i, word in enumerate(words) if word.startswith("-") and word != "-m"), len(words))
    for index in range(len(words)):
        if _starts(words, index):
            return index + 1, True
        if index and words[index - 1] == "-m":
            return index + 1, False
    return first, first == 0 and bool(words)
