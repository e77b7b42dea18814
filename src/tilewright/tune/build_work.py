"""The process that compiles: `python -m tilewright.tune.build_work`, one build a line in, one outcome a line out.

A compiler that crashes or hangs takes its process with it; what it refuses is an outcome.
"""

from __future__ import annotations

import os
import sys
import time

import msgspec

from tilewright.bench.job import Job, Outcome
from tilewright.bench.parent import end_with_parent
from tilewright.bench.work import sentence
from tilewright.errors import MissingPartError
from tilewright.tune.build import build
from tilewright.tune.work import fault_of


def main() -> None:
    """Answer jobs until stdin ends."""
    end_with_parent()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    decoder = msgspec.json.Decoder(Job)
    for text in sys.stdin.buffer:
        job = decoder.decode(text)
        begun = time.monotonic()
        try:
            told = build(job.problem)
            outcome = Outcome(status="ok", figures={**told, "seconds": round(time.monotonic() - begun, 3)})
        except (
            ImportError,
            MissingPartError,
        ) as error:  # nothing can be compiled here: that says nothing of the config
            outcome = Outcome(status="failed", note=sentence(error), figures={"fault": "setup"})
        except Exception as error:  # whatever a compiler raises is this build's outcome
            fault = fault_of(error)
            outcome = Outcome(
                status="failed", note=sentence(error), figures={"fault": "compile" if fault == "error" else fault}
            )
        answers.write(msgspec.json.encode(outcome) + b"\n")
        answers.flush()


if __name__ == "__main__":
    main()
