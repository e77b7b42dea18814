"""Reading a launcher that carries the patch: what it was, and what its tactics are now.

The patch is taken out of the text again, and put in again to see that it is exactly ours; a launcher that was edited
otherwise is read as it stands. Line numbers stay those of the patched file.
"""

from __future__ import annotations

import re
from typing import Final

from tilewright.cutlass.config import config_to_dict, parse_config
from tilewright.cutlass.fit import fit
from tilewright.libraries.flashinfer.fix_patch import COUNT, MARK, TEMPLATES, patched_text
from tilewright.libraries.flashinfer.fix_stages import restage
from tilewright.libraries.flashinfer.model import Tactic

__all__ = ["healed", "without_patch"]

_COUNTED: Final = re.compile(r"\s*using CountedMainloop =")
_MAINLOOP: Final = re.compile(r"\s*using CollectiveMainloop =")
_CHECK: Final = re.compile(r"\s*static_assert\(sm120_shared_memory_fits<")
_CHECK_LINES: Final = 2


def without_patch(text: str) -> str | None:
    """A launcher's `text` with the patch blanked out, line for line; None where it does not carry exactly the patch."""
    if MARK not in text or text.count(TEMPLATES) != 1:
        return None
    clean, masked = text.replace(TEMPLATES, ""), text.replace(TEMPLATES, "\n" * TEMPLATES.count("\n"))
    first, second = _without(clean, blank=False), _without(masked, blank=True)
    if first is None or second is None:
        return None
    try:
        return second if patched_text(first) == text else None
    except ValueError:
        return None


def _without(text: str, *, blank: bool) -> str | None:
    """The macro without the patch's lines; `blank`: with empty lines in their place."""
    lines = text.split("\n")
    counted = next((i for i, line in enumerate(lines) if _COUNTED.match(line)), None)
    mainloop = next((i for i, line in enumerate(lines) if _MAINLOOP.match(line)), None)
    check = next((i for i, line in enumerate(lines) if _CHECK.match(line)), None)
    if counted is None or mainloop is None or check is None or not counted < mainloop < check:
        return None
    column = len(lines[counted]) - 1
    empty = " " * column + "\\"
    out: list[str] = []
    for index, line in enumerate(lines):
        if counted <= index < mainloop or check <= index < check + _CHECK_LINES:
            out += [empty] if blank else []
        elif mainloop <= index < check and re.search(rf"\b{COUNT}\b", line):
            code = re.sub(rf"\b{COUNT}\b", "StageCountAutoCarveout", line.removesuffix("\\").rstrip())
            out.append(f"{code.ljust(max(column, len(code) + 1))}\\")
        else:
            out.append(line)
    return "\n".join(out)


def healed(tactic: Tactic) -> Tactic:
    """`tactic` of a patched launcher, read as if it were not: with the stage count that the patch gives it."""
    if tactic.config is None or tactic.config["arch"] not in ("sm120", "sm121"):
        return tactic  # on other architectures the patch changes nothing
    made = restage(tactic)
    if made.outcome != "healed":
        return tactic
    config = parse_config({**tactic.config, "stages": made.stages_after})
    return Tactic(
        name=tactic.name,
        source=tactic.source,
        config=config_to_dict(config),
        verdict=fit(config),
        op=tactic.op,
        launcher=tactic.launcher,
        emitted=tactic.emitted,
        filtered_by=tactic.filtered_by,
        runtime_ids=tactic.runtime_ids,
    )
