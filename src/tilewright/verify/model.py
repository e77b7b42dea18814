"""What `verify` answers: one bundle that can be shared. It names no host, no user and no path."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Outcome = Literal["agree", "differ", "not_run", "no_prediction"]


class Predicted(msgspec.Struct, frozen=True, kw_only=True):
    """What `fit` says; bytes of shared memory a block."""

    status: str
    smem_bytes: int | None
    limit_bytes: int | None
    stages: int | None
    status_basis: str
    rules: list[str] = []


class Build(msgspec.Struct, frozen=True, kw_only=True):
    """Building the config's kernel and the program around it."""

    ok: bool
    seconds: float | None = None
    """Null where it came from the cache."""
    smem_bytes: int | None = None
    """`SharedStorageSize` of the built kernel."""
    threads: int | None = None
    capacity_assert: bool = False
    """Whether the only errors were the kernel's asserts that its shared storage fits."""
    errors: list[str] = []


class Call(msgspec.Struct, frozen=True):
    """One step of the run and what it returned: a CUDA error, or a CUTLASS status."""

    step: str
    code: int
    name: str


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """The output, element by element, against the sum computed on the host."""

    total: int
    wrong: int
    not_finite: int
    unwritten: int
    worst: float


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """The kernel on the GPU, in a process of its own."""

    calls: list[Call]
    end: Literal["finished", "failed", "hung", "died"]
    """`died`: by a signal, or with a code that the program does not give."""
    signal: int | None = None
    seconds: float | None = None
    limit_bytes: int | None = None
    """What this GPU says a block may have (opt-in)."""
    registers: int | None = None
    local_bytes: int | None = None
    blocks_per_sm: int | None = None
    problem: list[int] | None = None
    """Groups, and M, N, K of the first."""
    values: Values | None = None
    last_words: str | None = None


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One config: what was predicted, what was built, what ran, and whether they agree."""

    id: str
    config: dict[str, Any]
    headers: str | None
    """Fingerprint of the CUTLASS headers that it was built from."""
    predicted: Predicted
    build: Build | None = None
    run: Run | None = None
    outcome: Outcome
    why: str
    """One sentence."""
    not_tried: str = ""
    """What was left out for this kind of kernel."""


class Clocks(msgspec.Struct, frozen=True, kw_only=True):
    """What the GPU was doing (NVML); null where the driver, or the extra `gpu`, does not say."""

    sm_mhz: int | None = None
    memory_mhz: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The GPU and what drives it."""

    gpu: str
    compute_capability: str
    sm_count: int | None
    limit_bytes: int | None
    cuda_driver: str | None
    """Newest CUDA that the driver supports."""
    driver: str | None
    before: Clocks | None = None
    after: Clocks | None = None


class HeaderTree(msgspec.Struct, frozen=True, kw_only=True):
    """A CUTLASS that kernels were built from."""

    cutlass: str
    fingerprint: str
    digest: str
    """SHA-256 over every header."""


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """How many configs came out how."""

    total: int
    agree: int
    differ: int
    not_run: int
    no_prediction: int


class Verification(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="tilewright/verify/1"):
    """The bundle of one run of `tilewright verify`."""

    tilewright: str
    date: str
    """UTC, to the minute."""
    build_only: bool
    machine: Machine | None
    nvcc: str
    library: str | None
    headers: list[HeaderTree]
    summary: Tally
    cases: list[Case]
    notes: list[str] = []
