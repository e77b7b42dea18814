"""What a load generator is, and which one is used. `load_aiperf` and `load_own` are the two."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from tilewright.errors import InputError, MissingPartError, shown
from tilewright.sweep.http_client import Endpoint
from tilewright.sweep.metrics import RequestRecord
from tilewright.sweep.prompts import DatasetPrompt
from tilewright.sweep.space import Load

__all__ = ["GENERATORS", "Generator", "LoadFailedError", "LoadTimeoutError", "Target", "find_generator"]

GENERATORS: Final = ("auto", "aiperf", "own")


class LoadTimeoutError(Exception):
    """A measurement did not end within its limit."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the load was not answered within {seconds:g} s")


class LoadFailedError(Exception):
    """The load generator itself failed; the text says how."""


@dataclass(frozen=True)
class Target:
    """What is loaded: where, which model, which fields every request gets, and how many token ids it knows."""

    endpoint: Endpoint
    model: str
    path: str
    extra: dict[str, Any] = field(default_factory=lambda: dict[str, Any]())
    ids: int = 250
    tokenizer: str | None = None


class Generator(Protocol):
    """Sends a load and tells how every request fared."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str | None: ...
    def measure(self, target: Target, load: Load, dataset: Sequence[DatasetPrompt], seed: int) -> list[RequestRecord]:
        """One measurement.

        Raises:
            LoadTimeoutError: it took longer than `load.timeout_s`.
            LoadFailedError: the generator failed.
        """
        ...


def find_generator(wanted: str, program: str | None, folder: Path) -> tuple[Generator, str | None]:
    """The load generator, and a note where it is not the first choice. `folder` is for its files.

    Raises:
        MissingPartError: AIPerf was asked for and is not there.
        InputError: the program given is no program.
    """
    from tilewright.sweep.load_aiperf import AiPerf
    from tilewright.sweep.load_own import OwnClient

    if wanted == "own":
        return OwnClient(), None
    found = program
    if program is not None:
        if shutil.which(program) is None:
            raise InputError("aiperf", f"--aiperf {shown(program)} is no program that can be run; name aiperf's file.")
    else:
        beside = Path(sys.executable).with_name("aiperf")
        found = str(beside) if beside.is_file() else shutil.which("aiperf")
    if found is not None:
        return AiPerf(found, folder), None
    if wanted == "aiperf":
        raise MissingPartError("AIPerf, the load generator,", "sweep")
    note = "AIPerf is not installed: tilewright's own light client sends the load (pip install 'tilewright[sweep]')"
    return OwnClient(), note
