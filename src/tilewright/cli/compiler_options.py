"""The options of commands that compile against header trees (`probe`, `verify`)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from tilewright.cli.paths import PATH

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


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
