"""`tilewright results trials`: the trials of `tune` that the store holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilewright.cli.paths import PATH
from tilewright.errors import InputError, UnknownNameError, shown
from tilewright.report.output import Output, output_options

if TYPE_CHECKING:
    from tilewright.tune.trials import StoredTrial

SHOWN = 50
"""Trials that are shown unless told otherwise: two screens."""
ANY = "any"


@click.command(
    "trials",
    short_help="What `tune` measured, trial by trial.",
    epilog="Example: tilewright results trials --kernel vllm-fused-moe --tokens 16 --fault any",
)
@click.option("--store", type=PATH, metavar="FILE", help="The store; default $TILEWRIGHT_STORE, else your data folder.")
@click.option("--kernel", metavar="NAME", help="ours, vllm-fused-moe or sglang-fused-moe.")
@click.option("--gpu", metavar="GPU", help="Only trials of this GPU.")
@click.option("--tokens", type=click.IntRange(1), metavar="M", help="Only trials at this number of tokens.")
@click.option("--fault", metavar="KIND", help="Only those that failed so: compile, resources, timeout ..., or any.")
@click.option("--last", type=click.IntRange(1), default=SHOWN, show_default=True, help="Only so many, the newest.")
@output_options
def trials(
    store: str | None, kernel: str | None, gpu: str | None, tokens: int | None, fault: str | None, last: int,
    as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """What `tune` measured, trial by trial, newest last: each config with its time, or why it has none.

    A killed run has everything in here but the trial that was in flight; `tune ... --resume` takes it up.
    """
    from tilewright.cli.results import gpu_key
    from tilewright.store import default_path
    from tilewright.tune.layer import KERNELS
    from tilewright.tune.trials import FAULTS, TrialsDocument, TrialStore

    if kernel is not None and kernel not in KERNELS:
        raise UnknownNameError("kernel", kernel, KERNELS)
    if fault is not None and fault not in (*FAULTS, ANY):
        raise InputError("fault", f"--fault {shown(fault)} is none; it is {', '.join(FAULTS)} or {ANY}.")
    key = gpu_key(gpu)

    def wanted(item: StoredTrial) -> bool:
        return (
            (kernel is None or item.problem.get("kernel") == kernel)
            and (key is None or item.context.gpu == key)
            and (tokens is None or item.problem.get("tokens") == tokens)
            and (fault is None or (bool(item.trial.fault) if fault == ANY else item.trial.fault == fault))
        )

    path = Path(store) if store else default_path()
    with TrialStore.read(path) as opened:
        found = opened.find(wanted, last)
    output = Output(as_json, quiet)
    if as_json:
        output.document(TrialsDocument(store=str(path), trials=found))
        return
    output.table(
        ["id", "when (UTC)", "gpu", "kernel", "layer", "M", "rung", "us", "config", "worker", "fault"],
        [_line(item) for item in found],
        right=[0, 5, 7],
    )
    if not found:
        output.line("No trial answers to that; `tilewright tune moe` makes them.")


def _line(item: StoredTrial) -> list[str]:
    from tilewright.report.tune_text import config_text

    trial, problem = item.trial, item.problem
    fields: list[Any] = [problem.get(name, "?") for name in ("experts", "hidden", "inter", "topk", "dtype")]
    time = "" if trial.time_s is None else f"{trial.time_s * 1e6:,.1f}{'+' if trial.stopped else ''}"
    return [
        str(item.id), trial.at[:16].replace("T", " "), item.context.gpu, item.context.kernel,
        "E={} H={} N={} topk={} {}".format(*fields), str(problem.get("tokens", "?")), trial.rung, time,
        config_text(trial.config), trial.worker, ": ".join(part for part in (trial.fault, trial.note) if part),
    ]  # fmt: skip
