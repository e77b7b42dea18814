"""SM100: data-centre Blackwell (B200, GB200), whose accumulators are in tensor memory."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from tilewright.cutlass import (
    fixes_sm100,
    sm100_collective,
    sm100_epilogue,
    sm100_kernel,
    sm100_mainloop,
    sm103_mainloop,
)
from tilewright.cutlass.config import KernelConfig
from tilewright.cutlass.laid import Laid
from tilewright.cutlass.sm100_collective import Mainloop
from tilewright.cutlass.sm100_epilogue import Epilogue
from tilewright.cutlass.sm100_epilogue_key import epilogue_key
from tilewright.cutlass.sm100_kernel import Form
from tilewright.cutlass.sm100_mainloop import FAMILIES
from tilewright.cutlass.sm100_versions import Sm100Rules, sm100_rules_for
from tilewright.cutlass.structs import Member
from tilewright.cutlass.verdict import Broken, Entry

ARRAY_KERNEL: Final = "cutlass/gemm/kernel/sm100_gemm_array_tma_warpspecialized.hpp"
TRANSFORM: Final = "cutlass/gemm/kernel/sm100_gemm_array_tma_warpspecialized_mma_transform.hpp"
SPARSE: Final = ("sparse", "block_scaled_sparse")


def covers(config: KernelConfig) -> str | None:
    """Why the model has no answer for `config`, or None."""
    if config.op_class not in FAMILIES:
        return (
            f"The model covers {', '.join(FAMILIES)} on SM100, not {config.op_class}; `tilewright probe` compiles it."
        )
    return None


def as_built(config: KernelConfig) -> KernelConfig:
    """Operands without scales and a schedule that is none of mixed input go to the plain builder: both are
    OpClassTensorOp, and only the tag tells them apart."""
    if config.op_class != "mixed_input" or config.schedule in ("1sm", "2sm") or "MixedInput" in config.schedule:
        return config
    if config.narrow is not None and config.scale is not None:
        return config
    return msgspec.structs.replace(config, op_class="tensor_op")


def lay_out(config: KernelConfig) -> Laid | list[Broken]:
    """Lay out the types of `config`, or name the rule that they break first."""
    config = as_built(config)
    epi = sm100_epilogue.epilogue(epilogue_key(config))
    if isinstance(epi, Broken):
        # The mainloop may break rules besides, but its stage count means nothing without the epilogue.
        return [epi]
    main = sm100_mainloop.mainloop(sm100_collective.mainloop_key(config, epi.bytes))
    if isinstance(main, Broken):
        return [main]
    broken = kinds(config, epi, main.tag.array, TRANSFORM if config.op_class == "blockwise" else ARRAY_KERNEL)
    if broken:
        return [broken]
    rules = sm100_rules_for(config.cutlass)
    form = _form(config, main, rules)
    direct = not epi.tag.tma
    unusable = main.unusable or disagreement(config, main.sm, epi)
    return lay_kernel(config, form, main, epi, direct=direct, unusable=unusable)


def lay_kernel(
    config: KernelConfig,
    form: Form,
    main: sm100_collective.Mainloop | sm103_mainloop.Mainloop,
    epi: Epilogue,
    *,
    direct: bool,
    unusable: str | None,
    more: Mapping[str, object] = MappingProxyType({}),
) -> Laid:
    """The kernel of a mainloop and an epilogue. `direct`: the epilogue stores without shared memory of its own; `more`:
    figures of the family besides those that all have."""
    tensors = Member("tensors", main.tensors.bytes, main.tensors.align, main.tensors.align)
    maps = main.tensormaps.bytes if main.tensormaps is not None else None
    kernel = sm100_kernel.kernel(form, tensors, main.pipeline, maps, epi.tensors, epi.pipeline, epi.tensormaps)

    def entries() -> list[Entry]:
        return [
            *sm100_kernel.entries(kernel, main.accumulator_stages, (config.tile[0] // main.sm, config.tile[1])),
            *sm100_collective.member_entries(main.tensors, main.tensormaps),
            *epi.entries,
        ]

    return Laid(
        smem_bytes=kernel.storage.bytes,
        figures={
            "stages": main.count.stages,
            **more,
            "mainloop_bytes": main.bytes,
            "mainloop_tensor_bytes": main.tensors.bytes,
            "mainloop_pipeline_bytes": main.pipeline.bytes,
            "mainloop_tensormap_bytes": maps,
            "threads": sm100_kernel.threads(form, direct=direct),
            "min_blocks": 1,
            "scheduler_stages": main.scheduler_stages,
            "accumulator_stages": main.accumulator_stages,
            "mainloop_policy": main.policy,
            "kernel_schedule": main.schedule,
            **epilogue_figures(epi),
        },
        entries=entries,
        count=main.count,
        mainloop_tensor_bytes=main.tensors.bytes,
        epilogue_bytes=epi.tensors.bytes,
        besides=sm100_kernel.besides(kernel),
        kernel_broken=(main.device_rule,) if isinstance(main, Mainloop) and main.device_rule else (),
        asserted=sm100_kernel.capacity_assert(form),
        unusable=unusable,
    )


def disagreement(config: KernelConfig, sm: int, epi: Epilogue) -> str | None:
    """Why nothing comes of a 1sm mainloop with a 2sm epilogue, or the other way round; whole kernels compile."""
    if sm == epi.tag.sm:
        return None
    m = config.tile[0]
    return (
        f"It compiles and can be launched, but its halves do not agree: the {sm}sm mainloop computes {m // sm} rows in "
        f"each CTA and the {epi.tag.sm}sm epilogue stores {m // epi.tag.sm}. Give both the same: "
        f"epilogue_schedule {fixes_sm100.epilogue(config, sm)}."
    )


def epilogue_figures(epi: Epilogue) -> dict[str, object]:
    """The Budget's keys that describe an epilogue."""
    return {
        "epilogue_bytes": epi.bytes,
        "epilogue_tensor_bytes": epi.tensors.bytes,
        "epilogue_pipeline_bytes": epi.pipeline.bytes,
        "epilogue_tensormap_bytes": epi.tensormaps.bytes if epi.tensormaps is not None else None,
        "epilogue_fusion_bytes": epi.thread.bytes if epi.thread is not None else None,
        "epilogue_tile": epi.tile,
        "stages_c": epi.stages_c,
        "stages_d": epi.stages_d,
        "reuse_smem_c": epi.reuse_smem_c,
        "delay_tma_store": epi.delay_tma_store,
        "fragment_size": epi.fragment_size,
        "epilogue_policy": epi.policy,
    }


def kinds(config: KernelConfig, epi: Epilogue, array: bool, grouped: str) -> Broken | None:
    """Mainloop, epilogue and problem shape must agree on whether the kernel is grouped; `grouped` is the header of the
    grouped kernel."""
    pointers = config.kind == "grouped"
    if pointers and not array:
        # The strides of grouped operands are pointers, which a dense collective builds no tensor from.
        return Broken(
            "Expected layout args... in make_tensor(iter, args...)",
            "cute/tensor_impl.hpp",
            "A grouped kernel takes a schedule by name (1sm, 2sm), not auto or a dense tag.",
        )
    if array and not pointers:
        return Broken(
            'class "cute::tuple<int, int, int, int>" has no member "UnderlyingProblemShape"',
            grouped,
            "A dense kernel takes no PtrArray tag.",
        )
    if pointers and not epi.tag.array:
        return Broken(
            'CollectiveEpilogue has no member "InternalStrideC"',
            grouped,
            "A grouped kernel takes a ptr_array epilogue schedule (auto never is one).",
        )
    return None


def _form(config: KernelConfig, main: Mainloop, rules: Sm100Rules) -> Form:
    array, op_class = main.tag.array, config.op_class
    named = {"blockwise": "transform", "mixed_input": "mixed"}
    kind = named.get(op_class) or ("sparse" if op_class in SPARSE else "plain")
    transforms = op_class in named
    return Form(
        kind=kind,
        array=array,
        schedulers=main.scheduler_stages,
        accumulators=main.accumulator_stages,
        throttle=rules.throttle or transforms,
        epilogue_throttle=transforms or (array and rules.array_epilogue_throttle),
        ahead=array and kind == "plain" and rules.async_tensormaps,
    )
