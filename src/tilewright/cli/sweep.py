"""`tilewright sweep`: start a real server with different flags, load it, and name the best one that noise leaves."""

from __future__ import annotations

from pathlib import Path
from signal import SIGINT
from typing import TYPE_CHECKING

import click

from tilewright.cli.numbers import FiniteRange
from tilewright.cli.paths import PATH
from tilewright.report.output import Output, output_options

if TYPE_CHECKING:
    from tilewright.sweep.document import SweepDocument
    from tilewright.sweep.run import Question


@click.command(
    epilog="Example: tilewright sweep --engine vllm --model Qwen/Qwen3-30B-A3B --space space.toml "
    '--goal "max output_tok_s s.t. p95_ttft_s < 2"',
    context_settings={"max_content_width": 100},
)
@click.option("--engine", type=click.Choice(["vllm", "sglang", "openai"]), required=True,
              help="What is started; openai: what [server] command in the space file says.")  # fmt: skip
@click.option(
    "--space", "space_file", required=True, type=PATH, metavar="FILE", help="TOML or JSON: flags, env, load, baseline."
)
@click.option("--goal", "goal_text", required=True, help='"max|min METRIC [s.t. METRIC <|<=|>|>= NUMBER [and ...]]"')
@click.option("--model", help="Folder of a checkpoint, or a Hugging Face id.")
@click.option("--root", type=PATH, metavar="DIR", help="Virtual environment of the engine; default: the one on PATH.")
@click.option("--engine-version", metavar="X.Y.Z", help="Where [server] command starts it: whose flags it has.")
@click.option("--url", help="Measure this server as it runs, under the loads of the space file; nothing is started.")
@click.option("--port", type=click.IntRange(1, 65535), help="Where servers listen; default: a free port each.")
@click.option("--store", type=PATH, metavar="FILE", help="The store; default $TILEWRIGHT_STORE, else your data folder.")
@click.option("--logs", type=PATH, metavar="DIR", help="Folder for the servers' logs; default: beside the store.")
@click.option("--trials", type=click.IntRange(1, 100_000), default=20, show_default=True,
              help="Candidates to measure besides the baseline.")  # fmt: skip
@click.option("--repeats", type=click.IntRange(1, 100), default=3, show_default=True, help="Measurements a start.")
@click.option("--confirm", type=click.IntRange(0, 20), default=2, show_default=True,
              help="Times that the best and the baseline are started again at the end.")  # fmt: skip
@click.option("--no-baseline", is_flag=True, help="Do not measure the server with nothing varied.")
@click.option("--resume", is_flag=True, help="Continue the last sweep under these conditions: what is done is kept.")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True, help="Of the search.")
@click.option("--ready-timeout", type=FiniteRange(1, 86_400), default=900.0, show_default=True,
              help="Seconds that a server gets until its first completion.")  # fmt: skip
@click.option("--load-generator", type=click.Choice(["auto", "aiperf", "own"]), default="auto", show_default=True,
              help="auto: AIPerf where it is installed, else tilewright's own light client.")  # fmt: skip
@click.option("--aiperf", type=PATH, metavar="FILE", help="AIPerf's program, where it is in another environment.")
@click.option("--tokenizer", help="Tokenizer for AIPerf's prompts; default: --model.")
@click.option("--api-key-env", metavar="NAME", help="Environment variable that holds the key which --url asks for.")
@click.option("--gpu", help="With --gpus: seed the search with flag advice and layouts.")
@click.option("--gpus", type=click.IntRange(1, 1024), help="How many of them the server has.")
@click.option(
    "--plan", "plan_file", type=PATH, metavar="PLAN.json", help="Record the result in the journal, for this plan."
)
@click.option("--finding", default="", metavar="ID", help="The plan's finding that the sweep tried.")
@click.option("--record", is_flag=True, help="Record baseline against best in the journal.")
@output_options
def command(
    engine: str,
    space_file: str,
    goal_text: str,
    model: str | None,
    root: str | None,
    engine_version: str | None,
    url: str | None,
    port: int | None,
    store: str | None,
    logs: str | None,
    trials: int,
    repeats: int,
    confirm: int,
    no_baseline: bool,
    resume: bool,
    seed: int,
    ready_timeout: float,
    load_generator: str,
    aiperf: str | None,
    tokenizer: str | None,
    api_key_env: str | None,
    gpu: str | None,
    gpus: int | None,
    plan_file: str | None,
    finding: str,
    record: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Find the server flags that do best on your own machine, by measuring.

    Each candidate is a server of its own: started with its flags, waited for until it answers, warmed up, loaded and
    measured --repeats times, and stopped. Optuna chooses the next one; limits of the goal are kept. A server that
    dies, hangs or never gets ready is a result, with its log explained. Nothing is left running, however this ends,
    and --resume goes on where it ended. No winner is named unless it is significantly better (Welch's test, 95 %).

    Every flag is checked against those that the installed engine really has before anything is started.
    """
    import msgspec

    from tilewright.store import default_path
    from tilewright.sweep import Question, parse_goal, read_space, sweep
    from tilewright.sweep.journal import check_plan, record_sweep

    out = Output(json=as_json, quiet=quiet)
    goal = parse_goal(goal_text)
    space = read_space(space_file)
    planned = check_plan(plan_file, finding)
    question = Question(
        engine=engine,
        space=space,
        goal=goal,
        store=Path(store) if store else default_path(),
        model=model,
        root=root,
        engine_version=engine_version,
        url=url,
        port=port,
        trials=trials,
        repeats=repeats,
        confirm=confirm,
        baseline=not no_baseline,
        resume=resume,
        seed=seed,
        ready_s=ready_timeout,
        generator=load_generator,
        aiperf=aiperf,
        tokenizer=tokenizer,
        api_key_env=api_key_env,
        logs=Path(logs) if logs else None,
        gpu=_gpu(gpu, gpus),
        gpus=gpus,
        progress=out.note,
    )
    found = _swept(sweep, question)
    if record or planned is not None:
        entry = record_sweep(found, question, planned, finding)
        found = msgspec.structs.replace(found, journal_entry=entry)
        if entry is None:
            out.note("Nothing was recorded in the journal: baseline and best were not both measured.")
    if as_json:
        out.document(found)
    else:
        from tilewright.report.sweep_text import print_sweep

        print_sweep(out, found)


def _swept(sweep: object, question: Question) -> SweepDocument:
    """The sweep; Ctrl-C says how to go on."""
    from tilewright.stopped import StoppedError

    try:
        return sweep(question)  # type: ignore[operator]
    except KeyboardInterrupt as stop:
        msg = "Stopped; no server is left running, and what was measured is kept. Go on with --resume."
        number = stop.number if isinstance(stop, StoppedError) else SIGINT
        raise StoppedError(number, msg) from None


def _gpu(name: str | None, gpus: int | None) -> str | None:
    from tilewright.errors import InputError

    if name is None:
        if gpus is not None:
            raise InputError("gpus", "--gpus says how many of --gpu there are; give both, or neither.")
        return None
    from tilewright.hardware.names import resolve_gpu

    return resolve_gpu(name).key
