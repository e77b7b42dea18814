"""One server: started under supervision, waited for until it really answers, stopped so that nothing of it is left."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from tilewright.sweep.free_port import listeners
from tilewright.sweep.http_client import Endpoint, HttpError, answer_of, run_within
from tilewright.sweep.outcome import Status
from tilewright.sweep.process import Supervised
from tilewright.sweep.supervise import descendants

__all__ = ["LiveServer", "NotReadyError", "first_completion", "model_of"]

POLL_S: Final = 0.25
ANSWER_S: Final = 10.0
"""Longest wait for an answer to a question about health."""
FIRST_S: Final = 300.0
"""Longest wait for the first completion: engines compile kernels while they answer it."""
GRACE_S: Final = 20.0
"""Seconds that a server gets to end by itself after SIGINT."""


class NotReadyError(Exception):
    """The server did not come up; `status` says how."""

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status: Status = status


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


def _asked(where: Endpoint, path: str, seconds: float = ANSWER_S) -> bytes:
    return run_within(answer_of(where, "GET", path), seconds)


def model_of(where: Endpoint) -> str:
    """The first model that the server says it serves.

    Raises:
        HttpError: it does not say.
    """
    try:
        found = msgspec.json.decode(_asked(where, "/v1/models"), type=_Models)
    except TimeoutError:
        raise HttpError(f"/v1/models did not answer within {ANSWER_S:g} s") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise HttpError("/v1/models answers what is no list of models") from None
    if not found.data:
        raise HttpError("/v1/models lists no model")
    return found.data[0].id


def first_completion(where: Endpoint, path: str, body: bytes, seconds: float) -> str | None:
    """One request to its end; what was wrong with it, or None."""
    from tilewright.sweep.load_own import one_request

    try:
        return run_within(one_request(where, path, body), seconds).error
    except TimeoutError:
        return f"the first completion took longer than {seconds:g} s"


class LiveServer:
    """A server that this sweep started. Leaving the `with` block ends it and everything that it started."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], log: Path, where: Endpoint) -> None:
        """Start it.

        Raises:
            ToolError: the program cannot be started.
        """
        self.where = where
        self.log = log
        self._begun = time.monotonic()
        self._process = Supervised(command, log, env)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.stop(signal.SIGINT, GRACE_S)

    @property
    def running(self) -> bool:
        """Whether it still runs."""
        return self._process.running

    @property
    def exit_code(self) -> int | None:
        """Its exit code, where it ended."""
        return self._process.code

    def _ours(self) -> bool:
        """Whether it is our server that listens there, as far as the system tells."""
        mine = [self._process.pid, *descendants(self._process.pid)]
        return listeners(self.where.port, mine) is not False

    def _died(self) -> NotReadyError:
        return NotReadyError("died_starting", f"the server ended with {ended(self.exit_code)} before it was ready")

    def wait_ready(self, health: str, limit_s: float) -> str:
        """Wait until the server says that it is healthy and which model it serves; that model's name.

        Raises:
            NotReadyError: it ended, took too long, or something else answers on its port.
        """
        end = self._begun + limit_s
        last = "it did not listen"
        while time.monotonic() < end:
            if not self.running:
                raise self._died()
            try:
                _asked(self.where, health, min(ANSWER_S, max(0.1, end - time.monotonic())))
                if not self._ours():
                    msg = f"port {self.where.port} is answered by a program that this sweep did not start"
                    raise NotReadyError("port_taken", msg)
                return model_of(self.where)
            except (HttpError, TimeoutError) as error:
                last = str(error) or "no answer"
            time.sleep(POLL_S)
        raise NotReadyError("never_ready", f"the server was not ready within {limit_s:g} s ({last})")

    def complete_first(self, path: str, body: bytes, limit_s: float) -> float:
        """The first completion; seconds from the start to its end.

        Raises:
            NotReadyError: it failed or took too long, or the server ended.
        """
        left = self._begun + limit_s - time.monotonic()
        problem = first_completion(self.where, path, body, max(1.0, min(FIRST_S, left)))
        if problem is not None:
            time.sleep(POLL_S)
            if not self.running:
                raise self._died()
            raise NotReadyError("never_ready", f"the server was up, but its first completion failed: {problem}")
        return time.monotonic() - self._begun


def ended(code: int | None) -> str:
    """An exit code in words."""
    if code is None:
        return "no exit code"
    if code < 0:
        try:
            return signal.Signals(-code).name
        except ValueError:
            return f"signal {-code}"
    return f"exit code {code}"


def merged_env(base: Mapping[str, str], own: Mapping[str, Any]) -> dict[str, str]:
    """The environment of a server: this process's, with what the space file sets."""
    return {**base, **{name: str(value) for name, value in own.items()}}
