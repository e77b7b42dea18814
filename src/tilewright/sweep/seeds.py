"""Candidates worth measuring early: what flag advice and `layout` recommend for the model and the GPUs.

A launch line is taken apart by the engine's own flags; what of it varies in the space and is a value there becomes a
part of a candidate, and Optuna fills in the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from tilewright.libraries.engine_flags import FlagSet
from tilewright.sweep.space import Assignment, Parameter, Space, value_text

if TYPE_CHECKING:
    from tilewright.sweep.run import Question

__all__ = ["advised_lines", "command_seeds", "from_command"]

LINES: Final = 4
"""Different ones that are taken, best first: more would be a search by model, not by measuring."""


def _value(item: Parameter, flag_kind: str, given: str) -> tuple[Any] | None:
    """`given`, as a command line has it, as a value of the parameter; None where it is not one."""
    if item.kind == "choice":
        for choice in item.choices:
            if choice is True and flag_kind in ("switch", "bool") and not given:
                return (True,)
            if choice is not None and not isinstance(choice, bool) and value_text(choice) == given:
                return (choice,)
        return None
    try:
        number = float(given)
    except ValueError:
        return None
    value = int(number) if item.kind == "int" and number == int(number) else number
    return (value,) if item.holds(value) else None


def from_command(space: Space, flags: FlagSet, given: Mapping[str, str]) -> Assignment:
    """The part of a candidate that a launch command sets: `given` maps first names of flags to values."""
    out: Assignment = {}
    for item in space.parameters:
        if item.name.startswith(("env.", "load.")) or not item.active(out):
            continue
        flag = flags.get(item.name if item.name.startswith("-") else f"--{item.name}")
        if flag is None or flag.names[0] not in given:
            continue
        found = _value(item, flag.kind, given[flag.names[0]])
        if found is not None:
            out[item.name] = found[0]
    return out


def _distinct(parts: Iterable[Assignment]) -> list[Assignment]:
    out: list[Assignment] = []
    for part in parts:
        if part and part not in out:
            out.append(part)
    return out


def command_seeds(space: Space, flags: FlagSet, lines: Iterable[str]) -> list[Assignment]:
    """The parts of candidates that launch lines set, those that set nothing of the space left out."""
    from tilewright.libraries.engine_flags.launch import check_launch

    return _distinct(from_command(space, flags, check_launch(flags, line).given) for line in lines)[:LINES]


def advised_lines(question: Question, flags: FlagSet, gpu: str, gpus: int) -> list[str]:
    """Launch lines that `flags --advise` and `layout` recommend, best first.

    Raises:
        InputError: the model or the GPU is not known.
    """
    from tilewright.serving.advice import AdviceQuestion, advise
    from tilewright.serving.layout import layout
    from tilewright.serving.questions import DecodeQuestion

    assert question.model is not None
    load = question.space.load
    context = load.input_tokens + load.output_tokens
    lines = [
        advise(
            AdviceQuestion(
                model=question.model,
                gpu=gpu,
                gpus=gpus,
                concurrency=load.in_flight,
                context=context,
                prompt_tokens=load.input_tokens,
            ),
            flags,
        ).launch
    ]
    decode = DecodeQuestion(
        model=question.model, gpu=gpu, gpus=gpus, engine=question.engine, engine_version=flags.version
    )
    answer = layout(decode, context=context, concurrency=load.in_flight)
    return lines + [item.launch for item in answer.layouts if item.status == "fits" and item.launch]
