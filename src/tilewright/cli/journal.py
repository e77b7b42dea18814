"""`tilewright journal`: what was tried, what it gave, what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tilewright.cli.paths import PATH
from tilewright.report.output import Output, output_options, tell

if TYPE_CHECKING:
    from tilewright.journal.documents import Entry, JournalDocument


def _document(path: Path, finding: str | None) -> JournalDocument:
    from tilewright.journal import Journal, judge
    from tilewright.journal.documents import Entry, JournalDocument

    with Journal.read(path) as journal:
        found = journal.entries()
    later = {item.experiment.supersedes: item.id for item in found if item.experiment.supersedes is not None}
    return JournalDocument(
        store=str(path),
        entries=[
            Entry(entry=item, judgement=judge(item.experiment), superseded_by=later.get(item.id))
            for item in found
            if finding is None or item.experiment.finding == finding
        ],
    )


@click.command(epilog="Example: tilewright journal --markdown --out journal.md")
@click.option("--finding", metavar="ID", help="Only what tried this finding.")
@click.option("--markdown", "as_markdown", is_flag=True, help="The whole journal as Markdown.")
@click.option(
    "--out", type=PATH, metavar="FILE", help="Write it there instead of to stdout (Markdown, or JSON with --json)."
)
@click.option("--force", is_flag=True, help="Replace --out where it exists.")
@click.option("--store", type=PATH, metavar="FILE", help="The store; default $TILEWRIGHT_STORE, else your data folder.")
@output_options
def command(
    finding: str | None,
    as_markdown: bool,
    out: str | None,
    force: bool,
    store: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """What was tried on your server, what it gave and what came of it."""
    from tilewright.report.output import json_bytes
    from tilewright.report.write_file import check_new, write_new
    from tilewright.store import default_path

    if out is not None:
        check_new(out, force=force)
    document = _document(Path(store) if store else default_path(), finding)
    output = Output(as_json, quiet)
    if out is not None:
        content = json_bytes(document) + b"\n" if as_json else markdown(document).encode()
        write_new(out, content, force=force)
        tell(f"{len(document.entries)} entries written: {out}")
    elif as_json:
        output.document(document)
    elif as_markdown:
        output.line(markdown(document).rstrip("\n"))
    else:
        _table(output, document)


def _gave(entry: Entry) -> str:
    from tilewright.journal.judge import gave

    said = entry.judgement
    noise = f" +-{said.spread_pct:.1f}" if said.spread_pct is not None else ""
    return gave(said, entry.entry.experiment.better, noise)


def _verdict(entry: Entry) -> str:
    text = entry.entry.experiment.verdict
    return text if entry.superseded_by is None else f"{text} (corrected by {entry.superseded_by})"


def _table(output: Output, document: JournalDocument) -> None:
    rows = [
        [
            str(item.entry.id),
            item.entry.experiment.at[:10],
            item.entry.experiment.change,
            f"{item.judgement.before:g} -> {item.judgement.after:g} {item.entry.experiment.metric}",
            _gave(item),
            _verdict(item),
        ]
        for item in document.entries
    ]
    output.table(["#", "when", "change", "before -> after", "gave", "verdict"], rows, right=[0, 4])
    if not rows:
        output.line("Nothing is recorded yet; `tilewright record` adds an experiment.")


def markdown(document: JournalDocument) -> str:
    """The journal as Markdown, one section an experiment."""
    from tilewright.report.plan_text import code, foreign

    lines = ["# Journal", ""]
    for item in document.entries:
        one = item.entry.experiment
        lines += [
            f"## {item.entry.id}. {foreign(one.change)}",
            "",
            f"{one.at[:10]}, {_verdict(item)}. {foreign(one.metric)}: {item.judgement.before:g} -> "
            f"{item.judgement.after:g}" + (f" ({_gave(item)})" if _gave(item) else "") + ".",
            "",
            f"- expected: {foreign(one.hypothesis)}",
        ]
        lines += [f"- finding: {foreign(one.finding)}"] if one.finding else []
        lines += [f"- command: {code(one.command)}"] if one.command else []
        lines += [
            f"- samples: before {', '.join(f'{value:g}' for value in one.before)}; after "
            f"{', '.join(f'{value:g}' for value in one.after)}",
        ]
        if one.conditions:
            lines.append(
                "- conditions: " + ", ".join(f"{key} {foreign(value)}" for key, value in one.conditions.items())
            )
        lines += [f"- note: {foreign(one.note)}"] if one.note else []
        lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n"
