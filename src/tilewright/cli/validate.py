"""`tilewright validate`: the serving model against every published table, worst first."""

from __future__ import annotations

import click

from tilewright.report.output import Output, output_options


@click.command(epilog="Example: tilewright validate --check")
@click.option("--all", "everything", is_flag=True, help="Show every cell, the excluded ones included.")
@click.option("--table", "tables", multiple=True, help="Only cells of this published table (repeatable).")
@click.option("--check", is_flag=True, help="Exit 1 when a group's mean error is above its bar.")
@output_options
def command(everything: bool, tables: tuple[str, ...], check: bool, as_json: bool, quiet: bool) -> None:
    """The serving model against published tables: prediction, publication and error, worst first.

    The errors are in-sample: the tables took part in fitting the coefficients. Beside them stands the error of each
    table with coefficients fitted on all the others (held out). Cells that are known to be unsound are listed apart.
    """
    from tilewright.errors import UnknownNameError
    from tilewright.serving.validate import validate

    out = Output(json=as_json, quiet=quiet)
    made = validate()
    names = list(dict.fromkeys(item.table for item in made.cells))
    for table in tables:
        if table not in names:
            raise UnknownNameError("table", table, names)
    if as_json:
        import msgspec

        chosen = [item for item in made.cells if not tables or item.table in tables]
        out.document(msgspec.structs.replace(made, cells=chosen))
    else:
        from tilewright.report.validate_text import print_validation

        print_validation(out, made, tables, everything=everything)
    if check and not made.passed:
        click.get_current_context().exit(1)
