"""`tilewright flags`: the command-line flags that an installed SGLang or vLLM really has, and which of them matter."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from tilewright.report.output import Output, output_options

if TYPE_CHECKING:
    from tilewright.serving.advice import Advice

_SCRIPTS = (".sh", ".bash", ".yaml", ".yml", ".txt", ".env")
"""What a file that holds a launch command is called."""
_ADVICE: tuple[Callable[[Any], Any], ...] = (
    click.option("--advise", is_flag=True, help="Which flags matter for --model on --gpu, with a launch line."),
    click.option(
        "--model", metavar="NAME_OR_PATH", help="With --advise: a known model, a repository id, a config.json."
    ),
    click.option("--checkpoint", metavar="NAME", help="One of the model's checkpoints; default: the model's own."),
    click.option("--gpu", metavar="NAME", help="With --advise: the GPU, as 'tilewright gpus' names it."),
    click.option("--gpus", default=1, show_default=True, help="How many of them."),
    click.option("--tp", type=int, help="Tensor-parallel size; default: the launch line's, else the best layout."),
    click.option("--pp", type=int, help="Pipeline stages."),
    click.option("--ep", type=int, help="Expert-parallel size."),
    click.option("--dcp", type=int, help="Decode-context-parallel size."),
    click.option("--attention-dp", type=int, help="Copies of the attention inside a tensor-parallel group."),
    click.option("--goal", type=click.Choice(["throughput", "latency"]), default="throughput", show_default=True),
    click.option("--concurrency", type=int, help="Requests at once; default: 1 for latency, else what fits."),
    click.option("--context", type=int, help="Tokens that a request holds, prompt and answer; default: 8192."),
    click.option("--prompt-tokens", type=int, help="Prompt for the time to first token; default: --context."),
    click.option("--kv-dtype", help="Cache format: auto, bf16, fp8, nvfp4; default: the launch line's."),
    click.option("--mem-fraction", type=float, help="Share of memory for weights and cache; default: the engine's."),
    click.option(
        "--launch",
        "own_line",
        metavar="COMMAND_OR_FILE",
        help="With --advise: the line that you start now ('-': stdin).",
    ),
)


def _advice_options(function: Any) -> Any:
    for option in reversed(_ADVICE):
        function = option(function)
    return function


@click.command(
    epilog="Example: tilewright flags sglang --advise --model GLM-5-NVFP4 --gpu rtx-pro-6000-server --gpus 8 --tp 8 "
    "--concurrency 32"
)
@click.argument("engine", type=click.Choice(["sglang", "vllm"]))
@click.argument("names", nargs=-1)
@click.option("--root", metavar="DIR_OR_WHEEL", help="site-packages, unpacked sources, or the wheel.")
@click.option("--engine-version", metavar="X.Y.Z", help="Without --root: the packaged release nearest to it.")
@click.option("--diff", metavar="OTHER_ROOT", help="What changed since the version in OTHER_ROOT.")
@click.option("--uses", "show_uses", is_flag=True, help="Where the named flags' values are read; none: a no-op.")
@click.option(
    "--check-launch", "launch", metavar="COMMAND_OR_FILE", help="Is this launch command ('-': stdin) accepted?"
)
@click.option("--check", is_flag=True, help="Exit 1 when the launch command is not accepted.")
@_advice_options
@output_options
def command(
    engine: str,
    names: tuple[str, ...],
    root: str | None,
    engine_version: str | None,
    diff: str | None,
    show_uses: bool,
    launch: str | None,
    check: bool,
    advise: bool,
    as_json: bool,
    quiet: bool,
    **sizes: Any,
) -> None:
    """Flags, aliases, choices and defaults that the ENGINE in a tree has, read from its sources and never imported.

    NAMES are flags, or parts of their names. A default or a choice that the engine computes at run time is shown as
    the expression that computes it. Without --root the packaged flags of a release are shown, and said to be.

    With --advise: which of them matter for a model, GPUs, a goal and a load, what each is predicted to bring (decode
    and prefill apart, for each number of requests), what of your --launch line does nothing, is renamed or gone in
    this version, and a launch line that its parser accepts.
    """
    from tilewright.errors import InputError

    out = Output(json=as_json, quiet=quiet)
    if advise:
        for name, value in (("names", names), ("diff", diff), ("uses", show_uses), ("check-launch", launch)):
            if value:
                raise InputError(
                    name, f"--advise answers for all flags; leave out {name} (your line goes to --launch)."
                )
        made = advice(engine, root=root, engine_version=engine_version, **sizes)
        if as_json:
            out.document(made)
        else:
            from tilewright.report.advice_text import print_advice

            print_advice(out, made)
        if check and any(item.verdict in ("refused", "gone", "renamed", "not yet") for item in made.judged):
            click.get_current_context().exit(1)
        return
    source = click.get_current_context().get_parameter_source
    given = [name for name in sizes if source(name) is ParameterSource.COMMANDLINE]
    if given:
        name = "launch" if given[0] == "own_line" else given[0].replace("_", "-")
        raise InputError(name, f"--{name} is for advice; pass --advise as well.")
    _list(out, engine, names, root, engine_version, diff, show_uses, launch, check)


def advice(
    engine: str,
    *,
    model: str | None,
    gpu: str | None,
    root: str | None = None,
    engine_version: str | None = None,
    own_line: str | None = None,
    **sizes: Any,
) -> Advice:
    """The advice for the engine in `root`, else for the packaged release nearest to `engine_version`; the other
    arguments as in `AdviceQuestion`, `own_line` a launch command or a file that holds one.

    Raises InputError naming the field.
    """
    from tilewright.collectives.tree import open_tree
    from tilewright.errors import InputError
    from tilewright.libraries.engine_flags import engine_flags, snapshot
    from tilewright.serving.advice import AdviceQuestion
    from tilewright.serving.advice import advise as advise_

    if model is None or gpu is None:
        field = "model" if model is None else "gpu"
        raise InputError(field, f"--advise needs --{field}: which {field} is it for?")
    if root is not None:
        with open_tree(root) as tree:
            flags = engine_flags(tree, engine)
    else:
        flags = snapshot(engine, engine_version)
    line = None if own_line is None else _command(own_line, "launch")
    made = advise_(AdviceQuestion(model=model, gpu=gpu, launch=line, **sizes), flags)
    if flags.snapshot and engine_version is not None and engine_version != flags.version:
        import msgspec

        text = f"{engine_version} is not packaged: this is for {flags.version}, the release nearest to it"
        made = msgspec.structs.replace(made, notes=[*made.notes, text])
    return made


def _list(
    out: Output, engine: str, names: tuple[str, ...], root: str | None, engine_version: str | None, diff: str | None,
    show_uses: bool, launch: str | None, check: bool,
) -> None:  # fmt: skip
    from tilewright.errors import InputError
    from tilewright.libraries.engine_flags.document import flags_document

    if check and launch is None:
        raise InputError("check", "--check judges a launch command; pass --check-launch as well.")
    if show_uses and not names:
        raise InputError("uses", "--uses searches for named flags; name one, as in num-continuous-decode-steps.")
    made = flags_document(
        engine,
        root,
        names,
        version=engine_version,
        diff=diff,
        show_uses=show_uses,
        launch=None if launch is None else _command(launch, "check-launch"),
    )
    if out.json:
        out.document(made)
    else:
        from tilewright.report.flags_text import print_flags

        print_flags(out, made, named=bool(names))
        if root is None and engine_version is not None and engine_version != made.version:
            out.note(f"{engine_version} is not packaged: this is {made.version}, the release nearest to it")
    if check and made.launch is not None and not made.launch.accepted:
        click.get_current_context().exit(1)


def _command(given: str, option: str) -> str:
    """The launch command itself, or the text of the file that holds it; `-` is stdin.

    A line may be a path with blanks in it, and a path may be longer than a file's name may be: only what is there
    tells them apart.
    """
    from tilewright.errors import InputError, shown
    from tilewright.libraries.engine_flags.command_line import MAX_COMMAND

    field = option.replace("-", "_")
    if not given:
        raise InputError(field, f"--{option} is empty; give a file or a line.")
    try:
        if given == "-":
            if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison] - a shell closed it (<&-)
                raise InputError(field, f"--{option}: stdin is closed; pipe a launch command in.")
            return sys.stdin.buffer.read(MAX_COMMAND + 1).decode("utf-8-sig")
        path = Path(os.path.expanduser(given))  # noqa: PTH111 - leaves ~NAME of nobody as it is
        if os.path.isfile(path):  # noqa: PTH113 - a long line is no file, where Path.is_file raises
            with path.open("rb") as stream:
                return stream.read(MAX_COMMAND + 1).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError, ValueError):
        msg = f"--{option} cannot be read; pass a launch command or a UTF-8 file that holds one."
        raise InputError(field, msg) from None
    if " " in given or "\0" in given:
        return given
    if os.path.isdir(path):  # noqa: PTH112 - as above
        raise InputError(field, f"--{option} {shown(given)} is a folder; give a file or a line.")
    if "/" in given or path.suffix in _SCRIPTS:
        raise InputError(field, f"--{option}: there is no file {shown(given)}.")
    return given
