"""The peers of compare_nvfp4: Humming, torch's grouped_mm and triton_kernels with MXFP4 weights."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

import torch
import triton
from nvfp4_case import Case, Problem, Run

from tilewright.kernels import reference

MXFP4 = "triton_kernels MXFP4"
MXFP4_GROUP = 32
MXFP4_WARPS = (8, 4)
"""Warps of a block, part of the layout of its scales: the package's default, and the half for few rows."""


def _back(case: Case, out: Any) -> Any:
    """Rows sorted by expert put in routed order."""
    rows = torch.empty_like(out)
    rows[case.order] = out
    return rows[: case.problem.rows]


def humming_version() -> str | None:
    try:
        return str(getattr(import_module("humming"), "__version__", "installed"))
    except ModuleNotFoundError:
        return None


def humming_layers(problem: Problem, tensors: tuple[Any, Any, Any]) -> list[Any]:
    """Two layers of the same weights."""
    codes, scales, factor = tensors
    layer = import_module("humming.layer").HummingLayer(
        shape_n=problem.n, shape_k=problem.k, weight_config={"quant_method": "modelopt", "quant_algo": "nvfp4"},
        num_experts=problem.experts, torch_dtype=torch.bfloat16,
    ).cuda()  # fmt: skip
    layer.load_from_tensors(
        {"weight": codes, "weight_scale": scales.view(torch.float8_e4m3fn), "weight_scale_2": factor}
    )
    layer.transform()
    return [layer, deepcopy(layer)]


def humming(case: Case, layers: list[Any], kind: str) -> Run:
    """One of Humming's two ways: `indexed` gathers rows itself, `grouped` wants them sorted (done beforehand)."""
    p = case.problem
    moe_tensors = import_module("humming.testing.data").generate_moe_tensors
    prepared: list[dict[str, Any]] = []
    if kind == "grouped":
        for ids in case.ids:
            order = ids.view(-1).argsort(stable=True)
            ends = moe_tensors(ids, p.experts, "grouped_contiguous")[1]
            prepared.append(
                {
                    "inputs": case.x[order // p.per_token].contiguous(),
                    "expert_layout": ends,
                    "compute_config": {"gemm_type": "grouped_contiguous"},
                }
            )
    else:
        method = import_module("humming.layer").HummingLayerMethod
        configs = method.get_default_tuning_configs(layers[0], gemm_type="indexed")
        block = next(config for low, high, config in configs if low < p.rows <= high)["block_shape"][0]
        for ids in case.ids:
            _, _, sorted_ids, expert_ids, padded = moe_tensors(ids, p.experts, "indexed", block)
            prepared.append(
                {
                    "inputs": case.x,
                    "sorted_ids": sorted_ids,
                    "expert_ids": expert_ids,
                    "num_tokens_padded": padded,
                    "top_k": p.per_token,
                    "compute_config": {"gemm_type": "indexed"},
                }
            )

    def answer(out: Any) -> Any:
        return _back(case, out) if kind == "grouped" else out[: p.rows]

    return Run(lambda i: layers[(i // case.sets) % 2](**prepared[i % case.sets]), answer)


def grouped_mm(case: Case, dense: Any) -> Run:
    """torch's bf16 grouped GEMM: 3.6 times the bytes, the first peer of many tokens."""
    p = case.problem
    rows = case.x[case.order // p.per_token].contiguous()
    ends = torch.bincount(case.ids[0].view(-1), minlength=p.experts).cumsum(0).int()
    return Run(
        lambda _: torch._grouped_mm(rows, dense.transpose(1, 2), offs=ends),  # pyright: ignore[reportPrivateImportUsage]
        lambda out: _back(case, out),
        expert_bytes=2 * p.n * p.k,
    )


@triton.constexpr_function
def is_hip_gfx1250() -> bool:
    return False


def mxfp4_version() -> str | None:
    """triton_kernels, where installed. Its release of 2026-05 asks triton for names that 3.6 does not have yet."""
    target: Any = import_module("triton.language.target_info")
    if not hasattr(target, "is_hip_gfx1250"):
        target.is_hip_gfx1250 = is_hip_gfx1250
    function: Any = triton.JITFunction
    if not hasattr(function, "def_file_line_number"):
        # For debuggers alone: where the source of a specialised kernel begins.
        function.def_file_line_number, function.def_file_col_number = 1, 0
    if find_spec("triton_kernels") is None:
        return None
    try:
        return version("tokenspeed-triton-kernels")
    except PackageNotFoundError:
        return "installed"


@dataclass(frozen=True)
class Mxfp4Weights:
    """The experts' weights as MXFP4: `codes` [experts, k/2, n] and `scales` [experts, k/32, n], then swizzled."""

    codes: Any
    scales: Any
    swizzled: dict[int, list[tuple[Any, Any]]]
    """For each number of warps two copies of (values, scales) in the layout of this GPU's kernel."""


def mxfp4_weights(
    problem: Problem, tensors: tuple[Any, Any, Any], warps: tuple[int, ...] = MXFP4_WARPS
) -> Mxfp4Weights:
    """The same weights, dequantised and quantised once more by the package."""
    mxfp = import_module("triton_kernels.numerics_details.mxfp")
    package, layout = import_module("triton_kernels.tensor"), import_module("triton_kernels.tensor_details.layout")
    parts: list[tuple[Any, Any]] = []
    for expert in range(problem.experts):
        dense = reference.dequantise(*(tensor[expert : expert + 1] for tensor in tensors))
        parts.append(mxfp.downcast_to_mxfp_torch(dense.mT.contiguous(), torch.uint8, axis=1)[:2])
    # Its kernel wants the values of a column of k beside each other.
    codes, scales = (torch.cat([part[at].mT.contiguous() for part in parts]).mT for at in (0, 1))
    values = package.convert_layout(
        package.wrap_torch_tensor(codes, dtype=package.FP4), layout.make_default_matmul_mxfp4_w_layout(mx_axis=-2)
    )
    swizzled: dict[int, list[tuple[Any, Any]]] = {}
    copy = deepcopy(values)
    for count in warps:
        scale = package.convert_layout(
            package.wrap_torch_tensor(scales),
            layout.make_default_matmul_mxfp4_w_scale_layout(mx_axis=-2, num_warps=count),
        )
        swizzled[count] = [(values, scale), (copy, deepcopy(scale))]
    return Mxfp4Weights(codes, scales, swizzled)


def mxfp4(case: Case, weights: Mxfp4Weights, warps: int) -> Run:
    """bf16 activations x MXFP4 weights, rows gathered by the kernel; checked against the product of its own weights."""
    p = case.problem
    api, package = import_module("triton_kernels.matmul"), import_module("triton_kernels.tensor")
    mxfp = import_module("triton_kernels.numerics_details.mxfp")
    routings: list[tuple[Any, Any]] = []
    for ids in case.ids:
        order = ids.view(-1).argsort(stable=True)
        sizes = torch.bincount(ids.view(-1), minlength=p.experts).int()
        routings.append(((order // p.per_token).int(), package.make_ragged_tensor_metadata_torch(sizes, p.rows)))
    configs = [
        (values, api.PrecisionConfig(b_mx_scale=scale, b_microblock_size=MXFP4_GROUP, out_dtype=torch.bfloat16))
        for values, scale in weights.swizzled[warps]
    ]

    def call(i: int) -> Any:
        (values, config), (gather, ragged) = configs[(i // case.sets) % 2], routings[i % case.sets]
        return api.matmul(
            case.x, values, None, a_ragged_metadata=ragged, gather_indx=gather, precision_config=config, c=case.out
        )

    def weight_of(expert: int) -> Any:
        one = slice(expert, expert + 1)
        return mxfp.upcast_from_mxfp_torch(weights.codes[one], weights.scales[one], torch.float32, axis=1)[0].T

    return Run(
        call,
        lambda out: _back(case, out.view(p.rows, p.n)),
        want=case.product(weight_of),
        expert_bytes=p.n * p.k * 17 // 32,
    )


def kept(results: dict[str, Any], name: str, work: Callable[[], Any]) -> Any:
    """What `work` gives. Where it fails, in whatever way of a foreign package, `results` gets the fault as `name`."""
    try:
        return work()
    except Exception as fault:
        results[name] = {"fault": f"{type(fault).__name__}: {fault}"[:300]}
        return None


def prepared(problem: Problem, tensors: Any, dense: bool) -> dict[str, Any]:
    """The peers' weights of one matrix, None for those not there; a peer that cannot make them has its fault."""
    faults: dict[str, Any] = {}
    layers = kept(faults, "humming", lambda: humming_layers(problem, tensors)) if humming_version() else None
    fours = kept(faults, MXFP4, lambda: mxfp4_weights(problem, tensors)) if mxfp4_version() else None
    plain = reference.dequantise(*tensors).bfloat16() if dense else None
    return {"humming": layers, "mxfp4": fours, "dense": plain, "faults": faults}
