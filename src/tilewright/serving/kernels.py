"""Times of the kernels of a step: GEMMs, expert layers and collectives, as `tilewright.cost` estimates them.

One question is asked once: a sweep over layouts repeats the same shapes hundreds of times.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Literal

from tilewright.cost.estimate import Bound, Estimate
from tilewright.cost.limits import ACTIVATION_BYTES, rates
from tilewright.cost.predict import predict
from tilewright.cost.questions import AllreduceQuestion, GemmQuestion, MoeQuestion
from tilewright.cost.routing import expected_experts_hit
from tilewright.errors import InputError
from tilewright.hardware.gpu import GIGA, TERA, Gpu
from tilewright.hardware.names import resolve_gpu
from tilewright.models.formats import FORMATS, WeightFormat
from tilewright.serving.coefficients import Coefficients

__all__ = [
    "MOE_DTYPES",
    "NOT_GATED",
    "WAIT_HIGH",
    "WAIT_LOW",
    "Kernel",
    "collective_time",
    "fullest_share",
    "gemm_time",
    "has_nvlink",
    "moe_time",
    "reached_bandwidth",
]

Basis = Literal["auto", "modelled"]
_PLAIN_SHARE: Final = 0.85
"""Share of the bandwidth that plain kernels reach where no table covers a format: RTX PRO 6000 reaches 0.91 of it
in its best rows, GEMMs of few tokens less."""
_PLAIN_COMPUTE: Final = 0.6
_PLAIN_LAUNCH_S: Final = 5e-6
_REACHED: Final = 0.9
"""Reached bandwidth as a share of the published one where nobody measured it (RTX PRO 6000 Server: 1,450 of 1,597)."""

# Weight formats -> dtype of a GEMM question, where the kernel tables have one that moves the same bytes.
_GEMM_DTYPES: Final[dict[str, str]] = {
    "bf16": "bf16", "f16": "bf16", "nvfp4": "nvfp4", "fp8": "fp8", "fp8_channel": "fp8", "fp8_block": "fp8_block",
}  # fmt: skip
_GEMM_BACKENDS: Final[dict[str, str]] = {"fp8_block": "torch_flow"}
"""Where the usual backend's table holds small shapes only: the one that holds models' shapes."""
MOE_DTYPES: Final[dict[str, str]] = {
    "bf16": "bf16", "f16": "bf16", "nvfp4": "nvfp4", "fp8": "fp8", "fp8_channel": "fp8", "fp8_block": "fp8_block",
    "mxfp4": "w4a16_mxfp4", "int4": "int4_wo", "nvfp4_w4a16": "w4a16_nvfp4", "int8_w8a16": "int8_wo", "int8": "int8",
}  # fmt: skip


WAIT_LOW: Final = 0.5
WAIT_HIGH: Final = 2.0
"""Bounds of the wait for the slowest GPU, as shares of its expected value."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel's time and bounds in seconds; `limit_s` is what the hardware allows, None where a rate is unknown.

    `wait_s` of a collective is the part of its time, always modelled, in which it waits for the slowest GPU: what a
    benchmark of the collective alone does not see."""

    time_s: float
    low_s: float
    high_s: float
    limit_s: float | None
    bound: Bound
    measured: bool
    why: str = ""
    wait_s: float = 0.0


@lru_cache(maxsize=64)
def reached_bandwidth(gpu: Gpu) -> float:
    """Bytes a second that kernels reach: measured, or a usual share of the published one."""
    measured, published = gpu.bandwidth("measured").value, gpu.bandwidth().value
    if measured:
        return float(measured) * GIGA
    if not published:
        raise InputError("gpu", f"The memory bandwidth of a {gpu.name} is unknown, so no time can be given for it.")
    return float(published) * GIGA * _REACHED


def _plain(gpu: Gpu, moved: float, flops: float, fmt: WeightFormat) -> Kernel:
    """A roofline for what no kernel table covers."""
    limits = rates(gpu, fmt)
    bandwidth, peak = limits.bandwidth.value, limits.peak.value
    memory = moved / (reached_bandwidth(gpu) * _PLAIN_SHARE)
    compute = flops / (peak * TERA * _PLAIN_COMPUTE) if peak else 0.0
    time = max(memory, compute) + _PLAIN_LAUNCH_S
    limit = max(moved / (bandwidth * GIGA), flops / (peak * TERA)) if bandwidth and peak else None
    bound: Bound = "latency" if time < 2 * _PLAIN_LAUNCH_S else "memory" if memory >= compute else "compute"
    return Kernel(time, time / 1.5, time * 1.5, limit, bound, False, f"no kernel table for {fmt.name}: a roofline")


@lru_cache(maxsize=1 << 16)
def gemm_time(gpu_key: str, fmt: WeightFormat, m: int, n: int, k: int, basis: Basis = "auto") -> Kernel:
    """`m` tokens times an [n, k] weight in that format."""
    dtype = _GEMM_DTYPES.get(fmt.name)
    if dtype is not None:
        try:
            question = GemmQuestion(gpu=gpu_key, dtype=dtype, m=m, n=n, k=k, backend=_GEMM_BACKENDS.get(dtype))
            got = predict(question, basis=basis)
        except InputError:
            pass
        else:
            return Kernel(got.time_s, got.low_s, got.high_s, got.limit_s, got.bound, got.basis == "measured", got.why)
    gpu = resolve_gpu(gpu_key)
    limits = rates(gpu, fmt)
    moved = fmt.runtime_bytes(n, k) + m * k * ACTIVATION_BYTES[limits.activation] + m * n * 2.0
    return _plain(gpu, moved, 2.0 * m * n * k, fmt)


@dataclass(frozen=True, slots=True)
class MoeShape:
    """One layer's routed experts: model-wide counts, not divided by ranks. `inter` as the model has it."""

    hidden: int
    inter: int
    topk: int
    experts: int
    gated: bool
    format: WeightFormat

    def expert_bytes(self, expert_tp: int) -> int:
        """Bytes of one expert on one of the ranks that share it."""
        inter = -(-self.inter // expert_tp)
        first = self.format.runtime_bytes(inter * (2 if self.gated else 1), self.hidden)
        return first + self.format.runtime_bytes(self.hidden, inter)


def fullest_share(rows: float, groups: int) -> float:
    """How much more than its even share the fullest of `groups` gets of `rows` that fall at random: at least 1.

    Mean and standard deviation of a binomial; the largest of n lies about sqrt(2 ln n) deviations above the mean.
    """
    if groups <= 1 or rows <= 0:
        return 1.0
    import math

    mean = rows / groups
    deviation = math.sqrt(rows * (1 / groups) * (1 - 1 / groups))
    # Of two groups the larger lies 0.56 deviations above the mean of one; sqrt(2 ln n) overstates for few groups.
    above = {2: 0.56, 3: 0.85, 4: 1.03, 6: 1.27, 8: 1.42}.get(groups, math.sqrt(2 * math.log(groups)) * 0.8)
    return min(float(groups), 1 + above * deviation / mean)


_B12X_ROWS: Final = 96
"""Rows up to which b12x runs its small-batch kernel: 12 tokens of top-8 are fast, 16 are not, in the published
GLM-5 tables (glm5_8xpro6000_sglang_mtp_off_b12x, _mtp_on_b12x)."""


@lru_cache(maxsize=1 << 14)
def moe_time(
    gpu_key: str,
    shape: MoeShape,
    tokens: int,
    expert_tp: int,
    ep: int,
    engine: str,
    family: str,
    coefs: Coefficients,
    basis: Basis = "auto",
) -> Kernel:
    """One layer's routed experts on the fullest GPU, for `tokens` tokens of the whole expert-parallel group."""
    gpu = resolve_gpu(gpu_key)
    hit = expected_experts_hit(tokens, shape.topk, shape.experts)
    skew = fullest_share(hit, ep) if ep > 1 else 1.0
    moved = hit / ep * skew * shape.expert_bytes(expert_tp) + 3.0 * tokens * shape.hidden * 2.0
    rows = tokens * shape.topk
    flops = 2.0 * (3 if shape.gated else 2) * rows / ep * shape.hidden * shape.inter / expert_tp
    if family == "b12x" and shape.format.name in ("nvfp4", "nvfp4_w4a16"):
        plain = replace(shape, format=FORMATS["nvfp4"])
        base = moe_time(gpu_key, plain, tokens, expert_tp, ep, engine, "cutlass", coefs, basis)
        if rows <= _B12X_ROWS:
            time = max(base.time_s - coefs.b12x_saved_s, moved / reached_bandwidth(gpu))
        else:
            time = base.time_s + coefs.b12x_extra * moved / reached_bandwidth(gpu)
        return Kernel(
            time, time / 1.6, time * 1.6, base.limit_s, base.bound, False,
            "b12x: CUTLASS's time and the difference that published serving tables show",
        )  # fmt: skip
    dtype = MOE_DTYPES.get(shape.format.name)
    if dtype is not None:
        try:
            got = predict(
                MoeQuestion(
                    gpu=gpu_key, dtype=dtype, tokens=tokens, hidden=shape.hidden, inter=shape.inter, topk=shape.topk,
                    experts=shape.experts, tp=expert_tp, ep=ep, distribution="uniform",
                    backend=_moe_backend(engine, family, dtype) if shape.gated else NOT_GATED,
                ),
                basis=basis,
            )  # fmt: skip
        except InputError:
            pass
        else:
            time = got.time_s * (1 + (skew - 1) * _reading(got.time_s, moved, gpu))
            factor = time / got.time_s
            return Kernel(
                time, got.low_s * factor, got.high_s * factor, got.limit_s, got.bound, got.basis == "measured", got.why
            )
    return _plain(gpu, moved, flops, shape.format)


def _reading(time_s: float, moved: float, gpu: Gpu) -> float:
    """The part of a layer's time that grows with the experts hit."""
    return min(1.0, moved / reached_bandwidth(gpu) / time_s)


# Engine and family of kernels -> the backend whose rows were measured on RTX PRO 6000, by the kernel tables' names.
_MOE_BACKENDS: Final[dict[tuple[str, str, str], str]] = {
    ("sglang", "cutlass", "nvfp4"): "sglang_flashinfer_cutlass_moe",
    ("sglang", "triton", "fp8_block"): "sglang_fused_moe_triton",
    ("sglang", "marlin", "w4a16_mxfp4"): "sglang_marlin_moe",
    ("vllm", "cutlass", "nvfp4"): "vllm_compressedtensorsw4a4nvfp4moe_flashinfer_cutlass_flashinferexperts",
    ("vllm", "cutlass", "fp8"): "vllm_modeloptfp8moe_flashinfer_cutlass_flashinferexperts",
    ("vllm", "marlin", "w4a16_mxfp4"): "vllm_gptossmxfp4moe_marlin_marlinexperts",
    ("trtllm", "cutlass", "nvfp4"): "moe_torch_flow_cutlass",
    ("trtllm", "cutlass", "fp8"): "moe_torch_flow_cutlass",
    ("trtllm", "triton", "fp8_block"): "moe_torch_flow_triton_fp8_block",
}  # fmt: skip
NOT_GATED: Final = "moe_torch_flow_nongated"
"""The table of layers without a gate (Nemotron): two matrices an expert, not three."""
_USUAL_FAMILY: Final[dict[str, str]] = {"w4a16_mxfp4": "marlin", "fp8_block": "triton"}


def has_nvlink(gpu: Gpu) -> bool:
    """Whether the GPUs of a server are joined by NVLink."""
    return bool(gpu.value(_NVLINK_FIELD))


def _moe_backend(engine: str, family: str, dtype: str) -> str | None:
    """The kernel table of an engine and a family of kernels; None: the usual one of the GPU."""
    return _MOE_BACKENDS.get((engine, family or _USUAL_FAMILY.get(dtype, "cutlass"), dtype))


@lru_cache(maxsize=1 << 14)
def collective_time(
    gpu_key: str,
    ranks: int,
    size: int,
    op: str,
    backend: str | None,
    coefs: Coefficients,
    basis: Basis = "auto",
    engine: str = "sglang",
) -> Kernel:
    """One collective of `size` bytes among `ranks` GPUs of a server, the wait for the slowest included.

    Over NVLink engines take their own all-reduce where it is faster than NCCL's."""
    import math

    if ranks <= 1 or size <= 0:
        return Kernel(0.0, 0.0, 0.0, 0.0, "collective", True)
    got = _exchange(gpu_key, ranks, size, op, backend, basis)
    gpu = resolve_gpu(gpu_key)
    nvlink = has_nvlink(gpu)
    if backend is None and nvlink and op == "all_reduce":
        own = _exchange(gpu_key, ranks, size, op, _OWN_ALLREDUCE[engine], basis)
        got = min(got, own, key=lambda item: item.time_s)
    time, low = got.time_s, got.low_s
    if backend is None and nvlink:
        # Not measured in any packaged table: latency of a pair without switches, a stage for each doubling beyond it.
        pair = _exchange(gpu_key, 2, _SMALL_MESSAGE, op, None, basis).time_s
        share = (ranks - 1) / ranks * (2 if op == "all_reduce" else 1)
        stages = 1 + _NVLINK_STAGE * (math.log2(ranks) - 1)
        time = min(time, pair * stages + size * share / (float(gpu.value(_NVLINK_FIELD)) / 2 * GIGA * _NVLINK_SHARE))
        low = min(low, time / 2)
    elif backend in (None, "nccl"):
        latency = _exchange(gpu_key, ranks, _SMALL_MESSAGE, op, backend, basis).time_s
        share = (ranks - 1) / ranks * (2 if op == "all_reduce" else 1)
        time = min(time, latency + size * share / _TUNED_BUS)
        low = min(low, time / _TUNED_SPREAD)
    wait = coefs.wait_s * math.log2(ranks)
    return Kernel(
        time + wait, low + wait * WAIT_LOW, max(got.high_s, time) + wait * WAIT_HIGH, got.limit_s, "collective",
        got.basis == "measured" and time == got.time_s, got.why, wait,
    )  # fmt: skip


@lru_cache(maxsize=1 << 13)
def _exchange(gpu_key: str, ranks: int, size: int, op: str, backend: str | None, basis: Basis) -> Estimate:
    question = AllreduceQuestion(
        gpu=gpu_key, gpus=ranks, bytes=size, backend=backend, collective=op, tuned=True if backend is None else None
    )  # fmt: skip
    return predict(question, basis=basis)


_NVLINK_FIELD: Final = "interconnect_nvlink_gbs_bidir"
_OWN_ALLREDUCE: Final = {"sglang": "sglang_custom", "vllm": "vllm_custom", "trtllm": "trtllm"}
"""The all-reduce that an engine brings along."""
_TUNED_BUS: Final = 39e9
"""Bus bandwidth of large messages among 8 RTX PRO 6000 with NCCL's channels set for PCIe: 37.6 to 41.1 GB/s, against
22.2 as it comes, which is what the kernel tables have (wiki_nccl_8gpu_xml). Serving boxes of the published tables set
it (NCCL_MIN_NCHANNELS=8, a graph file), so a server is taken to be tuned."""
_TUNED_SPREAD: Final = 1.15
_NVLINK_STAGE: Final = 0.25
"""Latency that each doubling of the ranks adds over NVLink, of a pair's: assumed, ranks reach each other directly."""
_NVLINK_SHARE: Final = 0.75
"""Share of NVLink's one-way rate that large messages reach: assumed, as NCCL's own tests show on H100 (360 of 450)."""
_SMALL_MESSAGE: Final = 8192
"""A message whose time is latency: 8 KB take 24 us among 8 GPUs, 1 KB the same."""


def plain_formats() -> tuple[str, ...]:
    """Formats that no kernel table covers."""
    return tuple(name for name in FORMATS if name not in _GEMM_DTYPES)
