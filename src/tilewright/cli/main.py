"""The command line: finds the command, runs it, and turns every error into one sentence and an exit code.

Exit codes (DESIGN 4.1): 0 done, 1 the answer to a `--check` is "no", 2 bad input, 3 a missing optional part; 128 + the
signal's number where Ctrl-C (130) or another signal ended it. The program starts in `tilewright.__main__`.
"""

from __future__ import annotations

import errno
import os
import sys
from importlib import import_module
from typing import Any, Final, NoReturn

import click

from tilewright._version import __version__
from tilewright.cli.arguments import misplaced
from tilewright.cli.registry import COMMANDS
from tilewright.errors import MAX_SHOWN, TilewrightError, nearest, shown
from tilewright.report.silence import silence
from tilewright.stopped import STOPPED, StoppedError

EXIT_BAD_INPUT = 2
STOPPED_BY: Final = {128 + number: number for number in (1, 2, 15)}
"""Exit codes of a run that SIGHUP, SIGINT or SIGTERM ended -> the signal (POSIX numbers)."""
FULL: Final = frozenset({errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)})
"""What a system answers that takes no more of a file. Files of ours name themselves; without a name it is stdout."""


class ClosedPipeError(Exception):
    """The reader of stdout went away. click would end the process for a BrokenPipeError, with the status of a no."""


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports a command's module when it is called."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise ClosedPipeError from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        command: click.Command = import_module(entry.module).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            near = nearest(args[0], COMMANDS)
            known = ", ".join(near or COMMANDS)
            msg = f"There is no command {args[0][:80]!r}; the nearest are: {known}."
            raise click.UsageError(msg, ctx)
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None and name is not None:
            wrong = misplaced(command, rest, name)
            if wrong is not None:
                path, msg = wrong
                raise click.UsageError(msg, click.Context(command, ctx, path))
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])


@click.command(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: tilewright fit --arch sm120 --kind grouped --a nvfp4 --b nvfp4 --tile 128x256x128 "
    "--fusion finalize",
)
@click.version_option(__version__, "--version", message="tilewright %(version)s")
def main() -> None:
    """Which GEMM tile can this GPU run, how fast, and what should be changed first?

    Every figure shown is exact (derived or compiled), measured, published or modelled, and says which.
    """


def _say(msg: str) -> None:
    """One line on stderr, whatever its encoding can carry."""
    line = f"tilewright: {' '.join(msg.split())}"
    try:
        print(line, file=sys.stderr, flush=True)
    except UnicodeEncodeError:
        print(line.encode("ascii", "backslashreplace").decode(), file=sys.stderr)
    except OSError:  # nobody can be told (a full disk, a terminal that is gone); the exit code still does
        silence(sys.stderr)


def _short(msg: str, given: list[str]) -> str:
    """What click says, with each long word of the user's cut as our own messages cut it: click repeats them whole."""
    pieces = {piece for word in given for piece in (word, *word.partition("=")[::2])}
    for piece in sorted(pieces, key=len, reverse=True):
        if len(piece) > MAX_SHOWN:
            msg = msg.replace(repr(piece), shown(piece)).replace(piece, shown(piece))
    return msg


def _stopped(error: BaseException) -> int:
    """Say that a signal ended the run; its exit code. click turns Ctrl-C into an Abort of which it is the cause."""
    by = error.__cause__ if isinstance(error, click.Abort) else error
    if isinstance(by, EOFError):
        _say("The input ended before the answer was given.")
        return EXIT_BAD_INPUT
    found = by if isinstance(by, StoppedError) else StoppedError()
    named = {1: "SIGHUP", 2: "Ctrl-C", 15: "SIGTERM"}.get(found.number, f"signal {found.number}")
    _say(found.msg or STOPPED.format(named))
    return 128 + found.number


def _flush() -> None:
    """What is still to be printed; the answer is known, so that a reader that has gone changes nothing."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        silence(sys.stdout)


def invoke(args: list[str] | None = None) -> int:
    """Run the command line and return its exit code; no exception leaves this function."""
    debug = bool(os.environ.get("TILEWRIGHT_DEBUG"))
    if sys.stdout is None or sys.stderr is None:  # pyright: ignore[reportUnnecessaryComparison]
        # A shell that closed one of them (>&-) gets the exit code; what would have been printed goes nowhere.
        devnull = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - lives as long as the process
        sys.stdout = sys.stdout or devnull
        sys.stderr = sys.stderr or devnull
    given = sys.argv[1:] if args is None else args
    try:
        result: Any = main.main(args=args, prog_name="tilewright", standalone_mode=False)
        _flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError" and error.ctx is not None:  # click 8.2 on; 8.1 prints it itself
            click.echo(error.ctx.get_help())
            return 0
        named = f"tilewright {given[0]}" if given and given[0] in COMMANDS else "tilewright"
        where = error.ctx.command_path if error.ctx else named  # click's option parser raises without its context
        _say(f"{_short(error.format_message(), given)} (see '{where} --help')")
        return EXIT_BAD_INPUT
    except click.ClickException as error:
        _say(_short(error.format_message(), given))
        return EXIT_BAD_INPUT
    except TilewrightError as error:
        if debug:
            raise
        _say(error.msg)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort) as error:
        return _stopped(error)
    except ClosedPipeError:
        # Whoever reads it has enough (`| head`), which is no error; a --check without its answer is no yes.
        silence(sys.stdout)
        return EXIT_BAD_INPUT if "--check" in given else 0
    except UnicodeEncodeError as error:
        # A byte of the command line that is not UTF-8 is a lone surrogate in Python; stores and JSON take none.
        if debug:
            raise
        shown = error.object[max(0, error.start - 20) : error.end + 20]
        _say(f"{shown!a} is not UTF-8 text; write it in UTF-8.")
        return EXIT_BAD_INPUT
    except RecursionError:
        _say("The input is nested too deeply to be read.")
        return EXIT_BAD_INPUT
    except MemoryError:
        _say("The input needs more memory than this machine gives.")
        return EXIT_BAD_INPUT
    except OSError as error:
        if debug:
            raise
        if error.filename is None and error.errno in FULL:
            silence(sys.stdout)
            _say(f"The output cannot be written: {error.strerror or error}; free some space, or send it elsewhere.")
            return EXIT_BAD_INPUT
        name = f" ({error.filename})" if error.filename else ""
        _say(f"The system refused{name}: {error.strerror or error}.")
        return EXIT_BAD_INPUT
    except Exception as error:  # the last line of defence: a user never meets a traceback
        if debug:
            raise
        _say(
            f"Internal error, which is a defect of tilewright: {type(error).__name__}: {error}. "
            "Please report it with the output of TILEWRIGHT_DEBUG=1."
        )
        return EXIT_BAD_INPUT


def run() -> NoReturn:
    """The console entry point of installations from before it was `tilewright.__main__:run`, which it calls."""
    from tilewright.__main__ import run as start

    start()
