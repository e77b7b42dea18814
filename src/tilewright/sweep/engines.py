"""How each engine is started, asked whether it is up, and stopped; and where the installed one is.

The flags that a sweep sets itself, and the paths and fields of each server's API, are those of vLLM 0.32/0.33
(`vllm/entrypoints/openai`), SGLang 0.5.23 (`sglang/srt/entrypoints/http_server.py`) and the OpenAI API.
"""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tilewright.errors import InputError, shown
from tilewright.libraries.engine_flags import Flag, FlagSet, Remark, check_launch, engine_flags
from tilewright.sweep.space import Space, value_text

__all__ = ["ENGINES", "Engine", "Installed", "check_space", "command_of", "find_engine", "flag_words"]


@dataclass(frozen=True)
class Engine:
    """What a sweep has to know of an engine. `start`: the words before the flags, `{program}`, `{model}` filled in."""

    name: str
    program: str
    """File in the environment's bin/ that starts it."""
    start: tuple[str, ...]
    always: tuple[str, ...]
    """Words that every start gets: where to listen, and metrics where they are off by default."""
    reserved: tuple[str, ...]
    """Flags that the sweep sets itself."""
    health: str
    extra: Mapping[str, Any]
    """Fields that make it write all the tokens asked for, so that every candidate does the same work."""


ENGINES: Final[dict[str, Engine]] = {
    "vllm": Engine(
        "vllm",
        "vllm",
        ("{program}", "serve", "{model}"),
        ("--host", "{host}", "--port", "{port}"),
        ("--host", "--port", "--model", "--uds", "--api-key", "--ssl-keyfile", "--root-path", "--headless"),
        "/health",
        {"ignore_eos": True},
    ),
    "sglang": Engine(
        "sglang",
        "python",
        ("{program}", "-m", "sglang.launch_server", "--model-path", "{model}"),
        ("--host", "{host}", "--port", "{port}", "--enable-metrics"),
        ("--host", "--port", "--model-path", "--enable-metrics", "--api-key", "--ssl-keyfile"),
        "/health",
        {"ignore_eos": True},
    ),
    "openai": Engine("openai", "", (), (), (), "/v1/models", {}),
}
HOST: Final = "127.0.0.1"


@dataclass(frozen=True)
class Installed:
    """The engine that will be started. `flags` None: nothing is known to check against."""

    engine: Engine
    program: str | None
    flags: FlagSet | None
    version: str | None
    note: str | None = None


def _environments(root: Path, program: str) -> list[tuple[Path, Path]]:
    """(program, site-packages) of a virtual environment, a prefix or a site-packages folder."""
    found: list[tuple[Path, Path]] = []
    starts = [root, *list(root.parents)[:3]] if root.name in ("site-packages", "dist-packages") else [root]
    for start in starts:
        file = start / "bin" / program
        if not file.is_file():
            continue
        sites = [root] if start != root else sorted(start.glob("lib/python3*/*-packages"))
        found += [(file, site) for site in sites]
    return found


def find_engine(name: str, root: str | None, version: str | None, space: Space) -> Installed:
    """The engine to start: in `root` (a virtual environment, or its site-packages), else the one on PATH.

    Raises:
        InputError: it is not there, or there is no way to start it.
        TreeError: its flags cannot be read.
    """
    from tilewright.collectives.tree import open_tree

    engine = ENGINES[name]
    command = space.server.command
    if name == "openai":
        if command is None:
            msg = (
                "--engine openai starts what [server] command in the space file says, and there is none; write "
                'command = ["my-server", "--port", "{port}"], or measure a server that runs with --url.'
            )
            raise InputError("engine", msg)
        return Installed(engine, None, None, version, "flags are not checked: --engine openai knows none")
    if root is not None:
        label = shown(root)
        try:
            there = Path(root).is_dir()
        except (OSError, ValueError):
            there = False
        if not there:
            raise InputError("root", f"--root {label} is no folder; pass the virtual environment that {name} is in.")
        places = _environments(Path(root).absolute(), engine.program)
    else:
        on_path = shutil.which(engine.program if name == "vllm" else "python3")
        places = _environments(Path(on_path).absolute().parent.parent, engine.program) if on_path else []
    for program, site in places:
        if (site / name).is_dir():
            with open_tree(site) as tree:
                flags = engine_flags(tree, name)
            return Installed(engine, str(program), flags, flags.version)
    if command is not None:  # started in its own way (a container, numactl ...): check against the packaged flags
        from tilewright.libraries.engine_flags.snapshots import snapshot

        flags = snapshot(name, version)
        note = f"flags are checked against those of {name} {flags.version}, which come with tilewright"
        return Installed(engine, None, flags, version, note)
    if root is not None:
        msg = (
            f"--root {shown(root)} holds no {name} that can be started; pass the virtual environment with "
            f"bin/{engine.program} and {name}'s package in its site-packages."
        )
        raise InputError("root", msg)
    msg = f"No {name} is on PATH; pass --root with the virtual environment that it is in."
    raise InputError("engine", msg)


def flag_words(name: str, value: Any, flag: Flag | None) -> list[str]:
    """A flag with its value as words of a command line; nothing where it is left out."""
    spelt = name if name.startswith("-") else f"--{name}"
    if value is None:
        return []
    if value is True:
        return [spelt]
    if value is False:
        if flag is not None and flag.kind == "bool":
            return ["--" + spelt[5:] if spelt.startswith("--no-") else "--no-" + spelt.lstrip("-")]
        return []
    if isinstance(value, list | tuple):
        return [spelt, *(value_text(item) for item in value)]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, dict):
        return [spelt, json.dumps(value, separators=(",", ":"))]
    return [spelt, value_text(value)]


def command_of(installed: Installed, space: Space, flags: Mapping[str, Any], model: str | None, port: int) -> list[str]:
    """The command that starts a candidate."""
    engine = installed.engine
    filled = {"{host}": HOST, "{port}": str(port), "{model}": model or "", "{program}": installed.program or ""}

    def fill(words: Sequence[str]) -> list[str]:
        out: list[str] = []
        for word in words:
            for mark, text in filled.items():
                word = word.replace(mark, text)
            out.append(word)
        return out

    own = space.server.command
    words = fill(own) if own is not None else fill([*engine.start, *engine.always])
    known = installed.flags
    for name, value in flags.items():
        spelt = name if name.startswith("-") else f"--{name}"
        words += flag_words(name, value, known.get(spelt) if known else None)
    return words


def check_space(installed: Installed, space: Space) -> list[str]:
    """Hold every flag, and every value that it can take, against the flags that the engine has; warnings to show.

    Raises:
        InputError: a flag is not known, a value is none that it takes, or it is one that the sweep sets itself.
    """
    known = installed.flags
    names = [*space.fixed_flags, *(p.name for p in space.parameters if not p.name.startswith(("env.", "load.")))]
    for name in names:
        spelt = name if name.startswith("-") else f"--{name}"
        flag = known.get(spelt) if known else None
        spellings = set(flag.names) if flag else {spelt}
        if spellings & set(installed.engine.reserved):
            msg = f"The space file sets {spelt}, which the sweep sets itself (--port, --model); take it out."
            raise InputError("space", msg)
    if known is None:
        return []
    version = f"{installed.engine.name} {installed.version or known.version or ''}".strip()
    seen: dict[str, str] = {}
    for name in names:
        spelt = name if name.startswith("-") else f"--{name}"
        flag = known.get(spelt)
        if flag is None:
            near = known.nearest(spelt)
            hint = f"; the nearest are {', '.join(near)}" if near else ""
            raise InputError("space", f"The space file: {version} has no flag {spelt}{hint}.")
        if (other := seen.setdefault(flag.names[0], name)) != name:
            msg = f"The space file: {name} and {other} are two spellings of one flag of {version}; give one."
            raise InputError("space", msg)
    warnings: dict[str, None] = {}
    for name, value in _every_value(space):
        for remark in _judge(known, name, value):
            if remark.stops:
                raise InputError("space", f"The space file, by {version}'s own flags: {remark.message}")
            if remark.level == "warning":
                warnings[remark.message] = None
    return list(warnings)


def _every_value(space: Space) -> list[tuple[str, Any]]:
    out: list[tuple[str, Any]] = list(space.fixed_flags.items())
    out += [(name, value) for name, value in space.baseline.items() if not name.startswith(("env.", "load."))]
    for item in space.parameters:
        if item.name.startswith(("env.", "load.")):
            continue
        ends = (int(item.low), int(item.high)) if item.kind == "int" else (item.low, item.high)
        out += [(item.name, value) for value in (item.choices if item.kind == "choice" else ends)]
    return out


def _judge(known: FlagSet, name: str, value: Any) -> list[Remark]:
    """What the engine makes of one flag with one value."""
    spelt = name if name.startswith("-") else f"--{name}"
    flag = known.get(spelt)
    assert flag is not None
    if value is True and flag.kind in ("value", "values"):
        return [Remark("error", spelt, f"{spelt} needs a value, and true is none.")]
    if value is False and flag.kind in ("value", "values", "optional"):
        message = f"{spelt} takes a value, and false is none; to leave it out, write or_unset = true."
        return [Remark("error", spelt, message)]
    if value is not None and not isinstance(value, bool) and flag.kind in ("switch", "bool"):
        return [Remark("error", spelt, f"{spelt} is a switch: it is true or false, not {shown(value)}.")]
    words = flag_words(name, value, flag)
    if not words:
        return []
    program = ["vllm", "serve", "MODEL"] if known.engine == "vllm" else ["python3", "-m", "sglang.launch_server"]
    required = {item.names[0] for item in known.flags if item.required}
    told = check_launch(known, shlex.join([*program, *words]))
    return [remark for remark in told.remarks if remark.word not in required - {flag.names[0]}]
