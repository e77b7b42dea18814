"""SM103: Blackwell Ultra (B300, GB300). Collectives of its own for NVFP4 and MXFP4; epilogue and kernel form of SM100.

Everything but block-scaled FP4 is refused by the builders: on a B300 those kernels are the SM100 ones.
"""

from __future__ import annotations

from typing import Final

from tilewright.cutlass import sm100_collective, sm100_epilogue, sm103_mainloop
from tilewright.cutlass.config import KernelConfig
from tilewright.cutlass.laid import Laid
from tilewright.cutlass.sm100 import disagreement, kinds, lay_kernel
from tilewright.cutlass.sm100_epilogue_key import epilogue_key
from tilewright.cutlass.sm100_kernel import Form
from tilewright.cutlass.sm100_versions import sm100_rules_for
from tilewright.cutlass.verdict import Broken, no_collective

ARRAY_KERNEL: Final = "cutlass/gemm/kernel/sm103_blockscaled_gemm_array_tma_warpspecialized.hpp"

NO_STAGE: Final = (
    "It compiles and can be launched, but the epilogue leaves room for 0 stages of A and B, so that nothing can ever "
    "be loaded: do not launch it. No assert of CUTLASS catches that."
)


def covers(config: KernelConfig) -> str | None:  # noqa: ARG001 - the verb's signature is that of every module
    """Nothing is left out: what no SM103 builder makes is illegal."""
    return None


def lay_out(config: KernelConfig) -> Laid | list[Broken]:
    """Lay out the types of `config`, or name the rule that they break first."""
    rules = sm100_rules_for(config.cutlass)
    if not rules.sm103:
        return [
            Broken(
                'namespace "cutlass::arch" has no member "Sm103"',
                "cutlass/arch/arch.h",
                "SM103 collectives came with CUTLASS 4.2.0: use that or later, or the SM100 ones.",
            )
        ]
    if config.op_class != "block_scaled":
        return [
            no_collective(
                f"No SM103 builder makes {config.op_class} kernels: a B300 runs the SM100 ones (arch sm100).",
            )
        ]
    epi = sm100_epilogue.epilogue(epilogue_key(config))
    if isinstance(epi, Broken):
        return [epi]
    main = sm103_mainloop.mainloop(sm100_collective.mainloop_key(config, epi.bytes))
    if isinstance(main, Broken):
        return [main]
    array = main.tag.array
    broken = kinds(config, epi, array, ARRAY_KERNEL)
    if broken:
        return [broken]
    # TileSchedulerSelector has no static scheduler of Sm103's own: the general one, SM90's, is taken
    static = config.tile_scheduler == "static_persistent" and not array
    form = Form("sm103", array, main.scheduler_stages, main.accumulator_stages, responds=not static)
    return lay_kernel(
        config,
        form,
        main,
        epi,
        direct=not (epi.tag.tma or epi.tag.array),
        unusable=NO_STAGE if main.count.stages == 0 else disagreement(config, main.sm, epi),
        more={"load_ab_stages": main.count.stages, "load_sf_stages": main.load_sf_stages},
    )
