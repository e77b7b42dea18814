"""Text of decisions as users see it."""

from __future__ import annotations

import re

# "(notes 3)", "(W1)", and "; notes 3)" at the end of a longer parenthesis.
_WHOLE = re.compile(r"\s*\((?:notes \d+|W\d+)\)")
_PART = re.compile(r";\s*notes \d+(?=\))")


def plain(text: str) -> str:
    """`text` without the references to the facts' notes that a decision follows: users do not have them."""
    return _PART.sub("", _WHOLE.sub("", text))
