"""GB10: a wheel without sm_121 code, no attention backend for sparse MLA, and GPUs in different hosts."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.plan.evidence import published
from tilewright.plan.finding import Draft, Fact, Fix, Gain, Outcome
from tilewright.plan.registry import Rule
from tilewright.plan.target import Target


def run(target: Target) -> Iterator[Outcome]:
    if target.gpu.arch != "sm121":
        return
    if target.gpus > 1:
        yield Fact(
            "remarks",
            [f"{target.gpus} GB10 are {target.gpus} hosts: tensor parallelism runs over their network, not over PCIe."],
        )
    if target.model.indexer is not None and target.engine == "sglang":
        yield Fact("remarks", [published("gb10_dsa")[0].text + " (published)"])
    if "nvfp4" not in target.families or target.engine != "vllm":
        return
    yield Draft(
        id="no_sm121_code",
        title="Check that the installed build has code for sm_121",
        layer="library",
        evidence=published("gb10_no_sass"),
        cause="A build without sm_121 (or sm_120f, sm_121f) code cannot load its FP4 kernels here, and the engine "
        "falls back "
        "to weight-only kernels without saying why.",
        fix=Fix(
            "List the architectures of the compiled library; build for 12.1a or 12.0f if they are missing.",
            [
                "cuobjdump --list-elf $(python3 -c 'import vllm, pathlib; print(pathlib.Path(vllm.__file__).parent / "
                "\"_C.abi3.so\")') | grep -o 'sm_[0-9a-f]*' | sort -u"
            ],
        ),
        gain=Gain("prefill tok/s, %", 0.0, 20.0, 100.0, "modelled"),
        metric="prefill",
        confidence=0.4,
        effort_h=1.0,
        confirm="The list holds sm_121a, sm_120f or sm_121f, and the log names a CUTLASS NVFP4 kernel.",
        undo="Nothing to undo.",
    )


RULE = Rule(id="sparks", looks_at="GB10 builds", run=run)
