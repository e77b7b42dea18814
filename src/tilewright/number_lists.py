"""Lists of whole numbers as options take them: `1,16,64`."""

from __future__ import annotations

from typing import Final

__all__ = ["whole_numbers"]

_ENOUGH: Final = 20
"""Digits of a number that is beyond every bound; Python refuses to read thousands of them."""


def whole_numbers(text: str, *, digits: int | None = None) -> list[int] | None:
    """The numbers of a list in its order, None where a part is none: nothing between two commas is no number, since a
    variable of a shell was empty there.

    `digits`: one with more is none either; by default the first 20 digits of a longer one count.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and (digits is None or len(part) <= digits) for part in parts):
        return None
    return [int(part[:_ENOUGH]) for part in parts]
