"""What the probe answers for one config: the form of `fit`'s answer, every figure read from the compiled types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from tilewright.cutlass.budget import Budget, ErrorLine, Field
from tilewright.cutlass.config import KernelConfig
from tilewright.cutlass.fit import LIMITS
from tilewright.formats.elements import ELEMENTS

__all__ = [
    "KernelBuild",
    "ProbeError",
    "ProbeResult",
    "Tools",
    "compiled_result",
    "overflow_result",
    "refused_result",
    "unsupported_result",
]

_SF_BLOCKS_ON: Final = ("sm120", "sm121")
_SPARSE_SCALE_FACTOR: Final = 2
"""A scale of a 2:4 sparse operand covers twice as many logical elements (builders/sm120_blockscaled_sparse_...)."""


class Tools(msgspec.Struct, frozen=True, kw_only=True):
    """What was compiled with."""

    nvcc: str
    nvcc_arch: str
    cutlass: str
    tree: str


class KernelBuild(msgspec.Struct, frozen=True, kw_only=True):
    """What compiling the whole device kernel gave; null where it did not compile."""

    compiles: bool
    registers: int | None = None
    """Registers a thread at launch; warp-specialised kernels then move them (`load_registers`, `mma_registers`)."""
    spill_store_bytes: int | None = None
    """Bytes a thread that ptxas spills to local memory (`ptxas -v`)."""
    spill_load_bytes: int | None = None
    stack_bytes: int | None = None
    """Stack frame of the kernel, bytes a thread."""
    local_bytes: int | None = None
    """Local memory allocated statically, bytes a thread (section .nv.local of the cubin)."""
    barriers: int | None = None
    code_bytes: int | None = None
    """Machine code (sections .text of the cubin)."""
    capacity_assert: bool = False
    """Whether the only errors were the kernel's asserts that its shared storage fits."""
    seconds: float | None = None
    """Time the compile took."""
    errors: list[str] = []
    """Messages with `header:line`."""


class ProbeResult(Budget, kw_only=True, tag_field="schema", tag="tilewright/probe/1"):
    """One answer of `tilewright probe`."""

    error: str | None = None
    """The first diagnostic of a config that does not compile."""
    error_at: str | None = None
    """`header:line` of it."""
    more_errors: list[str] = []  # noqa: RUF012 - a msgspec Struct copies its defaults
    assert_fired: bool = False
    """Whether the kernel's own capacity assert refused it; the sizes are then of a copy without that assert."""
    kernel: KernelBuild | None = None
    tools: Tools | None = None


class ProbeError(ErrorLine, frozen=True, kw_only=True, tag_field="schema", tag="tilewright/probe/1"):
    """The answer to a line of `probe --from` that is no kernel config."""


_WHY_SIZE: Final = "sizeof and offsetof of the compiled type"
MAPS_OF_MAINLOOP: Final = "kernel.tensormaps[0].mainloop"
_BASES: Final = {
    "kernel": (),
    "kernel.tensors": ("kernel.tensors",),
    "kernel.tensormaps": ("kernel.tensormaps",),
    "kernel.pipelines": ("kernel.pipelines",),
    "mainloop.tensors": ("kernel.tensors", "kernel.tensors.mainloop"),
    "mainloop.tensormaps": ("kernel.tensormaps", MAPS_OF_MAINLOOP),
    "epilogue.tensors": ("kernel.tensors", "kernel.tensors.epilogue"),
    "epilogue.tensors.collective": ("kernel.tensors", "kernel.tensors.epilogue", "epilogue.tensors.collective"),
}
"""Which members' offsets add up to where a parent struct stands in the kernel's shared memory."""


def _fields(raw: Mapping[str, tuple[int, int, int]], maps_at: int | None) -> list[Field]:
    """The members with their place in the kernel's shared memory; `maps_at`: where the mainloop's tensor maps are in
    the kernel's, or in the first of them where the kernel has an array."""
    offsets = {path: offset for path, (offset, _, _) in raw.items()}
    if maps_at is not None:
        offsets[MAPS_OF_MAINLOOP] = maps_at
    fields: list[Field] = []
    for path, (offset, size, align) in raw.items():
        bases = _BASES[path.rpartition(".")[0]]
        known = all(base in offsets for base in bases)
        absolute = offset + sum(offsets[base] for base in bases) if known else -1
        fields.append(Field(path, offset, absolute, size, align, _WHY_SIZE))
    return fields


def _scale_factors_short(
    config: KernelConfig, scalars: Mapping[str, int], fields: Mapping[str, tuple[int, int, int]]
) -> bool | None:
    """Whether smem_SFA or smem_SFB holds fewer scale factors than the tile has. None where there are none to hold."""
    if config.op_class not in ("block_scaled", "block_scaled_sparse") or config.arch not in _SF_BLOCKS_ON:
        return None
    vector = ELEMENTS[config.a].scale_vector or ELEMENTS[config.b].scale_vector
    if not vector:
        return None
    if config.op_class == "block_scaled_sparse":
        vector *= _SPARSE_SCALE_FACTOR
    m, n, k = config.tile
    for name, rows, stages in (("smem_SFA", m, "stages_a"), ("smem_SFB", n, "stages_a")):
        count = scalars.get(stages) or scalars.get("stages", 0)
        held = fields.get(f"mainloop.tensors.{name}")
        # one byte a scale factor (ue4m3, ue8m0); an empty array still has a sizeof of one
        if held is None or held[1] * vector < rows * k * count:
            return True
    return False


def _flag(value: int | None) -> bool | None:
    return None if value is None else bool(value)


_PLAIN: Final = (
    "mainloop_bytes", "mainloop_tensormap_bytes", "epilogue_bytes", "epilogue_tensor_bytes", "epilogue_pipeline_bytes",
    "epilogue_tensormap_bytes", "stages_c", "stages_d", "fragment_size", "epilogue_warp_groups", "threads",
    "min_blocks", "load_registers", "mma_registers", "scheduler_stages", "accumulator_stages", "load_ab_stages",
    "load_sf_stages", "stages_a", "stages_b", "stages_e",
)  # fmt: skip
"""Figures that are answered as they were read, null where the type has none."""


def compiled_result(
    config: KernelConfig,
    scalars: Mapping[str, int],
    fields: Mapping[str, tuple[int, int, int]],
    names: tuple[str | None, str | None, str | None],
    assert_fired: str | None = None,
) -> ProbeResult:
    """The answer for types that compile. `assert_fired`: the message of the capacity assert, where one did."""
    get = scalars.get
    limit = LIMITS[config.arch]
    smem = scalars["smem_bytes"]
    m, n = get("epilogue_tile_m"), get("epilogue_tile_n")
    thread = fields.get("epilogue.tensors.thread")
    short = _scale_factors_short(config, scalars, fields)
    verdict = "overflow" if smem > limit else "fits"
    result = ProbeResult(
        id=config.id,
        status=verdict,
        type_status=verdict,
        status_basis="compiled",
        stages=get("stages", get("stages_a")),
        smem_bytes=smem,
        limit_bytes=limit,
        excess_bytes=max(0, smem - limit),
        slack_bytes=limit - smem,
        # The truth rows write -1 for a mainloop without tensor or pipeline storage of its own, null for the rest.
        mainloop_tensor_bytes=get("mainloop_tensor_bytes", -1),
        mainloop_pipeline_bytes=get("mainloop_pipeline_bytes", -1),
        epilogue_fusion_bytes=thread[1] if thread else None,
        epilogue_tile=None if m is None or n is None else (m, n),
        reuse_smem_c=_flag(get("reuse_smem_c")),
        delay_tma_store=_flag(get("delay_tma_store")),
        sf_short=short,
        mainloop_policy=names[0],
        epilogue_policy=names[1],
        kernel_schedule=names[2],
        fields=_fields(fields, get("mainloop_maps_at")),
        assert_fired=assert_fired is not None,
        error=assert_fired,
        rules=[assert_fired] if assert_fired else [],
    )
    for key in _PLAIN:
        setattr(result, key, get(key))
    return result


def refused_result(config: KernelConfig, error: str, at: str, more: list[str]) -> ProbeResult:
    """The answer for types that do not compile."""
    return ProbeResult(
        id=config.id,
        status="illegal",
        type_status="illegal",
        status_basis="compiled",
        limit_bytes=LIMITS[config.arch],
        error=error,
        error_at=at,
        more_errors=more,
        cause=f"{error} ({at})",
        rules=[f"{error} ({at})"],
    )


def overflow_result(config: KernelConfig, message: str, at: str) -> ProbeResult:
    """The answer where the capacity assert fired and the types could not be measured without it."""
    return ProbeResult(
        id=config.id,
        status="overflow",
        type_status="overflow",
        status_basis="compiled",
        limit_bytes=LIMITS[config.arch],
        assert_fired=True,
        error=message,
        error_at=at,
        rules=[f"{message} ({at})"],
    )


def unsupported_result(config: KernelConfig, reason: str) -> ProbeResult:
    """The answer for a config that this probe has no C++ for, or no answer to."""
    return ProbeResult(id=config.id, status="unsupported", cause=reason)
