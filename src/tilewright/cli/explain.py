"""`tilewright explain`: what a log says, what it means and what helps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tilewright.cli.paths import PATH
from tilewright.report.output import Output, output_options

if TYPE_CHECKING:
    from tilewright.diagnose.explain import Explanation, Finding

HEADINGS = {
    "stops": "Stops the server",
    "wrong": "May give wrong answers or take later calls down",
    "slow": "Works, slower than it could",
    "notice": "Looks bad and is not",
    "info": "Worth knowing",
}


@click.command(
    epilog="Example: journalctl -u sglang | tilewright explain -",
    context_settings={"max_content_width": 100},
)
@click.argument("file", type=PATH, metavar="FILE|-")
@click.option("--check", is_flag=True, help="Exit 1 when something in it stops the server or may be wrong.")
@output_options
def command(file: str, check: bool, as_json: bool, quiet: bool) -> int:
    """Explain a log of SGLang, vLLM, FlashInfer, TensorRT-LLM, Triton, NCCL or a compiler.

    Known lines are grouped and come with cause, the exact arithmetic where it is shared memory, what helps and the
    public report; errors that nothing here knows are listed as unknown. The log is read as a stream.
    """
    from tilewright.cli.jsonl import open_stream
    from tilewright.diagnose.explain import explain

    with open_stream(file, "FILE", "a log") as stream:
        found = explain(stream, "stdin" if file == "-" else file)
    output = Output(as_json, quiet)
    if as_json:
        output.document(found)
    else:
        _print(output, found)
    return int(check and any(item.severity in ("stops", "wrong") for item in found.findings))


def _print(output: Output, found: Explanation) -> None:
    kinds, seen = len(found.findings), sum(item.count for item in found.findings)
    times = "once" if seen == 1 else f"{seen:,} times"
    messages = "no known message" if not kinds else f"{kinds} known message{'s' * (kinds > 1)}, seen {times}"
    output.line(f"{found.lines:,} line{'s' * (found.lines != 1)}: {messages}.")
    severity = ""
    for item in found.findings:
        if item.severity != severity:
            severity = item.severity
            output.line()
            output.heading(HEADINGS[severity])
        _print_finding(output, item)
    if found.unknown:
        output.line()
        output.heading("Errors that are not known here")
        for error in found.unknown:
            output.line(f"  line {error.first_line:,}, {error.count:,}x: {error.example}")
    if found.unknown_more:
        output.line(f"  and {found.unknown_more:,} more of other shapes")
    if not found.findings and not found.unknown:
        output.line("Nothing in it is a known message or looks like an error.")


def _print_finding(output: Output, item: Finding) -> None:
    from tilewright.report.budget_text import wrapped

    times = "once" if item.count == 1 else f"{item.count:,} times, to line {item.last_line:,}"
    output.line()
    output.heading(f"  {item.title} (line {item.first_line:,}, {times})")
    output.line(f"    > {item.example}")
    for text in (item.cause, *item.arithmetic, item.fix.text):
        for line in wrapped(text, "    "):
            output.line(line)
    for command in item.fix.commands:
        output.line(f"      $ {command}")
    output.line(f"    [{item.source}]")
