"""Home folders that may not be there: the user of a container can have none, and `~NAME` can name nobody.

`Path.home` and `Path.expanduser` raise RuntimeError then. Here the first is None and the second leaves the path as it
is, as a shell does: what follows says that nothing is there.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["expanded", "home"]


def home() -> Path | None:
    """The user's home folder, or None where neither $HOME nor the password file has one."""
    path = os.path.expanduser("~")  # noqa: PTH111 - it does not raise
    return None if path == "~" else Path(path)


def expanded(path: str) -> Path:
    """`path` with a leading `~` or `~NAME` replaced, where such a home is known."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - it does not raise
