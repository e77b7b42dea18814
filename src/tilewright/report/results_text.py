"""Configs of stored results in words that tell them apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tilewright.errors import MAX_SHOWN

__all__ = ["configs_told"]

_MISSING: Final = object()
EMPTY: Final = "(no config)"
"""Of a result that was stored without one."""


def configs_told(configs: Sequence[dict[str, Any]]) -> list[str]:
    """Each config by the keys in which they differ, `key=value` one after another, cut where that grows long."""
    names = list(dict.fromkeys(name for config in configs for name in config))
    differ = [
        name
        for name in names
        if any(config.get(name, _MISSING) != configs[0].get(name, _MISSING) for config in configs)
    ]
    return [_told({name: config[name] for name in differ if name in config}, bare=not config) for config in configs]


def _told(differing: dict[str, Any], *, bare: bool) -> str:
    if not differing:
        return EMPTY if bare else "(what all the others have)"
    text = " ".join(f"{name}={value}" for name, value in differing.items())
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."
