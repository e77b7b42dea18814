"""Writing a plan's files into a folder: whole or not at all, and never over somebody else's file.

`plan.md` and `plan.html` end in a line that names the tool and the digest of what stands above it. A file without that
line is not ours, one whose digest differs was edited by hand: both are left alone unless the caller insists.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from tilewright.errors import InputError, shown
from tilewright.report.write_file import write_temp

SEAL = "<!-- written by tilewright plan; sha256 of the text above: "
_SEAL_END = " -->"
_JSON_MARK = b'"schema":"tilewright/plan/1"'
MAX_OLD_BYTES = 16 << 20
"""An older plan has a few hundred kilobytes; what is larger is no plan of ours."""


def seal(text: str) -> str:
    """`text` with the closing line that says whose it is."""
    body = text if text.endswith("\n") else text + "\n"
    return f"{body}{SEAL}{hashlib.sha256(body.encode()).hexdigest()}{_SEAL_END}\n"


def _untouched_markdown(raw: bytes) -> str | None:
    """None where `raw` is a plan as we wrote it, else what it is instead."""
    text = raw.decode("utf-8", "replace")
    body, mark, rest = text.rpartition(SEAL)
    if not mark:
        return "was not written by tilewright"
    digest = rest.partition(_SEAL_END)[0]
    if hashlib.sha256(body.encode()).hexdigest() != digest:
        return "was edited after tilewright wrote it"
    return None


def _refuse(path: Path, why: str) -> InputError:
    msg = f"{shown(str(path))} {why}; it is kept: give another --out, or --force to replace it."
    return InputError("out", msg)


def check_ours(path: Path) -> None:
    """Raise InputError where `path` exists and is not a plan that tilewright wrote and nobody changed."""
    try:
        if not path.exists():
            return
        if not path.is_file():
            raise _refuse(path, "is no regular file")
        with path.open("rb") as stream:
            raw = stream.read(MAX_OLD_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise _refuse(path, f"cannot be read ({reason})") from None
    if len(raw) > MAX_OLD_BYTES:
        raise _refuse(path, "was not written by tilewright")
    if path.suffix == ".json":
        if _JSON_MARK not in raw[:256].replace(b" ", b""):
            raise _refuse(path, "was not written by tilewright")
        return
    why = _untouched_markdown(raw)
    if why:
        raise _refuse(path, why)


def _place(out: Path, paths: Sequence[Path], contents: Sequence[bytes]) -> None:
    """All files, each whole before any takes its name."""
    temps: list[str] = []
    try:
        for path, content in zip(paths, contents, strict=True):
            temps.append(write_temp(out, path.name, content))
        for path, temp in zip(paths, list(temps), strict=True):
            Path(temp).replace(path)
            temps.remove(temp)
    finally:
        for temp in temps:
            with contextlib.suppress(OSError):
                Path(temp).unlink()


_NUMBERED = re.compile(r"plan-(\d{2,6})\.(?:md|json|html)\Z")


def _contents(markdown: str, document: bytes, page: str | None) -> list[tuple[str, bytes]]:
    """(suffix, bytes) of each file. What no encoding has (half a surrogate pair of a file's name) becomes `?`."""
    out = [("md", seal(markdown)), ("json", "")] + ([("html", seal(page))] if page is not None else [])
    return [(suffix, text.encode("utf-8", "replace") if text else document + b"\n") for suffix, text in out]


def write_next(out: Path, markdown: str, document: bytes, page: str | None = None) -> tuple[Path, ...]:
    """Write the next `plan-NN.md` and `plan-NN.json` (and, with `page`, `plan-NN.html`) of a series into the folder
    `out` (made if missing) and answer their paths.

    Older ones are never touched; two writers at the same time get different numbers.

    Raises:
        InputError: the folder cannot be used.
    """
    label = shown(str(out))
    try:
        out.mkdir(parents=True, exist_ok=True)
        taken = [int(found[1]) for path in out.iterdir() if (found := _NUMBERED.match(path.name))]
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        msg = f"--series {label} cannot be made or is no folder: {reason}; give a folder that you may write to."
        raise InputError("series", msg) from None
    contents = _contents(markdown, document, page)
    number = max(taken, default=0)
    while True:
        number += 1
        paths = tuple(out / f"plan-{number:02d}.{suffix}" for suffix, _ in contents)
        try:
            with paths[1].open("xb"):  # takes the number
                pass
        except FileExistsError:
            continue
        except OSError as error:
            msg = f"--series {label} cannot be written: {error.strerror or error}; give a folder that you may write to."
            raise InputError("series", msg) from None
        try:
            _place(out, paths, [content for _, content in contents])
        except OSError as error:
            for path in paths:
                with contextlib.suppress(OSError):
                    path.unlink()
            msg = f"--series {label} cannot be written to: {error.strerror or error}; nothing was written."
            raise InputError("series", msg) from None
        return paths


def write_plan(
    out: Path, markdown: str, document: bytes, page: str | None = None, *, force: bool = False
) -> tuple[Path, ...]:
    """Write `plan.md` and `plan.json` (and, with `page`, `plan.html`) into the folder `out` (made if missing) and
    answer their paths.

    Raises:
        InputError: the folder cannot be used, or a file in it is not ours and `force` is not set.
    """
    label = shown(str(out))
    contents = _contents(markdown, document, page)
    paths = tuple(out / f"plan.{suffix}" for suffix, _ in contents)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        msg = f"--out {label} cannot be made or is no folder: {reason}; give a folder that you may write to."
        raise InputError("out", msg) from None
    if not force:
        for path in paths:
            check_ours(path)
    try:
        _place(out, paths, [content for _, content in contents])
    except OSError as error:
        msg = f"--out {label} cannot be written to: {error.strerror or error}; give a folder that you may write to."
        raise InputError("out", msg) from None
    return paths
