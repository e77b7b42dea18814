"""What the SM100 stage counts reserve for the kernel before they divide what is left by a stage.

Mirrors `gemm/collective/builders/sm100_pipeline_carveout.inl`. All figures in bytes.
"""

from __future__ import annotations

from typing import Final

from tilewright.cutlass.sm100_versions import Sm100Rules
from tilewright.cutlass.structs import TMA_DESCRIPTOR

CAPACITY: Final = 232448
"""sm100_smem_capacity_bytes (`cutlass/arch/arch.h`): the opt-in limit of a block, 227 KiB."""
BARRIER: Final = 8
BARRIER_PAIR: Final = 16
"""A full and an empty mbarrier: one stage of any pipeline."""
LOAD_ORDER: Final = 16
"""OrderedSequenceBarrier<1, 2>: two mbarriers."""
RESPONSE: Final = 16
"""CLCResponseSize: sizeof PersistentTileSchedulerSm100::CLCResponse."""
TMEM_POINTER: Final = 4
DESCRIPTOR_SETS: Final = 5
"""Sets of descriptors of a grouped kernel whose descriptors are rewritten ahead of time."""
ALIGN: Final = 16

Reserved = tuple[tuple[str, int], ...]


def dense(accumulators: int, schedulers: int, array: bool, tensor_maps: int, rules: Sm100Rules) -> Reserved:
    """Sm100DenseGemmTmaUmmaCarveout: what is taken off, with its bytes; `tensor_maps` those of a ptr-array mainloop."""
    ahead = array and rules.async_tensormaps
    responses = 2 if ahead else 1
    parts = [
        (f"accumulator pipeline, PipelineUmmaAsync<{accumulators}>", BARRIER_PAIR * accumulators),
        (f"CLC pipelines, PipelineCLCFetchAsync<{schedulers}>", BARRIER_PAIR * schedulers * responses),
        ("load order barrier", LOAD_ORDER),
        ("tensor memory dealloc barrier", BARRIER),
    ]
    if rules.throttle:
        parts.append((f"CLC throttle pipeline, PipelineAsync<{schedulers}>", BARRIER_PAIR * schedulers))
    parts += [
        ("CLC responses", RESPONSE * schedulers * responses),
        ("tensor memory pointers", TMEM_POINTER * schedulers),
    ]
    if array:
        sets = DESCRIPTOR_SETS if ahead else 1
        parts.append((f"{tensor_maps * sets} tensor maps", TMA_DESCRIPTOR * tensor_maps * sets))
    if ahead:
        parts.append((f"tensor map pipeline, PipelineAsync<{schedulers}>", BARRIER_PAIR * schedulers))
    return tuple(parts)


def sparse(accumulators: int, schedulers: int, rules: Sm100Rules) -> Reserved:
    """Sm100SparseGemmTmaUmmaCarveout: as above, each part rounded up to 16."""
    parts = [
        ("load order barrier", LOAD_ORDER),
        (f"CLC pipeline, PipelineCLCFetchAsync<{schedulers}>", BARRIER_PAIR * schedulers),
        (f"accumulator pipeline, PipelineUmmaAsync<{accumulators}>", BARRIER_PAIR * accumulators),
    ]
    if rules.throttle:
        parts.append((f"CLC throttle pipeline, PipelineAsync<{schedulers}>", BARRIER_PAIR * schedulers))
    return (
        *parts,
        ("tensor memory dealloc barrier", ALIGN),
        ("CLC responses", RESPONSE * schedulers),
        ("tensor memory pointer", ALIGN),
    )
