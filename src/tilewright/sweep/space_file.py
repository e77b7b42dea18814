"""A space file (TOML or JSON) as a `Space`: everything that can be wrong with it is found here, and named."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from tilewright.errors import InputError, nearest, shown
from tilewright.sweep.space import LOAD_VARIES, Assignment, Load, Parameter, Server, Space, same

__all__ = ["parse_space", "read_space"]

MAX_BYTES: Final = 1 << 20
MAX_PARAMETERS: Final = 64
MAX_CHOICES: Final = 1000
_SECTIONS: Final = ("flags", "env", "load", "server", "baseline", "seed")
_RANGE: Final = ("values", "min", "max", "step", "log", "when", "or_unset")
_FLAG: Final = re.compile(r"-{0,2}[A-Za-z][A-Za-z0-9_.-]{0,99}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


def _refuse(where: str, why: str) -> InputError:
    return InputError("space", f"The space file: {where} {why}.")


def read_space(path: str) -> Space:
    """The space in the file `path`; `.json` is JSON, everything else TOML.

    Raises:
        InputError: it cannot be read, or says what cannot be.
    """
    try:
        with Path(path).open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        msg = f"--space {shown(path)} cannot be read ({reason}); give a TOML or JSON file (docs/how-to/sweep.md)."
        raise InputError("space", msg) from None
    if len(raw) > MAX_BYTES:
        raise InputError("space", f"--space {shown(path)} is larger than {MAX_BYTES >> 20} MiB; give a space file.")
    try:
        tree: Any = msgspec.json.decode(raw) if path.lower().endswith(".json") else tomllib.loads(raw.decode("utf-8"))
    except RecursionError:
        raise InputError("space", f"--space {shown(path)} is nested too deeply to be read.") from None
    except (ValueError, msgspec.DecodeError) as error:
        msg = f"--space {shown(path)} is no {'JSON' if path.lower().endswith('.json') else 'TOML'}: {str(error)[:200]}."
        raise InputError("space", msg) from None
    return parse_space(tree, Path(path).parent)


def parse_space(tree: Any, folder: Path = Path()) -> Space:
    """A decoded space file. `folder` is where a relative `load.dataset` is looked for.

    Raises:
        InputError: a section, a key or a value is not what it may be.
    """
    if not isinstance(tree, dict):
        raise InputError("space", f"The space file holds no table; its sections are {', '.join(_SECTIONS)}.")
    sections = cast("dict[str, Any]", tree)
    for name in sections:
        if name not in _SECTIONS:
            close = nearest(name, _SECTIONS)
            hint = f"the nearest is [{close[0]}]" if close else f"they are {', '.join(_SECTIONS)}"
            raise _refuse(f"section {shown(name)}", f"is not known; {hint}")
    parameters: list[Parameter] = []
    flags = _section(sections, "flags")
    fixed: dict[str, Any] = {}
    for name, value in flags.items():
        if not _FLAG.fullmatch(name):
            raise _refuse(f"flag {shown(name)}", "is no name of a flag; write it as in max-num-seqs = [8, 16]")
        _take(name.lstrip("-") if name.startswith("--") else name, value, fixed, parameters)
    env: dict[str, Any] = {}
    for name, value in _section(sections, "env").items():
        if not _VARIABLE.fullmatch(name):
            raise _refuse(f"env.{name[:80]}", "is no name of an environment variable")
        _take(f"env.{name}", value, env, parameters)
    load = _load(_section(sections, "load"), parameters, folder)
    server = _server(_section(sections, "server"))
    if len(parameters) > MAX_PARAMETERS:
        raise _refuse("it", f"varies {len(parameters)} things; {MAX_PARAMETERS} are the most that are searched")
    ordered = _ordered(parameters)
    for name, value in env.items():
        if isinstance(value, list | dict) or value is None or "\0" in str(value):
            raise _refuse(name, "is neither a text nor a number")
    space = Space(
        parameters=ordered,
        fixed_flags=fixed,
        fixed_env={name.removeprefix("env."): _env_text(value) for name, value in env.items()},
        load=load,
        server=server,
        baseline={},
    )
    baseline = _baseline(_section(sections, "baseline"), space)
    return msgspec.structs.replace(space, baseline=baseline, seeds=_seeds(sections.get("seed", []), space))


def _env_text(value: Any) -> str:
    return ("1" if value else "0") if isinstance(value, bool) else str(value)


def _section(sections: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = sections.get(name, {})
    if not isinstance(value, dict):
        raise _refuse(f"[{name}]", "has to be a table")
    return cast("dict[str, Any]", value)


def _take(name: str, value: Any, fixed: dict[str, Any], parameters: list[Parameter]) -> None:
    """Put a flag or variable among what is fixed or what varies."""
    if isinstance(value, list):
        parameters.append(_choice(name, cast("list[Any]", value), {}, or_unset=False))
    elif isinstance(value, dict):
        parameters.append(_described(name, cast("dict[str, Any]", value)))
    else:
        _scalar(name, value)
        if name in fixed:
            raise _refuse(name, "is there twice, with and without dashes")
        fixed[name] = value


def _scalar(name: str, value: Any) -> None:
    good = isinstance(value, str | int | float | bool) and "\0" not in str(value)
    if not good or (isinstance(value, float) and not math.isfinite(value)):
        raise _refuse(name, f"has the value {shown(value)}; give text, a finite number, true or false")


def _value(name: str, value: Any) -> None:
    """A choice: a scalar, a list of scalars (a flag that takes several), or a table (a flag that takes JSON)."""
    if value is None:
        return
    if isinstance(value, list):
        if not value:
            raise _refuse(name, "has an empty list among its values")
        for item in cast("list[Any]", value):
            _scalar(name, item)
        return
    if isinstance(value, dict):
        return
    _scalar(name, value)


def _choice(name: str, values: list[Any], when: dict[str, tuple[Any, ...]], *, or_unset: bool) -> Parameter:
    kept: list[Any] = [None] if or_unset else []
    for item in values:
        _value(name, item)
        if not any(same(item, other) for other in kept):
            kept.append(item)
    if not kept:
        raise _refuse(name, "has no values; give at least one")
    if len(kept) > MAX_CHOICES:
        raise _refuse(name, f"has {len(kept):,} values; {MAX_CHOICES:,} are the most, or give a range")
    return Parameter(name=name, kind="choice", choices=tuple(kept), when=when)


def _number(name: str, key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _refuse(f"{name}: {key}", f"is {shown(value)} and has to be a finite number")
    if abs(value) > 1e15:
        raise _refuse(f"{name}: {key}", "is beyond what a flag takes")
    return value


def _described(name: str, given: dict[str, Any]) -> Parameter:
    for key in given:
        if key not in _RANGE:
            raise _refuse(
                f"{name}: key {shown(key)}",
                f"is not known; a table here has {', '.join(_RANGE)} (a flag that takes JSON: values = [{{...}}])",
            )
    when = _when(name, given.get("when", {}))
    or_unset = given.get("or_unset", False)
    if not isinstance(or_unset, bool):
        raise _refuse(f"{name}: or_unset", "is true or false")
    if "values" in given:
        extra = [key for key in ("min", "max", "step", "log") if key in given]
        if extra or not isinstance(given["values"], list):
            why = f"goes without {extra[0]}" if extra else "has to be a list"
            raise _refuse(f"{name}: values", why)
        return _choice(name, cast("list[Any]", given["values"]), when, or_unset=or_unset)
    if "min" not in given or "max" not in given:
        raise _refuse(name, "needs either values, or min and max")
    if or_unset:
        raise _refuse(f"{name}: or_unset", "goes with values only; a range is always set")
    low, high = _number(name, "min", given["min"]), _number(name, "max", given["max"])
    if not low < high:
        raise _refuse(name, f"has min {low:g} and max {high:g}; min has to be below max")
    log = given.get("log", False)
    if not isinstance(log, bool):
        raise _refuse(f"{name}: log", "is true or false")
    step = _number(name, "step", given["step"]) if "step" in given else None
    if step is not None and (step <= 0 or step > high - low):
        raise _refuse(f"{name}: step", f"has to be above 0 and at most {high - low:g}")
    if log and (low <= 0 or step is not None):
        raise _refuse(f"{name}: log", "needs min above 0, and no step")
    whole = all(isinstance(given[key], int) for key in ("min", "max", "step") if key in given)
    if step is not None:  # the last value that the steps reach
        high = low + step * math.floor((high - low) / step + 1e-9)
    return Parameter(name=name, kind="int" if whole else "float", low=low, high=high, step=step, log=log, when=when)


def _when(name: str, given: Any) -> dict[str, tuple[Any, ...]]:
    if not isinstance(given, dict):
        raise _refuse(f"{name}: when", "has to be a table, as in when = {scheduler = ['a', 'b']}")
    out: dict[str, tuple[Any, ...]] = {}
    for other, wanted in cast("dict[str, Any]", given).items():
        values = cast("list[Any]", wanted) if isinstance(wanted, list) else [wanted]
        if not values or len(values) > MAX_CHOICES:
            raise _refuse(f"{name}: when.{other}", "needs at least one value")
        out[other.lstrip("-") if other.startswith("--") else other] = tuple(values)
    return out


def _ordered(parameters: list[Parameter]) -> tuple[Parameter, ...]:
    """Parameters so that what a condition names comes first.

    Raises:
        InputError: a condition names what does not vary or a value that it cannot have, or conditions form a circle.
    """
    by_name = {item.name: item for item in parameters}
    if len(by_name) < len(parameters):
        seen: set[str] = set()
        twice = next(item.name for item in parameters if item.name in seen or seen.add(item.name))
        raise _refuse(twice, "is there twice, with and without dashes")
    for item in parameters:
        for other, wanted in item.when.items():
            if other not in by_name:
                near = nearest(other, by_name)
                hint = f"; the nearest that does is {near[0]}" if near else ""
                raise _refuse(f"{item.name}: when", f"names {shown(other)}, which does not vary here{hint}")
            bad = [value for value in wanted if not by_name[other].holds(value)]
            if bad:
                raise _refuse(f"{item.name}: when.{other}", f"has {shown(bad[0])}, which {other} never is")
    out: list[Parameter] = []
    left = list(parameters)
    while left:
        placed = {item.name for item in out}
        ready = [item for item in left if placed.issuperset(item.when)]
        if not ready:
            raise _refuse(left[0].name, "depends on itself by its conditions")
        out.append(ready[0])
        left.remove(ready[0])
    return tuple(out)


def _load(given: dict[str, Any], parameters: list[Parameter], folder: Path) -> Load:
    plain: dict[str, Any] = {}
    for key, value in given.items():
        if key not in Load.__struct_fields__:
            near = nearest(key, Load.__struct_fields__)
            raise _refuse(f"load.{key[:80]}", f"is not known; the nearest are {', '.join(near) or 'none'}")
        varies = isinstance(value, list) or (isinstance(value, dict) and key != "extra")
        if varies and key not in LOAD_VARIES:
            raise _refuse(f"load.{key}", f"cannot vary; what can is {', '.join(LOAD_VARIES)}")
        if varies:
            _take(f"load.{key}", value, {}, parameters)
            _check_varied(key, parameters[-1])
        else:
            plain[key] = value
    if "duration_s" in plain and "requests" not in plain:
        plain["requests"] = None
    elif "duration_s" in plain:
        raise _refuse("load", "has both requests and duration_s; one of them ends a measurement")
    try:
        load = msgspec.convert(plain, Load, strict=True)
    except msgspec.ValidationError as error:
        raise _refuse("load", f"is not right: {error}") from None
    _check_load(load, given)
    if load.dataset is not None and not Path(load.dataset).is_absolute():
        load = msgspec.structs.replace(load, dataset=str((folder / load.dataset).resolve()))
    return load


def _check_varied(key: str, item: Parameter) -> None:
    values = item.choices if item.kind == "choice" else (item.low, item.high)
    for value in values:
        whole = isinstance(value, int) and not isinstance(value, bool)
        good = (whole and item.kind != "float") if key != "request_rate" else isinstance(value, int | float)
        if not good or isinstance(value, bool) or not 0 < value <= 1e7:
            kind = "a number above 0" if key == "request_rate" else "a whole number above 0"
            raise _refuse(item.name, f"has {shown(value)}, which is not {kind}")


def _check_load(load: Load, given: Mapping[str, Any]) -> None:
    for key in ("concurrency", "requests", "input_tokens", "output_tokens", "request_rate", "duration_s", "timeout_s"):
        value = getattr(load, key)
        if value is not None and not 0 < value <= 1e7:
            raise _refuse(f"load.{key}", f"is {value:g} and has to be above 0 and at most 10,000,000")
    if not 0 <= load.warmup_requests <= 1e6:
        raise _refuse("load.warmup_requests", "has to be 0 or more")
    if load.dataset is not None and ("input_tokens" in given):
        raise _refuse("load", "has both dataset and input_tokens; the dataset's prompts are as long as they are")
    if load.dataset is not None and "\0" in load.dataset:
        raise _refuse("load.dataset", "has a NUL character in it")


def _server(given: dict[str, Any]) -> Server:
    try:
        server = msgspec.convert(given, Server, strict=True)
    except msgspec.ValidationError as error:
        raise _refuse("server", f"is not right: {error}") from None
    for key in given:
        if key not in Server.__struct_fields__:
            raise _refuse(f"server.{key[:80]}", f"is not known; it has {', '.join(Server.__struct_fields__)}")
    if server.command is not None:
        if not server.command or any("\0" in word for word in server.command):
            raise _refuse("server.command", "needs at least the program, and no NUL characters")
        if not any("{port}" in word for word in server.command):
            raise _refuse("server.command", "does not hold {port}: the server could not be told where to listen")
    if server.health is not None and not server.health.startswith("/"):
        raise _refuse("server.health", "has to begin with /, as in /health")
    return server


def _baseline(given: dict[str, Any], space: Space) -> Assignment:
    """What is measured first: what the file says, and for the rest what the server does by itself."""
    named = _renamed(given)
    known = {item.name: item for item in space.parameters}
    for name, value in named.items():
        if name not in known:
            raise _refuse(f"baseline.{name[:80]}", f"does not vary; what does is {', '.join(known) or 'nothing'}")
        _value(f"baseline.{name}", value)
        if name.startswith("load.") and not known[name].holds(value):
            raise _refuse(f"baseline.{name}", f"is {shown(value)}, which {name} never is")
    out: Assignment = {}
    for item in space.parameters:
        if item.name in named:
            out[item.name] = named[item.name]
        elif item.name.startswith("load."):  # a load has to be stated
            out[item.name] = (
                item.choices[0] if item.kind == "choice" else int(item.low) if item.kind == "int" else item.low
            )
        else:
            out[item.name] = None
    return out


def _renamed(given: dict[str, Any]) -> dict[str, Any]:
    """Keys as parameters are named: nested tables `env` and `load` flattened, dashes before a name gone."""
    out: dict[str, Any] = {}
    for name, value in given.items():
        if name in ("env", "load") and isinstance(value, dict):
            out |= {f"{name}.{key}": item for key, item in cast("dict[str, Any]", value).items()}
        else:
            out[name.lstrip("-") if name.startswith("--") else name] = value
    return out


def _seeds(given: Any, space: Space) -> tuple[Assignment, ...]:
    entries = cast("list[Any]", given) if isinstance(given, list) else [given]
    if len(entries) > MAX_CHOICES or not all(isinstance(item, dict) for item in entries):
        raise _refuse("seed", f"has to be tables ([[seed]]), at most {MAX_CHOICES:,}")
    out: list[Assignment] = []
    for number, entry in enumerate(cast("list[dict[str, Any]]", entries), 1):
        named = _renamed(entry)
        known = {item.name: item for item in space.parameters}
        for name, value in named.items():
            if name not in known or not known[name].holds(value):
                raise _refuse(f"seed {number}: {name[:80]} = {shown(value)}", "is not in the space")
        out.append(named)
    return tuple(out)
