"""Humming's NVFP4 kernels with bf16 activations, through its `HummingLayer` and its own choice of config.

Of its layouts for experts the grouped one is called: rows sorted by expert, as torch's grouped_mm takes them, with the
same routing around it. Checked against humming-kernels 0.1.20.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from functools import partial
from importlib import import_module
from typing import Any, Final

from tilewright.bench.backends.base import Backend, Capability, Prepared, answers_checked, by_kind, not_found, too_old
from tilewright.bench.backends.torch_ import AROUND, Grouped, grouped_layer
from tilewright.bench.operands import Nvfp4, gemm_answer, gemm_operands, moe_answer, moe_operands
from tilewright.bench.problem import GemmProblem, MoeProblem

CHECKPOINT: Final = {"quant_method": "modelopt", "quant_algo": "nvfp4"}
"""ModelOpt's tensors: packed codes, scales in row order, a global factor (humming/schema/modelopt.py)."""
GROUPED: Final = {"gemm_type": "grouped_contiguous"}
"""humming/testing/data.py, generate_moe_tensors: `expert_layout` is int64, 0 and then each expert's last row + 1."""


def _layers(torch: Any, weights: Nvfp4, copies: int) -> Sequence[Any]:
    """`copies` layers of the same weights at different addresses."""
    shape = weights.codes.shape
    experts = shape[0] if len(shape) == 3 else None
    layer = import_module("humming.layer").HummingLayer(
        shape_n=shape[-2], shape_k=shape[-1] * 2, weight_config=dict(CHECKPOINT), num_experts=experts,
        torch_dtype=torch.bfloat16,
    ).cuda()  # fmt: skip
    factor = weights.factor.reshape(1 if experts is None else experts)
    layer.load_from_tensors({"weight": weights.codes, "weight_scale": weights.scales, "weight_scale_2": factor})
    layer.transform()
    return [layer, *(deepcopy(layer) for _ in range(copies - 1))]


def _gemm(problem: GemmProblem, torch: Any, copies: int) -> Prepared:
    o = gemm_operands(torch, problem, "cuda")
    calls = [lambda layer=layer: layer(inputs=o.x) for layer in _layers(torch, o.w, copies)]
    return Prepared(calls, answers_checked(calls, lambda: gemm_answer(torch, o), torch), {"call": "HummingLayer"})


def _moe(problem: MoeProblem, torch: Any, copies: int) -> Prepared:
    o = moe_operands(torch, problem, "cuda")

    def by(layer: Any) -> Grouped:
        def run(rows: Any, ends: Any) -> Any:
            starts = torch.nn.functional.pad(ends.long(), (1, 0))
            return layer(inputs=rows, expert_layout=starts, compute_config=dict(GROUPED))

        return run

    pairs = zip(_layers(torch, o.w13, copies), _layers(torch, o.w2, copies), strict=True)
    calls = [partial(grouped_layer, torch, by(w13), by(w2), o, problem.experts) for w13, w2 in pairs]
    config = {"call": "HummingLayer", **GROUPED}
    return Prepared(calls, answers_checked(calls, lambda: moe_answer(torch, o), torch), config, remark=AROUND)


def missing(capability: Capability) -> str | None:
    return not_found("humming", "humming-kernels") or too_old(capability, (8, 0), "bf16 in Humming")


BACKEND = Backend(
    name="humming",
    formats={"gemm": ("nvfp4",), "moe": ("nvfp4",)},
    missing=missing,
    prepare=by_kind(_gemm, _moe),
    package="humming-kernels",
)
