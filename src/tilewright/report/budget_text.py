"""One budget as an explanation: verdict, bar, table of fields, cause, fixes."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

from tilewright.cutlass.budget import Budget
from tilewright.cutlass.config import KernelConfig
from tilewright.report.output import Output, bar

WIDTH = 100
BAR_WIDTH = 50


def title(config: KernelConfig) -> str:
    """The config in one line, as its users say it."""
    tile = "x".join(map(str, config.tile))
    output = f" to {config.final_output}" if config.fusion == "finalize" else f", D {config.d}"
    swap = ", swap_ab" if config.swap_ab else ""
    stages = "" if config.stages == "auto" else f", StageCount<{config.stages}>"
    return (
        f"{config.kind} {config.a} x {config.b} ({config.op_class}), tile {tile}, {config.fusion}{output}"
        f"{swap}{stages}, {config.arch}, CUTLASS {config.cutlass}"
    )


def verdict_line(budget: Budget) -> str:
    """The verdict in one sentence."""
    smem, limit = budget.smem_bytes, budget.limit_bytes
    if budget.status == "fits":
        return f"FITS: {smem:,} of {limit:,} bytes, {budget.slack_bytes:,} to spare, {budget.stages} stages."
    if budget.status == "overflow":
        return f"OVERFLOWS by {budget.excess_bytes:,} bytes: {smem:,} of {limit:,}, {budget.stages} stages."
    if budget.status == "illegal":
        return "ILLEGAL: CUTLASS refuses it when it is compiled."
    return "UNSUPPORTED: the model does not cover it."


def wrapped(text: str, indent: str = "  ") -> list[str]:
    """`text` in lines of at most WIDTH characters."""
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False)


def show(config: KernelConfig, budget: Budget, out: Output) -> None:
    """Print `budget` for a reader."""
    for line in wrapped(title(config), ""):
        out.line(line)
    out.heading(verdict_line(budget))
    if budget.smem_bytes is not None and budget.limit_bytes is not None:
        share = budget.smem_bytes / budget.limit_bytes
        out.line(f"  [{bar(budget.smem_bytes, budget.limit_bytes, BAR_WIDTH)}] {share:.1%} of the block's limit")
    if budget.fields:
        out.line()
        rows = [
            (f"{field.abs_offset:,}", f"{field.bytes:,}", field.path, field.why)
            for field in sorted(budget.fields, key=lambda field: (field.abs_offset, field.path.count("."), field.path))
        ]
        out.table(("offset", "bytes", "field", "why"), rows, right=(0, 1))
    if budget.threads is not None:
        out.line()
        for line in wrapped(", ".join(_besides(budget))):
            out.line(line)
        if budget.load_registers is not None:
            out.line(
                "  Registers are what the kernel asks for; whether it spills, `tilewright probe --ptxas` compiles."
            )
    if budget.rules:
        out.line()
        out.heading("Rules it breaks")
        for rule in budget.rules:
            for line in wrapped(rule):
                out.line(line)
    if budget.cause:
        out.line()
        out.heading("Why")
        for line in wrapped(budget.cause):
            out.line(line)
    if budget.fixes:
        out.line()
        out.heading("What would fix it (verified by the model, best first)")
        for fix in budget.fixes:
            change = ", ".join(f"{key} = {value_text(value)}" for key, value in fix.change.items())
            out.line(f"  {fix.smem_bytes:>8,} bytes  {change}")
            out.line(f"  {'':>14}  {fix.note}")
    out.note(f"Bytes: {budget.basis} ({budget.status_basis}); nothing was compiled or run.")


def _besides(budget: Budget) -> list[str]:
    """What there is to know of the kernel beside its bytes, where its architecture has it."""
    parts = [f"threads {budget.threads}"]
    if budget.load_registers is not None:
        parts[0] += f" (registers {budget.load_registers} load, {budget.mma_registers} MMA)"
    if budget.accumulator_stages is not None:
        parts.append(f"accumulators in tensor memory {budget.accumulator_stages}")
    if budget.load_sf_stages is not None:
        parts.append(f"stages of scales {budget.load_sf_stages}")
    if budget.epilogue_tile is not None:
        parts.append(f"epilogue tile {'x'.join(map(str, budget.epilogue_tile))}")
    if budget.stages_c is not None:
        parts.append(f"stages C {budget.stages_c} D {budget.stages_d}")
    if budget.reuse_smem_c:
        parts.append("D overwrites C")
    return parts


def value_text(value: object) -> str:
    """A value of a config as a flag takes it: 64x16, none, true."""
    if isinstance(value, list | tuple):
        return "x".join(map(str, value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def change_text(change: Mapping[str, object]) -> str:
    """A fix's change in a sentence: stages 2, epilogue_tile 64x16."""
    return ", ".join(f"{key} {value_text(value)}" for key, value in change.items())
