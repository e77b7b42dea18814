"""EDG's diagnostics, each attributed to the config in whose instantiation chain it is.

A diagnostic is a line `FILE(LINE): error: TEXT`, the source line, and "detected during" with the chain of
instantiations, outermost last. Every config's statements claim to stand in a file of the config's own (`unit.py`), so
the chain ends in it. A template that several configs share is diagnosed once, for the first of them: for the others the
compiler prints a follow-up at most, which stands in the config's own file and not in a header (`Diagnostic.follow_up`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["Diagnostic", "parse_diagnostics"]

MAX_MESSAGE: Final = 300
"""Characters of a diagnostic that are kept: template arguments run to thousands."""

_HEAD: Final = re.compile(
    r"^(?P<file>[^\n(]+?)\((?P<line>\d+)\): (?P<kind>error|catastrophic error)(?: #[\w-]+)?: (?P<text>.*)$"
)
_OWN: Final = re.compile(r"\btwcfg(\d+)\b")
_CHAIN: Final = re.compile(r"at line (\d+) of twcfg(\d+)\b")
_CAPACITY: Final = re.compile(r"SharedStorageSize\s*<=|smem_capacity|kSharedMemoryCapacity")
CAPACITY_MESSAGE: Final = "SMEM usage exceeded capacity"


@dataclass(frozen=True)
class Diagnostic:
    """One error. `config` is the index of the config it belongs to, or None."""

    file: str
    """Relative to the include folder where it is below one, else the bare name."""
    line: int
    message: str
    config: int | None
    statement: int
    """Line of the config's own file whose instantiation chain it is in (`unit.LINE_E`, ...); 0 where there is none."""

    @property
    def at(self) -> str:
        """`header:line`."""
        return f"{self.file}:{self.line}"

    @property
    def follow_up(self) -> bool:
        """Whether it stands in the config's own lines: what went wrong was said elsewhere, or is said nowhere."""
        return _OWN.fullmatch(self.file) is not None

    @property
    def capacity(self) -> bool:
        """Whether it is a kernel's assert that its shared storage fits, a verdict of overflow and not of the type."""
        return CAPACITY_MESSAGE in self.message and "cutlass/gemm/kernel/" in self.file


def _relative(file: str, roots: Sequence[str]) -> str:
    for root in roots:
        if file.startswith(root + "/"):
            return file[len(root) + 1 :]
    at = max(file.rfind("/cutlass/"), file.rfind("/cute/"))
    return file[at + 1 :] if at >= 0 else file.rsplit("/", 1)[-1]


def parse_diagnostics(text: str, roots: Sequence[str]) -> list[Diagnostic]:
    """Every error in the compiler's output, in order. `roots`: include folders, cut off from the file names."""
    found: list[Diagnostic] = []
    lines = text.splitlines()
    starts = [(at, head) for at, line in enumerate(lines) if (head := _HEAD.match(line))]
    for order, (at, head) in enumerate(starts):
        end = starts[order + 1][0] if order + 1 < len(starts) else len(lines)
        block = lines[at:end]
        for stop, line in enumerate(block):
            if not line.strip():
                block = block[:stop]
                break
        body = "\n".join(block[1:])
        chain = _CHAIN.findall(body)
        own = _OWN.fullmatch(head["file"].rsplit("/", 1)[-1])
        statement, config = (int(chain[-1][0]), int(chain[-1][1])) if chain else (0, None)
        if own and not chain:
            statement, config = int(head["line"]), int(own[1])
        found.append(
            Diagnostic(
                file=own[0] if own else _relative(head["file"], roots),
                line=int(head["line"]),
                message=head["text"].strip()[:MAX_MESSAGE],
                config=config,
                statement=statement,
            )
        )
    return found
