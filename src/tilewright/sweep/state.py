"""A sweep's place in the store: found again or begun, locked against a second process, its runs in order."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from pathlib import Path
from typing import Any, Self

import msgspec

from tilewright.errors import InputError, shown
from tilewright.store.result import canonical
from tilewright.store.sweeps import SweepFile
from tilewright.sweep.document import Origin, Run
from tilewright.sweep.outcome import Outcome

__all__ = ["State", "identity_of"]


class _Planned(msgspec.Struct, frozen=True):
    assignment: dict[str, Any]
    origin: Origin


def identity_of(conditions: dict[str, Any]) -> str:
    """The name of what makes measurements comparable: the same conditions, the same name."""
    return hashlib.sha256(canonical(conditions)).hexdigest()


class State:
    """The runs of one sweep, as its file has them; what is added here is on disk before the next step."""

    def __init__(self, file: SweepFile, sweep: int, *, resumed: bool, lock: int) -> None:
        self._file, self.sweep, self.resumed, self._lock = file, sweep, resumed, lock
        self.runs: list[Run] = []
        self.cut_off: list[_Planned] = []
        """Starts that were planned and never ended, and have not been repeated since."""
        self._planned: dict[int, _Planned] = {}
        self._last = 0
        self._load()

    @classmethod
    def open(cls, path: Path, conditions: dict[str, Any], *, resume: bool) -> State:
        """The sweep to continue, or a new one.

        Raises:
            InputError: the store cannot be used, or another process runs this sweep.
        """
        file = SweepFile.append_to(path)
        try:
            identity = identity_of(conditions)
            found = file.latest(identity) if resume else None
            sweep = found if found is not None else file.begin(identity, msgspec.json.encode(conditions))
            return cls(file, sweep, resumed=found is not None, lock=_locked(path, sweep))
        except BaseException:
            file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        os.close(self._lock)

    def _load(self) -> None:
        try:
            for event in self._file.events(self.sweep):
                self._last = max(self._last, event.run)
                if event.event == "planned":
                    self._planned[event.run] = msgspec.json.decode(event.document, type=_Planned)
                elif event.event == "ended" and event.run in self._planned:
                    plan = self._planned.pop(event.run)
                    outcome = msgspec.json.decode(event.document, type=Outcome)
                    self.runs.append(
                        Run(number=event.run, origin=plan.origin, assignment=plan.assignment, outcome=outcome)
                    )
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            msg = f"The store {shown(str(self._file.path))} is damaged: {error}; restore it from a copy or an export."
            raise InputError("store", msg) from None
        later = {(run.number, msgspec.json.encode(run.assignment, order="sorted"), run.origin) for run in self.runs}
        for number, plan in self._planned.items():
            key = msgspec.json.encode(plan.assignment, order="sorted")
            if not any(n > number and k == key and o == plan.origin for n, k, o in later) and plan not in self.cut_off:
                self.cut_off.append(plan)

    def plan(self, assignment: dict[str, Any], origin: Origin) -> int:
        """Note that a run begins; its number."""
        self._last += 1
        planned = _Planned(assignment, origin)
        if planned in self.cut_off:
            self.cut_off.remove(planned)
        self._planned[self._last] = planned
        self._file.append(self.sweep, self._last, "planned", msgspec.json.encode(planned))
        return self._last

    def end(self, number: int, outcome: Outcome) -> Run:
        """Note what became of it."""
        plan = self._planned.pop(number)
        self._file.append(self.sweep, number, "ended", msgspec.json.encode(outcome))
        run = Run(number=number, origin=plan.origin, assignment=plan.assignment, outcome=outcome)
        self.runs.append(run)
        return run


def _locked(path: Path, sweep: int) -> int:
    """A lock on this sweep: one byte of a file beside the store, given back by the system however we end."""
    name = path.with_name(path.name + ".lock")
    try:
        handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        msg = f"{shown(str(name))} cannot be made ({error.strerror}); give a --store in a folder that you may write."
        raise InputError("store", msg) from None
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, sweep)
    except OSError:
        with contextlib.suppress(OSError):
            os.close(handle)
        msg = f"Sweep {sweep} of {shown(str(path))} is run by another process now; wait for it, or give another store."
        raise InputError("store", msg) from None
    return handle
