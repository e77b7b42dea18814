"""`tilewright tactics`: every kernel that a library compiles, each with its verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tilewright.report.output import Output, output_options

if TYPE_CHECKING:
    from tilewright.libraries.flashinfer.model import Op, Report

EXIT_NO = 1
LIBRARIES = ("flashinfer",)
ARCHS = ("sm90", "sm100", "sm103", "sm120", "sm121")


@click.command(epilog="Example: tilewright tactics flashinfer --root .venv/lib/python3.12/site-packages")
@click.argument("library")
@click.option(
    "--root", required=True, metavar="DIR_OR_WHEEL", help="The library: a wheel, a site-packages, a checkout."
)
@click.option("--op", type=click.Choice(["moe", "gemm", "dsl"]), default="moe", show_default=True, help="Which kernels.")
@click.option("--arch", default="sm120", show_default=True, help="sm90, sm100, sm103, sm120 or sm121.")
@click.option("--check", is_flag=True, help="Exit 1 when a tactic can never run.")
@click.option("--baseline", metavar="FILE", help="Report and check only what is new since this --json output.")
@click.option("--diff", "other", metavar="DIR_OR_WHEEL", help="What changes from --root to this version.")
@output_options
def command(
    library: str,
    root: str,
    op: Op,
    arch: str,
    check: bool,
    baseline: str | None,
    other: str | None,
    as_json: bool,
    quiet: bool,
) -> int | None:
    """Every kernel that a LIBRARY (flashinfer) compiles, each with its verdict.

    Read from the library's own generator and C++ sources by parsing them; nothing of it is imported or run. Tiles are
    in elements, whatever unit the library's names use.
    """
    _known(library)
    arch = _arch(arch)
    if baseline and other:
        raise click.UsageError("--baseline and --diff answer different questions; give one of them.")
    known = None
    if baseline:
        from tilewright.libraries.flashinfer.baseline import read_baseline

        known = read_baseline(baseline)
    out = Output(as_json, quiet)
    report = _read(root, op, arch)
    if other is not None:
        return _difference(report, _read(other, op, arch), check, out)
    return _answer(report, known, check, out)


def _known(library: str) -> None:
    from tilewright.errors import InputError, shown

    if library.lower() not in LIBRARIES:
        msg = (
            f"The tactics of {shown(library)} cannot be read: {', '.join(LIBRARIES)} is the library that is known so "
            "far. `tilewright collectives` reads the CUTLASS of any of them."
        )
        raise InputError("library", msg)


def _arch(text: str) -> str:
    from tilewright.errors import InputError, shown

    name = text.strip().lower().removeprefix("sm_").removeprefix("sm").rstrip("af")
    if f"sm{name}" not in ARCHS:
        msg = f"--arch: the tactics of {shown(text)} are not read; legal are {', '.join(ARCHS)}."
        raise InputError("arch", msg)
    return f"sm{name}"


def _read(root: str, op: Op, arch: str) -> Report:
    from tilewright.collectives.tree import open_tree
    from tilewright.libraries.flashinfer.tactics import read_report

    with open_tree(root) as tree:
        if op == "dsl":
            from tilewright.libraries.flashinfer.dsl import read_dsl_report

            return read_dsl_report(tree, arch)
        return read_report(tree, op, arch)


def _answer(report: Report, known: dict[str, str] | None, check: bool, out: Output) -> int | None:
    from tilewright.report.tactics_text import NEVER, never_runs, show_failures, show_report

    failing = [tactic for tactic in report.tactics if never_runs(tactic)]
    if known is not None:
        failing = [tactic for tactic in failing if known.get(tactic.name) not in NEVER]
    if out.json:
        out.document(_document(report, known, [tactic.name for tactic in failing]))
    elif known is not None:
        out.heading(
            f"FlashInfer {report.library_version}: {len(failing)} tactics that can never run are new, "
            f"{report.summary.overflow + report.summary.illegal - len(failing)} were in the baseline."
        )
        show_failures(failing, out)
    else:
        show_report(report, out)
    return EXIT_NO if check and failing else None


def _document(report: Report, known: dict[str, str] | None, failing: list[str]) -> Any:
    """The report; with a baseline, `new_failures` names what it did not have."""
    if known is None:
        return report
    import msgspec

    return {**msgspec.to_builtins(report), "new_failures": failing}


def _difference(before: Report, after: Report, check: bool, out: Output) -> int | None:
    from tilewright.libraries.flashinfer.diff import difference
    from tilewright.report.tactics_text import never_runs, show_difference

    change = difference(before, after)
    if out.json:
        out.document(change)
    else:
        show_difference(change, out)
    worse = any(never_runs(tactic) for tactic in after.tactics) and any(
        entry.what in ("added", "verdict") and (entry.after or "").startswith(("overflow", "illegal"))
        for entry in change.changes
    )
    return EXIT_NO if check and worse else None
