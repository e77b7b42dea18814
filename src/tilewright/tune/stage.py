"""The operands of one problem on the GPU, the launches of its two GEMMs, and the right answers. torch is handed in.

Weights are those of one layer; a call differs from the one before in its routing (and, for small layers, its copy of
the weights), so that L2 is as cold as it is in a model.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tilewright.bench.reference import Error, error
from tilewright.store.result import canonical
from tilewright.tune.build import triton_kernel, use_cubin_cache
from tilewright.tune.layer import Layer, Problem, fields_of, routing
from tilewright.tune.memory import KEPT_BYTES, case_bytes, copies_of, turns_of
from tilewright.tune.moe_call import PARTS, Part, compilation, extents, grid, row_by_row, values_of
from tilewright.tune.space import Config

DISTINCT: Final = 8
"""Experts with weights of their own in NVFP4; the others hold the same values at other addresses. Quantising and
packing hundreds of experts takes longer than all trials of a problem."""
FP8_MOST: Final = 448.0
MOST_COMPARED: Final = 1 << 22
"""Elements of an answer that are compared in FP64; of larger ones every so many rows, and all are looked at for NaN."""


@dataclass
class Launches:
    """The calls of one GEMM under one config: `calls` go round over routings; `check` compares the first one."""

    calls: list[Callable[[], Any]]
    check: Callable[[], Error]
    registers: int | None = None
    spills: int | None = None


class Stage:
    """Everything of one layer that does not depend on the config."""

    def __init__(self, torch: Any, layer: Layer, ours: bool, device: str = "cuda") -> None:
        self.torch, self.layer, self.ours, self.device = torch, layer, ours, device
        self.generator = torch.Generator(device=device).manual_seed(zlib.crc32(canonical(layer)))
        free = int(torch.cuda.mem_get_info()[0]) if device == "cuda" else 0
        self.copies = copies_of(layer, free)
        self.weights: dict[Part, list[Any]] = {}
        self.scales: dict[Part, Any] = {}
        for part in PARTS:
            self._make(part)
        self.cases: dict[int, Case] = {}

    def _make(self, part: Part) -> None:
        torch, layer = self.torch, self.layer
        n, k = extents(layer, part)
        if self.ours:
            self._make_packed(part, n, k)
            return
        shape = (layer.experts, n, k)
        if layer.dtype == "bf16":
            first = torch.empty(shape, dtype=torch.bfloat16, device=self.device).normal_(
                std=k**-0.5, generator=self.generator
            )
            self.scales[part] = None
        else:
            first = torch.empty(shape, dtype=torch.float8_e4m3fn, device=self.device)
            for expert in range(layer.experts):
                wide = torch.empty((n, k), device=self.device).normal_(std=FP8_MOST / 6, generator=self.generator)
                first[expert] = wide.clamp_(-FP8_MOST, FP8_MOST).to(torch.float8_e4m3fn)
            block = layer.block_shape
            size = (layer.experts, -(-n // block[0]), -(-k // block[1])) if block else (layer.experts,)
            draw = torch.rand(size, generator=self.generator, device=self.device)
            self.scales[part] = (draw * 0.5 + 0.5) * (6 / FP8_MOST * k**-0.5)
        self.weights[part] = [first, *(first.clone() for _ in range(self.copies - 1))]

    def _make_packed(self, part: Part, n: int, k: int) -> None:
        from dataclasses import replace

        from tilewright.kernels.layout import pack

        torch, experts = self.torch, self.layer.experts
        distinct = min(DISTINCT, experts)
        codes = torch.randint(
            0, 256, (distinct, n, k // 2), dtype=torch.uint8, device=self.device, generator=self.generator
        )
        # ue4m3 0x28 to 0x50: 0.25 to 8, as real scales are spread over a few powers of two.
        drawn = torch.randint(
            0x28, 0x50, (distinct, n, k // 16), dtype=torch.uint8, device=self.device, generator=self.generator
        )
        factor = torch.full((distinct,), 0.1 * k**-0.5, device=self.device)
        packed = pack(codes, drawn, factor, gated=part == "up")
        at = torch.arange(experts, device=self.device) % distinct
        data = packed.data[at]
        whole = replace(packed, data=data, global_scale=packed.global_scale[at].contiguous())
        self.weights[part] = [whole, *(replace(whole, data=data.clone()) for _ in range(self.copies - 1))]
        self.scales[part] = (codes, drawn, factor)

    def matrix(self, part: Part, expert: int) -> Any:
        """One expert's matrix as float32 [n, k]: what its stored numbers mean."""
        if self.ours:
            from tilewright.bench.reference import dequantise

            codes, drawn, factor = self.scales[part]
            at = expert % codes.shape[0]
            return dequantise(self.torch, codes[at], drawn[at].view(self.torch.float8_e4m3fn), factor[at])
        wide = self.weights[part][0][expert].float()
        scale = self.scales[part]
        if scale is None:
            return wide
        block = self.layer.block_shape
        if block is None:
            return wide * scale[expert]
        n, k = wide.shape
        return wide * scale[expert].repeat_interleave(block[0], 0)[:n].repeat_interleave(block[1], 1)[:, :k]

    def case(self, tokens: int) -> Case:
        """The operands of `tokens` tokens; those of others are kept in `KEPT_BYTES`, the oldest go first."""
        if tokens not in self.cases:
            room = KEPT_BYTES - case_bytes(self.layer, tokens)
            while self.cases and sum(case_bytes(self.layer, count) for count in self.cases) > room:
                self.cases.pop(next(iter(self.cases)))
            self.cases[tokens] = Case(self, tokens)
        return self.cases[tokens]


class Case:
    """Activations, routings and right answers of one number of tokens."""

    def __init__(self, stage: Stage, tokens: int) -> None:
        self.stage, self.tokens = stage, tokens
        torch, layer, device = stage.torch, stage.layer, stage.device
        self.rows = tokens * layer.topk
        self.turns = turns_of(layer, tokens)
        self.ids = [
            torch.tensor(routing(layer, tokens, turn), dtype=torch.int32, device=device) for turn in range(self.turns)
        ]
        self.router = torch.rand((tokens, layer.topk), generator=stage.generator, device=device) + 0.1
        self.inputs: dict[Part, Any] = {}
        self.input_scales: dict[Part, Any] = {}
        self.outputs: dict[Part, Any] = {}
        self.answers: dict[Part, Any] = {}
        self.sorted: dict[int, list[tuple[Any, Any, Any]]] = {}
        self.routes: dict[tuple[int, int], list[Any]] = {}
        for part in PARTS:
            n, k = extents(layer, part)
            rows = tokens if part == "up" else self.rows
            x = torch.empty((rows, k), dtype=torch.bfloat16, device=device).normal_(generator=stage.generator)
            scale = None
            if layer.dtype.startswith("fp8"):
                x = (x.float() * (FP8_MOST / 6)).clamp_(-FP8_MOST, FP8_MOST).to(torch.float8_e4m3fn)
                size = (rows, -(-k // layer.block_shape[1])) if layer.block_shape else (1,)
                scale = (torch.rand(size, generator=stage.generator, device=device) * 0.5 + 0.5) * (6 / FP8_MOST)
            self.inputs[part], self.input_scales[part] = x, scale
            # Our kernel ends the first GEMM with SiLU(gate) * up; the engines' do that in another kernel.
            width = n // 2 if stage.ours and part == "up" else n
            self.outputs[part] = torch.empty((self.rows, width), dtype=torch.bfloat16, device=device)

    def answer(self, part: Part) -> Any:
        """float32 [rows, n] of the first routing, in plain FP32; bf16 once made, to keep it small."""
        if part not in self.answers:
            torch, layer = self.stage.torch, self.stage.layer
            x, scale = self.inputs[part].float(), self.input_scales[part]
            if scale is not None:
                x = x * (
                    scale.repeat_interleave(layer.block_shape[1], 1)[:, : x.shape[1]] if layer.block_shape else scale
                )
            flat = self.ids[0].reshape(-1)
            out = torch.empty((self.rows, extents(layer, part)[0]), device=self.stage.device)
            for expert in flat.unique().tolist():
                rows = (flat == expert).nonzero().reshape(-1)
                source = rows // layer.topk if part == "up" else rows
                out[rows] = x[source] @ self.stage.matrix(part, expert).T
            if part == "down":
                out *= self.router.reshape(-1, 1)
            elif self.stage.ours:
                gate, up = out.chunk(2, dim=1)
                out = torch.nn.functional.silu(gate) * up
            self.answers[part] = out.to(torch.bfloat16)
        return self.answers[part]

    def checked(self, part: Part, call: Callable[[], Any]) -> Error:
        """How far the answer of `call` (first routing) is from the right one; NaN where something was not written."""
        out = self.outputs[part]
        out.fill_(float("nan"))
        call()
        torch = self.stage.torch
        if self.stage.device == "cuda":
            torch.cuda.synchronize()
        want = self.answer(part)
        step = -(-out.numel() // MOST_COMPARED)
        if step > 1 and bool(torch.isnan(out).any()):
            return Error(math.nan, math.nan)
        return error(out[::step], want[::step])

    def aligned(self, block_m: int) -> list[tuple[Any, Any, Any]]:
        """For each routing (row of each place, expert of each block, number of places): rows by expert, every expert
        padded to whole blocks, as vLLM's moe_align_block_size gives them."""
        if block_m not in self.sorted:
            torch, layer = self.stage.torch, self.stage.layer
            made: list[tuple[Any, Any, Any]] = []
            for ids in self.ids:
                flat = ids.reshape(-1).long()
                order = torch.argsort(flat, stable=True)
                counts = torch.bincount(flat, minlength=layer.experts)
                padded = (counts + block_m - 1) // block_m * block_m
                shift = (padded.cumsum(0) - padded) - (counts.cumsum(0) - counts)
                total = int(padded.sum())
                size = max(total, -(-self.rows // block_m) * block_m + layer.experts * block_m)
                places = torch.full((size,), self.rows, dtype=torch.int32, device=self.stage.device)
                places[torch.arange(self.rows, device=self.stage.device) + shift[flat[order]]] = order.int()
                blocks = torch.zeros(size // block_m + 1, dtype=torch.int32, device=self.stage.device)
                every = torch.arange(layer.experts, device=self.stage.device).repeat_interleave(padded // block_m)
                blocks[: every.numel()] = every.int()
                made.append((places, blocks, torch.tensor([total], dtype=torch.int32, device=self.stage.device)))
            self.sorted[block_m] = made
        return self.sorted[block_m]

    def as_they_come(self, block_m: int) -> list[tuple[Any, Any, Any]]:
        """As `aligned`, where each routed row has a block of its own: no order of rows, the expert of each row."""
        total = self.stage.torch.tensor([self.rows * block_m], dtype=self.stage.torch.int32, device=self.stage.device)
        return [(None, ids.reshape(-1), total) for ids in self.ids]


def triton_launches(case: Case, part: Part, kernel: Any, config: Config, sm: int) -> Launches:
    """The launches of an engine's kernel (or our Triton one). Raises what Triton raises."""
    stage, layer = case.stage, case.stage.layer
    job = compilation(kernel, layer, case.tokens, part, config, sm)
    compiled = triton_kernel(kernel.source, kernel.name, job)
    size = (grid(layer, case.tokens, part, config), 1, 1)
    launch = compiled[size]
    block_m = config["BLOCK_SIZE_M"]
    routes = case.as_they_come(block_m) if row_by_row(kernel, layer, case.tokens) else case.aligned(block_m)
    calls: list[Callable[[], Any]] = []
    for turn in range(max(case.turns, stage.copies)):
        places, blocks, total = routes[turn % case.turns]
        tensors = {
            "a": case.inputs[part], "b": stage.weights[part][turn % stage.copies], "c": case.outputs[part],
            "a_scale": case.input_scales[part], "b_scale": stage.scales[part], "weights": case.router,
            "sorted": places, "experts": blocks, "padded": total,
        }  # fmt: skip
        values = list(values_of(kernel, layer, case.tokens, part, config, sm, tensors).values())
        calls.append(lambda values=values: launch(*values))
    return Launches(
        calls,
        lambda: case.checked(part, calls[0]),
        getattr(compiled, "n_regs", None),
        getattr(compiled, "n_spills", None),
    )


def our_launches(case: Case, part: Part, config: Config) -> Launches:
    """The launches of our NVFP4 kernel."""
    from tilewright.kernels import launch
    from tilewright.kernels.config import GroupedConfig

    use_cubin_cache()
    stage, layer = case.stage, case.stage.layer
    built = GroupedConfig(**config)
    row_tiles = max(built.row_tiles(layer.inter, gated=True), built.row_tiles(layer.hidden, gated=False))
    key = (built.block_rows, row_tiles)
    if key not in case.routes:
        case.routes[key] = [launch.route(ids, layer.experts, *key) for ids in case.ids]
    routes = case.routes[key]
    up = part == "up"
    calls: list[Callable[[], Any]] = []
    for turn in range(max(case.turns, stage.copies)):

        def call(turn: int = turn) -> None:
            launch.grouped(
                case.inputs[part], stage.weights[part][turn % stage.copies], routes[turn % case.turns],
                case.outputs[part], built, rows_per_token=layer.topk if up else 1,
                mode=launch.SILU if up else launch.WEIGHTED, router=None if up else case.router,
            )  # fmt: skip

        calls.append(call)
    return Launches(calls, lambda: case.checked(part, calls[0]))


def key_of_layer(problem: Problem) -> bytes:
    """What decides whether a stage can be used again."""
    fields = fields_of(problem)
    fields.pop("tokens")
    fields["kernel"] = problem.kernel == "ours"
    return canonical(fields)
