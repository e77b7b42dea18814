"""What a compile gave, for a reader: one config in full, or a line of a stream; and progress while it runs."""

from __future__ import annotations

import sys
import time

from tilewright.cutlass.config import KernelConfig
from tilewright.probe.against import Comparison
from tilewright.probe.result import KernelBuild, ProbeError, ProbeResult
from tilewright.report.budget_text import BAR_WIDTH, title, verdict_line, wrapped
from tilewright.report.output import Output, bar, tell

__all__ = ["Progress", "show_comparison", "show_line", "show_one"]

EVERY_S = 5.0
"""Seconds between two lines of progress where stderr is no terminal."""


class Progress:
    """Progress on stderr: one line rewritten on a terminal, a line now and then elsewhere."""

    def __init__(self, out: Output) -> None:
        self._quiet = out.quiet
        self._terminal = sys.stderr.isatty()
        self._last = time.monotonic()
        self._open = False

    def update(self, what: str, done: int, total: int, seconds: float) -> None:
        """`done` of `total` compiled after `seconds`."""
        if self._quiet:
            return
        now = time.monotonic()
        if not self._terminal and now - self._last < EVERY_S and done < total:
            return
        self._last = now
        left = f", about {seconds / done * (total - done):.0f} s left" if 0 < done < total else ""
        text = f"Compiled {done} of {total} {what} in {seconds:.0f} s{left}."
        if self._terminal:
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
            self._open = True
        else:
            tell(text)

    def end(self) -> None:
        """Leave the line."""
        if self._open:
            print(file=sys.stderr)
            self._open = False


def _kernel_lines(build: KernelBuild) -> list[str]:
    if not build.compiles:
        return [
            "  the whole kernel does not compile:",
            *(line for error in build.errors for line in wrapped(error, "    ")),
        ]
    spills = f"spills {build.spill_store_bytes:,} bytes a thread" if build.spill_store_bytes else "no spills"
    return [
        f"  {build.registers} registers a thread at launch, {spills} (stores; loads {build.spill_load_bytes or 0:,}), "
        f"stack {build.stack_bytes or 0:,}, local {build.local_bytes or 0:,}, code {build.code_bytes or 0:,} bytes"
    ]


def _count(value: int | None) -> str:
    return "none" if value is None else f"{value:,}"


def show_one(config: KernelConfig, result: ProbeResult, out: Output) -> None:
    """Print the answer to one config."""
    for line in wrapped(title(config), ""):
        out.line(line)
    if result.status == "unsupported":
        out.heading("NO ANSWER")
        for line in wrapped(result.cause or ""):
            out.line(line)
        if result.smem_bytes is None:
            return
    elif result.status == "illegal":
        where = "the types do not compile" if result.type_status == "illegal" else "the whole kernel does not compile"
        out.heading(f"ILLEGAL: {where}.")
        for line in wrapped(result.rules[-1] if result.rules else result.cause or ""):
            out.line(line)
        for more in result.more_errors:
            for line in wrapped(more, "    "):
                out.line(line)
    elif result.smem_bytes is None:
        out.heading("OVERFLOWS: the kernel's own capacity assert refuses it.")
    else:
        out.heading(verdict_line(result))
    if result.smem_bytes is not None and result.limit_bytes is not None:
        share = result.smem_bytes / result.limit_bytes
        out.line(f"  [{bar(result.smem_bytes, result.limit_bytes, BAR_WIDTH)}] {share:.1%} of the block's limit")
        out.line()
        rows = [
            (f"{field.abs_offset:,}", f"{field.bytes:,}", field.type_align, field.path)
            for field in sorted(result.fields, key=lambda field: (field.abs_offset, field.path.count("."), field.path))
        ]
        out.table(("offset", "bytes", "align", "field"), rows, right=(0, 1, 2))
        tile = "x".join(map(str, result.epilogue_tile or ())) or "none"
        out.line()
        out.line(
            f"  mainloop {_count(result.mainloop_bytes)} bytes, epilogue {_count(result.epilogue_bytes)}, "
            f"threads {_count(result.threads)}, epilogue tile {tile}, "
            f"stages C {_count(result.stages_c)} D {_count(result.stages_d)}"
        )
        for name in (result.mainloop_policy, result.epilogue_policy):
            if name:
                out.line(f"  {name}")
    if result.kernel is not None:
        for line in _kernel_lines(result.kernel):
            out.line(line)
    if result.tools is not None:
        out.note(
            f"Compiled: nvcc {result.tools.nvcc} for {result.tools.nvcc_arch}, CUTLASS {result.tools.cutlass} of "
            f"{result.tools.tree}; nothing was run."
        )


def show_line(result: ProbeResult | ProbeError, out: Output) -> None:
    """One line of a stream."""
    if isinstance(result, ProbeError):
        out.line(f"{'error':<11} {'-':>9}  {result.id or '-'}  {result.error.message}")
        return
    size = "-" if result.smem_bytes is None else f"{result.smem_bytes:,}"
    note = "" if result.status == "fits" else (result.rules[-1] if result.rules else result.cause or "")
    build = result.kernel
    if build is not None and build.compiles:
        note = f"{note} {build.registers} registers, {build.spill_store_bytes} bytes spilled".strip()
    out.line(f"{result.status:<11} {size:>9}  {result.id or '-'}  {note}".rstrip())


def show_comparison(comparison: Comparison, out: Output, *, always: bool) -> None:
    """Where model and compiler differ; of a config on which they agree nothing, unless `always`."""
    name = comparison.id or "-"
    if comparison.verdict == "agree":
        if always:
            out.line(f"agree         {name}  {comparison.compiled_status}")
        return
    if comparison.verdict == "not_compared":
        out.line(f"not compared  {name}  {comparison.why}")
        return
    out.line(f"DIFFER        {name}  {comparison.config}")
    if comparison.error:
        for line in wrapped(f"compiler: {comparison.error}", "    "):
            out.line(line)
    for item in comparison.disagreements:
        out.line(f"    {item.field}: model {item.model}, compiled {item.compiled}")
