"""No finding proposes a launch flag or choice that the engine's version lacks: every launch line is held against the
flags of that version, of the user's own tree where it holds the engine, and a flag that this version calls otherwise
is called so."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec

from tilewright.plan.engine_version import known_flags
from tilewright.plan.finding import Draft, Evidence, Rejected

if TYPE_CHECKING:
    from tilewright.libraries.engine_flags.launch import LaunchCheck
    from tilewright.libraries.engine_flags.model import FlagSet
    from tilewright.plan.target import Target

STARTS: Final = {"sglang": "python3 -m sglang.launch_server", "vllm": "vllm serve"}
"""How a launch line of each engine begins (plan.engines.launch)."""
_NOTE: Final = "   #"
"""What follows it in a command is for the reader."""


def _judged(line: str, known: FlagSet) -> LaunchCheck | None:
    """The launch line in `line` as this version's parser reads it; None where there is none in it."""
    from tilewright.libraries.engine_flags.launch import check_launch

    at = line.find(STARTS[known.engine])
    return None if at < 0 else check_launch(known, line[at:].split(_NOTE)[0])


def renamed(line: str, known: FlagSet) -> str:
    """`line` with the flags that this version renamed, or calls deprecated in favour of another, called so."""
    from tilewright.libraries.engine_flags.renames import successor

    judged = _judged(line, known)
    for remark in judged.remarks if judged is not None else ():
        if remark.level == "note":
            continue
        word = remark.word.split("=")[0]
        flag = known.get(word)
        if flag is not None and not flag.deprecated:
            continue
        new = successor(known, word)
        if new is not None:
            made = f"{new.name} {new.value}" if new.value else new.name
            line = re.sub(rf"(?<!\S){re.escape(word)}(?=[\s=]|$)", made.replace("\\", ""), line)
    return line


def refusal(line: str, known: FlagSet) -> str | None:
    """Why this version would refuse the launch line in `line`; None where it would not, or there is none in it."""
    judged = _judged(line, known)
    if judged is None or judged.accepted is not False:
        return None
    return next(item.message for item in judged.remarks if item.stops)


def checked(drafts: list[Draft], target: Target) -> tuple[list[Draft], list[Rejected]]:
    """(drafts that the engine's version can follow, ideas that it cannot). What keeps the server from running is never
    dropped, only the line that would not parse."""
    known = known_flags(target)
    if known is None or target.engine not in STARTS:
        return drafts, []
    kept: list[Draft] = []
    refused: list[Rejected] = []
    for draft in drafts:
        lines = [renamed(line, known) for line in draft.fix.commands]
        if lines != draft.fix.commands:
            draft = replace(draft, fix=msgspec.structs.replace(draft.fix, commands=lines))
        whys = {line: refusal(line, known) for line in lines}
        why = next((text for text in whys.values() if text is not None), None)
        if why is None:
            kept.append(draft)
        elif draft.metric == "runs":
            good = [line for line, text in whys.items() if text is None]
            kept.append(replace(draft, fix=msgspec.structs.replace(draft.fix, commands=good)))
        else:
            named = f"{target.engine_title} {known.version}" if known.version else target.engine_title
            source = f"flags of {named}, read from its sources"
            refused.append(
                Rejected(draft.title, f"{named} would refuse it: {why}", [Evidence("published", why, source)])
            )
    return kept, refused
