"""No finding proposes a launch flag or choice that the engine's version lacks: every launch line is held against the
flags of that release, as packaged from its sources."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec

from tilewright.plan.finding import Draft, Evidence, Rejected

if TYPE_CHECKING:
    from tilewright.libraries.engine_flags.model import FlagSet
    from tilewright.plan.target import Target

STARTS: Final = {"sglang": "python3 -m sglang.launch_server", "vllm": "vllm serve"}
"""How a launch line of each engine begins (plan.engines.launch)."""
_NOTE: Final = "   #"
"""What follows it in a command is for the reader."""


def refusal(line: str, engine: str, known: FlagSet) -> str | None:
    """Why this release would refuse the launch line in `line`; None where it would not, or there is none in it."""
    from tilewright.libraries.engine_flags.launch import check_launch

    at = line.find(STARTS[engine])
    if at < 0:
        return None
    judged = check_launch(known, line[at:].split(_NOTE)[0])
    return None if judged.parses else next(item.message for item in judged.remarks if item.level == "error")


def checked(drafts: list[Draft], target: Target) -> tuple[list[Draft], list[Rejected]]:
    """(drafts that the engine's version can follow, ideas that it cannot). What keeps the server from running is never
    dropped, only the line that would not parse."""
    from tilewright.libraries.engine_flags.snapshots import snapshot

    if target.engine not in STARTS:
        return drafts, []
    known = snapshot(target.engine, target.engine_version)
    kept: list[Draft] = []
    refused: list[Rejected] = []
    for draft in drafts:
        whys = {line: refusal(line, target.engine, known) for line in draft.fix.commands}
        why = next((text for text in whys.values() if text is not None), None)
        if why is None:
            kept.append(draft)
        elif draft.metric == "runs":
            good = [line for line, text in whys.items() if text is None]
            kept.append(replace(draft, fix=msgspec.structs.replace(draft.fix, commands=good)))
        else:
            named = f"{target.engine_title} {known.version}"
            source = f"flags of {named}, read from its sources"
            refused.append(
                Rejected(draft.title, f"{named} would refuse it: {why}", [Evidence("published", why, source)])
            )
    return kept, refused
