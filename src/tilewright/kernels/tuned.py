"""Builds of the grouped kernel that `tilewright tune moe --kernel ours --out DIR` found, read back from their files.

A folder, named by an argument or by $TILEWRIGHT_KERNEL_CONFIGS, holds one file a layer and GPU. Of a layer's numbers of
routed rows the nearest by ratio counts, the smaller of two as near, and none beyond a factor of `REACH`: there the
kernel's own table answers. Files of other names in the folder are not looked at.
"""

from __future__ import annotations

import os
import re
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from tilewright.errors import InputError, shown
from tilewright.kernels.config import MOST_SHARED, GroupedConfig

VARIABLE: Final = "TILEWRIGHT_KERNEL_CONFIGS"
PREFIX: Final = "tilewright-grouped,"
REACH: Final = 4.0
"""Largest ratio of a call's routed rows to tuned ones: within it the next number that is usually tuned lies."""
MAX_BYTES: Final = 1 << 20
"""Largest file that is read; one of 64 numbers of tokens has 8 KB."""
MAX_FILES: Final = 1024
MAX_PART: Final = 64
"""Largest value of a part of a build."""
MAX_THREADS: Final = 1024
"""Threads of one block (CUDA C++ Programming Guide, technical specifications)."""
_KNOWN: Final = tuple(field.name for field in fields(GroupedConfig))
_PART: Final = re.compile(r"[^A-Za-z0-9.+-]+")

C = TypeVar("C")


class TunedBuilds(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="schema",
    tag="tilewright/kernel-builds/1",
):  # fmt: skip
    """One layer on one GPU. `builds`: number of tokens -> the fields of a `GroupedConfig`; `times_us`: what both GEMMs
    took with it, microseconds, measured. `source`: digest of the kernel's text that was measured."""

    device: str
    hidden: int
    inter: int
    experts: int
    topk: int
    builds: dict[int, dict[str, int]]
    times_us: dict[int, float] = {}
    source: str = ""


def file_name(device: str, hidden: int, inter: int, experts: int, topk: int) -> str:
    """The file of a layer (`inter` and `experts` those of one GPU's shard) on the GPU that torch calls `device`."""
    name = _PART.sub("_", device)[:80]
    return f"{PREFIX}E={experts},H={hidden},N={inter},topk={topk},device_name={name}.json"


def encoded(table: TunedBuilds) -> bytes:
    """A file's content, tokens ascending."""
    ordered = msgspec.structs.replace(table, builds=dict(sorted(table.builds.items())))
    return msgspec.json.format(msgspec.json.encode(ordered), indent=2) + b"\n"


def decoded(data: bytes, label: str) -> TunedBuilds:
    """What `encoded` wrote, checked. `label` names the file in errors.

    Raises:
        InputError: it is no such file, or holds a build that the kernel does not have.
    """
    again = "tune again, or take it out of the folder"
    if len(data) > MAX_BYTES:
        raise InputError(VARIABLE, f"{label} has more than {MAX_BYTES:,} bytes and is no file of `tune`: {again}.")
    try:
        table = msgspec.json.decode(data, type=TunedBuilds)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InputError(VARIABLE, f"{label} is no file of `tune` ({error}): {again}.") from None
    if min(table.hidden, table.inter, table.experts, table.topk, *table.builds, *[1]) < 1 or not table.builds:
        raise InputError(VARIABLE, f"{label} has a size below 1 or no build: {again}.")
    for tokens, build in table.builds.items():
        if not _runs(build):
            msg = f"{label}: {shown(build)} at {tokens} tokens is no build of this version's kernel: {again}."
            raise InputError(VARIABLE, msg)
    return table


def _runs(build: dict[str, int]) -> bool:
    if set(build) - set(_KNOWN) or not all(0 <= value <= MAX_PART for value in build.values()):
        return False
    config = GroupedConfig(**build)
    if min(config.columns, config.blocks, config.warps, config.units) < 1:
        return False
    return config.legal and config.threads <= MAX_THREADS and config.shared_bytes <= MOST_SHARED


def read_folder(folder: str) -> dict[tuple[str, int, int, int], dict[int, GroupedConfig]]:
    """(device, experts, width, k) of each GEMM of each layer in `folder` -> routed rows -> its build.

    Raises:
        InputError: there is no such folder, it cannot be read, or one of its files is not what `tune` writes.
    """
    label = f"${VARIABLE} {shown(folder)}"
    try:
        path = Path(folder)
        if "\0" in folder or not path.is_dir():
            raise InputError(VARIABLE, f"{label} is no folder; name the one that `tune --out` wrote into.")
        with os.scandir(path) as entries:
            names = sorted(entry.name for entry in entries if entry.name.startswith(PREFIX))
    except OSError as error:
        raise InputError(VARIABLE, f"{label} cannot be read: {error.strerror or error}.") from None
    if len(names) > MAX_FILES:
        raise InputError(VARIABLE, f"{label} has {len(names):,} files of `tune`; at most {MAX_FILES:,} are read.")
    found: dict[tuple[str, int, int, int], dict[int, GroupedConfig]] = {}
    for name in names:
        table = _read(path / name)
        for width, k in ((2 * table.inter, table.hidden), (table.hidden, table.inter)):
            rows = found.setdefault((table.device, table.experts, width, k), {})
            for tokens, build in table.builds.items():
                rows.setdefault(tokens * table.topk, GroupedConfig(**build))
    return found


def _read(path: Path) -> TunedBuilds:
    label = shown(str(path))
    try:
        if not path.is_file():  # a pipe or a device would be waited for
            raise InputError(VARIABLE, f"{label} is no file: take it out of the folder.")
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(VARIABLE, f"{label} cannot be read: {error.strerror or error}.") from None
    return decoded(data, label)


_folder = lru_cache(maxsize=8)(read_folder)


def nearest_rows(tuned: dict[int, C], rows: int) -> C | None:
    """The entry for `rows` routed rows, by the rule of this module; None where none is near enough."""
    best = min(tuned, key=lambda count: (max(count / rows, rows / count), count), default=None)
    return None if best is None or max(best / rows, rows / best) > REACH else tuned[best]


def tuned_build(
    device: str, experts: int, width: int, k: int, rows: int, folder: str | None = None
) -> GroupedConfig | None:
    """The tuned build for `rows` routed rows times matrices [width, k] of `experts` experts on the GPU `device`.

    `width` counts stored rows (gate and up together). None where nothing near was tuned. `folder`: default
    $TILEWRIGHT_KERNEL_CONFIGS; it is read once a process.

    Raises:
        InputError: the folder, or a file in it, is not what `tune` writes.
    """
    named = folder if folder is not None else os.environ.get(VARIABLE)
    if not named or rows < 1:
        return None
    tuned = _folder(named).get((device, experts, width, k))
    return nearest_rows(tuned, rows) if tuned else None


def preferred(default: C, device: str, experts: int, width: int, k: int, rows: int) -> C | GroupedConfig:
    """`default`, or a tuned build in its place where it is one of the same kernel.

    Where the layer would run another kernel (row by row, or wgmma), nothing tuned says that this one is faster.
    """
    if not isinstance(default, GroupedConfig):
        return default
    return tuned_build(device, experts, width, k, rows) or default
