"""`tilewright mcp`: the commands as tools for an assistant, over the Model Context Protocol."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Final

import click

from tilewright.cli.numbers import FiniteRange
from tilewright.cli.paths import PATH
from tilewright.report.output import Output, output_options

if TYPE_CHECKING:
    from tilewright.mcp_.access import Access

OLDEST_SDK: Final = 2
"""Major release of the package mcp that the server is written for: 1.x registers handlers in another way."""


@click.command(epilog="Example: tilewright mcp --root /opt/venv/lib/python3.12/site-packages --root /var/log/sglang")
@click.option(
    "--root",
    "roots",
    multiple=True,
    type=PATH,
    metavar="DIR",
    help="Tools may read files below it (repeatable). None: no files.",
)
@click.option("--allow-write", "write", type=PATH, metavar="DIR", help="plan may write plan.md and plan.json below it.")
@click.option(
    "--max-seconds",
    default=120.0,
    show_default=True,
    type=FiniteRange(0.01, 3600),
    help="A longer call is stopped.",
)
@click.option(
    "--max-answer-bytes", default=1 << 20, show_default=True, type=click.IntRange(1 << 10, 1 << 26),
    help="A longer answer is refused, with what to narrow.",
)  # fmt: skip
@click.option("--list", "listing", is_flag=True, help="Print the tools (--json: with their schemas), and end.")
@output_options
def command(
    roots: tuple[str, ...],
    write: str | None,
    max_seconds: float,
    max_answer_bytes: int,
    listing: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Serve fit, tactics, collectives, predict, layout, explain, plan and more as tools of an MCP client.

    The client (an assistant, an editor) starts this command and speaks with it on stdin and stdout; it ends with its
    client. Tools answer with the same documents as the commands' --json. They read below the roots given here and
    nowhere else, write nothing, start no programs and open no connections. Needs the extra 'mcp'.
    """
    from tilewright.mcp_.access import Access

    access = Access.of(roots, write)
    if listing:
        _list(access, Output(as_json, quiet))
        return
    if as_json:
        raise click.UsageError("--json goes with --list; what the server speaks is the protocol.")
    from tilewright.errors import MissingPartError

    try:
        if int(version("mcp").split(".")[0]) < OLDEST_SDK:
            raise MissingPartError(f"The MCP SDK {OLDEST_SDK} (here is {version('mcp')})", "mcp")
        from tilewright.mcp_.server import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("mcp", "mcp_types", "anyio", "pydantic", "pydantic_core"):
            raise MissingPartError("The MCP SDK (the package mcp)", "mcp") from None
        raise
    serve(access, limit_s=max_seconds, answer_bytes=max_answer_bytes)


def _list(access: Access, out: Output) -> None:
    from tilewright.mcp_.tools import tools_document
    from tilewright.report.budget_text import wrapped

    document = tools_document(access)
    if out.json:
        out.document(document)
        return
    for tool in document.tools:
        out.heading(f"{tool.name}  ({tool.document})")
        for line in wrapped(tool.description, "  "):
            out.line(line)
