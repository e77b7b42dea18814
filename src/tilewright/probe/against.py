"""Where the model (`fit`) and the compiler (`probe`) disagree: the product's differential test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal

import msgspec

from tilewright.cutlass.budget import Budget
from tilewright.cutlass.config import KernelConfig, config_to_dict
from tilewright.probe.result import ProbeResult

__all__ = ["FIGURES", "Comparison", "Disagreement", "compare"]


class Disagreement(msgspec.Struct, frozen=True):
    """One figure of one config on which the model and the compiler differ."""

    field: str
    model: Any
    compiled: Any


FIGURES: Final = (
    "stages", "smem_bytes", "mainloop_bytes", "epilogue_bytes", "limit_bytes", "excess_bytes", "slack_bytes",
    "mainloop_tensor_bytes", "mainloop_pipeline_bytes", "mainloop_tensormap_bytes", "epilogue_tensor_bytes",
    "epilogue_pipeline_bytes", "epilogue_tensormap_bytes", "epilogue_fusion_bytes", "epilogue_tile", "stages_c",
    "stages_d", "reuse_smem_c", "delay_tma_store", "fragment_size", "epilogue_warp_groups", "threads", "min_blocks",
    "load_registers", "mma_registers", "scheduler_stages", "accumulator_stages", "load_ab_stages", "load_sf_stages",
    "stages_a", "stages_b", "stages_e", "sf_short", "mainloop_policy", "epilogue_policy", "kernel_schedule",
)  # fmt: skip


def _fields(budget: Budget) -> dict[str, tuple[int, int, int, int]]:
    return {field.path: (field.offset, field.abs_offset, field.bytes, field.type_align) for field in budget.fields}


_NAMES: Final = frozenset({"mainloop_policy", "epilogue_policy", "kernel_schedule"})


class Comparison(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="tilewright/probe-comparison/1"):
    """The model's answer to one config beside the compiler's."""

    id: str
    verdict: Literal["agree", "differ", "not_compared"]
    """`not_compared`: one side has no answer; `why` says which and why."""
    model_status: str
    compiled_status: str
    disagreements: list[Disagreement] = []
    why: str | None = None
    config: dict[str, Any] | None = None
    """The config, where they differ: enough to run it again."""
    error: str | None = None
    """The compiler's message, where it refused the config."""


def compare(config: KernelConfig, model: Budget, compiled: ProbeResult) -> Comparison:
    """Hold `model` against `compiled`, field by field; of a config that does not compile, only that it does not."""
    uncovered = next(
        (
            f"{side} has no answer: {answer.cause}"
            for side, answer in (("The model", model), ("The compiler", compiled))
            if answer.type_status is None
        ),
        None,
    )
    found = [] if uncovered else list(_disagreements(model, compiled))
    return Comparison(
        id=config.id,
        verdict="not_compared" if uncovered else "differ" if found else "agree",
        model_status=model.status,
        compiled_status=compiled.status,
        disagreements=found,
        why=uncovered,
        config=config_to_dict(config) if found else None,
        error=compiled.error if found else None,
    )


def _disagreements(model: Budget, compiled: ProbeResult) -> Iterator[Disagreement]:
    if model.type_status != compiled.type_status:
        yield Disagreement("type_status", model.type_status, compiled.type_status)
        return
    if compiled.kernel is not None and model.status != compiled.status:
        yield Disagreement("status", model.status, compiled.status)
    if compiled.type_status == "illegal":
        return
    for name in FIGURES:
        left, right = getattr(model, name), getattr(compiled, name)
        if left != right and not (name in _NAMES and right is None):  # no c++filt: the compiler's names are not known
            yield Disagreement(name, left, right)
    ours, theirs = _fields(model), _fields(compiled)
    for path in sorted(set(ours) | set(theirs)):
        if ours.get(path) != theirs.get(path):
            yield Disagreement(f"fields.{path} [offset, abs_offset, bytes, align]", ours.get(path), theirs.get(path))
