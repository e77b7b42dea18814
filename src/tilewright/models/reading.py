"""Reading JSON that somebody else wrote: nothing in it is trusted, nothing of it is executed.

A file is read up to a cap, decoded with duplicate-free semantics of the standard library (NaN and Infinity, which
real configs contain, are kept as floats and refused where a number is used), and its fields are taken one by one,
each with a range. Every refusal is one sentence that names the file and the field.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

from tilewright.errors import InputError, shown

__all__ = ["MAX_CONFIG_BYTES", "Fields", "decode_object", "open_regular", "read_capped", "read_object"]

MAX_CONFIG_BYTES = 32 << 20
"""Largest config.json or hf_quant_config.json that is read. The largest real one that is known (a quantisation map of
every expert of MiniMax-M3) has 3 MB."""


def open_regular(path: Path, what: str) -> tuple[BinaryIO, int]:
    """A regular file, opened for reading, and its size.

    It is opened without blocking and examined through the handle: the name may be a pipe, a device, or change
    meanwhile. Raises InputError when it is missing, unreadable, or anything else than a file.
    """
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except FileNotFoundError:
        raise InputError(what, f"{shown(str(path))} does not exist.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(what, f"{shown(str(path))} cannot be opened: {reason}.") from None
    info = os.fstat(handle)
    if not stat.S_ISREG(info.st_mode):
        os.close(handle)
        raise InputError(what, f"{shown(str(path))} is not a regular file.")
    return os.fdopen(handle, "rb"), info.st_size


def read_capped(path: Path, cap: int, what: str) -> bytes:
    """The bytes of a regular file of at most `cap` bytes. Raises InputError when it is larger or cannot be read."""
    stream, size = open_regular(path, what)
    with stream:
        if size > cap:
            raise InputError(what, f"{shown(str(path))} has {size:,} bytes; a {what} of more than {cap:,} is not read.")
        try:
            data = stream.read(cap + 1)
        except OSError as error:
            raise InputError(what, f"{shown(str(path))} cannot be read: {error.strerror}.") from None
    if len(data) > cap:
        raise InputError(what, f"{shown(str(path))} grew beyond {cap:,} bytes while it was read.")
    return data


def decode_object(data: bytes, where: str, what: str) -> dict[str, Any]:
    """One JSON object. Raises InputError for broken, too deeply nested or other JSON."""
    try:
        value: object = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise InputError(what, f"{where} is not UTF-8 text, so it is no {what}.") from None
    except json.JSONDecodeError as error:
        raise InputError(
            what,
            f"{where} is not valid JSON: {error.msg.removesuffix(' at')} at line {error.lineno}, column {error.colno}.",
        ) from None
    except RecursionError:
        raise InputError(what, f"{where} is nested too deeply to be a {what}.") from None
    except ValueError:  # the only one left: Python reads no integer of more than 4,300 digits
        raise InputError(what, f"{where} holds a number of thousands of digits, so it is no {what}.") from None
    if not isinstance(value, dict):
        raise InputError(what, f"{where} must hold one JSON object, not {_describe(value)}.")
    return cast("dict[str, Any]", value)


def read_object(path: Path, what: str, cap: int = MAX_CONFIG_BYTES) -> dict[str, Any]:
    """The JSON object that the file holds. Raises InputError, one sentence, for anything else."""
    return decode_object(read_capped(path, cap, what), shown(str(path)), what)


def _describe(value: object) -> str:
    if isinstance(value, dict | list):
        return f"a {'list' if isinstance(value, list) else 'object'}"
    return shown(value)


class Fields:
    """The fields of one config object, taken with their types and ranges.

    `used` collects what was taken, under the config's own keys: that is what gets shown as "read from the config".
    """

    def __init__(self, raw: Mapping[str, Any], where: str) -> None:
        self.raw, self.where = raw, where
        self.used: dict[str, Any] = {}

    def error(self, key: str, msg: str) -> InputError:
        return InputError(key, f"{self.where}: {key} {msg}.")

    def first(self, *keys: str) -> str | None:
        """The first of `keys` that the config holds with a value other than null."""
        return next((key for key in keys if self.raw.get(key) is not None), None)

    def has(self, *keys: str) -> bool:
        return self.first(*keys) is not None

    def integer(self, *keys: str, low: int = 1, high: int, default: int | None = None) -> int:
        """A whole number in [low, high] under the first of `keys` that is there.

        Raises InputError when none is there and no default is given, or when the value is not such a number.
        """
        key = self.first(*keys)
        if key is None:
            if default is not None:
                return default
            names = " or ".join(keys[:3])
            raise InputError(keys[0], f"{self.where}: {names} is missing; without it the model's size is unknown.")
        value = self.raw[key]
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.error(key, f"must be a whole number from {low:,} to {high:,}, not {_describe(value)}")
        self.used[key] = value
        return value

    def flag(self, *keys: str, default: bool = False) -> bool:
        key = self.first(*keys)
        if key is None:
            return default
        value = self.raw[key]
        if not isinstance(value, bool):
            raise self.error(key, f"must be true or false, not {_describe(value)}")
        self.used[key] = value
        return value

    def text(self, *keys: str, default: str = "") -> str:
        key = self.first(*keys)
        if key is None:
            return default
        value = self.raw[key]
        if not isinstance(value, str):
            raise self.error(key, f"must be a text, not {_describe(value)}")
        self.used[key] = value
        return value

    def items(self, key: str, count: int | None = None) -> Sequence[Any] | None:
        """The list under `key`, or None; with `count`, it must have that many entries."""
        value = self.raw.get(key)
        if value is None:
            return None
        if not isinstance(value, list):
            raise self.error(key, f"must be a list, not {_describe(value)}")
        entries = cast("list[Any]", value)
        if count is not None and len(entries) != count:
            raise self.error(key, f"must have one entry a layer ({count:,}), not {len(entries):,}")
        self.used[key] = entries
        return entries

    def indices(self, key: str, count: int) -> frozenset[int]:
        """The list of layer numbers under `key`; empty when there is none."""
        entries = self.items(key) or ()
        for entry in entries:
            if isinstance(entry, bool) or not isinstance(entry, int) or not 0 <= entry < count:
                raise self.error(key, f"must hold layer numbers from 0 to {count - 1:,}, not {_describe(entry)}")
        return frozenset(entries)

    def nested(self, key: str) -> Mapping[str, Any] | None:
        """The object under `key`, or None."""
        value = self.raw.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.error(key, f"must be an object, not {_describe(value)}")
        return cast("dict[str, Any]", value)
