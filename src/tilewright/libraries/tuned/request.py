"""What is asked of an engine's tuned tiles beside the files themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tilewright.libraries.tuned.engine import Question
from tilewright.libraries.tuned.world import Device

DEFAULT_TOKENS: Final = (1, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
"""Numbers of tokens at which built-in defaults are asked for: both sides of every boundary that engines use."""


@dataclass(frozen=True)
class Request:
    """What is asked beside the files themselves."""

    device: Device | None = None
    question: Question | None = None
    tokens: tuple[int, ...] = DEFAULT_TOKENS
    triton: str | None = None
    folder: str | None = None
    """The user's own folder, as the engine's environment variable names it."""
    notes: tuple[str, ...] = ()
