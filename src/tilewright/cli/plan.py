"""`tilewright plan`: one ranked, evidence-backed optimisation plan for a model on your GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tilewright.report.output import Output, json_bytes, output_options

if TYPE_CHECKING:
    from tilewright.plan.finding import Plan


@click.command(epilog="Example: tilewright plan --model GLM-5-NVFP4 --gpu rtx-pro-6000-server --gpus 8 --engine sglang")
@click.option(
    "--model", required=True, metavar="NAME_OR_PATH", help="A known model, a repository id, or a config.json."
)
@click.option("--gpu", required=True, metavar="NAME", help="The GPU: rtx-pro-6000-server, 5090, h200, gb10, b200, ...")
@click.option(
    "--gpus", default=1, show_default=True, type=click.IntRange(1, 1024), help="How many GPUs the server has."
)
@click.option("--engine", default="sglang", show_default=True, metavar="NAME", help="sglang, vllm or trtllm.")
@click.option("--engine-version", metavar="VERSION", help="As the package reports it; decides which findings apply.")
@click.option(
    "--library", metavar="DIR_OR_WHEEL", help="The FlashInfer that is installed (folder or wheel), or any CUTLASS tree."
)
@click.option("--observe", metavar="FILE.json", help="Snapshot of the running host (docs/observe-schema.md).")
@click.option("--log", "log_file", metavar="FILE", help="The server's log.")
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
@click.option("--out", metavar="DIR", help="Write plan.md and plan.json there; default: plan.md on stdout.")
@click.option(
    "--series", metavar="DIR", help="Write the next of plan-01.md, plan-02.md, ... there: what was tried, what is next."
)
@click.option("--force", is_flag=True, help="Replace files in --out that tilewright did not write or that were edited.")
@output_options
def command(
    model: str,
    gpu: str,
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
    from tilewright.plan.make import plan
    from tilewright.report.plan_text import markdown

    if journal == "":
        from tilewright.store import default_path

        journal = str(default_path())
    result = plan(
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
    document = json_bytes(result)
    written: tuple[Path, Path] | None = None
    if out is not None:
        from tilewright.report.plan_files import write_plan

        written = write_plan(Path(out), markdown(result), document, force=force)
    if series is not None:
        from tilewright.report.plan_files import write_next

        written = write_next(Path(series), markdown(result), document)
    if as_json:
        output.document(result)
    elif written is None:
        output.line(markdown(result).rstrip("\n"))
    else:
        _summary(output, result, written)


def _summary(output: Output, plan: Plan, written: tuple[Path, Path]) -> None:
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
    output.line(f"Written: {written[0]}, {written[1]}")
