"""The server that a launch line starts, read by what its flags are for."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final, cast

from tilewright.libraries.engine_flags.command_line import take_apart
from tilewright.libraries.engine_flags.concepts import concepts, names
from tilewright.libraries.engine_flags.launch import LaunchCheck, check_launch, groups
from tilewright.libraries.engine_flags.model import Flag, FlagSet
from tilewright.libraries.engine_flags.reading import number

__all__ = ["Present", "read_present"]

_MOST: Final = 1 << 24
"""No count of a server is above this: a typing error otherwise."""


@dataclass(frozen=True, slots=True)
class Present:
    """A launch line as `check` judges it; `text` concept -> the value given, as written (a switch: an empty one).

    `spelt` concept -> the flag as the line spells it.
    """

    check: LaunchCheck
    text: dict[str, str] = field(default_factory=lambda: dict[str, str]())
    spelt: dict[str, str] = field(default_factory=lambda: dict[str, str]())
    numbers: dict[str, float] = field(default_factory=lambda: dict[str, float]())

    def whole(self, concept: str, low: int = 1) -> int | None:
        """A count of the line, where it is one."""
        value = self.numbers.get(concept)
        return int(value) if value is not None and value == int(value) and low <= value <= _MOST else None

    def share(self, concept: str) -> float | None:
        value = self.numbers.get(concept)
        return float(value) if value is not None and 0 < value <= 1 else None

    def drafts(self, engine: str) -> int:
        """Tokens drafted a step; 0: none, or how many is not said."""
        if engine == "sglang":
            if "drafting" not in self.text:
                return 0
            steps, tokens = self.whole("draft_steps"), self.whole("draft_tokens")
            return steps or (tokens - 1 if tokens and tokens > 1 else 0)
        try:
            raw: Any = json.loads(self.text.get("drafting") or "{}")
        except (ValueError, RecursionError):
            return 0
        value = cast("dict[str, Any]", raw).get("num_speculative_tokens") if isinstance(raw, dict) else None
        return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 64 else 0


def read_present(flags: FlagSet, command: str) -> Present:
    """What a launch command asks for, in the words of this version or of another. Raises InputError where it cannot be
    split into words."""
    made = Present(check_launch(flags, command))
    concept_of = {name: ident for ident in concepts() for name in names(ident, flags.engine)}
    for name, flag, values in groups(flags, take_apart(command).words, []):
        spellings = flag.names if flag is not None else (name,)
        ident = next((concept_of[item] for item in spellings if item in concept_of), None)
        if ident is None:
            continue
        value = " ".join(values)
        made.text[ident], made.spelt[ident] = value, name
        read = number(flag or _COUNT, flags.engine, value)
        if read is not None:
            made.numbers[ident] = read
    return made


_COUNT: Final = Flag(names=("",), dest="", file="", line=0, kind="value", reads="int")
"""How the value of a flag is read that this version calls otherwise."""
