"""What a plan is for: the model as its checkpoint quantises it, the GPUs, the engine, and what else was given.

Everything that several rules derive from these inputs is derived here, once, when it is first asked for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from tilewright.errors import InputError
from tilewright.hardware.gpu import Gpu
from tilewright.libraries.engine_flags.concepts import name_of, value_for
from tilewright.models.checkpoint import COMPONENTS
from tilewright.models.formats import WeightFormat, weight_format
from tilewright.models.memory import GpuMemory, Parallel, component_formats, gpu_memory
from tilewright.models.records import Model
from tilewright.observe.snapshot import Snapshot
from tilewright.plan.claims import Reader
from tilewright.plan.engine_version import known_flags
from tilewright.plan.engines import CONTEXT_FLAGS, SHARE_FLAGS, TITLES, launch, layout_flags, memory_share
from tilewright.plan.log import Hit
from tilewright.plan.seen import flag
from tilewright.serving.defaults import declared
from tilewright.serving.readable_cache import reads_fp8

if TYPE_CHECKING:
    from tilewright.plan.library import LibraryView

FP4_ARCHS = frozenset({"sm100", "sm103", "sm120", "sm121"})
"""Architectures whose tensor cores multiply FP4 (CUTLASS: sm100/sm103 tcgen05, sm120/sm121 mma.block_scale)."""
MAX_TITLE = 80
_ODD = re.compile(r"[^\w .:/@+()-]")
SM12X = frozenset({"sm120", "sm121"})

_FAMILY_OF_FORMAT = {
    "nvfp4": "nvfp4",
    "nvfp4_w4a16": "nvfp4",
    "mxfp4": "mxfp4",
    "mxfp8": "mxfp8",
    "fp8": "fp8",
    "fp8_block": "fp8",
    "fp8_channel": "fp8",
    "fp8_w8a16": "fp8",
    "int8": "int8",
    "int8_w8a16": "int8",
    "int4": "int4",
    "bf16": "bf16",
    "f16": "bf16",
}
"""Weight formats -> the format families that claims and rules speak of."""


def article(name: str) -> str:
    """`an` before a name whose first letter is read out with a vowel (RTX, H200, L40S, A100), else `a`."""
    first = name.split()[0]
    spelt = first.isupper() or any(letter.isdigit() for letter in first)
    return "an" if first[:1].upper() in ("AEFHILMNORSX" if spelt else "AEIO") else "a"


def layout_title(parallel: Parallel) -> str:
    """A layout in short: `TP4 PP2`."""
    parts = [f"TP{parallel.tp}"]
    parts += [f"PP{parallel.pp}"] if parallel.pp > 1 else []
    parts += [f"EP{parallel.ep}"] if parallel.ep > 1 else []
    return " ".join(parts)


@dataclass(frozen=True, eq=False)
class Target:
    """The inputs of a plan. `parallel` is the layout it is for, `layout_given` whether the user chose it."""

    model: Model
    gpu: Gpu
    gpus: int
    engine: str
    engine_version: str | None
    parallel: Parallel
    layout_given: bool = False
    asked: Parallel | None = None
    """The layout that all GPUs would make by default, where the checkpoint cannot be cut into it and `parallel` is
    another one."""
    library: LibraryView | None = None
    snapshot: Snapshot | None = None
    snapshot_source: str = "snapshot"
    log: dict[str, Hit] | None = None
    log_source: str = "log"
    notes: list[str] = field(default_factory=lambda: list[str]())

    @property
    def model_title(self) -> str:
        """The model's name as a title may show it: a folder's name can hold anything."""
        return _ODD.sub("_", self.model.name)[:MAX_TITLE]

    @property
    def model_source(self) -> str:
        """Where the model's shapes were read."""
        return _ODD.sub("_", self.model.source or self.model.key)

    @property
    def served(self) -> str:
        """The checkpoint as a launch command calls it."""
        from tilewright.serving.launch import served_name

        return served_name(self.model, self.model.checkpoint)

    def launch(self, *flags: str, env: str = "") -> str:
        """A launch line of the engine for this checkpoint and layout, with these flags (and variables before it)."""
        line = self.launch_as(self.parallel, *flags)
        return f"{env} {line}" if env else line

    def launch_as(self, parallel: Parallel, *flags: str) -> str:
        """A launch line for another layout, with a context length that its cache holds where that can be told."""
        from tilewright.plan.modelled import context_length

        cache = self.cache_words
        if cache and not any(cache[0] in flag for flag in flags):
            flags = (*flags, " ".join(cache))
        layout = layout_flags(self.engine, parallel.tp, parallel.pp, parallel.ep)
        length = context_length(self, parallel, drafting=any("speculative" in flag for flag in flags))
        context = f"{CONTEXT_FLAGS[self.engine]} {length}" if length else ""
        return launch(self.engine, self.served, layout, context, *flags)

    @property
    def engine_title(self) -> str:
        return TITLES[self.engine]

    @property
    def engine_named(self) -> str:
        """The engine with its version, where that is known."""
        return f"{self.engine_title} {self.engine_version}" if self.engine_version else self.engine_title

    @property
    def one_gpu(self) -> str:
        """The GPU's name with its article: `an RTX PRO 6000 ...`, `a GeForce ...`."""
        return f"{article(self.gpu.name)} {self.gpu.name}"

    @property
    def gpu_title(self) -> str:
        return f"{self.gpus}x {self.gpu.name}"

    @property
    def layout(self) -> str:
        return layout_title(self.parallel)

    @property
    def sm12x(self) -> bool:
        return self.gpu.arch in SM12X

    @property
    def fp4_cores(self) -> bool:
        """Whether the GPU multiplies FP4 in its tensor cores."""
        return self.gpu.arch in FP4_ARCHS

    @property
    def pcie(self) -> bool:
        """Whether the GPUs of one host talk over PCIe: no NVLink, as far as the catalogue knows."""
        return not self.gpu.value("interconnect_nvlink_gbs_bidir") and self.gpu.key != "gb10"

    @cached_property
    def component_formats(self) -> dict[str, str]:
        """Component of the model -> the format that most of its parameters are stored in."""
        table = component_formats(self.model)
        return {name: max(table[name].items(), key=lambda item: item[1])[0] for name in COMPONENTS if name in table}

    @property
    def expert_format(self) -> WeightFormat | None:
        """The format of the routed experts; None for a model without any."""
        name = self.component_formats.get("experts_w13")
        return weight_format(name) if name else None

    @property
    def expert_family(self) -> str | None:
        fmt = self.expert_format
        return None if fmt is None else _FAMILY_OF_FORMAT.get(fmt.name, fmt.name)

    @cached_property
    def families(self) -> frozenset[str]:
        """Format families in use among the large matrices of the model."""
        big = ("experts_w13", "experts_w2", "shared_experts", "dense_mlp", "attention", "linear_attention", "mamba")
        return frozenset(
            _FAMILY_OF_FORMAT.get(name, name) for part, name in self.component_formats.items() if part in big
        )

    @property
    def dense_quantised(self) -> bool:
        """Whether layers beside the routed experts are stored in FP4."""
        dense = ("shared_experts", "dense_mlp", "attention")
        return any(self.component_formats.get(part) in ("nvfp4", "mxfp4") for part in dense)

    @cached_property
    def memory_share(self) -> tuple[float, str]:
        """(share of memory for weights and cache, where it comes from): the snapshot's flag before the default."""
        value = flag(self.snapshot, *SHARE_FLAGS[self.engine])
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1:
            return float(value), f"{SHARE_FLAGS[self.engine][0]} in {self.snapshot_source}"
        total = self.gpu.memory_bytes
        if total is None:
            msg = (
                f"How much memory a {self.gpu.name} has is unknown, so no plan can be made for it; give another --gpu."
            )
            raise InputError("gpu", msg)
        own = declared(known_flags(self))
        if own.share is not None:
            return own.share, own.share_source
        return memory_share(self.engine, total, self.parallel.tp)

    @cached_property
    def reads_fp8_cache(self) -> bool:
        """Whether the engine's version has an attention for an FP8 cache of this model on this GPU."""
        known = known_flags(self)
        return known is None or reads_fp8(known, self.model, self.gpu)

    @cached_property
    def cache_words(self) -> tuple[str, ...]:
        """The flag for a BF16 cache where the checkpoint asks for FP8 and this version cannot read that here; empty
        where it can, or a server was seen that runs."""
        known = known_flags(self)
        if (
            known is None
            or self.snapshot is not None
            or self.model.checkpoint.kv_cache != "fp8"
            or self.reads_fp8_cache
        ):
            return ()
        name, value = name_of(known, "kv_dtype"), value_for(known, "kv_dtype", "bf16")
        return (name, value) if name is not None and value is not None else ()

    def memory_of(self, parallel: Parallel, *, kv_layout: str = "", mtp: bool = False) -> GpuMemory:
        """Memory of the fullest GPU in another layout or with another cache."""
        kv_layout = kv_layout or ("bf16" if self.cache_words else "")
        return gpu_memory(
            self.model, self.gpu, parallel=parallel, fraction=self.memory_share[0], kv_layout=kv_layout, mtp=mtp
        )

    @cached_property
    def memory(self) -> GpuMemory:
        return self.memory_of(self.parallel)

    @cached_property
    def reader(self) -> Reader:
        """Which claims the reader of this plan meets."""
        return Reader(
            arch=self.gpu.arch,
            formats=self.families,
            experts=self.expert_family,
            moe=self.model.moe is not None,
            dense_quantised=self.dense_quantised,
            library=self.library.name if self.library else None,
            engine=self.engine,
            engine_version=self.engine_version,
            gpus=self.gpus,
            pcie=self.pcie,
            smem_optin=self.gpu.smem_optin_bytes,
            smem_per_sm=self.gpu.value("smem_per_sm_bytes"),
        )
