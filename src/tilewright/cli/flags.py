"""`tilewright flags`: the command-line flags that an installed SGLang or vLLM really has."""

from __future__ import annotations

from pathlib import Path

import click

from tilewright.report.output import Output, output_options


@click.command(epilog="Example: tilewright flags sglang --root site-packages moe-runner-backend")
@click.argument("engine", type=click.Choice(["sglang", "vllm"]))
@click.argument("names", nargs=-1)
@click.option("--root", metavar="DIR_OR_WHEEL", help="site-packages, unpacked sources, or the wheel.")
@click.option("--engine-version", metavar="X.Y.Z", help="Without --root: the packaged release nearest to it.")
@click.option("--diff", metavar="OTHER_ROOT", help="What changed since the version in OTHER_ROOT.")
@click.option("--uses", "show_uses", is_flag=True, help="Where the named flags' values are read; none: a no-op.")
@click.option("--check-launch", "launch", metavar="COMMAND_OR_FILE", help="Does this launch command parse?")
@click.option("--check", is_flag=True, help="Exit 1 when the launch command does not parse.")
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
    as_json: bool,
    quiet: bool,
) -> None:
    """Flags, aliases, choices and defaults that the ENGINE in a tree has, read from its sources and never imported.

    NAMES are flags, or parts of their names. A default or a choice that the engine computes at run time is shown as
    the expression that computes it. Without --root the packaged flags of a release are shown, and said to be.
    """
    from tilewright.errors import InputError
    from tilewright.libraries.engine_flags.document import flags_document

    if check and launch is None:
        raise InputError("check", "--check judges a launch command; pass --check-launch as well.")
    if show_uses and not names:
        raise InputError("uses", "--uses searches for named flags; name one, as in num-continuous-decode-steps.")
    out = Output(json=as_json, quiet=quiet)
    made = flags_document(
        engine,
        root,
        names,
        version=engine_version,
        diff=diff,
        show_uses=show_uses,
        launch=None if launch is None else _command(launch),
    )
    if as_json:
        out.document(made)
    else:
        from tilewright.report.flags_text import print_flags

        print_flags(out, made, named=bool(names))
    if check and made.launch is not None and not made.launch.parses:
        click.get_current_context().exit(1)


def _command(given: str) -> str:
    """The launch command itself, or the text of the file that holds it."""
    from tilewright.errors import InputError
    from tilewright.libraries.engine_flags.command_line import MAX_COMMAND

    if " " in given or "\0" in given:
        return given
    try:
        path = Path(given)
        if not path.is_file():
            return given
        with path.open("rb") as stream:
            return stream.read(MAX_COMMAND + 1).decode("utf-8")
    except (OSError, UnicodeDecodeError, ValueError):
        msg = "--check-launch cannot be read; pass a launch command or a UTF-8 file that holds one."
        raise InputError("check_launch", msg) from None
