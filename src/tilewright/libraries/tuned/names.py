"""File names of tuned files: what each says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_TAIL: Final = (
    r"device_name=(?P<device>[^,\[\]]*?)"
    r"(?:,dtype=(?P<dtype>[A-Za-z0-9_]+?))?"
    r"(?:,block_shape=\[(?P<bn>\d{1,6}), ?(?P<bk>\d{1,6})\])?"
    r"(?P<channel>,per_channel_quant=True)?(?P<down>_down)?\.json"
)
_MOE: Final = re.compile(r"E=(?P<e>\d{1,6}),N=(?P<n>\d{1,7})," + _TAIL)
_LINEAR: Final = re.compile(r"N=(?P<n>\d{1,7}),K=(?P<k>\d{1,7})," + _TAIL)


@dataclass(frozen=True)
class FileName:
    """What a tuned file's name says. `experts` None: a linear layer of `inter` rows and `columns`."""

    experts: int | None
    inter: int
    columns: int | None
    device: str
    dtype: str | None
    block_shape: tuple[int, int] | None
    per_channel: bool
    down: bool


def parse_name(name: str) -> FileName | None:
    """The parts of `name`, or None where it is no name of a tuned file."""
    found = _MOE.fullmatch(name) or _LINEAR.fullmatch(name)
    if found is None:
        return None
    parts = found.groupdict()
    block = (int(parts["bn"]), int(parts["bk"])) if parts["bn"] else None
    return FileName(
        experts=int(parts["e"]) if parts.get("e") else None,
        inter=int(parts["n"]),
        columns=int(parts["k"]) if parts.get("k") else None,
        device=parts["device"],
        dtype=parts["dtype"],
        block_shape=block,
        per_channel=bool(parts["channel"]),
        down=bool(parts["down"]),
    )
