"""The command-line flags that an installed inference server really has, read from its sources (never imported)."""

from __future__ import annotations

from tilewright.libraries.engine_flags.launch import LaunchCheck, Remark, check_launch
from tilewright.libraries.engine_flags.model import Flag, FlagSet
from tilewright.libraries.engine_flags.read import engine_flags
from tilewright.libraries.engine_flags.snapshots import snapshot, snapshot_versions

__all__ = [
    "Flag",
    "FlagSet",
    "LaunchCheck",
    "Remark",
    "check_launch",
    "engine_flags",
    "snapshot",
    "snapshot_versions",
]
