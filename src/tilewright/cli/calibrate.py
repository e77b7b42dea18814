"""`tilewright calibrate`: fit the kernel models to measured rows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from tilewright.cli.paths import PATH
from tilewright.report.output import Output, output_options

if TYPE_CHECKING:
    from tilewright.cost.kernel_models import IndexEntry


@click.command(epilog="Example: tilewright calibrate --rows gemm.csv.gz --rows moe.csv.gz --out coefficients")
@click.option("--rows", "paths", multiple=True, type=PATH, metavar="FILE", help="CSV (or .gz) of measured rows.")
@click.option(
    "--results", type=PATH, metavar="STORE", help="The store of `bench`: GEMMs and expert layers measured here."
)
@click.option(
    "--out", "-o", required=True, type=PATH, metavar="DIR", help="Folder to write coefficients and tables into."
)
@click.option("--gpu", help="GPU of files without a 'system' column; default RTX PRO 6000 Server.")
@click.option("--date", help="Date to put on the coefficients (YYYY-MM-DD); default today.")
@click.option("--source", default="", help="Where the rows come from, and their licence; kept with the coefficients.")
@click.option("--no-tables", is_flag=True, help="Write coefficients only: predict then answers 'modelled' throughout.")
@click.option("--compare", is_flag=True, help="Also fit trees without physics on the same folds, to compare with.")
@click.option("--force", is_flag=True, help="Replace coefficients that are in DIR.")
@output_options
def command(
    paths: tuple[str, ...],
    results: str | None,
    out: str,
    gpu: str | None,
    date: str | None,
    source: str,
    no_tables: bool,
    compare: bool,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Fit kernel times to measured rows; `predict --coefficients DIR` uses the result.

    Rows have aiconfigurator's columns: kernel_source, latency_ms, and m, n, k, gemm_dtype, or num_tokens,
    hidden_size, inter_size, topk, num_experts, moe_tp_size, moe_ep_size, moe_dtype, distribution. The error stated is
    that on shapes held out in five folds. Needs numpy and lightgbm: pip install 'tilewright[calibrate]'.
    """
    from tilewright.calibrate.run import calibrate
    from tilewright.cost.kernel_models import Index

    if not paths and results is None:
        raise click.UsageError("Give measured rows: --rows FILE, --results STORE, or both.")
    output = Output(as_json, quiet)
    entries = calibrate(
        paths, out, date=date or datetime.now(UTC).date().isoformat(), gpu=gpu, source=source, force=force,
        tables=not no_tables, compare=compare, results=results, tell=output.note,
    )  # fmt: skip
    if as_json:
        output.document(Index(entries=entries, notice=source))
        return
    columns = ["op", "gpu", "backend", "dtype", "rows", "shapes", "mean", "95th", "in bounds"]
    rows = [_row(item, compare) for item in entries]
    if compare:
        columns += ["plain mean", "plain 95th"]
    output.line("Error on shapes held out (five folds by shape):")
    output.table(columns, rows, right=tuple(range(4, len(columns))))


def _row(item: IndexEntry, compare: bool) -> list[str]:
    error = item.error
    row = [item.op, item.gpu, item.backend, item.dtype, f"{item.rows:,}", str(item.shapes), f"{error.mean:.1%}"]
    row += [f"{error.p95:.1%}", f"{error.covered:.0%}"]
    if compare:
        row += [f"{value:.1%}" for value in (error.plain_mean, error.plain_p95) if value is not None]
    return row
