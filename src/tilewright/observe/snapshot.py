"""A snapshot of a host and its server: what `plan --observe FILE.json` reads, schema `tilewright/observe/1`.

Documented in `docs/observe-schema.md`. Every key but `schema` and `gpus` may be missing: a collector writes what the
machine told it, and a rule that needs a missing value says so instead of guessing. Units are in the names. Decoding is
strict: an unknown key, a wrong type or an impossible value is one sentence that names where it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from tilewright.errors import InputError, shown

MAX_SNAPSHOT_BYTES = 16 << 20
"""A snapshot of a host with 16 GPUs takes a few tens of kilobytes; what is larger is another file."""

Watts = Annotated[float, msgspec.Meta(ge=0, le=100_000)]
Mhz = Annotated[int, msgspec.Meta(ge=0, le=100_000)]
Percent = Annotated[float, msgspec.Meta(ge=0, le=100)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
Bytes = Annotated[int, msgspec.Meta(ge=0, le=1 << 50)]
PcieGen = Annotated[int, msgspec.Meta(ge=1, le=9)]
PcieWidth = Annotated[int, msgspec.Meta(ge=1, le=32)]
Rate = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
Text = Annotated[str, msgspec.Meta(max_length=4096)]

Throttle = Literal[
    "gpu_idle",
    "applications_clocks_setting",
    "sw_power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "display_clock_setting",
]
"""NVML's clock event reasons (nvmlClocksEventReason*) by their names in nvidia-smi, lower case."""


class Gpu(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One GPU. `*_max` is what the part and its slot could do, the plain value what it does now."""

    index: Annotated[int, msgspec.Meta(ge=0, le=1023)]
    name: Text | None = None
    power_draw_w: Watts | None = None
    power_limit_w: Watts | None = None
    power_limit_max_w: Watts | None = None
    clock_sm_mhz: Mhz | None = None
    clock_sm_max_mhz: Mhz | None = None
    clock_mem_mhz: Mhz | None = None
    clock_mem_max_mhz: Mhz | None = None
    throttle_reasons: list[Throttle] | None = None
    temperature_c: Annotated[float, msgspec.Meta(ge=-100, le=300)] | None = None
    utilization_gpu_pct: Percent | None = None
    utilization_mem_pct: Percent | None = None
    memory_used_bytes: Bytes | None = None
    memory_total_bytes: Bytes | None = None
    bar1_total_bytes: Bytes | None = None
    pcie_gen: PcieGen | None = None
    pcie_gen_max: PcieGen | None = None
    pcie_width: PcieWidth | None = None
    pcie_width_max: PcieWidth | None = None
    pcie_rx_bytes_s: Rate | None = None
    pcie_tx_bytes_s: Rate | None = None
    numa_node: Annotated[int, msgspec.Meta(ge=-1, le=4096)] | None = None
    ecc: bool | None = None
    persistence: bool | None = None


class P2P(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One ordered pair of GPUs. `topology` as `nvidia-smi topo -m` writes it; `works` is the result of a copy whose
    content was checked, which is evidence, while `capable` is only what the driver says."""

    source: Annotated[int, msgspec.Meta(ge=0, le=1023)]
    target: Annotated[int, msgspec.Meta(ge=0, le=1023)]
    topology: Annotated[str, msgspec.Meta(pattern=r"^(X|PIX|PXB|PHB|NODE|SYS|NV\d{1,2})$")] | None = None
    capable: bool | None = None
    works: bool | None = None


class Host(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The machine. `acs_redirect`: some root port redirects peer requests (ReqRedir+ CmpltRedir+)."""

    kernel: Text | None = None
    cpu: Text | None = None
    cpus: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)] | None = None
    memory_bytes: Bytes | None = None
    transparent_hugepages: Literal["always", "madvise", "never"] | None = None
    numa_nodes: Annotated[int, msgspec.Meta(ge=1, le=4096)] | None = None
    iommu: Literal["off", "passthrough", "translated"] | None = None
    acs_redirect: bool | None = None
    driver: Text | None = None
    cuda: Text | None = None


class Engine(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The server that runs. `flags` as it was started: name without dashes -> value, true for a bare switch.
    `env`: only variables that change speed and hold no secret."""

    name: Literal["sglang", "vllm", "trtllm"]
    version: Text | None = None
    flags: dict[str, str | int | float | bool | None] = {}
    env: dict[str, str] = {}


class Metrics(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The server's own metrics over the window. Rates a second, shares 0..1."""

    window_s: Annotated[float, msgspec.Meta(ge=0, le=1e7)] | None = None
    running: Annotated[float, msgspec.Meta(ge=0, le=1e7)] | None = None
    waiting: Annotated[float, msgspec.Meta(ge=0, le=1e7)] | None = None
    generation_tok_s: Rate | None = None
    prompt_tok_s: Rate | None = None
    kv_usage: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    kv_tokens_max: Count | None = None
    preemptions: Count | None = None
    accept_length: Annotated[float, msgspec.Meta(ge=0, le=1000)] | None = None
    cuda_graph: bool | None = None


class Snapshot(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    kw_only=True,
    tag_field="schema",
    tag="tilewright/observe/1",
):
    """What was seen on one host. GPUs in index order; none where no tool could show them (`notes` say why).

    `trees`: where headers, libraries and compiled kernels of the engine lie on that host.
    """

    taken_at: Text | None = None
    seconds: Annotated[float, msgspec.Meta(ge=0, le=1e7)] | None = None
    gpus: Annotated[list[Gpu], msgspec.Meta(max_length=1024)]
    p2p: Annotated[list[P2P], msgspec.Meta(max_length=1 << 20)] = []
    host: Host = Host()
    engine: Engine | None = None
    libraries: dict[str, str] = {}
    trees: dict[str, str] = {}
    metrics: Metrics = Metrics()
    notes: list[Text] = []


class _Tag(msgspec.Struct, frozen=True):
    schema: object = None


def _read(path: Path) -> bytes:
    label = shown(str(path))
    try:
        with path.open("rb") as stream:
            raw = stream.read(MAX_SNAPSHOT_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        msg = f"--observe {label} cannot be read: {reason}; pass the JSON file of a snapshot."
        raise InputError("observe", msg) from None
    if len(raw) > MAX_SNAPSHOT_BYTES:
        msg = (
            f"--observe {label} is larger than {MAX_SNAPSHOT_BYTES >> 20} MiB, which no snapshot is; pass another file."
        )
        raise InputError("observe", msg)
    return raw


def parse_snapshot(raw: bytes, label: str = "the snapshot") -> Snapshot:
    """The snapshot in `raw`; an InputError says which key is wrong and what it may hold."""
    try:
        schema = msgspec.json.decode(raw, type=_Tag).schema
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        msg = f"--observe {label} is no JSON object ({_brief(error)}); pass the file of a snapshot."
        raise InputError("observe", msg) from None
    if schema != "tilewright/observe/1":
        said = "no schema" if schema is None else f"schema {shown(schema)}"
        msg = f'--observe {label} has {said}; this version reads "schema": "tilewright/observe/1".'
        raise InputError("observe", msg)
    try:
        snapshot = msgspec.json.decode(raw, type=Snapshot)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        msg = f"--observe {label}: {_brief(error)}; docs/observe-schema.md lists the keys."
        raise InputError("observe", msg) from None
    indices = [gpu.index for gpu in snapshot.gpus]
    if len(set(indices)) != len(indices):
        msg = f"--observe {label}: two entries of gpus have the same index; give each GPU once."
        raise InputError("observe", msg)
    return snapshot


def _brief(error: Exception) -> str:
    text = "nested too deeply" if isinstance(error, RecursionError) else str(error)
    return text if len(text) <= 200 else text[:197] + "..."


def load_snapshot(path: Path) -> Snapshot:
    """Read and check the snapshot file at `path`."""
    return parse_snapshot(_read(path), shown(str(path)))
