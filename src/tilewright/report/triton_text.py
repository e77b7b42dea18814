"""One Triton tile for a reader."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tilewright.report.budget_text import change_text
from tilewright.report.output import Output, bar

if TYPE_CHECKING:
    from tilewright.triton_.model import TritonVerdict

WIDTH: Final = 100


def show_tile(raw: Mapping[str, Any], verdict: TritonVerdict, out: Output) -> None:
    """Print the verdict on one tile: bytes against the limit, why, and what to do."""
    tile = "x".join(str(raw.get(key, "?")) for key in ("block_m", "block_n", "block_k"))
    out.heading(f"{raw['kernel']} {raw.get('dtype') or 'bf16'} {tile} on {raw['gpu']}: {verdict.status}")
    if verdict.smem_bytes is not None and verdict.limit_bytes:
        kind = {"bound": "at most", "exact": "exactly", "compiled": "compiled:"}.get(verdict.basis or "", "")
        meter = bar(verdict.smem_bytes, verdict.limit_bytes)
        out.line(f"  {meter}  {kind} {verdict.smem_bytes:,} of {verdict.limit_bytes:,} bytes")
        if verdict.excess_bytes:
            out.line(f"  {verdict.excess_bytes:,} bytes too many")
    for text in [verdict.cause, *(verdict.rules if not verdict.cause else [])]:
        if text:
            for line in textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="    "):
                out.line(line)
    for index, fix in enumerate(verdict.fixes):
        change = change_text(fix.change)
        note = f": {fix.note}" if fix.note else ""
        out.line(f"  {'Fix:' if index == 0 else 'or: '} {change} ({fix.smem_bytes:,} bytes){note}")


def tile_line(verdict: TritonVerdict) -> str:
    """One line of a stream."""
    size = "-" if verdict.smem_bytes is None else f"{verdict.smem_bytes:,}"
    meter = bar(verdict.smem_bytes or 0, verdict.limit_bytes or 1, 20)
    note = "" if verdict.status == "fits" else verdict.cause or ""
    return f"{verdict.status:<11} {size:>9}  {meter}  {verdict.id or '-'}  {note}".rstrip()
