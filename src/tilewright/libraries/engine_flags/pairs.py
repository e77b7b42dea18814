"""Two flags of a launch line that an engine refuses together."""

from __future__ import annotations

from typing import Final

from tilewright.libraries.engine_flags.model import FlagSet
from tilewright.libraries.engine_flags.reading import number

__all__ = ["apart"]

_BATCHED: Final = "--max-num-batched-tokens"
_SEQS: Final = "--max-num-seqs"
_PLACE: Final = "vllm/config/scheduler.py"
"""`SchedulerConfig.verify_max_model_len`: a ValueError unless the tokens of a step are at least as many as
the requests. Read in 0.11.2:263, 0.17.0:265, 0.27.1:263, 0.33.0:331 and 0.34.0:375."""


def apart(flags: FlagSet, given: dict[str, str]) -> list[tuple[str, str, str]]:
    """(flag, what is wrong, place) of each pair whose numbers do not go together."""
    batched, seqs = flags.get(_BATCHED), flags.get(_SEQS)
    if flags.engine != "vllm" or batched is None or seqs is None:
        return []
    tokens = number(batched, flags.engine, given.get(batched.names[0], ""))
    requests = number(seqs, flags.engine, given.get(seqs.names[0], ""))
    if tokens is None or requests is None or tokens < 1 or tokens >= requests:
        return []
    message = (
        f"{_BATCHED} {tokens:,} is less than {_SEQS} {requests:,}: a request needs a token of each step; "
        "SchedulerConfig refuses it at start-up."
    )
    return [(_BATCHED, message, _PLACE)]
