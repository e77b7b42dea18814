"""`fit`: shared memory, stages and legality of one kernel config, exact to the byte.

The model lays the real types out in the order in which CUTLASS derives them: the epilogue first, because its size is
the carveout that the stage count takes off; then the mainloop; then the kernel. One module an architecture does that
(see `laid`); this one asks the right module and turns its answer into a verdict.
"""

from __future__ import annotations

from functools import lru_cache
from types import ModuleType
from typing import Final, NamedTuple

from tilewright.cutlass import advice, sm90, sm100, sm103, sm120
from tilewright.cutlass import fixes as fixes_model
from tilewright.cutlass.budget import Budget
from tilewright.cutlass.caches import LAYOUTS
from tilewright.cutlass.config import KernelConfig
from tilewright.cutlass.laid import Laid, to_fields
from tilewright.cutlass.verdict import Broken
from tilewright.cutlass.versions import nearest_known, rules_for

LIMITS: Final[dict[str, int]] = {
    "sm90": 232448,
    "sm100": 232448,
    "sm103": 232448,
    "sm120": 101376,
    "sm121": 101376,
}
"""Opt-in shared memory a block, bytes (`cutlass/arch/arch.h`: sm*_smem_capacity_bytes)."""

_MODULES: Final[dict[str, ModuleType]] = {"sm100": sm100, "sm103": sm103, "sm90": sm90, "sm120": sm120, "sm121": sm120}


def unsupported(config: KernelConfig) -> str | None:
    """Why the model has no answer for `config`, or None when it has one."""
    if rules_for(config.cutlass) is None:
        return (
            f"CUTLASS {config.cutlass} was not read; the nearest releases that were are "
            f"{' and '.join(nearest_known(config.cutlass))}."
        )
    module = _MODULES.get(config.arch)
    if module is None:
        return f"The model covers {', '.join(_MODULES)} so far, not {config.arch}; `tilewright probe` compiles it."
    reason: str | None = module.covers(config)
    return reason


def lay_out(config: KernelConfig) -> Laid | list[Broken]:
    """The types of a supported `config` laid out, or the rules that they break."""
    laid: Laid | list[Broken] = _MODULES[config.arch].lay_out(config)
    return laid


class Verdict(NamedTuple):
    """Status, stages and bytes of a config, without the rest of a Budget."""

    status: str
    stages: int
    smem_bytes: int
    unusable: bool


@lru_cache(maxsize=LAYOUTS)
def verdict(config: KernelConfig) -> Verdict | None:
    """The verdict on `config` alone; None when it is illegal as a type or the model does not cover it."""
    if unsupported(config) is not None:
        return None
    laid = lay_out(config)
    if isinstance(laid, list):
        return None
    over = laid.smem_bytes > LIMITS[config.arch]
    status = "illegal" if laid.kernel_broken else "overflow" if over else "fits"
    return Verdict(status, laid.count.stages, laid.smem_bytes, laid.unusable is not None)


def fit(config: KernelConfig, *, brief: bool = False) -> Budget:
    """Shared memory, stages and legality of `config`.

    Args:
        brief: leave out `fields`, `cause` and `fixes`, which is several times as fast.

    Returns:
        A Budget whose `type_status` is what compiling the three types says and whose `status` is what a user gets
        who builds and launches the whole kernel. Never raises for a config that cannot run: that is a verdict.
    """
    reason = unsupported(config)
    limit = LIMITS[config.arch]
    if reason is not None:
        return Budget(id=config.id, status="unsupported", limit_bytes=limit, cause=reason)
    laid = lay_out(config)
    if isinstance(laid, list):
        budget = Budget(
            id=config.id,
            status="illegal",
            type_status="illegal",
            limit_bytes=limit,
            rules=[str(broken) for broken in laid],
        )
    else:
        budget = _budget(config.id, laid, limit)
    if not brief:
        if isinstance(laid, Laid):
            budget.fields = to_fields(laid.entries())
        budget.cause = advice.cause(config, budget, laid)
        useless = isinstance(laid, Laid) and laid.unusable is not None and budget.status == "fits"
        status = fixes_model.UNUSABLE if useless else budget.status
        rule = budget.rules[0] if budget.rules else ""
        budget.fixes = fixes_model.fixes(config, status, budget.stages, rule)
    return budget


def _budget(ident: str, laid: Laid, limit: int) -> Budget:
    smem = laid.smem_bytes
    over = smem > limit
    rules = [str(rule) for rule in laid.kernel_broken]
    if over and laid.asserted is not None:
        rules.append(str(laid.asserted))
    return Budget(
        id=ident,
        status="illegal" if laid.kernel_broken else "overflow" if over else "fits",
        type_status="overflow" if over else "fits",
        smem_bytes=smem,
        limit_bytes=limit,
        excess_bytes=max(0, smem - limit),
        slack_bytes=limit - smem,
        status_basis=laid.kernel_broken[0].basis if laid.kernel_broken else "derived",
        rules=rules,
        **laid.figures,
    )
