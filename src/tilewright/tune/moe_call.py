"""One launch of a fused-MoE Triton kernel: its arguments by name, and what Triton specialises of them.

Serves our own kernel and those cut out of vLLM and SGLang alike (`triton_/extract.py`): all take their arguments by the
names that the engines' launchers use. The same description makes the compilation ahead of time and the launch, so that
what was compiled without a GPU is found in Triton's cache when it runs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final, Literal

import msgspec

from tilewright.errors import TreeError
from tilewright.triton_.extract import Kernel, extract_kernel
from tilewright.tune.layer import Layer
from tilewright.tune.space import Config, effective

Part = Literal["up", "down"]
PARTS: Final[tuple[Part, ...]] = ("up", "down")
OWN: Final = "fused_moe_triton.py"
_UNSPECIALISED: Final = frozenset(
    {
        "EM", "num_valid_tokens", "top_k", "GROUP_SIZE_M",
        "stride_asm", "stride_ask", "stride_bse", "stride_bsk", "stride_bsn",
    }
)  # fmt: skip
"""Integers that are handed over as they are: they are read once a program, outside of the loop, and one build then
serves every layer and number of tokens."""
_INT32: Final = (1 << 31) - 1
SPARSE: Final = 4
"""Experts a routed row from which vLLM's kernel, where it has `naive_block_assignment`, is given rows as they come
instead of rows by expert (fused_moe.py, SPARSITY_FACTOR in `_prepare_expert_assignment`)."""


@dataclass(frozen=True)
class Pointer:
    """A tensor as the compiler sees it: its element type, aligned to 16 bytes."""

    type: str


@lru_cache(maxsize=1)
def own_kernel() -> Kernel:
    """Tilewright's own kernel, as text."""
    text = files("tilewright.tune").joinpath(OWN).read_text()
    found = extract_kernel(text, "fused_moe_kernel", OWN)
    assert found is not None
    return found


def engine_kernel(kernel: str, layer: Layer, root: str | None) -> Kernel:
    """The kernel of the engine in `root`, or of the one installed beside this Python, cut out by parsing.

    Raises:
        InputError: there is no such engine, or its kernel cannot be cut out.
    """
    from tilewright.collectives.tree import open_tree
    from tilewright.libraries.tuned.engine import SPECS, package_folder
    from tilewright.triton_.compile import installed_root
    from tilewright.triton_.functions import find_kernel
    from tilewright.triton_.kernels import KERNELS
    from tilewright.triton_.model import TritonConfig

    engine = KERNELS[kernel].engine
    tile = TritonConfig(
        None, kernel, None, "", layer.selector, 64, 64, 64, 1, 4, 2, block_shape=layer.block_shape,
    )  # fmt: skip
    with open_tree(root or installed_root(engine)) as tree:
        package = package_folder(tree, SPECS[engine])
        if package is None:
            raise TreeError("root", f"There is no {engine} in that tree; pass its wheel or site-packages.")
        return find_kernel(tree, package, tile)


def kernel_text(kernel: Kernel) -> bytes:
    """The kernel as a file that a measuring process reads (`read_kernel`)."""
    fields = dataclasses.asdict(kernel)
    return msgspec.json.encode({**fields, "constants": sorted(kernel.constants)})


def read_kernel(data: bytes) -> Kernel:
    """What `kernel_text` wrote."""
    raw = msgspec.json.decode(data)
    parameters, constants = tuple(raw.pop("parameters")), frozenset(raw.pop("constants"))
    return Kernel(parameters=parameters, constants=constants, **raw)


def extents(layer: Layer, part: Part) -> tuple[int, int]:
    """(N, K) of one of the two GEMMs."""
    return (2 * layer.inter, layer.hidden) if part == "up" else (layer.hidden, layer.inter)


def padded_rows(layer: Layer, tokens: int, block_m: int) -> int:
    """Rows for which programs are started: routed rows with every expert's last block padded, at most (vLLM
    moe_align_block_size.py, and the cut for few tokens in fused_moe.py)."""
    rows = tokens * layer.topk
    most = rows + layer.experts * (block_m - 1)
    return min(rows * block_m, most) if rows < layer.experts else most


def row_by_row(kernel: Kernel, layer: Layer, tokens: int) -> bool:
    """Whether the engine's launcher gives each routed row a block of its own, without sorting: what it does at decode
    with many experts, by `SPARSE`."""
    return "naive_block_assignment" in kernel.parameters and tokens * layer.topk * SPARSE <= layer.experts


def grid(layer: Layer, tokens: int, part: Part, config: Config) -> int:
    """Programs of one launch."""
    n, _ = extents(layer, part)
    block_m = config["BLOCK_SIZE_M"]
    return -(-padded_rows(layer, tokens, block_m) // block_m) * -(-n // config["BLOCK_SIZE_N"])


def values_of(
    kernel: Kernel, layer: Layer, tokens: int, part: Part, given: Config, sm: int, tensors: Mapping[str, Any]
) -> dict[str, Any]:
    """The value of each parameter of `kernel`. `tensors` holds what the pointers point to: `a`, `b`, `c`, `a_scale`,
    `b_scale` (None where there is none), `weights`, `sorted` (None where `row_by_row`), `experts`, `padded`."""
    config = effective("vllm-fused-moe", layer, given)
    n, k = extents(layer, part)
    block = layer.block_shape or (0, 0)
    groups = -(-k // block[1]) if block[1] else 0
    fp8 = layer.dtype.startswith("fp8")
    # Newer engines multiply small FP8 tiles transposed on SM90 (triton_/kernels.py, Features.swap_ab).
    swap = fp8 and sm == 90 and config["BLOCK_SIZE_M"] < 64 and config["BLOCK_SIZE_N"] >= 64
    known: dict[str, Any] = {
        "a_ptr": tensors["a"], "b_ptr": tensors["b"], "c_ptr": tensors["c"], "a_scale_ptr": tensors["a_scale"],
        "b_scale_ptr": tensors["b_scale"], "topk_weights_ptr": tensors["weights"],
        "sorted_token_ids_ptr": tensors["sorted"], "expert_ids_ptr": tensors["experts"],
        "num_tokens_post_padded_ptr": tensors["padded"],
        "N": n, "K": k, "EM": padded_rows(layer, tokens, config["BLOCK_SIZE_M"]),
        "num_valid_tokens": tokens * layer.topk, "top_k": layer.topk if part == "up" else 1,
        "stride_am": k, "stride_ak": 1, "stride_be": n * k, "stride_bk": 1, "stride_bn": k, "stride_cm": n,
        "stride_cn": 1, "stride_asm": groups, "stride_ask": 1 if groups else 0,
        "stride_bse": -(-n // block[0]) * groups if groups else 1 if fp8 else 0, "stride_bsk": 1 if groups else 0,
        "stride_bsn": groups, "group_n": block[0], "group_k": block[1],
        "naive_block_assignment": row_by_row(kernel, layer, tokens), "SPLIT_K": 1,
        "MUL_ROUTED_WEIGHT": part == "down", "use_fp8_w8a8": fp8,
        "even_Ks": k % config["BLOCK_SIZE_K"] == 0, "block_k_diviable": k % config["BLOCK_SIZE_K"] == 0,
        "compute_type": {"dtype": "bfloat16"}, "swap_ab": swap, "SWAP_AB": swap, "ROUTER_TOPK": 1,
        **{name: value for name, value in config.items() if name.startswith(("BLOCK", "GROUP"))},
    }  # fmt: skip
    out: dict[str, Any] = {}
    for name in kernel.parameters:
        if name in known:
            out[name] = known[name]
        elif name in kernel.defaults:
            out[name] = kernel.defaults[name]
        elif name in kernel.constants:
            out[name] = False
        elif name.endswith(("_ptr", "_desc")):
            out[name] = None
        elif name.startswith("stride_"):
            out[name] = 0  # of a tensor that is not there: a bias, descriptors
        else:
            raise TreeError("root", f"{kernel.file}:{kernel.line}: {kernel.name} has a parameter {name} of its own.")
    return out


def pointers(layer: Layer, *, sorted_rows: bool) -> dict[str, Any]:
    """What `values_of` takes for `tensors` where nothing is launched."""
    fp8 = layer.dtype.startswith("fp8")
    data, scale = Pointer("fp8e4nv" if fp8 else "bf16"), Pointer("fp32") if fp8 else None
    integer = Pointer("i32")
    return {
        "a": data, "b": data, "c": Pointer("bf16"), "a_scale": scale, "b_scale": scale, "weights": Pointer("fp32"),
        "sorted": integer if sorted_rows else None, "experts": integer, "padded": integer,
    }  # fmt: skip


def compilation(kernel: Kernel, layer: Layer, tokens: int, part: Part, config: Config, sm: int) -> dict[str, Any]:
    """What has to be compiled for a launch, in the form that `triton_/worker.py` takes."""
    signature: dict[str, str] = {}
    constants: dict[str, Any] = {}
    divisible: list[str] = []
    tensors = pointers(layer, sorted_rows=not row_by_row(kernel, layer, tokens))
    for name, value in values_of(kernel, layer, tokens, part, config, sm, tensors).items():
        if name in kernel.constants or value is None:
            constants[name] = value
        elif isinstance(value, Pointer):
            signature[name] = f"*{value.type}"
            divisible.append(name)
        elif name in _UNSPECIALISED:
            signature[name] = "i32"
        elif value == 1:
            constants[name] = 1
        else:
            signature[name] = "i64" if value > _INT32 else "i32"
            if value % 16 == 0:
                divisible.append(name)
    return {
        "sm": sm, "num_warps": config["num_warps"], "num_stages": config["num_stages"], "signature": signature,
        "constants": constants, "divisible": divisible,
    }  # fmt: skip
