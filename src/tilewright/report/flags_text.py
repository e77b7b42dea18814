"""The answer of `flags` as text."""

from __future__ import annotations

import json

from tilewright.libraries.engine_flags.document import FlagsDocument
from tilewright.libraries.engine_flags.launch import LaunchCheck
from tilewright.libraries.engine_flags.limits import legal
from tilewright.libraries.engine_flags.model import Flag
from tilewright.report.output import Output

_READS = {"human_int": ", with a suffix as in 8k", "human_int_or_auto": ", with a suffix as in 8k, or auto"}


def _value(value: object, expression: str | None = None) -> str:
    if expression:
        return f"computed: {expression}"
    return value if isinstance(value, str) and value else json.dumps(value, default=str)


def print_flags(out: Output, made: FlagsDocument, *, named: bool) -> None:
    """The flags asked for, what changed, and the launch command's verdict."""
    out.heading(f"{made.engine} {made.version or '(version not said)'}: {made.total} flags")
    if made.root.startswith("packaged flags of "):
        out.line("Packaged list of this release; pass --root for what an installed one has.")
    if made.launch is not None:
        _print_launch(out, made.launch)
    if made.changes is not None:
        out.heading(f"Since {made.compared_with}")
        rows = [
            [change.what, change.name, _value(change.before), _value(change.after)]
            if change.what not in ("added", "removed")
            else [change.what, change.name, "", ""]
            for change in made.changes
        ]
        out.table(["change", "flag", "before", "now"], rows)
    elif named and len(made.flags) <= 20:
        for flag in made.flags:
            _print_flag(out, flag, idle=flag.names[0] in made.unused)
    elif made.launch is None:
        out.table(
            ["flag", "takes", "default", "declared"],
            [
                [
                    ", ".join(flag.names),
                    flag.kind,
                    _value(flag.default, flag.default_text)[:40],
                    f"{flag.file}:{flag.line}",
                ]
                for flag in made.flags
            ],
        )
    if made.unused and not named and made.launch is None:
        out.line(f"Nothing reads the values of: {', '.join(made.unused)}")
    for use in made.uses or ():
        if use.places:
            out.line(f"{use.name} is named in {', '.join(use.places)}")
        elif use.complete:
            out.line(f"{use.name}: no other line of the package names it, so it does nothing in this version.")
        else:
            out.line(f"{use.name}: not found in the part of the package that was read.")
    for text in made.partial:
        out.note(f"Not followed: {text}")


def _print_flag(out: Output, flag: Flag, *, idle: bool) -> None:
    out.heading(", ".join(flag.names))
    out.line(f"  takes     {flag.kind}{f' ({flag.type})' if flag.type else ''}{_READS.get(flag.reads or '', '')}")
    if flag.choices is not None or flag.choices_text:
        text = ", ".join(str(item) for item in flag.choices or ()) or f"computed: {flag.choices_text}"
        out.line(f"  choices   {text}")
    if flag.limits is not None:
        out.line(f"  range     {legal(flag.limits)} ({flag.limits.stops}, {flag.limits.source})")
    out.line(f"  default   {_value(flag.default, flag.default_text)}")
    if idle:
        out.line("  unused    no other line of this version reads its value: it does nothing")
    if flag.deprecated:
        out.line(f"  deprecated{f'; use {flag.successor}' if flag.successor else ''}")
    if flag.help:
        out.line(f"  help      {flag.help}")
    out.line(f"  declared  {flag.file}:{flag.line}")


def _print_launch(out: Output, made: LaunchCheck) -> None:
    verdict = {True: "parses", False: "does not parse", None: "may not parse (some declarations were not followed)"}
    then = ", and the engine would refuse it" if made.accepted is False and made.parses is not False else ""
    known = f"{len(made.given)} flag{'' if len(made.given) == 1 else 's'} known"
    out.line(f"The launch command {verdict[made.parses]}{then}; {known}.")
    for remark in made.remarks:
        near = f" Nearest: {', '.join(remark.nearest)}." if remark.nearest else ""
        place = f" ({remark.place})" if remark.place else ""
        out.line(f"  {remark.level}: {remark.message}{near}{place}")
