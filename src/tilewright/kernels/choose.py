"""Which kernel and which build of it runs a problem: small tables, measured on an H200 on 2026-12-02 and 03.

The figures are in docs/notes/nvfp4-moe-h200.md: GLM-5's GEMMs at TP8 and EP8, 1 to 4,096 tokens. Other architectures
take the same tables, unmeasured; no build of them needs more shared memory than SM120 has.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Final, Literal

from tilewright.kernels.config import GroupedConfig
from tilewright.kernels.decode import DecodeConfig
from tilewright.kernels.layout import GROUP_ROWS, STEP_K
from tilewright.kernels.prefill import PrefillConfig

_REPEATS: Final = 0.124
"""Rows an expert beyond the first, on average, up to which every row reads its own expert: GLM-5 at TP8 with 8 tokens
took 32 + 21 us so, the sum included, and 36 + 21 sorted, which sorts and sums besides."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """What the choice wants to know of a GPU: streaming multiprocessors, whether it has Hopper's wgmma (SM90), the name
    by which builds that `tilewright tune` found are looked up, and bytes of shared memory of one multiprocessor."""

    sms: int
    wgmma: bool
    name: str = ""
    shared_bytes: int = 233_472
    """228 KiB on SM90 and SM100, 100 KiB on SM120 (CUDA C++ Programming Guide, compute capabilities)."""


H200: Final = Gpu(sms=132, wgmma=True, name="NVIDIA H200")

WGMMA: Final = (
    (6.5, PrefillConfig(tokens=16, narrow=8, between=8, stages=7)),
    (18.0, PrefillConfig(tokens=24, narrow=8, between=8, stages=7)),
    (28.0, PrefillConfig(tokens=40, narrow=24, between=8, stages=6)),
    (40.0, PrefillConfig(tokens=48, narrow=32, between=8, stages=6)),
    (56.0, PrefillConfig(tokens=64, narrow=40, between=8, stages=5)),
    (68.0, PrefillConfig(tokens=80, narrow=56, between=8, stages=4)),
    (88.0, PrefillConfig(tokens=112, narrow=80, between=16, stages=3)),
    (112.0, PrefillConfig(tokens=128, narrow=96, between=16, stages=3)),
    (float("inf"), PrefillConfig(tokens=160, narrow=128, between=16, stages=3)),
)
"""Rows of a tile up to which a build is taken, on Hopper and above what is sorted: of up to five tried at 4 to 8, 10,
12, 16, 24, 32, 48, 64, 96 and 128 rows an expert the fastest for GLM-5's whole layer at TP8, or within 2 % of it. It
leaves room for most of what chance adds to the mean: the weights of an expert that gets more are decoded twice."""
_WHOLE_UP_TO: Final = 144.0
"""Rows an expert that still fit the widest tile with what chance adds; `route` deals more out evenly over several."""
_SORTED_UP_TO, _SORTED_UP_TO_FEW_STEPS, _FEW_STEPS = 5.0, 12.0, 2
"""Rows an expert up to which `_GROUPED` is taken on Hopper, too, and the same where the last matrix has at most so many
128-value steps of K: its tiles are over before wgmma's longer start has paid. Both GEMMs together took 190 us at TP8 (2
steps) with 5 rows, 213 with 8 and 233 with 12, and 213, 224 and 234 with wgmma; at EP8 (16 steps) 174 and 184 with 4
rows, 195 and 191 with 5; Qwen3-235B's at TP4 (3 steps) 116 and 115 with 8."""
_GROUPED: Final = (
    (5.5, GroupedConfig(columns=1, blocks=4, warps=4, stages=3, units=4, resident=2)),
    (12.0, GroupedConfig(columns=2, blocks=4, warps=4, stages=3, units=4)),
    (float("inf"), GroupedConfig(columns=4, blocks=4, warps=4, stages=3, units=4)),
)
"""Rows an expert up to which a build is taken: of its kind the fastest at 1.3 to 5, at 6 to 12 and at 32 to 128, within
3 % of it at 16."""
_SMALLER: Final = GroupedConfig(columns=1, blocks=2, warps=4, stages=4, units=4, resident=2)
"""In place of a one-column build of which a multiprocessor would hold no two: 4 warps would wait alone."""


def row_by_row(rows: int, experts: int) -> bool:
    """Whether `rows` routed rows over `experts` experts are best taken one by one (`decode`), not sorted by expert.

    Only what the host knows without asking the device is used: how many rows share an expert when they fall at random.
    """
    return (rows - 1) / (2 * experts) <= _REPEATS


def choose(rows: int, experts: int, steps: int, gpu: Gpu = H200) -> GroupedConfig | PrefillConfig:
    """The build of the grouped GEMM for `rows` routed rows over `experts` experts.

    `steps`: 128-value steps of K of the matrix; of a layer, whose matrices run one build, those of the second. Only
    what the host knows without asking the device: how rows spread over experts is not looked at.
    """
    average = rows / max(1, min(rows, experts))
    if gpu.wgmma and average > (_SORTED_UP_TO_FEW_STEPS if steps <= _FEW_STEPS else _SORTED_UP_TO):
        tiles = max(1, ceil(average / _WHOLE_UP_TO))
        return next(config for limit, config in WGMMA if average / tiles <= limit)
    build = next(config for limit, config in _GROUPED if average <= limit)
    return _SMALLER if build.columns == 1 and 2 * build.shared_bytes > gpu.shared_bytes else build


_FEW_STEPS_ALONE: Final = 4
"""Steps of K up to which one warp, or as many as there are steps, take a tile."""


def choose_decode(
    rows: int, width: int, steps: int, sms: int = H200.sms, *, place: Literal["alone", "first", "summed"] = "alone"
) -> DecodeConfig:
    """The build for `rows` single rows times matrices of `width` stored rows and `steps` 128-value steps of K.

    `place`: alone, the first of a layer, or the layer's second, `rows` tokens whose experts' steps follow one another.
    One stage everywhere: where a warp waits, others of the SM work, and what more stages would hold ahead is better
    held by more of them. So the GPU is to be full of warps (12 to 24 an SM) and yet over in one go: the limits are
    where one build overtook the next in GLM-5's, DeepSeek-V3's, Qwen3-235B's and gpt-oss-120b's matrices at 1 to 12
    tokens.
    """
    load = rows * -(-width // GROUP_ROWS) / sms  # 64-row groups an SM
    if steps <= _FEW_STEPS_ALONE and place != "summed":
        if load > 24:
            return DecodeConfig(blocks=4, warps=2, stages=1)
        return DecodeConfig(blocks=2, warps=1 if load > 5.5 else steps, stages=1)
    if load < 0.6:
        return DecodeConfig(blocks=2, warps=16, stages=1)
    if load < 0.9:
        # In a layer, whose kernels overlap, one block an SM leaves room for those of the other: GLM-5 at one token took
        # 11.9 us with two such, and 13.4 with builds that were as fast or faster one by one.
        return DecodeConfig(1, 8, 1) if place == "alone" else DecodeConfig(4, 16, 1)
    if load < 1.9:
        return DecodeConfig(blocks=2, warps=8, stages=1)
    # Of 8 warps an SM holds three blocks, summed two: a little more than that many groups an SM would leave most SMs
    # waiting for the last.
    narrow = load > 2.5 if place == "summed" else 3 < load < 4.5
    return DecodeConfig(blocks=4, warps=4 if narrow else 8, stages=1)


def layer_build(
    rows: int, width: int, steps: int, second_steps: int, experts: int, gpu: Gpu = H200
) -> GroupedConfig | DecodeConfig | PrefillConfig:
    """What `fused_moe` runs for the first matrix of `experts` experts, `width` stored rows by `steps` steps of K.

    Sorted rows take the same build for the second, of `second_steps`; single ones (DecodeConfig) one of their own.
    """
    if row_by_row(rows, experts):
        return choose_decode(rows, width, steps, gpu.sms, place="first")
    return choose(rows, experts, second_steps, gpu)


def chosen_build(
    rows: int, width: int, k: int, experts: int, gpu: Gpu = H200
) -> GroupedConfig | DecodeConfig | PrefillConfig:
    """What `grouped_gemm` runs for `rows` routed rows times matrices [width, k] of `experts` experts."""
    steps = -(-k // STEP_K)
    if row_by_row(rows, experts):
        return choose_decode(rows, width, steps, gpu.sms)
    return choose(rows, experts, steps, gpu)
