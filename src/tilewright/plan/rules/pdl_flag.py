"""SM120 MoE modules built without the GDC define while kernels are launched with PDL (case C51)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tilewright.plan.evidence import published
from tilewright.plan.finding import Draft, Evidence, Fix, Gain, Outcome
from tilewright.plan.registry import Rule
from tilewright.plan.target import Target

FILE = "jit/fused_moe.py"
BUILDER = "gen_cutlass_fused_moe_sm120_module"
DEFINE = "CUTLASS_ENABLE_GDC_FOR_SM100"
LATER = "0.6.10"
"""First wheel read whose SM120 MoE module has the define (0.6.2 has not)."""


def run(target: Target) -> Iterator[Outcome]:
    library = target.library
    assert library is not None
    if library.name != "flashinfer" or not target.sm12x or target.expert_family not in ("nvfp4", "mxfp4"):
        return
    path = library.inside(FILE)
    start = library.find(path, rf"^def {BUILDER}\b")
    if start is None:
        return
    body = library.tree.read_text(path).splitlines()[start.line :]
    end = next((i for i, line in enumerate(body) if re.match(r"(def|class) ", line)), len(body))
    if any(DEFINE in line for line in body[:end]):
        return
    core = library.inside("fused_moe/core.py")
    launch = library.find(core, r"enable_pdl = device_support_pdl")
    yield Draft(
        id="pdl_without_gdc",
        title="The SM120 MoE module is built without the GDC define, yet launched with PDL",
        layer="library",
        evidence=[
            Evidence("exact", f"{BUILDER} passes no -D{DEFINE}.", str(start)),
            *(
                [Evidence("exact", "Kernels are launched with PDL wherever the device supports it.", str(launch))]
                if launch
                else []
            ),
            *published("gdc_flag"),
        ],
        cause="Without the define griddepcontrol compiles to nothing, while the host starts the next kernel early: "
        "it may read "
        "what the one before has not written.",
        fix=Fix(
            f"Move to FlashInfer {LATER} or later, or add the define to that list and drop the module so that it is "
            "built "
            "again.",
            [
                "FI=$(python3 -c 'import os, flashinfer; print(os.path.dirname(flashinfer.__file__))')",
                f'sed -i.orig \'/^def {BUILDER}/,/^def /s/nvcc_flags = \\[/&"-D{DEFINE}=1",/\' "$FI/{FILE}"',
                f"rm -rf ~/.cache/flashinfer/{library.version}/*/cached_ops/fused_moe_120",
            ],
        ),
        gain=Gain("no random illegal instruction; speed not measured", None, None, None, "published"),
        metric="startup",
        confidence=0.5,
        effort_h=0.5,
        risk="the module is compiled again, which takes minutes",
        confirm=f"The compile command of fused_moe_120 holds -D{DEFINE}=1 "
        "(`grep -r GDC ~/.cache/flashinfer/*/*/cached_ops/fused_moe_120/build.ninja`).",
        undo=f'`mv "$FI/{FILE}.orig" "$FI/{FILE}"` and drop the module again.',
    )


RULE = Rule(id="pdl_flag", looks_at="build flags of the MoE module", run=run, needs=("library",))
