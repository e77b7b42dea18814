"""What `verify` found, for a reader."""

from __future__ import annotations

from tilewright.report.budget_text import wrapped
from tilewright.report.output import Output
from tilewright.verify.model import Case, Verification

__all__ = ["show", "show_case"]

_MAX_NAME = 48


def show_case(number: int, total: int, case: Case) -> str:
    """One line as a config is settled."""
    return f"[{number}/{total}] {case.outcome.replace('_', ' ')}: {_name(case)}: {case.why}"


def _name(case: Case) -> str:
    config = case.config
    tile = "x".join(map(str, config["tile"]))
    text = f"{config['a']} x {config['b']} {tile}"
    extra = [
        config["kind"] if config["kind"] != "dense" else "",
        config["schedule"] if config["schedule"] != "auto" else "",
        f"{config['stages']} stages" if config["stages"] != "auto" else "",
        "swap_ab" if config["swap_ab"] else "",
        config["fusion"] if config["fusion"] != "linear_combination" else "",
    ]
    shown = " ".join([text, *(item for item in extra if item)])
    return shown if len(shown) <= _MAX_NAME or not case.id else f"{shown[:_MAX_NAME]}…"


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _driver(case: Case) -> str:
    run = case.run
    if run is None:
        return ""
    failed = next((call for call in run.calls if call.code != 0), None)
    if failed is not None:
        return f"{failed.step}: {failed.name}"
    if run.values is not None:
        return "runs, values wrong" if run.values.wrong else "runs, values right"
    return {"finished": "granted" if case.not_tried.startswith("not launched") else "runs"}.get(run.end, run.end)


def show(result: Verification, out: Output) -> None:
    """The whole bundle: the machine, a table, what disagrees, and the sum."""
    machine = result.machine
    if machine is None:
        out.heading(f"Built only, nothing was run: nvcc {result.nvcc}.")
    else:
        before, after = machine.before, machine.after
        now = ""
        if before and after and before.sm_mhz and after.sm_mhz:
            now = f"; SM clock {before.sm_mhz:,} MHz before, {after.sm_mhz:,} after"
        out.heading(
            f"{machine.gpu}, compute capability {machine.compute_capability}, {_number(machine.limit_bytes)} bytes a "
            f"block; driver {machine.driver or 'unknown'} (CUDA {machine.cuda_driver}), nvcc {result.nvcc}{now}."
        )
    for tree in result.headers:
        out.line(f"CUTLASS {tree.cutlass}, headers {tree.fingerprint[:12]}")
    if result.library:
        out.line(f"Library: {result.library}")
    out.line()
    out.table(
        ["config", "fit says", "bytes", "built", "GPU", "outcome"],
        [
            [
                _name(case),
                case.predicted.status,
                _number(case.predicted.smem_bytes),
                _number(case.build.smem_bytes) if case.build and case.build.ok else ("no" if case.build else ""),
                _driver(case),
                case.outcome.replace("_", " "),
            ]
            for case in result.cases
        ],
        right=(2, 3),
    )
    told = [case for case in result.cases if case.outcome != "agree" or len(result.cases) == 1]
    for case in told:
        out.line()
        for line in wrapped(f"{_name(case)}: {case.why}", "  "):
            out.line(line)
        if case.not_tried:
            out.line(f"  ({case.not_tried})")
    out.line()
    for note in result.notes:
        out.line(f"note: {note}")
    tally = result.summary
    out.line(
        f"{tally.total} configs: {tally.agree} agree, {tally.differ} differ, {tally.not_run} not run, "
        f"{tally.no_prediction} without a prediction. Bytes and errors: exact (compiled"
        f"{'' if result.build_only else '; measured on this GPU'})."
    )
