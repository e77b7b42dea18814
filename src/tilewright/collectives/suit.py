"""Which collectives of a tree could run a kernel config, and why the others that look like it could not.

A refusal is a sentence for each reason. Reasons come from what the index read in the headers (arch, builders, operands,
static_asserts, schedules) and from what the archs are: which MMA instructions each has.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tilewright.collectives.known import first_seen
from tilewright.collectives.model import Collective, Scaling, Suited
from tilewright.collectives.policies import Kind, describe
from tilewright.cutlass.config import KernelConfig
from tilewright.formats.elements import ELEMENTS

__all__ = ["first_that_could", "suited", "wanted"]

_MMA: Final = {
    "sm70": "Volta's mma.sync without cp.async or TMA",
    "sm80": "Ampere's mma.sync fed by cp.async",
    "sm90": "Hopper's wgmma (GMMA)",
    "sm100": "tcgen05 (UMMA) with accumulators in tensor memory (TMEM)",
    "sm103": "tcgen05 FP4 Ultra with accumulators in tensor memory (TMEM)",
    "sm120": "SM120's warp-level mma.sync for f8f6f4 and block scales",
}
"""The MMA instructions that the collectives of an arch issue, as the PTX ISA 8.7 names them (warp-level matrix
instructions, asynchronous warpgroup-level, TensorCore 5th generation), each with the targets that have it."""

_ONLY_ON: Final = {"sm90": "only SM90 has", "sm100": "only SM100-class GPUs have", "sm103": "only SM103 has",
                   "sm120": "only SM120 and SM121 have"}  # fmt: skip

_OLDER: Final = frozenset({"sm70", "sm80"})
"""Archs whose MMA instructions later GPUs still have; their collectives run there as types written by hand."""

_OLDER_FORMATS: Final = {"sm70": ("f16",), "sm80": ("f16", "bf16", "tf32", "int8", "int4")}
"""Operands of Volta's and Ampere's warp-level MMAs (PTX ISA 8.7)."""

CLUSTER_NOTE: Final = (
    "That is this collective's demand, not the GPU's: SM120 has clusters, up to 8 CTAs, only without TMA multicast."
)


def wanted(config: KernelConfig) -> Kind:
    """The kind of mainloop collective that `config` asks for."""
    op = config.op_class
    scaling: Scaling = "block_scaled" if op.startswith("block_scaled") else "blockwise" if op == "blockwise" else "none"
    arch = "sm120" if config.arch == "sm121" else config.arch
    return Kind(arch, config.kind == "grouped", scaling, "sparse" in op, op == "mixed_input")


def _formats(config: KernelConfig) -> str:
    return config.a if config.a == config.b else f"{config.a} x {config.b}"


def _arch_reason(item: Collective, want: Kind) -> str | None:
    if want.arch in item.runs_on or (item.arch == want.arch and not item.builders):
        return None
    here = want.arch.upper()
    if item.arch in _OLDER:
        return (
            f"It issues {_MMA[item.arch]}, which {here} still has, but no builder gives it for {here}: its type would "
            "have to be written out by hand."
        )
    what = _MMA.get(item.arch)
    if what is None:
        return f"It is for {item.arch.upper()}, not {here}."
    return f"It issues {what}, instructions that {_ONLY_ON[item.arch]}; {here} has no such MMA."


def _scaling_reason(item: Collective, want: Kind, config: KernelConfig) -> str | None:
    if item.scaling == want.scaling:
        return None
    formats = _formats(config)
    if want.scaling == "block_scaled" and item.scaling == "blockwise":
        return (
            "No way around: it does blockwise scaling, plain FP8 operands whose FP32 scales are applied in software to "
            f"the accumulators. {formats} is block-scaled: its scale factors feed the MMA instruction. That is another "
            "operation on other data: the weights would have to be quantised again, to FP8."
        )
    if want.scaling == "blockwise" and item.scaling == "block_scaled":
        return (
            "It is block-scaled: OCP MX or NV formats whose scale factors feed the MMA instruction. Yours is blockwise "
            "scaling: plain FP8 with FP32 scales applied in software. Another operation on other data."
        )
    if item.scaling == "none":
        how = "feed the MMA" if want.scaling == "block_scaled" else "are applied in software"
        return f"It applies no scales; {formats} needs a collective whose scales {how}."
    kind = "scale factors in the MMA" if item.scaling == "block_scaled" else "blockwise scales in software"
    return f"It needs {kind}; yours are plain operands without scales."


def _shape_reasons(item: Collective, want: Kind) -> list[str]:
    reasons: list[str] = []
    if item.sparse and not want.sparse:
        reasons.append("It is sparse: A has to be pruned to 2:4 and compressed first, which changes the weights.")
    elif want.sparse and not item.sparse:
        reasons.append("It is dense; yours is sparse (A compressed 2:4 with metadata), which it cannot read.")
    if item.mixed_input and not want.mixed_input:
        reasons.append("It is for mixed input: it converts the narrower operand in registers before a plain MMA.")
    elif want.mixed_input and not item.mixed_input:
        reasons.append("It converts no operand; mixed input needs a collective that does.")
    if want.array and not item.array:
        reasons.append(
            "It runs one problem a launch; a grouped kernel (one launch for all experts) needs an array one."
        )
    elif item.array and not want.array:
        reasons.append(
            "It is for grouped kernels: pointers, strides and tensor maps come in arrays, one for each group."
        )
    return reasons


def _operand_reason(item: Collective, config: KernelConfig) -> str | None:
    takes = item.operands
    if item.arch in _OLDER_FORMATS and not takes:
        takes = _OLDER_FORMATS[item.arch]
    if not takes:
        return None
    for name in dict.fromkeys((config.a, config.b)):
        plain = ELEMENTS[name].plain if name in ELEMENTS else name
        if name not in takes and not (item.scaling != "block_scaled" and plain == name and plain in takes):
            return f"Operand {name} is not among those that it takes: {', '.join(takes)}."
    return None


def _demand_reasons(item: Collective, config: KernelConfig) -> list[str]:
    reasons: list[str] = []
    for need in item.requires:
        where = f"({need.file.rsplit('/', 1)[-1]}:{need.line})"
        if need.what == "cluster" and config.cluster != (1, 1, 1):
            shape = "x".join(map(str, config.cluster))
            reasons.append(f"It demands a 1x1x1 cluster, yours is {shape} {where}. {CLUSTER_NOTE}")
        elif need.what == "layout" and (config.layout_a, config.layout_b) != ("row", "col"):
            reasons.append(f"It takes TN only (A row-major, B column-major) {where}.")
        elif need.what in ("layout_a", "layout_b") and getattr(config, need.what) != need.value:
            reasons.append(f"It takes {need.what} {need.value} only {where}.")
        elif need.what == "stages" and isinstance(config.stages, int) and config.stages < _least(need.value):
            reasons.append(f"It demands stages {need.value}, yours pins {config.stages} {where}.")
        elif need.what == "tile_n" and config.tile[1] < _least(need.value):
            reasons.append(f"It demands a tile with N {need.value}, yours has {config.tile[1]} {where}.")
        elif need.what == "tile_k" and str(config.tile[2]) != need.value:
            reasons.append(f"It demands a tile with K = {need.value}, yours has {config.tile[2]} {where}.")
    return reasons


def _least(value: str) -> int:
    number = int(value.split()[-1])
    return number + 1 if value.startswith("> ") else number


def _schedules(item: Collective, config: KernelConfig, arch: str) -> tuple[str, ...]:
    """Tags with which builders for `arch` give the collective and that the config's schedule and formats allow."""
    tags = dict.fromkeys(tag for ref in item.builders if arch in ref.archs for tag in ref.schedules)
    return tuple(tag for tag in tags if _means(tag, config.schedule) and _for_formats(tag, config))


def _means(tag: str, schedule: str) -> bool:
    """Whether a config's schedule, short name or tag, means this builder tag (the table in `docs/kernel-config.md`)."""
    if schedule == "auto" or schedule.startswith("Kernel"):
        return schedule in ("auto", tag)
    if schedule in ("1sm", "2sm"):
        return f"{schedule[0]}Sm" in tag and "Tma" in tag and "CpAsync" not in tag and "Smem" not in tag
    if schedule == "acc2x4":
        return "Acc2x4" in tag
    if schedule == "tma":
        return tag == "KernelTma"
    if ("CpAsync" in tag) is not schedule.startswith("cp_async") or "Acc2x4" in tag or tag.endswith("Auto"):
        return False
    if ("FastAccum" in tag) is not schedule.endswith("fast_accum"):
        return False
    kind = "cooperative" if "Cooperative" in tag else "pingpong" if "Pingpong" in tag else "basic"
    if tag.startswith("KernelSparse"):  # SM120's sparse kernels are cooperative and are not called so
        kind = "cooperative"
    asked = next((word for word in ("cooperative", "pingpong") if word in schedule), "basic")
    return kind == asked and "WarpSpecialized" in tag


def _for_formats(tag: str, config: KernelConfig) -> bool:
    """Whether a tag that names formats (Nvf4, Mxf4, Mxf8f6f4) names those of the config."""
    pair = (config.a, config.b)
    if "MxNvf4Ultra" in tag:
        return f"Vs{32 if config.a == 'mxfp4' else 16}" in tag
    if "Mxf8f6f4" in tag:
        return pair not in (("nvfp4", "nvfp4"), ("mxfp4", "mxfp4"))
    if "Nvf4" in tag:
        return pair == ("nvfp4", "nvfp4")
    return pair == ("mxfp4", "mxfp4") or "Mxf4" not in tag


def _family_reason(item: Collective, config: KernelConfig) -> str | None:
    """What the dispatch policy's name says a collective is for, where the config cannot be that."""
    policy = item.policy
    formats = {config.a, config.b}
    if "FastF32" in policy or "Complex" in policy:
        return "It emulates FP32 or complex products with several BF16 or TF32 MMAs; a config cannot ask for that."
    if "RCGroup" in policy:
        return "It is the ragged grouped kernel: A lies in one buffer and only B comes by pointers."
    if item.arch != "sm90" or item.scaling != "none":
        return None
    fp8 = formats <= {"e4m3", "e5m2"}
    if policy.endswith("FP8") and not fp8:
        return f"It is for FP8 operands, with exact accumulation; yours are {_formats(config)}."
    fast = config.schedule == "auto" or "fastaccum" in config.schedule.lower().replace("_", "")
    if fp8 and not fast and "TmaGmma" in policy and not policy.endswith("FP8") and "RmemA" not in policy:
        return "FP8 operands go there with a ...FP8FastAccum schedule only."
    tn = (config.layout_a, config.layout_b) == ("row", "col")
    from_registers = not tn and not formats & {"bf16", "f16"}
    if "RmemA" in policy and not item.mixed_input and not from_registers:
        return "It takes A from registers: for 8- and 32-bit operands that are not both K-major."
    if from_registers and "RmemA" not in policy:
        return "8- and 32-bit operands that are not both K-major go through the collective that takes A from registers."
    return None


def _judge(item: Collective, config: KernelConfig, want: Kind) -> Suited:
    reasons = [r for r in (_arch_reason(item, want), _scaling_reason(item, want, config)) if r]
    reasons += _shape_reasons(item, want)
    if not reasons:
        reasons += [r for r in (_operand_reason(item, config), _family_reason(item, config)) if r]
        reasons += _demand_reasons(item, config)
        if not item.builders:
            reasons.append(item.note or "No CollectiveBuilder specialization in this tree gives it.")
    tags = _schedules(item, config, want.arch)
    if not reasons and not tags:
        reasons.append(
            f"No builder gives it for schedule {config.schedule} and {_formats(config)}; it takes "
            f"{', '.join(item.schedules)}."
        )
    return Suited(
        name=item.name,
        policy=item.policy,
        operation=item.operation,
        file=item.file,
        line=item.line,
        can=not reasons,
        schedules=tags if not reasons else (),
        reasons=tuple(reasons),
        tree=item.tree,
    )


def _looks_like(item: Collective, want: Kind) -> bool:
    """Whether people would think of a collective: any of the arch; elsewhere the same kind (array, sparse) with scales
    of either sort where scales are wanted, and without where they are not."""
    if want.arch in (item.arch, *item.runs_on):
        return True
    alike = item.array == want.array and item.sparse == want.sparse and item.mixed_input == want.mixed_input
    scales = item.scaling == want.scaling or "none" not in (item.scaling, want.scaling)
    return alike and scales and not _complex(item.policy)


def _complex(policy: str) -> bool:
    return any(word in policy for word in ("Complex", "FastF32", "RCGroup", "CpAsync", "Sm70"))


def suited(items: Iterable[Collective], config: KernelConfig) -> tuple[Suited, ...]:
    """Collectives for `config`: those that could run it first, then those that look as if they could, each refusal with
    its reasons, the fewest first. Of the epilogues those that the arch's builders give for this kind of kernel."""
    want = wanted(config)
    answer: list[Suited] = []
    for item in items:
        if item.operation == "epilogue":
            if want.arch in item.runs_on and item.array == want.array:
                answer.append(_epilogue(item, config, want))
        elif _looks_like(item, want):
            answer.append(_judge(item, config, want))
    answer.sort(key=lambda one: (one.operation != "mma", not one.can, len(one.reasons), one.tree))
    return tuple(answer)


def _epilogue(item: Collective, config: KernelConfig, want: Kind) -> Suited:
    tags = tuple(dict.fromkeys(tag for ref in item.builders if want.arch in ref.archs for tag in ref.schedules))
    reasons: list[str] = []
    if config.epilogue_schedule != "auto":
        wish = config.epilogue_schedule.replace("_", "").lower()
        kept = tuple(tag for tag in tags if tag.lower() == wish)
        if not kept:
            reasons.append(f"No builder for {want.arch.upper()} gives it for {config.epilogue_schedule}.")
        tags = kept
    return Suited(
        name=item.name,
        policy=item.policy,
        operation="epilogue",
        file=item.file,
        line=item.line,
        can=not reasons,
        schedules=tags,
        reasons=tuple(reasons),
        tree=item.tree,
    )


def first_that_could(config: KernelConfig) -> tuple[str, str] | None:
    """(release, dispatch policy) of the first release with a built collective of the kind that `config` wants, by what
    policies are called; None where no release read has one."""
    want = wanted(config)
    found = [
        (tuple(map(int, version.split("."))), version, policy)
        for policy, version in first_seen().built.items()
        if policy.startswith("Mainloop") and not _complex(policy) and describe(policy) == want
    ]
    return min(found)[1:] if found else None
