"""`tilewright fit --search`: the flags of a search, and its run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

from tilewright.cli.exit_status import EXIT_NO
from tilewright.report.output import Output

__all__ = ["search_options", "search_run"]

F = TypeVar("F", bound=Callable[..., Any])

_COUNT: Final = "COUNT"
DEFAULT_TOP: Final = 10


def search_options(function: F) -> F:
    """Add `--search` and the flags that describe its problem; the command receives them as `problem_*` and `search`."""
    for option in reversed(
        (
            click.option("--search", is_flag=True, help="Rank the legal configs for a problem; keys given stay fixed."),
            click.option("--gpu", "problem_gpu", metavar="GPU", help="--search: what to rank for."),
            click.option("--m", "problem_m", type=int, metavar=_COUNT, help="--search: rows, of all experts together."),
            click.option("--n", "problem_n", type=int, metavar=_COUNT, help="--search: outputs (columns)."),
            click.option("--k", "problem_k", type=int, metavar=_COUNT, help="--search: elements summed over."),
            click.option(
                "--experts", "problem_experts", type=int, metavar=_COUNT, help="--search, grouped: experts with tokens."
            ),
            click.option(
                "--tokens-per-expert", "problem_tokens_per_expert", type=int, metavar=_COUNT,
                help="--search, grouped: rows of each expert.",
            ),
            click.option("--top", "problem_top", type=int, metavar=_COUNT, help="--search: tiles shown (10)."),
        )
    ):  # fmt: skip
        function = option(function)
    return function


def given_problem(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The typed problem flags under their own names."""
    prefix = "problem_"
    return {
        name.removeprefix(prefix): value
        for name, value in parameters.items()
        if name.startswith(prefix) and value is not None
    }


def refuse_problem(problem: Mapping[str, Any]) -> None:
    """Problem flags without --search mean that it was forgotten."""
    if problem:
        flag = f"--{next(iter(problem)).replace('_', '-')}"
        raise click.UsageError(f"{flag} describes the problem of a search; add --search.")


def search_run(
    given: dict[str, Any], problem: dict[str, Any], root: str | None, unknown_root: str | None, check: bool, out: Output
) -> int | None:
    """Search, and show what was found. `check`: exit 1 when nothing is legal."""
    from tilewright.hardware.names import resolve_gpu
    from tilewright.search.run import search_configs

    name = problem.pop("gpu", None)
    started = time.perf_counter()
    result = search_configs(
        given, gpu=resolve_gpu(name) if name is not None else None, root=root, unknown_root=unknown_root,
        top=problem.pop("top", DEFAULT_TOP), **problem,
    )  # fmt: skip
    seconds = time.perf_counter() - started
    if out.json:
        out.document(result)
    else:
        from tilewright.report.search_text import show_search

        show_search(result, out)
    tried = result.counts.tried
    out.note(f"Configs tried: {tried:,} in {seconds:.2f} s ({tried / max(seconds, 1e-9):,.0f} a second).")
    return EXIT_NO if check and not result.candidates else None
