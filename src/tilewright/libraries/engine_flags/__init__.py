"""The command-line flags that an installed inference server really has, read from its sources (never imported)."""

from __future__ import annotations

from tilewright.libraries.engine_flags.model import Flag, FlagSet
from tilewright.libraries.engine_flags.read import engine_flags

__all__ = ["Flag", "FlagSet", "engine_flags"]
