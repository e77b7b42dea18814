"""Humming's NVFP4 GEMM with bf16 activations, through its `HummingLayer` and its own choice of config."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tilewright.bench.backends.base import Backend, Capability, Prepared, answers_checked, not_found, too_old
from tilewright.bench.operands import copied, gemm_answer, gemm_operands
from tilewright.bench.problem import GemmProblem, Problem

CHECKPOINT = {"quant_method": "modelopt", "quant_algo": "nvfp4"}
"""ModelOpt's tensors: packed codes, scales in row order, a global factor (humming/schema/modelopt.py)."""


def prepare(problem: Problem, torch: Any, copies: int) -> Prepared:
    """The calls of `problem` on torch's current device."""
    assert isinstance(problem, GemmProblem)
    layers = import_module("humming.layer")
    o = gemm_operands(torch, problem, "cuda")

    def layer(codes: Any) -> Any:
        made = layers.HummingLayer(
            shape_n=problem.n, shape_k=problem.k, weight_config=dict(CHECKPOINT), torch_dtype=torch.bfloat16
        ).cuda()
        made.load_from_tensors({"weight": codes, "weight_scale": o.w.scales, "weight_scale_2": o.w.factor.reshape(1)})
        made.transform()
        return made

    made = [layer(codes) for codes in copied(o.w.codes, copies)]
    calls = [lambda each=each: each(inputs=o.x) for each in made]
    return Prepared(calls, answers_checked(calls, lambda: gemm_answer(torch, o), torch), {"call": "HummingLayer"})


def missing(capability: Capability) -> str | None:
    return not_found("humming", "humming-kernels") or too_old(capability, (8, 0), "bf16 in Humming")


BACKEND = Backend(
    name="humming", formats={"gemm": ("nvfp4",)}, missing=missing, prepare=prepare, package="humming-kernels"
)
