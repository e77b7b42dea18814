"""`tilewright plan`: one ranked, evidence-backed optimisation plan for a model on your GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilewright.cli.paths import PATH
from tilewright.report.output import Output, output_options

if TYPE_CHECKING:
    from tilewright.plan.finding import Plan


@click.command(epilog="Example: tilewright plan --model GLM-5-NVFP4 --gpu rtx-pro-6000-server --gpus 8 --engine sglang")
@click.option("--model", metavar="NAME_OR_PATH", help="A known model, a repository id, or a config.json.")
@click.option("--gpu", metavar="NAME", help="The GPU: rtx-pro-6000-server, 5090, h200, gb10, b200, ...")
@click.option(
    "--gpus", default=1, show_default=True, type=click.IntRange(1, 1024), help="How many GPUs the server has."
)
@click.option("--engine", default="sglang", show_default=True, metavar="NAME", help="sglang, vllm or trtllm.")
@click.option("--engine-version", metavar="VERSION", help="As the package reports it; decides which findings apply.")
@click.option(
    "--library", metavar="DIR_OR_WHEEL", help="The FlashInfer that is installed (folder or wheel), or any CUTLASS tree."
)
@click.option(
    "--observe", type=PATH, metavar="FILE.json", help="Snapshot of the running host (docs/observe-schema.md)."
)
@click.option("--log", "log_file", type=PATH, metavar="FILE", help="The server's log.")
@click.option(
    "--journal",
    metavar="[FILE]",
    is_flag=False,
    flag_value="",
    help="Learn from recorded experiments: FILE, or your own store ($TILEWRIGHT_STORE, else your data folder).",
)
@click.option("--tp", type=click.IntRange(1, 1024), help="Tensor-parallel size; default: all GPUs.")
@click.option("--pp", type=click.IntRange(1, 1024), help="Pipeline stages; default: 1.")
@click.option("--ep", type=click.IntRange(1, 1024), help="Expert-parallel size; default: 1.")
@click.option("--out", type=PATH, metavar="DIR", help="Write plan.md and plan.json there; default: plan.md on stdout.")
@click.option(
    "--html", "as_html", is_flag=True, help="Also as one offline page with charts: plan.html, or alone on stdout."
)
@click.option(
    "--from", "kept", type=PATH, metavar="PLAN.json", help="A plan made before, instead of making one: for --html."
)
@click.option(
    "--series",
    type=PATH,
    metavar="DIR",
    help="Write the next of plan-01.md, plan-02.md, ... there: what was tried, what is next.",
)
@click.option("--force", is_flag=True, help="Replace files in --out that tilewright did not write or that were edited.")
@output_options
def command(
    model: str | None,
    gpu: str | None,
    gpus: int,
    engine: str,
    engine_version: str | None,
    library: str | None,
    observe: str | None,
    log_file: str | None,
    journal: str | None,
    tp: int | None,
    pp: int | None,
    ep: int | None,
    out: str | None,
    as_html: bool,
    kept: str | None,
    series: str | None,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """One ranked, evidence-backed optimisation plan for a model on your GPUs.

    Says what to change first and why, step by step: which kernel tactics can never run and by how many bytes, where
    that is decided in the library's code, what limits the GEMMs, what fits in memory, what is not worth doing. Each
    finding comes with evidence, commands, and how to confirm and undo it. Nothing is executed and nothing is sent.
    """
    from tilewright.report.plan_forms import forms

    if as_json and as_html and out is None and series is None:
        msg = "--json and --html both go to stdout; give a folder with --out."
        raise click.UsageError(msg)
    if kept is not None:
        from tilewright.plan.load import load_plan

        _alone()
        result = load_plan(kept)
    else:
        result = _made(
            journal=journal,
            model=model,
            gpu=gpu,
            gpus=gpus,
            engine=engine,
            engine_version=engine_version,
            library=library,
            observe=observe,
            log=log_file,
            tp=tp,
            pp=pp,
            ep=ep,
        )
    output = Output(as_json, quiet)
    made = forms(result, html=as_html, kept=kept)
    written: tuple[Path, ...] | None = None
    if out is not None:
        from tilewright.report.plan_files import write_plan

        written = write_plan(Path(out), made.markdown, made.json, made.html, force=force)
    if series is not None:
        from tilewright.report.plan_files import write_next

        written = write_next(Path(series), made.markdown, made.json, made.html)
    if as_json:
        output.document(result)
    elif written is None:
        output.line((made.html or made.markdown).rstrip("\n"))
    else:
        _summary(output, result, written)
    if out is not None and not as_html and (Path(out) / "plan.html").exists():
        output.note(f"{Path(out) / 'plan.html'} is of an earlier plan; --html writes it again.")


_INPUTS = (
    "model",
    "gpu",
    "gpus",
    "engine",
    "engine_version",
    "library",
    "observe",
    "log_file",
    "journal",
    "tp",
    "pp",
    "ep",
)
"""Parameters that a plan is made from; a kept plan has them in it."""


def _alone() -> None:
    """Raise UsageError where --from comes with what a plan is made from."""
    context = click.get_current_context()
    for name in _INPUTS:
        if context.get_parameter_source(name) == click.core.ParameterSource.COMMANDLINE:
            option = name.removesuffix("_file").replace("_", "-")
            raise click.UsageError(f"--from reads a plan that is made; drop --{option}, or drop --from.")


def _made(*, journal: str | None, model: str | None, gpu: str | None, **inputs: Any) -> Plan:
    """The plan for what was given."""
    from tilewright.plan.make import plan

    for name, value in (("model", model), ("gpu", gpu)):
        if value is None:
            raise click.UsageError(f"Missing option '--{name}'.")
    if journal == "":
        from tilewright.store import default_path

        journal = str(default_path())
    return plan(journal=journal, model=model, gpu=gpu, **inputs)


def _summary(output: Output, plan: Plan, written: tuple[Path, ...]) -> None:
    """What is the matter, the ranked findings and where the files are, in lines that fit a terminal."""
    from tilewright.report.budget_text import wrapped
    from tilewright.report.plan_text import gain, hours, metric

    target = plan.target
    output.heading(f"{target['checkpoint']} on {target['gpus']}x {target['gpu_name']}")
    for line in plan.baseline["summary"]:
        first, *rest = wrapped(line, "    ")
        output.line("  - " + first.strip())
        for more in rest:
            output.line(more)
    output.line()
    for item in plan.findings:
        output.heading(f"{item.rank:>3}  {item.title}")
        output.line(f"     {metric(item.gain)}: {gain(item.gain)}; {hours(item.effort_h)}")
    output.line()
    output.line(
        f"{len(plan.rejected)} ideas rejected, {len(plan.baseline['claims'])} claims refuted: see {written[0]}."
    )
    output.line(f"Written: {', '.join(map(str, written))}")
