"""A failed server's log, explained in a few lines: what `tilewright explain` knows of it, or its last error."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tilewright.errors import TilewrightError
from tilewright.sweep.outcome import Explained

__all__ = ["explain_log"]

_SHOWN: Final = 2
"""Known lines that are kept; the rest is for `tilewright explain` on the log itself."""
_TAIL: Final = 200_000
"""Bytes at the end of the log in which the last error is looked for."""
_ERROR: Final = re.compile(r"\b[A-Z]\w*(?:Error|Exception|Interrupt)\b(?=[:(]| \S)|\berror: ")
_PREFIX: Final = re.compile(r"^(?:\([^)]{1,60}\)\s*)?(?:(?:ERROR|CRITICAL|FATAL)\s+[\d:. -]+)?(?:\[[^\]]{1,60}\]\s*)*")
_VAGUE: Final = ("See root cause above", "check the stack trace above")
"""vLLM's last error only says that there was an earlier one (vllm/v1/engine/utils.py)."""


def explain_log(log: Path) -> tuple[Explained, ...]:
    """What in `log` says why the server ended; empty where nothing does."""
    from tilewright.diagnose.explain import explain

    try:
        with log.open("rb") as stream:
            found = explain(stream, log.name)
            size = stream.seek(0, 2)
            stream.seek(max(0, size - _TAIL))
            tail = stream.read().decode("utf-8", "replace")
    except (OSError, TilewrightError):
        return ()
    known = [
        Explained(
            title=item.title,
            line=item.example[:400],
            cause=item.cause,
            fix=item.fix.text,
            known=True,
            source=item.source,
        )
        for item in found.findings
        if item.severity in ("stops", "wrong")
    ]
    if known:
        return tuple(known[:_SHOWN])
    last = _last_error(tail)
    return (Explained(title="the last error in its log", line=last),) if last else ()


def _last_error(tail: str) -> str | None:
    """The last line that names an error and is not only a pointer to another one; with the line that continues it."""
    lines = [" ".join(_PREFIX.sub("", line, count=1).split()) for line in tail.splitlines()]
    for index in range(len(lines) - 1, -1, -1):
        line = lines[index]
        if not _ERROR.search(line) or any(part in line for part in _VAGUE):
            continue
        # pydantic puts the message on the line below the name.
        more = lines[index + 1] if index + 1 < len(lines) and line.endswith(("Config", "Args", "error:")) else ""
        return f"{line} {more}".strip()[:400]
    return next((line[:400] for line in reversed(lines) if line), None)
