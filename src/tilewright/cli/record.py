"""`tilewright record`: one experiment into the journal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilewright.cli.paths import PATH
from tilewright.errors import InputError, shown
from tilewright.report.output import Output, output_options

if TYPE_CHECKING:
    from tilewright.journal.plan_head import PlanHead


def _samples(name: str, text: str) -> list[float]:
    """The numbers of a list. One that is missing between two commas is refused: a variable of a shell was empty."""
    if not text.strip():
        return []
    try:
        return [float(part) for part in text.replace(";", ",").split(",")]
    except ValueError:
        msg = f"--{name} {shown(text)} is no list of numbers; write for example --{name} 50.4,50.1,50.6."
        raise InputError(name, msg) from None


def _conditions(plan: PlanHead | None, given: tuple[str, ...]) -> dict[str, str | int]:
    from tilewright.journal.experiment import CONDITIONS

    known: dict[str, str | int] = {}
    if plan is not None:
        known = {name: plan.target[name] for name in CONDITIONS if isinstance(plan.target.get(name), str | int)}
    for pair in given:
        name, found, value = pair.partition("=")
        if not found or name not in CONDITIONS:
            msg = f"--condition {shown(pair)}: write NAME=VALUE with a name of {', '.join(CONDITIONS)}."
            raise InputError("condition", msg)
        known[name] = int(value) if value.isascii() and value.isdigit() else _resolved(name, value)
    return known


def _resolved(name: str, value: str) -> str:
    """A GPU or model by the name that plans call it. Raises UnknownNameError where there is none."""
    if name == "gpu":
        from tilewright.hardware.names import resolve_gpu

        return resolve_gpu(value).key
    if name == "model":
        from tilewright.models.names import resolve_model

        return resolve_model(value).key
    return value


def _hypothesis(finding: str, plan: PlanHead | None) -> str:
    """The title of the plan's finding.

    Raises:
        InputError: the plan has no such finding.
    """
    if plan is None:
        return ""
    titles = {item.id: item.title for item in plan.findings}
    if finding not in titles:
        msg = f"--finding {shown(finding)} is none of the plan's: {', '.join(titles) or 'it has none'}."
        raise InputError("finding", msg)
    return titles[finding]


@click.command(
    epilog="Example: tilewright record --plan plan-out/plan.json --finding more_requests --metric 'decode tok/s' "
    "--change '--max-running-requests 64' --before 427.4,425.9,429.0 --after 547.1,545.0,549.8 --verdict kept",
    context_settings={"max_content_width": 100},
)
@click.option(
    "--plan", "plan_file", type=PATH, metavar="PLAN.json", help="The plan it belongs to: gives conditions and title."
)
@click.option("--finding", default="", metavar="ID", help="Id of the finding that was tried (in plan.json).")
@click.option("--hypothesis", default="", help="What was expected; default: the finding's title.")
@click.option("--change", required=True, help="What was changed.")
@click.option("--command", "ran", default="", help="The command that was run.")
@click.option("--metric", default="decode tok/s", show_default=True, help="What was measured, with its unit.")
@click.option("--lower-is-better", is_flag=True, help="For times and latencies.")
@click.option("--before", required=True, metavar="N,N,...", help="Samples before the change; several show the noise.")
@click.option("--after", required=True, metavar="N,N,...", help="Samples after it.")
@click.option(
    "--verdict",
    type=click.Choice(["kept", "reverted", "inconclusive"]),
    help="What came of it; default: what the samples say.",
)
@click.option("--condition", "conditions", multiple=True, metavar="NAME=VALUE", help="model, gpu, engine_version, ...")
@click.option("--note", default="", help="Anything else worth keeping.")
@click.option("--supersedes", type=click.IntRange(1), help="The entry that this one corrects.")
@click.option("--store", type=PATH, metavar="FILE", help="The store; default $TILEWRIGHT_STORE, else your data folder.")
@output_options
def command(
    plan_file: str | None,
    finding: str,
    hypothesis: str,
    change: str,
    ran: str,
    metric: str,
    lower_is_better: bool,
    before: str,
    after: str,
    verdict: str | None,
    conditions: tuple[str, ...],
    note: str,
    supersedes: int | None,
    store: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Record an experiment: what was expected, changed and measured, and what came of it.

    `tilewright plan --journal` then leaves out what was done or refuted under the same conditions. Nothing recorded
    is ever changed; an entry that was wrong is corrected by another one (--supersedes).
    """
    from datetime import UTC, datetime

    import msgspec

    from tilewright.journal import Experiment, Journal, judge
    from tilewright.journal.documents import RecordDocument
    from tilewright.journal.experiment import check
    from tilewright.journal.judge import gave
    from tilewright.journal.plan_head import read_plan
    from tilewright.store import default_path

    plan = read_plan(plan_file) if plan_file else None
    title = _hypothesis(finding, plan) if finding else ""
    experiment = Experiment(
        at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        finding=finding,
        hypothesis=hypothesis or title or change,
        change=change,
        command=ran,
        metric=metric,
        better="lower" if lower_is_better else "higher",
        before=_samples("before", before),
        after=_samples("after", after),
        verdict="inconclusive",
        conditions=_conditions(plan, conditions),
        note=note,
        supersedes=supersedes,
    )
    said = judge(check(experiment))
    final: Any = verdict or said.suggests
    experiment = msgspec.structs.replace(experiment, verdict=final)
    with Journal.append_to(Path(store) if store else default_path()) as journal:
        entry = journal.record(experiment)
        where = str(journal.path)
    output = Output(as_json, quiet)
    if as_json:
        output.document(RecordDocument(store=where, entry=entry, judgement=said))
        return
    change = gave(said, experiment.better)
    told = f" ({change})" if change else ""
    output.line(f"Entry {entry.id}: {metric} {said.before:g} -> {said.after:g}{told}, {final}.")
    if not said.apart:
        output.line("The samples of both sides overlap: this may be noise.")
    elif said.suggests == "inconclusive":
        output.line("One sample on a side shows no spread: measure again before relying on it.")
    elif final != said.suggests and final != "inconclusive":
        output.note(f"The samples alone would say: {said.suggests}.")
    output.note(f"Kept in {where}")
