"""Names of GPU architectures, as compilers, drivers and people write them."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["arch_name"]

_NAME: Final = re.compile(r"(?:compute|sm)?_?([0-9]{2,3}|[0-9]{1,2}\.[0-9])[af]?", re.IGNORECASE | re.ASCII)
"""sm120, SM_120a, compute_120f, 120, 12.0. The suffix says what a binary may use, not another architecture."""


def arch_name(text: str) -> str:
    """`text` as `sm120`, where it is the name of an architecture in any of those forms; else as it is. Whether that
    architecture is known is its reader's business."""
    found = _NAME.fullmatch(text.strip())
    return f"sm{found[1].replace('.', '')}" if found else text
