"""The flags of the engine that a plan is for: of the user's own tree where it holds the engine, else as packaged."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from tilewright.errors import TreeError

if TYPE_CHECKING:
    from tilewright.libraries.engine_flags.model import FlagSet
    from tilewright.plan.target import Target

__all__ = ["known_flags"]


@lru_cache(maxsize=8)
def known_flags(target: Target) -> FlagSet | None:
    """Flags of the target's engine; None for an engine whose flags are not read (TensorRT-LLM)."""
    from tilewright.libraries.engine_flags.read import engine_flags
    from tilewright.libraries.engine_flags.snapshots import snapshot, snapshot_versions

    if not snapshot_versions(target.engine):
        return None
    if target.library is not None:
        try:
            return engine_flags(target.library.tree, target.engine)
        except TreeError:
            pass  # another library's tree
    return snapshot(target.engine, target.engine_version)
