"""`predict`: how long a kernel or a collective takes on a GPU, and what limits it."""

from __future__ import annotations

from typing import Literal

from tilewright.cost.collective_estimate import estimate_collective
from tilewright.cost.estimate import Estimate
from tilewright.cost.kernel_estimate import estimate_kernel
from tilewright.cost.kernel_models import load
from tilewright.cost.questions import AllreduceQuestion, Question, check_question
from tilewright.errors import InputError, shown

__all__ = ["predict"]


def predict(
    question: Question, *, basis: Literal["auto", "modelled"] = "auto", coefficients: str | None = None
) -> Estimate:
    """The time of `question`, with its bounds, its limit and its parts.

    `basis` "modelled" never looks at a table of measurements; "auto" does where it has the shape. `coefficients` is
    a folder that `tilewright calibrate` wrote, instead of the packaged ones (collectives have no others).
    Raises InputError for sizes out of range, UnknownNameError for an unknown GPU, backend or dtype.
    """
    if basis not in ("auto", "modelled"):
        raise InputError("basis", f"basis must be auto or modelled, not {shown(basis)}.")
    check_question(question)
    tables = basis == "auto"
    if type(question) is AllreduceQuestion:
        return estimate_collective(question, tables=tables)
    return estimate_kernel(question, load(coefficients), tables=tables)  # pyright: ignore[reportArgumentType]
