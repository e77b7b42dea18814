"""A flag as an engine's sources declare it, and all flags of one version."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import msgspec

from tilewright.errors import nearest

Scalar = str | int | float | bool | None


class Limits(msgspec.Struct, frozen=True, omit_defaults=True):
    """Numbers that a flag may have although its parser takes any: inclusive (`at_least`, `at_most`) and exclusive
    (`above`, `below`) bounds."""

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    stops: str | None = None
    """What refuses another number at start-up (a config class, a check); None: nothing states the bounds."""
    source: str = ""
    """File and line that say so."""
    only_with: str | None = None
    """The flag, or what of the model, without which it is not looked at."""
    because: str | None = None
    """Why, where nothing states the bounds."""


class Flag(msgspec.Struct, frozen=True, omit_defaults=True):
    """One option of a server's command line."""

    names: tuple[str, ...]
    """Every spelling that the parser accepts, the first one first: `--tp-size`, `--tensor-parallel-size`, `-tp`."""
    dest: str
    file: str
    """File of the tree that declares it, from the root of the tree."""
    line: int
    kind: str
    """`value` (takes one), `values` (takes several), `optional` (takes one or none), `switch` (takes none), `bool`
    (a switch that also has a `--no-` form), or `unread` (an action whose arguments were not followed)."""
    type: str | None = None
    """The annotation or `type=` of the declaration, as written."""
    choices: tuple[Scalar, ...] | None = None
    choices_text: str | None = None
    """The expression of choices that are computed at run time; then `choices` is None and any value is let through."""
    default: Any = None
    default_text: str | None = None
    """The expression of a default that is computed at run time; then `default` is None and says nothing."""
    reads: str | None = None
    """What the parser makes of the text: `int`, `float`, `human_int` and `human_int_or_auto` (suffixes as in 8k; see
    `tilewright.libraries.engine_flags.reading`), `json`, `config` (JSON of a config's fields); None: text as it
    stands, or nothing is known."""
    nullable: bool = False
    """Whether the word None (and an empty one) stands for no value (vLLM `optional_type`)."""
    any_case: bool = False
    """Whether a choice is recognised in any case (names of an enum)."""
    help: str | None = None
    deprecated: bool = False
    successor: str | None = None
    """What the declaration says to use instead."""
    required: bool = False
    limits: Limits | None = None
    """Bounds that the declaration states."""
    keys: dict[str, Any] | None = None
    """Keys that its JSON object may have, each with those of its own value (None: any); None: any keys, or not
    known."""


class FlagSet(msgspec.Struct, frozen=True, dict=True, omit_defaults=True):
    """All flags of one engine in one tree."""

    engine: str
    version: str | None
    root: str
    flags: tuple[Flag, ...]
    partial: tuple[str, ...] = ()
    """Declarations that could not be followed, each with its place; a flag not found may be among them."""
    environment: tuple[str, ...] = ()
    """Environment variables that this version declares (SGLang `srt/environ.py`, vLLM `envs.py`)."""
    unused: tuple[str, ...] = ()
    """Flags whose values nothing reads, by first name, as far as that was looked for (snapshots only)."""
    snapshot: bool = False
    """Whether this is a packaged list of a release, not what a tree of the user holds."""

    @cached_property
    def by_name(self) -> dict[str, Flag]:
        """Every accepted spelling, the `--no-` forms included."""
        found: dict[str, Flag] = {}
        for flag in self.flags:
            for name in flag.names:
                found.setdefault(name, flag)
                if flag.kind == "bool" and name.startswith("--"):
                    found.setdefault("--no-" + name[2:], flag)
        return found

    def get(self, name: str) -> Flag | None:
        """The flag that is spelt `name`, or None. vLLM's parser takes `_` for `-` in a flag's name."""
        found = self.by_name.get(name)
        if found is None and self.engine == "vllm" and name.startswith("--"):
            found = self.by_name.get(name.replace("_", "-"))
        return found

    def has(self, name: str) -> bool:
        """Whether this version accepts a flag spelt `name`."""
        return self.get(name) is not None

    def nearest(self, name: str, count: int = 3) -> list[str]:
        """Accepted spellings that look most like `name`."""
        return nearest(name, self.by_name, count)
