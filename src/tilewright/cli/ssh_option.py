"""`--ssh HOST` of commands that read a library: its sources fetched, and what was left out said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilewright.observe.remote_tree import RemoteTree
    from tilewright.report.output import Output


def fetched(host: str, root: str | None, packages: Sequence[str], out: Output) -> RemoteTree:
    """The tree on `host`; notes go to stderr."""
    from tilewright.observe.remote_tree import fetch_tree

    there = fetch_tree(host, root, packages)
    out.note(f"Read on {there.host}: {there.root}")
    for line in there.notes:
        out.note(f"Not read there: {line}")
    return there
