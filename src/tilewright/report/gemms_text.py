"""The GEMMs of a model's layers as text."""

from __future__ import annotations

from tilewright.report.output import Output
from tilewright.serving.gemms import GemmLine, GemmsDocument


def _rows(line: GemmLine) -> list[str]:
    """M at each number of tokens; for routed experts the rows of an expert that is hit x experts hit."""
    return [
        f"{point.m:,.1f} x {point.matrices:,.0f}" if line.matrices > 1 else f"{point.m:,.0f}" for point in line.points
    ]


def print_gemms(out: Output, made: GemmsDocument) -> None:
    """One table: a GEMM a line, M for each number of tokens."""
    layout = f"TP{made.tp}" + (f" EP{made.ep}" if made.ep > 1 else "")
    out.heading(f"GEMMs of {made.model} ({made.checkpoint}), one GPU of {layout}")
    counts = [point.tokens for point in made.gemms[0].points] if made.gemms else []
    rows: list[list[str]] = []
    for line in made.gemms:
        name = f"{line.component}: {line.name}" + (" (prediction layer)" if line.mtp else "")
        extra = "every rank" if line.whole else f"{line.heads} heads apart" if line.heads else ""
        rows.append(
            [name, str(line.layers), f"{line.n:,}", f"{line.k:,}", line.format, str(line.matrices), extra, *_rows(line)]
        )
    out.table(
        ["gemm", "layers", "N", "K", "format", "matrices", "", *(f"M at {count:,}" for count in counts)], rows,
        right=[1, 2, 3, 5, *range(7, 7 + len(counts))],
    )  # fmt: skip
    out.line(
        "M of routed experts: mean rows of an expert that is hit x experts hit on this GPU (uniform routing, modelled)."
    )
    if made.gpu is None:
        return
    out.line()
    out.heading(f"What a {made.gpu} allows: attainable TFLOPS, and what they wait for")
    out.table(
        ["gemm", *(f"at {count:,}" for count in counts)],
        [
            [
                f"{line.component}: {line.name}",
                *(
                    "unknown" if point.attainable_tflops is None
                    else f"{point.attainable_tflops:,.1f} {point.bound}" for point in line.points
                ),
            ]
            for line in made.gemms
        ],
        right=range(1, len(counts) + 1),
    )  # fmt: skip
