"""Cause of a verdict in a few sentences, with its arithmetic."""

from __future__ import annotations

from tilewright.cutlass.budget import Budget
from tilewright.cutlass.config import KernelConfig
from tilewright.cutlass.laid import Laid
from tilewright.cutlass.verdict import Broken


def cause(config: KernelConfig, budget: Budget, laid: Laid | list[Broken]) -> str | None:
    """Why `config` does not run, or what is worth knowing when it only just does; None when there is nothing to say."""
    if isinstance(laid, list):
        first = laid[0]
        return f"CUTLASS {config.cutlass} refuses this config when it is compiled: {_ended(first.text)} {first.advice}"
    if budget.type_status == "overflow":
        return _overflow(budget, laid)
    if budget.status == "illegal":
        return "The types compile and would fit, but the whole kernel does not compile. " + " ".join(
            rule.split("). ", 1)[-1] for rule in budget.rules
        )
    if laid.unusable is not None:
        return laid.unusable
    if budget.slack_bytes is not None and budget.slack_bytes < 1024:
        return (
            f"It fits with {budget.slack_bytes:,} bytes to spare: any static shared memory in the same kernel, "
            "or one more descriptor, and the launch is refused."
        )
    return None


def _ended(text: str) -> str:
    """An assert's text as a sentence of its own: some end with a full stop, some do not."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _overflow(budget: Budget, laid: Laid) -> str:
    smem, limit = budget.smem_bytes or 0, budget.limit_bytes or 0
    count = laid.count
    tensors = laid.mainloop_tensor_bytes
    epilogue = laid.epilogue_bytes
    if laid.epilogue_in_mainloop:
        held, staged = max(tensors, epilogue), f"(mainloop tensors; the epilogue's {epilogue:,} take their place)"
    else:
        held, staged = tensors + epilogue, f"(mainloop tensors) + {epilogue:,} (epilogue)"
    parts = [
        f"{count.stages} stages take {tensors:,} bytes {staged} + {smem - held:,} (what the kernel keeps besides: "
        f"{laid.besides}) = {smem:,}, which is {smem - limit:,} over the {limit:,} that a block may have."
    ]
    if tensors >= limit:
        parts.append(f"The mainloop alone takes the whole limit: no epilogue fits beside {count.stages} stages.")
    if count.pinned:
        parts.append(f"The {count.stages} stages are pinned in the source (StageCount<{count.stages}>).")
    else:
        rest = count.capacity - count.carveout
        reserve = rest - count.stages * count.stage_bytes + 1
        reserved = sum(size for _, size in count.reserved)
        taken = f" (the limit less {reserved:,} reserved for the kernel)" if reserved else ""
        parts.append(
            f"StageCountAutoCarveout chose them at compile time: ({count.capacity:,}{taken} - {count.carveout:,}) / "
            f"{count.stage_bytes:,} bytes a stage = {rest / count.stage_bytes:.3f}. It does not count what the "
            f"storage really takes; {reserve:,} bytes more in reserve would have made it {count.stages - 1}."
        )
    if laid.asserted is not None:
        parts.append(f"The kernel asserts the limit, so it does not compile: {laid.asserted.text}")
        return " ".join(parts)
    parts.append(
        "Nothing in this kernel asserts the limit, so it compiles, and initialize() fails with Error Internal when "
        "cudaFuncSetAttribute asks the driver for the bytes."
    )
    return " ".join(parts)
