"""`tilewright tactics flashinfer`: kernels that a library compiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from tilewright.cli.exit_status import EXIT_NO
from tilewright.report.output import Output

if TYPE_CHECKING:
    from tilewright.libraries.flashinfer.model import Op, Report

ARCHS: Final = ("sm90", "sm100", "sm103", "sm120", "sm121")


def run_compiled(
    root: str,
    op: str,
    arch: str,
    known: dict[str, str] | None,
    other: str | None,
    check: bool,
    sarif: str | None,
    out: Output,
) -> int | None:
    """Read, show and check the kernels of a FlashInfer; the exit status."""
    arch = known_arch(arch)
    kind = cast("Op", op)
    report = read_kernels(root, kind, arch)
    if other is not None:
        return _difference(report, read_kernels(other, kind, arch), check, out)
    return _answer(report, known, check, sarif, out)


def known_arch(text: str) -> str:
    """The architecture that `text` means, as `sm120`; an InputError names the legal ones."""
    from tilewright.arch import arch_name
    from tilewright.errors import InputError, shown

    name = arch_name(text)
    if name not in ARCHS:
        msg = f"--arch: the tactics of {shown(text)} are not read; legal are {', '.join(ARCHS)}."
        raise InputError("arch", msg)
    return name


def read_kernels(root: str, op: Op, arch: str) -> Report:
    """Every kernel of the FlashInfer at `root` for `op` and `arch`."""
    from tilewright.collectives.tree import open_tree
    from tilewright.libraries.flashinfer.tactics import read_report

    with open_tree(root) as tree:
        if op == "dsl":
            from tilewright.libraries.flashinfer.dsl import read_dsl_report

            return read_dsl_report(tree, arch)
        return read_report(tree, op, arch)


def _answer(report: Report, known: dict[str, str] | None, check: bool, sarif: str | None, out: Output) -> int | None:
    from tilewright.report.tactics_text import NEVER, never_runs, show_failures, show_report

    failing = [tactic for tactic in report.tactics if never_runs(tactic)]
    if known is not None:
        failing = [tactic for tactic in failing if known.get(tactic.name) not in NEVER]
    if sarif is not None:
        from tilewright.report.sarif import compiled_findings, write_sarif

        write_sarif(sarif, compiled_findings(failing, report.arch))
        out.note(f"SARIF: {len(failing)} results in {sarif}.")
    if out.json:
        out.document(with_new(report, known, [tactic.name for tactic in failing]))
    elif known is not None:
        out.heading(
            f"FlashInfer {report.library_version}: {len(failing)} tactics that can never run are new, "
            f"{report.summary.overflow + report.summary.illegal - len(failing)} were in the baseline."
        )
        show_failures(failing, out)
    else:
        show_report(report, out)
    return EXIT_NO if check and failing else None


def with_new(report: Any, known: dict[str, str] | None, failing: list[str]) -> Any:
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
