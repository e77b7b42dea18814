"""Adapters to other packages, without the packages: their calls are held against the parameters that real releases have
(`tools/build_bench_calls.py`), and their operands against stand-ins that compute plainly what each call is documented
to compute. No kernel of theirs runs here."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tilewright.bench.backends import backend
from tilewright.bench.backends.base import UnsupportedError, accepted, answers_checked, entry
from tilewright.bench.problem import GemmProblem, MoeProblem, Problem, kind_of

CALLS = json.loads((Path(__file__).parents[1] / "data" / "bench_calls.json").read_text())
GEMM, LAYER = {"m": 5, "n": 128, "k": 256}, {"tokens": 7, "hidden": 64, "inter": 32, "experts": 4, "topk": 2}
PROBLEMS: list[tuple[str, str, Problem]] = [
    ("flashinfer", "mm_bf16", GemmProblem(**GEMM, dtype="bf16")),
    ("flashinfer", "bmm_fp8", GemmProblem(**GEMM, dtype="fp8")),
    ("flashinfer", "mm_fp4", GemmProblem(**GEMM, dtype="nvfp4_w4a4")),
    ("flashinfer", "cutlass_fused_moe", MoeProblem(**LAYER, dtype="bf16")),
    ("flashinfer", "cutlass_fused_moe", MoeProblem(**LAYER, dtype="nvfp4_w4a4")),
    ("vllm", "cutlass_scaled_mm", GemmProblem(**GEMM, dtype="fp8")),
    ("vllm", "cutlass_scaled_fp4_mm", GemmProblem(**GEMM, dtype="nvfp4_w4a4")),
    ("vllm", "fused_experts", MoeProblem(**LAYER, dtype="bf16")),
    ("sglang", "fused_experts_impl", MoeProblem(**LAYER, dtype="bf16")),
]
MARLIN = ("vllm", "fused_marlin_moe", MoeProblem(**LAYER, dtype="nvfp4"))
BLACKWELL = SimpleNamespace(bfloat16="bf16", cuda=SimpleNamespace(get_device_capability=lambda: (10, 0)))


class ReachedError(Exception):
    """The adapter found the call, took its parameters for good, and went on to make operands."""


def stand_in(parameters: list[str], name: str) -> Any:
    """A function of those parameters."""
    made: dict[str, Any] = {}
    exec(f"def {name}({', '.join(f'{item}=None' for item in parameters)}): return None", made)
    return made[name]


@pytest.fixture
def reach(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Prepare a problem where every call has the given parameters."""

    def run(name: str, problem: Problem, call: Any, torch: Any = BLACKWELL) -> None:
        def stop(*_: Any) -> None:
            raise ReachedError

        module = f"tilewright.bench.backends.{name}"
        backend(name)
        monkeypatch.setattr(f"{module}.entry", lambda *_: call)
        monkeypatch.setattr(f"{module}.gemm_operands", stop)
        monkeypatch.setattr(f"{module}.moe_operands", stop)
        if name == "sglang":
            monkeypatch.setattr(f"{module}.configure", lambda: None)
        backend(name).prepare(problem, torch, 1)

    return run


@pytest.mark.parametrize(("name", "call", "problem"), PROBLEMS)
def test_every_release_has_the_call_with_what_is_passed(name: str, call: str, problem: Problem, reach: Any) -> None:
    assert len(CALLS[name]) >= 4
    for release, calls in CALLS[name].items():
        assert calls[call] is not None, release
        with pytest.raises(ReachedError):
            reach(name, problem, stand_in(calls[call]["parameters"], call))


@pytest.mark.parametrize(("name", "call", "problem"), PROBLEMS)
def test_another_signature_is_one_sentence(name: str, call: str, problem: Problem, reach: Any) -> None:
    with pytest.raises(UnsupportedError, match=rf"{call}\(\) takes no .*interface has changed"):
        reach(name, problem, stand_in(["first", "second"], call))


@pytest.mark.parametrize("dtype", ["bf16", "nvfp4_w4a4"])
def test_a_gpu_without_the_instructions_is_named(dtype: str, reach: Any) -> None:
    hopper = SimpleNamespace(bfloat16="bf16", cuda=SimpleNamespace(get_device_capability=lambda: (9, 0)))
    call = stand_in(["a", "b", "a_descale", "b_descale", "alpha", "out_dtype"], "mm")
    with pytest.raises(UnsupportedError, match=r"needs compute capability 10\.0, this GPU has 9\.0"):
        reach("flashinfer", GemmProblem(**GEMM, dtype=dtype), call, hopper)


def test_a_call_that_tells_which_gpus_it_has_kernels_for_is_believed(reach: Any) -> None:
    """mm_bf16 took Blackwell alone in 0.6.2, and takes Hopper in 0.6.14."""
    hopper = SimpleNamespace(bfloat16="bf16", cuda=SimpleNamespace(get_device_capability=lambda: (9, 0)))
    problem = GemmProblem(**GEMM, dtype="bf16")
    call = stand_in(["a", "b"], "mm_bf16")
    call.is_compute_capability_supported = lambda number: number == 100
    with pytest.raises(UnsupportedError, match=r"mm_bf16 has no kernel for compute capability 9\.0 in this release"):
        reach("flashinfer", problem, call, hopper)
    call.is_compute_capability_supported = lambda number: number == 90
    with pytest.raises(ReachedError):
        reach("flashinfer", problem, call, hopper)


def test_a_call_is_looked_for_in_every_place(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = ModuleType("tw_new")
    broken.__getattr__ = lambda name: (_ for _ in ()).throw(OSError("libcuda.so.1:\n cannot open"))  # type: ignore[method-assign]
    old = ModuleType("tw_old")
    old.gemm = len  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tw_new", broken)
    monkeypatch.setitem(sys.modules, "tw_old", old)
    assert entry("tw", "tw_absent:gemm", "tw_new:gemm", "tw_old:gemm") is len
    with pytest.raises(UnsupportedError, match=r"has no tw_old:nothing and tw_new:gemm \(OSError: libcuda") as caught:
        entry("tw", "tw_old:nothing", "tw_new:gemm")
    assert "\n" not in caught.value.msg


def test_optional_arguments_are_given_where_they_are_taken() -> None:
    more = {"backend": "cutlass", "tuned": True}
    assert accepted(stand_in(["a", "backend"], "f"), "p", ("a",), more) == {"backend": "cutlass"}
    assert accepted(lambda **given: given, "p", ("a",), more) == more
    assert accepted(max, "p", ("values",), more) == {}  # compiled, without a signature


# With torch: the operands that the calls get.

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def untiled(torch: Any, scales: Any, rows: int, columns: int) -> Any:
    """Block scales back in row order, element by element from where the format says that each lies."""
    flat = scales.reshape(-1).view(torch.uint8)
    across = -(-columns // 4)
    out = torch.empty((rows, columns), dtype=torch.uint8)
    for row in range(rows):
        for column in range(columns):
            tile = row // 128 * across + column // 4
            out[row, column] = flat[tile * 512 + row % 32 * 16 + row % 128 // 32 * 4 + column % 4]
    return out.view(torch.float8_e4m3fn)


def matrix(torch: Any, codes: Any, scales: Any) -> Any:
    """float32 of packed codes [rows, K / 2] and row-ordered scales."""
    table = torch.tensor([*E2M1, *(-value for value in E2M1)])
    nibbles = torch.stack([codes.view(torch.uint8) & 15, codes.view(torch.uint8) >> 4], -1).flatten(-2).long()
    return table[nibbles] * scales.float().repeat_interleave(16, -1)


class Calls:
    """What the other packages' calls are documented to compute, on the CPU."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch

    def mm_bf16(self, a: Any, b: Any, backend: str = "") -> Any:
        assert b.stride(0) == 1
        return a @ b

    def bmm_fp8(self, A: Any, B: Any, A_scale: Any, B_scale: Any, dtype: Any, backend: str = "") -> Any:  # noqa: N803
        assert B.stride(1) == 1
        return (A.float() @ B.float() * A_scale * B_scale).to(dtype)

    def mm_fp4(
        self, a: Any, b: Any, a_descale: Any, b_descale: Any, alpha: Any, out_dtype: Any, backend: str = ""
    ) -> Any:
        return self.cutlass_scaled_fp4_mm(a, b.t(), a_descale, b_descale.t(), alpha, out_dtype)

    def cutlass_scaled_fp4_mm(
        self, a: Any, b: Any, block_scale_a: Any, block_scale_b: Any, alpha: Any, out_dtype: Any
    ) -> Any:
        left, right = (
            matrix(self.torch, codes, untiled(self.torch, scales, codes.shape[0], codes.shape[1] // 8))
            for codes, scales in ((a, block_scale_a), (b, block_scale_b))
        )
        return (left @ right.T * alpha).to(out_dtype)

    def cutlass_scaled_mm(self, a: Any, b: Any, scale_a: Any, scale_b: Any, out_dtype: Any) -> Any:
        assert b.stride(0) == 1
        return (a.float() @ b.float() * scale_a * scale_b).to(out_dtype)

    def fp8_scaled_mm(self, mat_a: Any, mat_b: Any, scales_a: Any, scales_b: Any, out_dtype: Any) -> Any:
        assert len(scales_a) == mat_a.shape[0]
        assert len(scales_b) == mat_b.shape[1]
        return (mat_a.float() @ mat_b.float() * scales_a[:, None] * scales_b[None]).to(out_dtype)

    def fp8_gemm_nt(self, a: Any, b: Any, out: Any) -> None:
        (x, x_scales), (w, w_scales) = a, b
        left = x.float() * x_scales.repeat_interleave(128, 1)
        right = w.float() * w_scales.repeat_interleave(128, 0).repeat_interleave(128, 1)
        out.copy_(left @ right.T)

    def bf16_gemm_nt(self, a: Any, b: Any, out: Any) -> None:
        out.copy_(a.float() @ b.float().T)

    def _layer(self, x: Any, gate: Any, up: Any, down: Any, weights: Any, ids: Any) -> Any:
        silu = self.torch.nn.functional.silu
        out = self.torch.zeros(x.shape)
        for token in range(x.shape[0]):
            for weight, expert in zip(weights[token], ids[token].tolist(), strict=True):
                middle = silu(x[token].float() @ gate[expert].float().T) * (x[token].float() @ up[expert].float().T)
                out[token] += weight * (middle @ down[expert].float().T)
        return out.bfloat16()

    def fused_experts(self, hidden_states: Any, w1: Any, w2: Any, topk_weights: Any, topk_ids: Any) -> Any:
        gate, up = w1.chunk(2, 1)
        return self._layer(hidden_states, gate, up, w2, topk_weights, topk_ids)

    def prepare_nvfp4_moe_layer_for_marlin(
        self, layer: Any, w13: Any, w13_scale: Any, w13_scale_2: Any, w2: Any, w2_scale: Any, w2_scale_2: Any,
        is_act_and_mul: bool,
    ) -> Any:  # fmt: skip
        """The layer's own sizes must be those of the tensors; nothing is repacked."""
        assert is_act_and_mul
        n, k = layer.intermediate_size_per_partition, layer.hidden_size
        assert list(w13.shape) == [layer.num_experts, 2 * n, k // 2]
        assert list(w2.shape) == [layer.num_experts, k, n // 2]
        layer.workspace = "workspace"
        return w13, w13_scale, w13_scale_2, w2, w2_scale, w2_scale_2

    def fused_marlin_moe(
        self, hidden_states: Any, w1: Any, w2: Any, bias1: Any, bias2: Any, w1_scale: Any, w2_scale: Any,
        topk_weights: Any, topk_ids: Any, quant_type_id: int, global_scale1: Any, global_scale2: Any, workspace: Any,
    ) -> Any:  # fmt: skip
        assert (bias1, bias2, quant_type_id, workspace) == (None, None, 77, "workspace")
        both, down = (
            self.torch.stack([matrix(self.torch, codes[i], scales[i]) * factor[i] for i in range(len(codes))])
            for codes, scales, factor in ((w1, w1_scale, global_scale1), (w2, w2_scale, global_scale2))
        )
        return self.fused_experts(hidden_states, both, down, topk_weights, topk_ids)

    @property
    def scalar_types(self) -> Any:
        return SimpleNamespace(float4_e2m1f=SimpleNamespace(id=77))

    @contextmanager
    def autotune(self, tune_mode: bool) -> Any:
        assert tune_mode
        self.tuning = True
        yield
        self.tuning = False

    def transform_sf_into_required_layout(self, sf: Any, mn: int, k: int, recipe: Any, is_sfa: bool) -> Any:
        """The shapes that DeepGEMM checks (csrc/utils/layout.hpp, check_sf_layout)."""
        rows = recipe[0] if is_sfa else recipe[1]
        assert list(sf.shape) == [-(-mn // rows), -(-k // recipe[2])]
        return sf

    def fused_experts_impl(
        self, hidden_states: Any, w1: Any, w2: Any, topk_weights: Any, topk_ids: Any, inplace: bool = True
    ) -> Any:
        assert not inplace
        return self.fused_experts(hidden_states, w1, w2, topk_weights, topk_ids)

    def cutlass_fused_moe(
        self, input: Any, token_selected_experts: Any, token_final_scales: Any, fc1_expert_weights: Any,  # noqa: A002
        fc2_expert_weights: Any, output_dtype: Any, quant_scales: Any,
    ) -> Any:  # fmt: skip
        if not quant_scales:
            up, gate = fc1_expert_weights.chunk(2, 1)
            down = fc2_expert_weights
        else:
            first_top, s13, first, second_top, s2, second = quant_scales
            experts = len(fc1_expert_weights)
            both, down = (
                self.torch.stack(
                    [
                        matrix(
                            self.torch, codes[i].view(self.torch.uint8),
                            untiled(self.torch, scales[i].view(self.torch.uint8), codes.shape[1], codes.shape[2]),
                        ) * factor[i] * top
                        for i in range(experts)
                    ]
                )
                for codes, scales, factor, top in (
                    (fc1_expert_weights, s13, first, first_top), (fc2_expert_weights, s2, second, second_top)
                )
            )  # fmt: skip
            up, gate = both.chunk(2, 1)
        return [self._layer(input, gate, up, down, token_final_scales, token_selected_experts)]


NUMERIC = [
    *PROBLEMS,
    MARLIN,
    ("sglang", "fp8_scaled_mm", GemmProblem(**GEMM, dtype="fp8")),
    ("deep_gemm", "fp8_gemm_nt", GemmProblem(**GEMM, dtype="fp8")),
    ("deep_gemm", "bf16_gemm_nt", GemmProblem(**GEMM, dtype="bf16")),
]


@pytest.mark.parametrize(("name", "call", "problem"), NUMERIC)
def test_operands_mean_what_the_call_is_documented_to_take(
    name: str, call: str, problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    from tilewright.bench import operands

    module = f"tilewright.bench.backends.{name}"
    backend(name)
    calls = Calls(torch)

    def found(_: str, *places: str) -> Any:
        """The first place whose name the stand-ins have, as `entry` finds it in a package."""
        names = [place.partition(":")[2] for place in places]
        return next(getattr(calls, each) for each in names if hasattr(calls, each))

    monkeypatch.setattr(f"{module}.entry", found)
    monkeypatch.setattr(f"{module}.gemm_operands", lambda t, p, _: operands.gemm_operands(t, p, "cpu"))
    if kind_of(problem) == "moe":
        monkeypatch.setattr(f"{module}.moe_operands", lambda t, p, _: operands.moe_operands(t, p, "cpu"))
    if name == "vllm":
        monkeypatch.setattr(f"{module}.settings", lambda: None)
    if name == "sglang":
        monkeypatch.setattr(f"{module}.configure", lambda: None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (10, 0))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    prepared = backend(name).prepare(problem, torch, 2)
    assert len(prepared.calls) == 2
    apart = prepared.check()
    assert apart.right(kind_of(problem))
    assert prepared.config["call"] == call
    assert prepared.config.get("tuned", True)


def test_what_the_first_call_wrote_does_not_make_the_last_one_right(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    out = torch.empty(4, 4)
    calls = [lambda: out.fill_(2.0), lambda: out]
    assert not answers_checked(calls, lambda: torch.full((4, 4), 2.0), torch)().right("gemm")
    assert answers_checked(calls[:1], lambda: torch.full((4, 4), 2.0), torch)().right("gemm")


def test_marlin_is_called_as_every_release_that_repacks_nvfp4_for_it_takes_it(reach: Any) -> None:
    able = [calls for calls in CALLS["vllm"].values() if calls["prepare_nvfp4_moe_layer_for_marlin"]]
    assert len(able) >= 4
    repacked = {"layer", "w13", "w13_scale", "w13_scale_2", "w2", "w2_scale", "w2_scale_2", "is_act_and_mul"}
    for calls in able:
        assert set(calls["prepare_nvfp4_moe_layer_for_marlin"]["parameters"]) == repacked
        both = [*repacked, *calls["fused_marlin_moe"]["parameters"]]
        call = stand_in(list(dict.fromkeys(both)), "fused_marlin_moe")
        call.float4_e2m1f = SimpleNamespace(id=1)
        with pytest.raises(ReachedError):
            reach(*MARLIN[::2], call)


def test_sglang_is_given_a_group_of_one_where_it_asks_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.bench.backends import sglang

    given: dict[str, Any] = {}
    places = {
        "ServerArgs": lambda model_path: model_path, "set_global_server_args_for_scheduler": lambda _: None,
        "get_parallel": lambda: SimpleNamespace(override_permanently=given.update),
    }  # fmt: skip
    monkeypatch.setattr(sglang, "entry", lambda _, place: places[place.partition(":")[2]])
    sglang.configure.__wrapped__()
    assert given["tp_group"].world_size == 1


def test_cublaslts_nvfp4_gets_what_torchs_scaled_mm_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real function takes the arguments (on meta tensors, which compute nothing); a stand-in of it that decodes
    them as documented gives the right product."""
    torch = pytest.importorskip("torch")
    real = getattr(torch.nn.functional, "scaled_mm", None)
    if real is None:
        pytest.skip("this torch has none")
    from tilewright.bench import operands
    from tilewright.bench.backends import cublaslt

    def scaled_mm(x: Any, w: Any, *, scale_a: Any, scale_b: Any, output_dtype: Any, **how: Any) -> Any:
        meta = [item.to("meta") for item in (x.view(torch.uint8), w.t().view(torch.uint8), scale_a, scale_b)]
        codes = [item.view(torch.float4_e2m1fn_x2) for item in meta[:2]]
        out = real(codes[0], codes[1].t(), scale_a=meta[2], scale_b=meta[3], output_dtype=output_dtype, **how)
        left, right = (
            matrix(torch, codes, untiled(torch, scales, codes.shape[0], codes.shape[1] // 8))
            for codes, scales in ((x.view(torch.uint8), scale_a), (w.t().view(torch.uint8), scale_b))
        )
        made = (left @ right.T).to(output_dtype)
        assert made.shape == out.shape
        return made

    monkeypatch.setattr(torch.nn.functional, "scaled_mm", scaled_mm)
    monkeypatch.setattr(cublaslt, "gemm_operands", lambda t, p, _: operands.gemm_operands(t, p, "cpu"))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (12, 0))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    prepared = cublaslt.prepare(GemmProblem(**GEMM, dtype="nvfp4_w4a4"), torch, 2)
    assert prepared.check().right("gemm")
    with pytest.raises(UnsupportedError, match="one of 32"):
        cublaslt.prepare(GemmProblem(m=1, n=16, k=48, dtype="nvfp4_w4a4"), torch, 1)
