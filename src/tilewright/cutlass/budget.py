"""The result of `fit`: a kernel's shared memory field by field, and the verdict (DESIGN 4.3)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Status = Literal["fits", "overflow", "illegal", "unsupported", "error"]


class Field(msgspec.Struct, frozen=True):
    """One member of a shared-memory struct. `offset` is relative to the parent struct, `abs_offset` to the kernel's
    shared memory; both and `bytes` are in bytes. -1 means that the type has no such member."""

    path: str
    offset: int
    abs_offset: int
    bytes: int
    type_align: int
    why: str


class Fix(msgspec.Struct, frozen=True):
    """A change to the config that the model has verified: with `change` applied the kernel takes `smem_bytes`."""

    change: dict[str, Any]
    smem_bytes: int
    note: str


class Budget(msgspec.Struct, kw_only=True, tag_field="schema", tag="tilewright/fit/1"):
    """What `fit` answers for one config. Bytes everywhere; null where the type has no such figure.

    `type_status` is what compiling the three types says; `status` what somebody gets who builds the whole kernel
    and launches it. Byte figures are given wherever the types compile, overflow included.
    """

    id: str = ""
    status: Status
    type_status: Literal["fits", "overflow", "illegal"] | None = None
    stages: int | None = None
    smem_bytes: int | None = None
    mainloop_bytes: int | None = None
    epilogue_bytes: int | None = None
    limit_bytes: int | None = None
    excess_bytes: int | None = None
    slack_bytes: int | None = None
    mainloop_tensor_bytes: int | None = None
    mainloop_pipeline_bytes: int | None = None
    mainloop_tensormap_bytes: int | None = None
    epilogue_tensor_bytes: int | None = None
    epilogue_pipeline_bytes: int | None = None
    epilogue_tensormap_bytes: int | None = None
    epilogue_fusion_bytes: int | None = None
    epilogue_tile: tuple[int, int] | None = None
    stages_c: int | None = None
    stages_d: int | None = None
    reuse_smem_c: bool | None = None
    delay_tma_store: bool | None = None
    fragment_size: int | None = None
    epilogue_warp_groups: int | None = None
    threads: int | None = None
    min_blocks: int | None = None
    load_registers: int | None = None
    mma_registers: int | None = None
    scheduler_stages: int | None = None
    accumulator_stages: int | None = None
    load_ab_stages: int | None = None
    load_sf_stages: int | None = None
    stages_a: int | None = None
    stages_b: int | None = None
    stages_e: int | None = None
    sf_short: bool | None = None
    mainloop_policy: str | None = None
    epilogue_policy: str | None = None
    kernel_schedule: str | None = None
    basis: Literal["exact"] = "exact"
    status_basis: Literal["derived", "compiled", "inferred"] = "derived"
    fields: list[Field] = []
    cause: str | None = None
    fixes: list[Fix] = []
    rules: list[str] = []


class LineError(msgspec.Struct, frozen=True):
    """What was wrong with one line of a stream: the key (or "line") and one sentence."""

    field: str
    message: str


class ErrorLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="tilewright/fit/1"):
    """The answer to a line of `fit --from` that is no kernel config."""

    id: str | None
    status: Literal["error"] = "error"
    error: LineError
