"""Files and folders on the command line."""

from __future__ import annotations

import os
from typing import Any, Final

import click

__all__ = ["PATH"]


class _PathText(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] - click 8.1 to 8.3 are no generic
    """A path as it was typed. One that is empty is refused: it is a variable of a shell that was never set, and would
    be taken for this folder, or for nothing given. A `~` that the shell left (`--out=~/x`) is the home folder."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        if not value.strip():
            self.fail("it is empty; name a path.", param, ctx)
        return os.path.expanduser(value)  # noqa: PTH111 - leaves ~NAME of nobody as it is


PATH: Final = _PathText()
