"""Models that Hugging Face's own tools have downloaded to this machine. Nothing is ever fetched.

Layout of the cache (huggingface_hub, "Understand caching"): `models--OWNER--NAME/refs/main` holds the revision that
was asked for, `models--OWNER--NAME/snapshots/REVISION/` its files.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

__all__ = ["cached_snapshot"]

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
_REVISION = re.compile(r"[0-9a-f]{40}")


def _cache_folder() -> Path:
    """Where the cache is: HF_HUB_CACHE, else HF_HOME/hub, else ~/.cache/huggingface/hub."""
    explicit = os.environ.get("HF_HUB_CACHE")
    if explicit:
        return Path(explicit).expanduser()
    home = os.environ.get("HF_HOME")
    return (Path(home).expanduser() if home else Path.home() / ".cache" / "huggingface") / "hub"


def cached_snapshot(repository: str) -> Path | None:
    """The folder of the repository's downloaded snapshot that holds a config.json, or None.

    The revision of refs/main where it is there, else the one that was downloaded last.
    """
    if _REPOSITORY.fullmatch(repository) is None:
        return None
    try:
        folder = _cache_folder() / f"models--{repository.replace('/', '--')}"
        snapshots = [item for item in (folder / "snapshots").iterdir() if (item / "config.json").is_file()]
        snapshots.sort(key=lambda item: item.stat().st_mtime, reverse=True)
        main = folder / "refs" / "main"
        revision = main.read_text(encoding="ascii", errors="replace")[:64].strip() if main.is_file() else ""
    except (OSError, RuntimeError):
        return None
    if _REVISION.fullmatch(revision):
        named = [item for item in snapshots if item.name == revision]
        snapshots = named or snapshots
    return snapshots[0] if snapshots else None
