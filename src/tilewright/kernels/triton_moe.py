"""The grouped GEMM and the fused MoE layer on the Triton kernels: what runs where CUDA C++ was not tuned.

W4A16 (`activations="bf16"`) decodes in registers and runs wherever Triton does. W4A4 (`"nvfp4"`) quantises the
activations at run time and multiplies with the block-scaled MMA of SM100 and SM120.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any, Final

from tilewright.errors import InputError, MissingPartError, shown
from tilewright.kernels.arguments import activations_of, check_pair, experts_of, router_of
from tilewright.kernels.layout import STEP_K, VALUES_A_SCALE
from tilewright.kernels.parts import EXTRA, on_its_device, torch_module
from tilewright.kernels.room import check_room, gemm_bytes, layer_bytes, quantised_bytes
from tilewright.kernels.triton_layout import TritonWeights
from tilewright.kernels.triton_tiles import Activations, Tile, for_steps, tile_of

BLOCK_SCALED: Final = (10, 0)
"""Least compute capability with a block-scaled MMA (PTX ISA, mma and tcgen05.mma: .kind::mxf4nvf4)."""
MAX_EXPERTS: Final = 1024
"""One program routes: it counts this many experts at once."""
_ROUTE_CHUNK: Final = 1024
_ROUTE_WARPS: Final = 8
_SUM_BLOCK: Final = 1024
_QUANTISE_WARPS: Final = 8


def _kernels() -> Any:
    """The kernels, imported where Triton is. Raises MissingPartError where it is not installed."""
    try:
        return import_module("tilewright.kernels.triton_kernels")
    except ModuleNotFoundError as error:
        if error.name != "triton":
            raise
        raise MissingPartError("Triton, which compiles these kernels,", EXTRA) from None


def _interpreted() -> bool:
    """Whether Triton runs kernels in Python, on the CPU (TRITON_INTERPRET=1): for tests."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def _fetches_ahead(x: Any) -> bool:
    """Whether the block-scaled MMA is mma.sync (SM120 and later, and the interpreter's stand-in), not tcgen05."""
    return not x.is_cuda or torch_module().cuda.get_device_capability(x.device) >= (12, 0)


def _power(value: int) -> int:
    """The least power of two that is not below `value`."""
    return 1 << max(0, value - 1).bit_length()


class _Routed:
    """Routed rows by expert in blocks, made on the device."""

    def __init__(self, topk_ids: Any, experts: int, block_m: int) -> None:
        torch = torch_module()
        device = topk_ids.device
        rows = int(topk_ids.numel())
        # Each expert that is hit can leave one block partly filled.
        self.limit = min(rows, experts) + rows // block_m
        self.ids = torch.empty(self.limit * block_m, dtype=torch.int32, device=device)
        self.experts = torch.empty(self.limit, dtype=torch.int32, device=device)
        self.count = torch.empty(1, dtype=torch.int32, device=device)
        most = _power(experts)
        counts = torch.zeros(most, dtype=torch.int32, device=device)
        _kernels().route_kernel[(1,)](
            topk_ids, self.ids, self.experts, self.count, counts, rows, experts,
            block_m=block_m, limit=self.limit, most=most, chunk=_ROUTE_CHUNK, num_warps=_ROUTE_WARPS,
        )  # fmt: skip


def quantise(x: Any, steps: int) -> tuple[Any, Any, Any]:
    """NVFP4 of bf16 [rows, K] at run time, padded with zeros to `steps` whole steps: (codes uint8 [rows, steps * 64],
    scales float8_e4m3fn [rows, steps * 8], factors float32 [rows]). The order of values inside 16 is that of
    `TritonWeights`."""
    torch = torch_module()
    rows, k = (int(extent) for extent in x.shape)
    codes = torch.empty((rows, steps * STEP_K // 2), dtype=torch.uint8, device=x.device)
    scales = torch.empty((rows, steps * STEP_K // VALUES_A_SCALE), dtype=torch.float8_e4m3fn, device=x.device)
    factors = torch.empty(rows, dtype=torch.float32, device=x.device)
    groups = _power(steps * STEP_K // VALUES_A_SCALE)
    _kernels().quantise_kernel[(rows,)](
        x, codes, scales, factors, x.stride(0), k, steps, groups=groups, num_warps=_QUANTISE_WARPS
    )
    return codes, scales, factors


def _product(
    x: Any, weights: TritonWeights, routed: _Routed, out: Any, tile: Tile, *, rows: int, topk: int,
    activations: Activations, router: Any = None,
) -> None:  # fmt: skip
    """One grouped GEMM into `out` [rows, width]. Rows of no expert are left as they are."""
    kernels = _kernels()
    tile = for_steps(tile, weights.steps)
    tiles = -(-weights.rows // tile.block_n)
    grid = (tiles * routed.limit,)
    common = {
        "gated": weights.gated, "weighted": router is not None, "block_n": tile.block_n, "block_m": tile.block_m,
        "block_k": tile.block_k, "num_warps": tile.warps, "num_stages": tile.stages, "wide": _interpreted(),
    }  # fmt: skip
    router = out if router is None else router  # not read then, but an argument has to be a tensor
    if activations == "nvfp4":
        codes, scales, factors = quantise(x, weights.steps)
        kernels.w4a4_kernel[grid](
            codes, scales, factors, weights.codes, weights.scales, weights.factor, routed.ids, routed.experts,
            routed.count, router, out, rows, topk, weights.rows, weights.steps, tiles,
            ahead=_fetches_ahead(x), **common,
        )  # fmt: skip
        return
    kernels.w4a16_kernel[grid](
        x, weights.codes, weights.scales, weights.factor, routed.ids, routed.experts, routed.count, router, out,
        x.stride(0), rows, topk, weights.rows, weights.k, weights.steps, tiles,
        whole_k=weights.k % tile.block_k == 0, weights_left=tile.weights_left, **common,
    )  # fmt: skip


def _activations(x: Any, weights: TritonWeights, activations: str) -> Any:
    torch = torch_module()
    if activations not in ("bf16", "nvfp4"):
        raise InputError("activations", f"activations are bf16 or nvfp4, not {shown(activations)}.")
    x = activations_of(x, weights)
    if activations == "nvfp4" and x.is_cuda and torch.cuda.get_device_capability(x.device) < BLOCK_SCALED:
        major, minor = torch.cuda.get_device_capability(x.device)
        raise InputError(
            "activations",
            f"activations='nvfp4' needs the block-scaled MMA of compute capability 10.0 and later; this GPU has "
            f"{major}.{minor}. Use activations='bf16'.",
        )
    return x


def _check_room(x: Any, rows: int, needed: int) -> None:
    """Ask the GPU; Triton's interpreter computes in the host's memory."""
    if x.is_cuda:
        check_room(torch_module(), x.device, rows, needed)


@on_its_device
def grouped_gemm_triton(
    x: Any, weights: TritonWeights, topk_ids: Any, *, activations: Activations = "bf16", tile: Tile | None = None
) -> Any:
    """bf16 [tokens * topk, width]: row `t * topk + i` is token t times the matrix of its i-th expert.

    `weights` with `gated` gives SiLU(gate) * up. Rows whose expert is outside 0..experts-1 are zero. `tile` replaces
    the table's.

    Raises:
        InputError: shapes or types do not go together, or the GPU has no block-scaled MMA for `activations="nvfp4"`.
        MissingPartError: Triton is not installed.
    """
    torch = torch_module()
    x = _activations(x, weights, activations)
    ids = experts_of(topk_ids, x, weights.experts, MAX_EXPERTS)
    rows, topk = int(ids.numel()), int(ids.shape[1])
    _check_room(x, rows, gemm_bytes(rows, weights.width) + quantised_bytes(int(x.shape[0]), weights.k, activations))
    out = torch.zeros((rows, weights.width), dtype=torch.bfloat16, device=x.device)
    if rows == 0:
        return out
    tile = tile or tile_of(rows, weights.experts, activations)
    routed = _Routed(ids, weights.experts, tile.block_m)
    _product(x, weights, routed, out, tile, rows=rows, topk=topk, activations=activations)
    return out


@on_its_device
def fused_moe_triton(
    x: Any, w13: TritonWeights, w2: TritonWeights, topk_weights: Any, topk_ids: Any, *,
    activations: Activations = "bf16", tile: Tile | None = None,
) -> Any:  # fmt: skip
    """bf16 [tokens, hidden]: for each token the sum over its experts of router weight * down(SiLU(gate) * up).

    Args:
        x: bf16 [tokens, hidden]; another stride than 1 along hidden costs a copy.
        w13, w2: `pack_triton` of gate and up (`gated`) and of down.
        topk_weights, topk_ids: [tokens, topk]. Experts outside 0..experts-1 (on other GPUs) add nothing.
        activations: "bf16", or "nvfp4" to quantise both products' inputs, each row with a factor of its own.

    Raises:
        InputError: shapes or types do not go together, or the GPU has no block-scaled MMA for `activations="nvfp4"`.
        MissingPartError: Triton is not installed.
    """
    torch = torch_module()
    check_pair(w13, w2)
    x = _activations(x, w13, activations)
    tokens = int(x.shape[0])
    ids = experts_of(topk_ids, x, w13.experts, MAX_EXPERTS)
    router = router_of(topk_weights, ids)
    routed_rows = int(ids.numel())
    quantised = quantised_bytes(tokens, w13.k, activations) + quantised_bytes(routed_rows, w2.k, activations)
    _check_room(x, routed_rows, layer_bytes(routed_rows, tokens, w2.rows, w2.k, row_by_row=False) + quantised)
    out = torch.empty((tokens, w2.rows), dtype=torch.bfloat16, device=x.device)
    rows, topk = int(ids.numel()), int(ids.shape[1])
    if rows == 0:
        return out.zero_()
    tile = tile or tile_of(rows, w13.experts, activations)
    routed = _Routed(ids, w13.experts, tile.block_m)
    middle = torch.empty((rows, w13.width), dtype=torch.bfloat16, device=x.device)
    parts = torch.empty((rows, w2.rows), dtype=torch.bfloat16, device=x.device)
    if activations == "nvfp4":
        middle.zero_()  # rows of other GPUs' experts are quantised, too
    _product(x, w13, routed, middle, tile, rows=rows, topk=topk, activations=activations)
    _product(middle, w2, routed, parts, tile, rows=rows, topk=1, activations=activations, router=router)
    _kernels().sum_kernel[(tokens, -(-w2.rows // _SUM_BLOCK))](
        parts, ids, out, w2.rows, w2.experts, topk=topk, block=_SUM_BLOCK
    )
    return out
