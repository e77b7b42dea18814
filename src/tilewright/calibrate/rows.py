"""Measured rows as aiconfigurator's tables hold them: CSV files with its column names, plain or gzip."""

from __future__ import annotations

import csv
import gzip
import io
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tilewright.cost.kernel_dtypes import KERNEL_DTYPES, kernel_dtype
from tilewright.errors import InputError, UnknownNameError, shown
from tilewright.hardware.names import resolve_gpu

__all__ = ["Group", "Sample", "read_groups"]

_MAX_BYTES: Final = 1 << 30
_GEMM: Final = ("m", "n", "k")
_MOE_SHAPE: Final = ("hidden_size", "inter_size", "topk", "num_experts")
_MOE: Final = ("num_tokens", "moe_tp_size", "moe_ep_size")
_GLM5: Final = {"hidden_size": 6144, "inter_size": 2048, "topk": 8, "num_experts": 256}
"""Shape of a table that has a `system` and no shape columns: the one of GLM-5 on many GPUs."""
_DEFAULT_GPU: Final = "rtx_pro_6000_server"


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured time, seconds. GEMM: sizes (m, n, k); MoE: (tokens, hidden, inter, topk, experts, tp, ep)."""

    sizes: tuple[int, ...]
    distribution: str
    time_s: float

    def shape(self, op: str) -> tuple[int, ...]:
        """What is held out together: the weight's shape of a GEMM, the layer and its split of an MoE."""
        return self.sizes[1:]


@dataclass(frozen=True, slots=True)
class Group:
    """All rows of one kernel on one GPU."""

    op: str
    gpu: str
    backend: str
    dtype: str
    framework: str
    samples: tuple[Sample, ...]


def _text(path: str) -> str:
    try:
        with Path(path).open("rb") as stream:
            raw = stream.read(_MAX_BYTES + 1)
        if raw[:2] == b"\x1f\x8b":
            raw = gzip.GzipFile(fileobj=io.BytesIO(raw)).read(_MAX_BYTES + 1)
        if len(raw) > _MAX_BYTES:
            raise InputError("--rows", f"--rows {shown(path)} is larger than 1 GiB; give the table of one GPU.")
        return raw.decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, ValueError) as error:
        if isinstance(error, InputError):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError("--rows", f"--rows {shown(path)} cannot be read ({reason}); give a CSV or CSV.gz.") from None


def _whole(row: dict[str, str], name: str, where: str) -> int:
    text = row.get(name) or ""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 1 <= value <= 1 << 30:
        raise InputError(name, f"{where}: {name} must be a whole number from 1, not {shown(text)}.")
    return value


def _lines(reader: csv.DictReader[str], path: str) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows with their lines. Raises InputError where a line is none of a CSV's."""
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise _no_csv(path, reader.line_num, error) from None
        yield reader.line_num, row


def _no_csv(path: str, line: int, error: csv.Error) -> InputError:
    msg = f"--rows {shown(path)} line {line:,} is no line of a CSV ({error}); give a CSV or CSV.gz of measured rows."
    return InputError("--rows", msg)


def _rows(path: str) -> Iterator[tuple[tuple[str, str, str, str, str], Sample]]:
    reader = csv.DictReader(io.StringIO(_text(path)))
    try:
        columns = set(reader.fieldnames or ())
    except csv.Error as error:
        raise _no_csv(path, 1, error) from None
    if not columns:
        raise InputError("--rows", f"--rows {shown(path)} is empty; give a CSV with a header line.")
    gemm, moe = set(_GEMM) <= columns, set(_MOE) <= columns
    if not (gemm or moe) or "kernel_source" not in columns or not columns & {"latency_ms", "latency"}:
        raise InputError(
            "--rows",
            f"--rows {shown(path)} has the columns {', '.join(shown(name) for name in sorted(columns))[:200]}; "
            "it takes kernel_source, latency_ms, and m, n, k, gemm_dtype or num_tokens, hidden_size, inter_size, topk, "
            "num_experts, moe_tp_size, moe_ep_size, moe_dtype, distribution.",
        )
    op = "gemm" if gemm else "moe"
    shape = {} if set(_MOE_SHAPE) <= columns else _GLM5
    for number, row in _lines(reader, path):
        where = f"{shown(path)} line {number}"
        text = row.get("latency_ms") or row.get("latency") or ""
        try:
            time = float(text) / 1e3
        except ValueError:
            time = math.nan
        if not 0 < time < 1e4:
            raise InputError("latency_ms", f"{where}: latency_ms must be a positive number, not {shown(text)}.")
        name = row.get(f"{op}_dtype") or ""
        try:
            dtype = kernel_dtype(name).name
        except UnknownNameError:
            raise InputError(
                f"{op}_dtype", f"{where}: {op}_dtype must be one of {', '.join(KERNEL_DTYPES)}, not {shown(name)}."
            ) from None
        if gemm:
            sizes = tuple(_whole(row, item, where) for item in _GEMM)
        else:
            body = [shape[item] if shape else _whole(row, item, where) for item in _MOE_SHAPE]
            sizes = (
                _whole(row, "num_tokens", where),
                *body,
                _whole(row, "moe_tp_size", where),
                _whole(row, "moe_ep_size", where),
            )
        key = (
            op,
            row.get("system") or _DEFAULT_GPU,
            row.get("kernel_source") or "",
            dtype,
            row.get("fw_version") or "",
        )
        yield key, Sample(sizes, (row.get("distribution") or "") if moe else "", time)


def read_groups(paths: tuple[str, ...], gpu: str | None = None) -> list[Group]:
    """The rows of all files by kernel, equal rows once. `gpu` is that of files without a `system` column.

    Raises InputError naming file, line and column."""
    found: dict[tuple[str, str, str, str], dict[tuple[tuple[int, ...], str], Sample]] = {}
    frameworks: dict[tuple[str, str, str, str], str] = {}
    for path in paths:
        for (op, system, backend, dtype, framework), sample in _rows(path):
            name = gpu if gpu and system == _DEFAULT_GPU else system
            key = (op, resolve_gpu(name).key, backend, dtype)
            found.setdefault(key, {}).setdefault((sample.sizes, sample.distribution), sample)
            frameworks.setdefault(key, framework)
    return [
        Group(*key, frameworks[key], tuple(rows[item] for item in sorted(rows))) for key, rows in sorted(found.items())
    ]
