"""Loading our CUDA C++ kernels, compiled at run time, and launching them on torch's current stream."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tilewright.kernels.builds import cubin
from tilewright.kernels.config import GroupedConfig
from tilewright.kernels.layout import PackedWeights
from tilewright.kernels.nvrtc import checked
from tilewright.kernels.parts import cuda_module, torch_module

PLAIN, SILU, WEIGHTED = 0, 1, 2
_FEATURES_OF_ONE_ARCH = frozenset({90, 100, 103, 120, 121})


def architecture(major: int, minor: int) -> str:
    """The target to compile for: with that architecture's own instructions where it has any."""
    number = major * 10 + minor
    return f"sm_{number}a" if number in _FEATURES_OF_ONE_ARCH else f"sm_{number}"


@dataclass(frozen=True, slots=True)
class Kernel:
    """A loaded kernel and how many of its thread blocks the device holds at once."""

    function: Any
    shared_bytes: int
    threads: int
    resident_blocks: int


@lru_cache(maxsize=256)
def load_kernel(
    source: str, name: str, defines: tuple[str, ...], shared_bytes: int, threads: int, device: int
) -> Kernel:
    """Compile and load `name` on `device` (which must have a context: torch's)."""
    driver, torch = cuda_module("driver"), torch_module()
    torch.cuda.current_stream(device)
    properties = torch.cuda.get_device_properties(device)
    made = cubin(source, architecture(properties.major, properties.minor), defines)
    module = checked(driver.cuModuleLoadData(made))
    function = checked(driver.cuModuleGetFunction(module, name.encode()))
    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    checked(driver.cuFuncSetAttribute(function, attribute, shared_bytes))
    fit = checked(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, threads, shared_bytes))
    return Kernel(function, shared_bytes, threads, int(fit) * properties.multi_processor_count)


def launch(kernel: Kernel, grid: int, arguments: ctypes.Structure, *, overlap: bool = False) -> None:
    """Launch on torch's current stream. `overlap` lets it begin while the one before ends (it waits inside).

    Weights, routing and router weights are read before the wait: none of them may come from the kernel before, nor from
    one that it overlapped.
    """
    driver, torch = cuda_module("driver"), torch_module()
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid, 1, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = kernel.threads, 1, 1
    config.sharedMemBytes = kernel.shared_bytes
    config.hStream = torch.cuda.current_stream().cuda_stream
    if overlap:
        attribute = driver.CUlaunchAttribute()
        attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        attribute.value.programmaticStreamSerializationAllowed = 1
        config.attrs, config.numAttrs = [attribute], 1
    parameters = (ctypes.c_void_p * 1)(ctypes.addressof(arguments))
    checked(driver.cuLaunchKernelEx(config, kernel.function, ctypes.addressof(parameters), 0))


class _Grouped(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in (
            "x", "weights", "global_scale", "ids", "experts", "block_count", "router", "out", "partials", "arrivals"
        )),
        ("x_stride", ctypes.c_uint64),
        *((name, ctypes.c_int32) for name in (
            "rows", "rows_per_token", "k", "k_steps", "row_tiles", "groups", "n_out"
        )),
    )  # fmt: skip


class _Route(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("topk", "ids", "experts_of", "block_count", "arrivals")),
        *((name, ctypes.c_int32) for name in ("rows", "experts", "block_rows", "arrival_count")),
    )


class _Sum(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("y", "topk", "out")),
        *((name, ctypes.c_int32) for name in ("tokens", "k", "width", "experts")),
    )


@dataclass(frozen=True, slots=True)
class Routing:
    """Routed rows by expert, in blocks of `block_rows`: what `route` makes on the device. `arrivals` counts the parts
    of each tile that are done: zeros between launches of `grouped`, which run one after the other."""

    ids: Any
    experts: Any
    block_count: Any
    arrivals: Any
    block_rows: int
    block_limit: int
    rows: int


_ROUTE_THREADS = 1024
_SUM_THREADS = 256
_ROUTED_A_BLOCK, _MOST_ROUTE_BLOCKS = 2048, 16
"""Rows for which one more thread block sorts. At 32,768 rows one block took 45 us on an H200."""
MAX_EXPERTS = _ROUTE_THREADS
"""One thread counts each expert."""


def route(topk_ids: Any, experts: int, block_rows: int, row_tiles: int = 0) -> Routing:
    """`topk_ids` (int32, any shape) sorted by expert. Rows of experts outside 0..experts-1 are left out.

    `row_tiles`: most that a matrix has in the calls of `grouped` to come (`GroupedConfig.row_tiles`).
    """
    torch = torch_module()
    rows, device = int(topk_ids.numel()), topk_ids.device
    # Each expert that is hit can leave one block partly filled.
    limit = min(rows, experts) + rows // block_rows
    ids = torch.empty(limit * block_rows, dtype=torch.int32, device=device)
    of = torch.empty(limit, dtype=torch.int32, device=device)
    count = torch.empty(1, dtype=torch.int32, device=device)
    arrivals = torch.empty(limit * row_tiles, dtype=torch.int32, device=device)
    kernel = load_kernel("nvfp4_route.cu", "nvfp4_route", (), 0, _ROUTE_THREADS, device.index)
    arguments = _Route(
        topk_ids.data_ptr(), ids.data_ptr(), of.data_ptr(), count.data_ptr(), arrivals.data_ptr(), rows, experts,
        block_rows, limit * row_tiles,
    )  # fmt: skip
    launch(kernel, min(_MOST_ROUTE_BLOCKS, -(-rows // _ROUTED_A_BLOCK)), arguments)
    return Routing(ids, of, count, arrivals, block_rows, limit, rows)


def grouped(
    x: Any, weights: PackedWeights, routing: Routing, out: Any, config: GroupedConfig, *,
    rows_per_token: int = 1, mode: int = PLAIN, router: Any = None, overlap: bool = False,
) -> None:  # fmt: skip
    """One grouped GEMM into `out` ([routing.rows, width], bf16). Rows of no expert are left as they are."""
    device = x.device
    kernel = load_kernel(
        "nvfp4_grouped.cu", "nvfp4_grouped", config.defines(mode), config.shared_bytes, config.threads,
        device.index,
    )  # fmt: skip
    torch = torch_module()
    sms = int(torch.cuda.get_device_properties(device).multi_processor_count)
    grid = min(kernel.resident_blocks, config.resident * sms or kernel.resident_blocks)
    row_tiles = config.row_tiles(weights.width, weights.gated)
    arrivals, tiles = routing.arrivals, routing.block_limit * row_tiles
    if arrivals.numel() < tiles:
        arrivals = torch.zeros(tiles, dtype=torch.int32, device=device)
    # Two parts that each thread block may leave. Freed on return: only what runs later on this stream gets it.
    partials = torch.empty(grid * 2 * config.tile_rows * config.block_rows, device=device)
    arguments = _Grouped(
        x.data_ptr(), weights.data.data_ptr(), weights.global_scale.data_ptr(), routing.ids.data_ptr(),
        routing.experts.data_ptr(), routing.block_count.data_ptr(), router.data_ptr() if router is not None else 0,
        out.data_ptr(), partials.data_ptr(), arrivals.data_ptr(), x.stride(0) * x.element_size(),
        routing.rows, rows_per_token, weights.k, weights.steps, row_tiles, weights.groups, weights.width,
    )  # fmt: skip
    launch(kernel, grid, arguments, overlap=overlap)


def sum_experts(y: Any, topk_ids: Any, out: Any, experts: int) -> None:
    """out[token] = sum of y's rows of that token (bf16, already weighted) whose expert is one of ours."""
    kernel = load_kernel("nvfp4_route.cu", "nvfp4_sum", (), 0, _SUM_THREADS, y.device.index)
    tokens, width = int(out.shape[0]), int(out.shape[1])
    vectors = tokens * (width // 8)
    arguments = _Sum(y.data_ptr(), topk_ids.data_ptr(), out.data_ptr(), tokens, int(topk_ids.shape[1]), width, experts)
    launch(kernel, -(-vectors // _SUM_THREADS), arguments, overlap=True)
