"""One calibration: rows in, a folder of coefficients and tables out."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from datetime import date as Date  # noqa: N812 - `date` is what the flag is called
from pathlib import Path

import msgspec

from tilewright.calibrate.fit import fit_group
from tilewright.calibrate.results import joined, read_results
from tilewright.calibrate.rows import Group, read_groups
from tilewright.cost.kernel_models import INDEX_NAME, Index, IndexEntry, load
from tilewright.cost.tables import pack_table
from tilewright.errors import InputError, shown
from tilewright.report.write_file import write_new

__all__ = ["MIN_ROWS", "MIN_SHAPES", "calibrate"]

MIN_ROWS = 40
MIN_SHAPES = 3
"""Fewer rows or shapes of a kernel cannot be held out to say how well the fit holds; such a kernel is left out."""


def calibrate(
    paths: tuple[str, ...],
    out: str,
    *,
    date: str,
    gpu: str | None = None,
    source: str = "",
    force: bool = False,
    tables: bool = True,
    compare: bool = False,
    results: str | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> list[IndexEntry]:
    """Fit every kernel of the files and write `out`; the entries written, with their errors on held-out shapes.

    `results` is a store of `bench`, whose kernels are fitted beside those of the files. Equal rows and an equal `date`
    give equal files. `compare` also fits trees without physics on the same folds.
    Raises InputError for bad rows or an output folder that holds coefficients (unless `force`), MissingPartError
    without numpy and lightgbm."""
    try:
        known = Date.fromisoformat(date).isoformat() == date
    except ValueError:
        known = False
    if not known:
        raise InputError("--date", f"--date must be a day as YYYY-MM-DD, not {shown(date)}.")
    folder = Path(out)
    try:
        if (folder / INDEX_NAME).exists() and not force:
            raise InputError("--out", f"{shown(out)} holds coefficients and is kept: give another --out, or --force.")
        if folder.exists() and not folder.is_dir():
            raise InputError("--out", f"--out {shown(out)} is no folder; give a folder.")
    except (OSError, ValueError) as error:
        raise _unusable(out, error) from None
    groups = joined(read_groups(paths, gpu), read_results(results) if results is not None else ())
    if not groups:
        raise InputError("--rows", "No rows in the files given; each needs a header and at least one line.")
    try:  # before the fits, which take minutes, and not after them
        there = next(item for item in (folder, *folder.absolute().parents) if item.exists())
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise _unusable(out, error) from None
    entries: list[IndexEntry] = []
    files: dict[str, bytes] = {}
    for group in groups:
        shapes = len({sample.shape(group.op) for sample in group.samples})
        if len(group.samples) < MIN_ROWS or shapes < MIN_SHAPES:
            tell(f"{group.backend} {group.dtype}: {len(group.samples)} rows of {shapes} shapes, too few; left out")
            continue
        fitted = fit_group(group, date, source=source, compare=compare)
        entry = fitted.entry
        files[entry.file] = fitted.content
        if tables:
            files[entry.file.replace(".json.gz", ".table.gz")] = _table(group)
        entries.append(entry)
        error = entry.error
        tell(f"{entry.backend} {entry.dtype}: {entry.rows:,} rows, {error.mean:.1%} mean, {error.p95:.1%} at the 95th")
    if not entries:
        raise InputError("--rows", f"No kernel has {MIN_ROWS} rows of {MIN_SHAPES} shapes; give more rows.")
    index = Index(entries=entries, notice=source)
    # Fitting takes minutes and may be interrupted: nothing is written before all of it is there, the index last.
    files[INDEX_NAME] = msgspec.json.format(msgspec.json.encode(index), indent=1) + b"\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(out, error) from None
    for name, content in files.items():
        write_new(str(folder / name), content, force=True)
    load.cache_clear()
    return entries


def _unusable(out: str, error: Exception) -> InputError:
    reason = getattr(error, "strerror", None) or str(error)
    return InputError("--out", f"--out {shown(out)} cannot be used ({reason}); give a folder.")


def _table(group: Group) -> bytes:
    return pack_table([(s.sizes[0], s.sizes[1:], s.distribution, s.time_s) for s in group.samples])
