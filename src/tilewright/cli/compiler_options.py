"""The options of commands that compile against header trees (`probe`, `verify`)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TypeVar

import click

from tilewright.cli.paths import PATH
from tilewright.errors import InputError, shown

F = TypeVar("F", bound=Callable[..., Any])

MAX_JOBS = 256


def compiler_options(function: F) -> F:
    """Add --root (as `roots`), --extensions, --nvcc, --jobs, --keep and --no-cache to a command."""
    options = [
        click.option(
            "--root", "roots", metavar="DIR_OR_WHEEL", multiple=True,
            help="CUTLASS tree to compile against; several may be given, a config's cutlass version picks one.",
        ),
        click.option(
            "--extensions", metavar="DIR_OR_WHEEL",
            help="FlashInfer tree to take TensorRT-LLM's finalize fusion from, where --root has none.",
        ),
        click.option(
            "--nvcc", type=PATH, metavar="PATH",
            help="The compiler; default: of CUDA_HOME, of PATH, of the probe extra.",
        ),
        click.option(
            "--jobs", type=click.IntRange(1, MAX_JOBS), metavar="N", help="Compiles at a time; default: one a core."
        ),
        click.option("--keep", type=PATH, metavar="DIR", help="Leave the C++ sources here."),
        click.option("--no-cache", is_flag=True, help="Compile again what was compiled before."),
    ]  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


def keep_folder(keep: str | None) -> Path | None:
    """The folder of --keep, made where it is missing.

    Raises:
        InputError: it is none, or takes no file: said before anything is compiled.
    """
    if keep is None:
        return None
    folder = Path(keep)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            return folder
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        msg = f"--keep {shown(keep)} cannot be written: {reason}; give a folder that you may write."
        raise InputError("keep", msg) from None


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
