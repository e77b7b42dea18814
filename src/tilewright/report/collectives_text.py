"""The answer of `collectives` as text: a table where there are many, a paragraph each where there are few."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Final

from tilewright.collectives.answer import Answer, ForConfig
from tilewright.collectives.model import Collective, Requirement, ScheduleTag, Suited, TreeInfo
from tilewright.collectives.query import Filters
from tilewright.collectives.suit import CLUSTER_NOTE
from tilewright.report.output import Output

FEW: Final = 6
"""Collectives up to which each gets a paragraph."""
MANY_TAGS: Final = 10
"""Unaccepted tags and unused policies that are listed before the rest is counted."""

_SCALING: Final = {
    "none": "no scales",
    "block_scaled": "block-scaled (hardware: scale factors feed the MMA)",
    "blockwise": "blockwise scaling (software: FP8 with FP32 scales)",
}


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]


def show_collectives(answer: Answer, filters: Filters, out: Output) -> None:
    """Print an answer without a config."""
    _trees(answer.trees, out)
    everything = sum(tree.collectives for tree in answer.trees)
    asked = _asked(filters)
    count = len(answer.collectives)
    out.line(f"{count} of {everything} collectives{f': {asked}' if asked else ''}.")
    if not count:
        _nothing(answer, filters, out)
        return
    out.line()
    several = len(answer.trees) > 1
    if count <= FEW:
        for item in answer.collectives:
            _paragraph(item, answer, out)
    else:
        _table(answer.collectives, several, out)
    if answer.references:
        out.line()
        out.heading("To read beside them, as the reference:")
        for item in answer.references:
            out.line(f"  {item.policy} ({_title(item)})")
            out.line(f"    {item.file}:{item.line}")
            out.line(f"    built by {_builders(item)}")
    _notes(answer, filters, out)


def _trees(trees: Sequence[TreeInfo], out: Output) -> None:
    for number, tree in enumerate(trees):
        which = f"[{number}] " if len(trees) > 1 else ""
        where = f" at {tree.include}" if tree.include else ""
        owner = f" in {tree.library}" if tree.library else ""
        out.heading(f"{which}CUTLASS {tree.cutlass}{owner}{where}")
        if tree.known is not None:
            says = "" if tree.reported == tree.cutlass else f"; its version.h says {tree.reported}"
            out.line(f"  content known: {tree.known}{says}")
        else:
            out.line(f"  content unknown; nearest: {tree.nearest}")
        if tree.copies:
            shown = ", ".join(tree.copies[:3]) + (f" and {len(tree.copies) - 3} more" if len(tree.copies) > 3 else "")
            out.line(f"  the same content also at: {shown}")


def _asked(filters: Filters) -> str:
    parts = [
        filters.arch or "",
        {"block_scaled": "block-scaled", "blockwise": "blockwise scaling", "none": "unscaled"}.get(
            filters.scaling or "", ""
        ),
        {True: "array", False: "not array", None: ""}[filters.array],
        {True: "sparse", False: "dense", None: ""}[filters.sparse],
        filters.operation or "",
    ]
    return ", ".join(part for part in parts if part)


def _kind(item: Collective) -> str:
    words = ["array" if item.array else "single"]
    words += ["sparse"] if item.sparse else []
    words += ["mixed"] if item.mixed_input else []
    return " ".join(words)


def _title(item: Collective) -> str:
    kind = "array (grouped)" if item.array else "one problem a launch"
    more = (", sparse" if item.sparse else "") + (", mixed input" if item.mixed_input else "")
    own = not item.runs_on or item.runs_on == (item.arch,)
    arch = item.arch if own else f"written for {item.arch}, used on {' and '.join(item.runs_on)}"
    return f"{arch}, {item.operation}, {kind}{more}, {_SCALING[item.scaling]}"


def _base(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _builders(item: Collective) -> str:
    return ", ".join(f"{_base(ref.file)}:{ref.line}" for ref in item.builders) or "none"


def _paragraph(item: Collective, answer: Answer, out: Output) -> None:
    which = f"[{item.tree}] " if len(answer.trees) > 1 else ""
    out.heading(f"{which}{item.policy}")
    rows = [("is", _title(item)), ("at", f"{item.file}:{item.line}")]
    if item.operands:
        rows.append(("operands", " ".join(item.operands)))
    for ref in item.builders:
        op = "" if ref.op_class == "any" else f"{ref.op_class} "
        arch = f"{'/'.join(ref.archs)} " if ref.archs != (item.arch,) else ""
        rows.append(("built by", f"{_base(ref.file)}:{ref.line} ({arch}{op}with {', '.join(ref.schedules)})"))
    if item.requires:
        files = dict.fromkeys(need.file for need in item.requires)
        by_file = ([need for need in item.requires if need.file == file] for file in files)
        rows.append(("demands", "; ".join(f"{', '.join(map(_demand, n))} ({_places(n)})" for n in by_file)))
    if item.note:
        rows.append(("note", item.note))
    for label, text in rows:
        lines = _wrapped(text, 108)
        out.line(f"  {label:<9} {lines[0]}")
        for line in lines[1:]:
            out.line(f"  {'':<9} {line}")


def _demand(need: Requirement) -> str:
    what = {"cluster": "cluster ", "stages": "stages ", "tile_n": "tile N ", "tile_k": "tile K = "}.get(need.what, "")
    what = {"layout_a": "A ", "layout_b": "B "}.get(need.what, what)
    tail = {"layout": " layout", "layout_a": "-major", "layout_b": "-major"}.get(need.what, "")
    return f"{what}{need.value}{tail}"


def _places(needs: Sequence[Requirement]) -> str:
    return f"{_base(needs[0].file)}:{', '.join(str(need.line) for need in needs)}"


def _table(items: Sequence[Collective], several: bool, out: Output) -> None:
    columns = ["arch", "kind", "scaling", "dispatch policy", "defined at", "built by"]
    rows: list[list[str]] = []
    for item in items:
        more = len(item.builders) - 1
        built = f"{_base(item.builders[0].file)}:{item.builders[0].line}" if item.builders else "- no builder"
        scaling = "-" if item.scaling == "none" else item.scaling
        row = [
            item.arch,
            f"{'epilogue ' if item.operation == 'epilogue' else ''}{_kind(item)}",
            scaling,
            item.policy.removeprefix("Mainloop"),
            f"{_base(item.file)}:{item.line}",
            f"{built}{f' +{more}' if more > 0 else ''}",
        ]
        rows.append([f"[{item.tree}]", *row] if several else row)
    out.table(["tree", *columns] if several else columns, rows)


def _nothing(answer: Answer, filters: Filters, out: Output) -> None:
    if filters.scaling == "none":
        return
    out.line("Without --arch or --scaling, `tilewright collectives` lists all of them.")
    for policy in answer.unused_policies[:MANY_TAGS]:
        out.line(f"  {policy.name} ({_base(policy.file)}:{policy.line}): {policy.note}")


def _notes(answer: Answer, filters: Filters, out: Output) -> None:
    lines: list[str] = []
    demanding = [item for item in answer.collectives if any(need.what == "cluster" for need in item.requires)]
    if demanding and any(item.arch == "sm120" for item in demanding):
        names = ", ".join(item.policy.removeprefix("Mainloop") for item in demanding[:3] if item.arch == "sm120")
        more = f" and {len(demanding) - 3} more" if len(demanding) > 3 else ""
        lines.append(
            f"Cluster 1x1x1 is demanded by {names}{more}. {CLUSTER_NOTE.replace('this collective', 'a collective')}"
        )
    if filters.scaling in ("blockwise", "block_scaled"):
        lines.append(
            "Blockwise scaling (FP8 with FP32 scales, in software) and block-scaled (MX and NV formats, scale factors "
            "in the MMA) are different operations on different data."
        )
    unbuilt = [item for item in answer.collectives if not item.builders]
    if unbuilt and len(answer.collectives) > FEW:
        lines.append(
            f"No builder gives {len(unbuilt)} of them ('no builder' above): such a type is written out by hand."
        )
    idle = [tag for tag in answer.schedules if tag.role == "tag" and not tag.builders and tag.alias_of is None]
    if idle and filters.scaling is None:
        lines += _idle(idle, filters.arch)
    policies = [p for p in answer.unused_policies if p.note and "no collective" in p.note]
    if policies and filters.scaling is None:
        lines += [f"{p.name} ({_base(p.file)}:{p.line}): {p.note}" for p in policies[:MANY_TAGS]]
    lines += answer.notes
    if lines:
        out.line()
    for text in lines:
        for number, line in enumerate(_wrapped(text, 116)):
            out.line(f"{'- ' if number == 0 else '  '}{line}")


def _idle(tags: Sequence[ScheduleTag], arch: str | None) -> list[str]:
    """Tags that no builder accepts: those that are named for the arch one by one, the rest as a count."""
    own = [tag for tag in tags if arch is None or f"sm{arch[2:]}" in tag.name.lower()][:MANY_TAGS]
    lines = [f"{tag.name} ({_base(tag.file)}:{tag.line}): {tag.note}" for tag in own]
    if len(tags) > len(own):
        other = "other " if own else ""
        lines.append(
            f"{len(tags) - len(own)} {other}schedule tags are accepted by no builder: see `schedules` in --json."
        )
    return lines


def show_for(answer: Answer, out: Output) -> None:
    """Print which collectives could run a config."""
    _trees(answer.trees, out)
    judged = answer.for_config
    if judged is None:
        return
    out.line(f"For {_config_title(judged)}:")
    out.line()
    mains = [one for one in judged.verdicts if one.operation == "mma"]
    able = [one for one in mains if one.can]
    out.heading("Could run it:" if able else "No mainloop collective in this tree could run it.")
    for one in able:
        _could(one, out)
    if not able and judged.first_release:
        out.line(f"  The first release that has one is CUTLASS {judged.first_release} ({judged.first_policy}).")
    elif not able:
        out.line("  No release read so far has a builder that gives one.")
    _fit_line(judged, out)
    epilogues = [one for one in judged.verdicts if one.operation == "epilogue"]
    if able and epilogues:
        out.heading("With one of these epilogues:")
        for one in epilogues:
            _could(one, out) if one.can else _refused(one, out)
    refused = [one for one in mains if not one.can]
    if refused:
        out.line()
        out.heading("Look as if they could, and cannot:")
        for one in refused:
            _refused(one, out)
    for text in (*judged.notes, *answer.notes):
        out.line(f"- {text}")


def _config_title(judged: ForConfig) -> str:
    config = judged.config
    tile = "x".join(str(extent) for extent in config["tile"])
    cluster = "x".join(str(extent) for extent in config["cluster"])
    return (
        f"{config['arch']} {config['kind']} {config['op_class']} {config['a']} x {config['b']}, tile {tile}, "
        f"cluster {cluster}, {config['fusion']}, schedule {config['schedule']}"
    )


def _could(one: Suited, out: Output) -> None:
    out.line(f"  {one.policy}")
    out.line(f"    {one.file}:{one.line}")
    if one.schedules:
        for number, line in enumerate(_wrapped(", ".join(one.schedules), 104)):
            out.line(f"    {'with ' if number == 0 else '     '}{line}")


def _refused(one: Suited, out: Output) -> None:
    out.line(f"  {one.policy} ({_base(one.file)}:{one.line})")
    for reason in one.reasons:
        for line in _wrapped(reason, 112):
            out.line(f"    {line}")


def _fit_line(judged: ForConfig, out: Output) -> None:
    fit = judged.fit
    if fit is None:
        return
    if fit.status == "fits":
        text = f"fits: {fit.smem_bytes:,} of {fit.limit_bytes:,} bytes, {fit.stages} stages."
    elif fit.status == "overflow":
        best = f" Best fix: {fit.fixes[0]}." if fit.fixes else ""
        text = f"overflows by {fit.excess_bytes:,} bytes ({fit.smem_bytes:,} of {fit.limit_bytes:,}).{best}"
    elif fit.status == "illegal":
        text = f"is illegal: {fit.rules[0] if fit.rules else 'see tilewright fit'}"
    else:
        text = "is not covered by the model; tilewright probe compiles it."
    for number, line in enumerate(_wrapped(f"As configured it {text} (CUTLASS {fit.cutlass}, exact)", 112)):
        out.line(f"  {'' if number == 0 else '  '}{line}")
