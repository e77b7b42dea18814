"""FlashInfer's autotuner cache: what is in a file, and whether the FlashInfer of a tree would take it.

One JSON object (flashinfer/autotuner.py, from 0.7 autotuner/autotuner.py, `save_configs` and `load_configs`):
`_metadata` says in what environment it was made, `_records` and `_generation` are the tuner's own, every other key is
`str((custom op, runner class, nearest shapes, extras))` and its value `[runner class, tactic, policy, selection]`, the
last two from 0.7 on. Which fields of the environment are compared, and what becomes of a file that differs, is read
from the tree's own source.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Final, cast

import msgspec

from tilewright.collectives.tree import SourceTree
from tilewright.errors import InputError, shown

MAX_BYTES: Final = 64 << 20
"""Largest file that is read; a server's has some hundred kilobytes."""
MAX_KEY: Final = 20_000
METADATA, RECORDS, GENERATION = "_metadata", "_records", "_generation"
_INDETERMINATE: Final = (None, "unknown", "None")
"""0.7.4 autotuner.py, _INDETERMINATE_META_VALUES: the writer could not tell."""
_MARK: Final = re.compile(r"""[,()\[\]{}<>]|'(?:[^'\\]|\\.)*(?:'|\\?\Z)|"(?:[^"\\]|\\.)*(?:"|\\?\Z)""", re.DOTALL)
"""A comma, a bracket, or a quoted text (one that does not close goes to the end)."""
_OPENING, _CLOSING = frozenset("([{<"), frozenset(")]}>")
_KEY: Final = re.compile(
    r"'([^'\"\\,(){}<>\[\]]*)', '[^'\"\\,(){}<>\[\]]*', (\((?:\([-0-9, ]*\)[, ]*)*\))(?:,(.*))?", re.DOTALL
)
"""A key as the tuner writes it: custom op, runner, shapes, extras."""
_EXTENTS: Final = msgspec.json.Decoder(list[list[Annotated[int, msgspec.Meta(gt=-(10**12), lt=10**12)]]])
"""Shapes as JSON; an extent has 12 digits at most."""
_FIELD: Final = re.compile(r"""\bmeta\[["'](\w{1,60})["']\]\s*=""")
_AUTOTUNERS: Final = ("flashinfer/autotuner/autotuner.py", "flashinfer/autotuner.py")
_UTILS: Final = ("flashinfer/fused_moe/utils.py", "flashinfer/utils.py")


class Entry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One choice. `rows`: the first extent of the first tensor, the bucket of M; `shapes` all of them."""

    op: str
    runner: str
    shapes: list[list[int]]
    extras: str
    tactic: Any
    problem: str = ""
    """Why FlashInfer drops this entry, or ""."""

    @property
    def rows(self) -> int | None:
        return self.shapes[0][0] if self.shapes and self.shapes[0] else None


class CacheFile(msgspec.Struct, frozen=True, kw_only=True):
    """A cache file. `metadata` None: it has none, and FlashInfer then takes it without a look at its origin."""

    metadata: dict[str, Any] | None
    entries: list[Entry]
    records: int
    unread: list[str]


def _split(text: str) -> list[str]:
    """The parts of a tuple's text, cut at commas outside of brackets and quotes."""
    parts: list[str] = []
    depth, begin = 0, 0
    for hit in _MARK.finditer(text):
        mark = hit[0]
        if mark == ",":
            if depth == 0:
                parts.append(text[begin : hit.start()].strip())
                begin = hit.end()
        elif mark in _OPENING:
            depth += 1
        elif mark in _CLOSING:
            depth -= 1
    parts.append(text[begin:].strip())
    return [part for part in parts if part]


@lru_cache(maxsize=1 << 12)
def _extras(text: str) -> str:
    """What stands behind the shapes; few kinds of it stand in one file."""
    return ", ".join(_split(text))


def _shapes(text: str) -> list[list[int]]:
    """`((16, 3072), (256,))` as lists."""
    if not (text.startswith("(") and text.endswith(")")):
        return []
    found: list[list[int]] = []
    for part in _split(text[1:-1]):
        numbers = re.findall(r"-?\d{1,12}", part)
        found.append([int(number) for number in numbers])
    return found


def _parts(key: str) -> tuple[str, list[list[int]], str] | None:
    """(custom op, shapes, extras) of a key without its brackets; None where it has fewer than three parts."""
    usual = _KEY.fullmatch(key)
    if usual is None:
        parts = _split(key)
        return None if len(parts) < 3 else (parts[0].strip("'\""), _shapes(parts[2]), ", ".join(parts[3:]))
    op, text, extras = usual.groups("")
    try:  # as the tuner writes them, shapes are JSON but for the brackets, which is read many times faster
        shapes = _EXTENTS.decode(text.replace("(", "[").replace(")", "]").replace(",]", "]"))
    except msgspec.DecodeError:
        shapes = _shapes(text)
    return op, shapes, _extras(extras)


def _entry(key: str, value: Any) -> Entry | None:
    if len(key) > MAX_KEY or not (key.startswith("(") and key.endswith(")")) or not isinstance(value, list):
        return None
    parts, values = _parts(key[1:-1]), cast("list[Any]", value)
    if parts is None or len(values) < 2 or not isinstance(values[0], str):
        return None
    op, shapes, extras = parts
    tactic = values[1]
    # 0.7.4 load_configs: integer tactics of cuDNN are plan indices of another build, and dropped.
    dropped = values[0].startswith("Cudnn") and isinstance(tactic, int) and tactic >= 0
    return Entry(
        op=op, runner=values[0], shapes=shapes, extras=extras,
        tactic=tactic, problem="an integer plan index of cuDNN, dropped from 0.7 on" if dropped else "",
    )  # fmt: skip


def parse_cache(data: bytes, name: str) -> CacheFile:
    """The cache in `data`.

    Raises:
        InputError: it is too large, no JSON, or no cache.
    """
    label = shown(name)
    if len(data) > MAX_BYTES:
        raise InputError("cache", f"--cache {label} has more than {MAX_BYTES:,} bytes; give FlashInfer's cache file.")
    try:
        raw: Any = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, ValueError, UnicodeDecodeError):
        raise InputError("cache", f"--cache {label} is not JSON, which FlashInfer's cache files are.") from None
    if not isinstance(raw, dict):
        raise InputError("cache", f"--cache {label} holds no JSON object, which FlashInfer's cache files are.")
    table = cast("dict[str, Any]", raw)
    saved, records = table.pop(METADATA, None), table.pop(RECORDS, None)
    table.pop(GENERATION, None)
    entries: list[Entry] = []
    unread: list[str] = []
    for key, value in table.items():
        entry = _entry(key, value)
        if entry is None:
            unread.append(key[:120])
        else:
            entries.append(entry)
    if not entries and saved is None:
        raise InputError("cache", f"--cache {label} has neither entries nor metadata of FlashInfer's autotuner.")
    known = cast("dict[str, Any]", saved) if isinstance(saved, dict) else {} if saved is not None else None
    count = len(cast("dict[str, Any]", records)) if isinstance(records, dict) else 0
    return CacheFile(metadata=known, entries=entries, records=count, unread=unread[:20])


def read_cache(path: str) -> CacheFile:
    """The cache in the file `path`; errors as `parse_cache`."""
    try:
        if "\0" in path or not Path(path).is_file():
            raise InputError("cache", f"--cache {shown(path)} is no file; give FlashInfer's autotuner cache.")
        with Path(path).open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError("cache", f"--cache {shown(path)} cannot be read: {error.strerror}.") from None
    return parse_cache(data, path)


@dataclass(frozen=True)
class Tuner:
    """What the FlashInfer of a tree does with a cache: fields compared (empty: it reads no such file), whether it
    replaces files of an unknown origin, and how it rounds numbers of tokens."""

    version: str
    fields: tuple[str, ...]
    heals: bool
    hybrid: bool


def read_tuner(tree: SourceTree) -> Tuner:
    """The autotuner of the tree, read by its text.

    Raises:
        InputError: there is no FlashInfer in it.
    """
    library = next((item for item in tree.libraries() if item.name == "flashinfer"), None)
    package = library.package if library is not None else "flashinfer"

    def text(names: tuple[str, ...]) -> str:
        for name in names:
            path = f"{package}{name.removeprefix('flashinfer')}" if package else name.removeprefix("flashinfer/")
            if tree.exists(path):
                return tree.read_text(path)
        return ""

    source = text(_AUTOTUNERS)
    if not source:
        raise InputError("root", f"There is no FlashInfer with an autotuner in {shown(tree.name)}; pass its wheel.")
    begin = source.find("def _collect_metadata")
    end = source.find("\ndef ", begin + 1) if begin >= 0 else -1
    fields = tuple(dict.fromkeys(_FIELD.findall(source[begin:end]))) if begin >= 0 else ()
    return Tuner(
        version=library.version if library is not None else "unknown", fields=fields,
        heals="def _classify_metadata_mismatches" in source, hybrid="def map_to_hybrid_bucket" in text(_UTILS),
    )  # fmt: skip


def bucket(tokens: int, most: int, hybrid: bool) -> int:
    """The bucket that `tokens` falls into; `most`: the largest that was tuned. `hybrid`: rounded up in steps
    (fused_moe/utils.py, map_to_hybrid_bucket: powers of two to 256, steps of 256 to 2,048, of 512 to 4,096, then powers
    of two); before, rounded down to a power of two (last_positive_power_of_2)."""
    if tokens >= most:
        return most
    if not hybrid:
        return 1 << (tokens.bit_length() - 1)
    if tokens <= 256 or tokens > 4096:
        return min(most, 1 << (tokens - 1).bit_length())
    step = 256 if tokens <= 2048 else 512
    return min(most, -(-tokens // step) * step)


class Mismatch(msgspec.Struct, frozen=True, kw_only=True):
    """One field that differs."""

    field: str
    saved: Any
    running: str


class Acceptance(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the file is taken: `yes`, `no`, or `unknown` where a compared field of the running side was not given."""

    verdict: str
    why: str
    mismatches: list[Mismatch] = []
    not_given: list[str] = []


def acceptance(cache: CacheFile, tuner: Tuner, running: Mapping[str, str]) -> Acceptance:
    """What `load_configs` of the tree does with the file where `running` holds the values of the environment."""
    if not tuner.fields:
        why = f"FlashInfer {tuner.version} reads no such file: it tunes anew at every start."
        return Acceptance(verdict="no", why=why)
    if cache.metadata is None:
        return Acceptance(verdict="yes", why="the file has no metadata, so that nothing is compared")
    hard: list[Mismatch] = []
    soft: list[Mismatch] = []
    absent: list[str] = []
    for field in tuner.fields:
        saved = cache.metadata.get(field)
        if saved == "*":
            continue
        if field not in running:
            if tuner.heals and saved in _INDETERMINATE and saved != "unknown":
                soft.append(Mismatch(field=field, saved=saved, running="whatever it is"))
            else:
                absent.append(field)
        elif saved != running[field]:
            unsure = tuner.heals and saved in _INDETERMINATE
            (soft if unsure else hard).append(Mismatch(field=field, saved=saved, running=running[field]))
    if hard or soft:
        after = "and the file is kept as it is: tune into another path" if hard else "and the next save replaces it"
        names = ", ".join(item.field for item in [*hard, *soft])
        return Acceptance(
            verdict="no", why=f"the whole file is skipped ({names} differ), {after}", mismatches=[*hard, *soft],
            not_given=absent,
        )  # fmt: skip
    if absent:
        why = f"not told of the running side: {', '.join(absent)} (--running FIELD=VALUE)"
        return Acceptance(verdict="unknown", why=why, not_given=absent)
    return Acceptance(verdict="yes", why="every compared field is equal")
