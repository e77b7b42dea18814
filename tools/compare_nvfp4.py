"""Time our NVFP4 grouped GEMMs beside what else the machine has, in one run, each answer checked first.

    python tools/compare_nvfp4.py --layers GLM-5:tp8,GLM-5:ep8 --tokens 1,16,64,1024,4096 --seconds 200 --out DIR

Needs a GPU and the extra `bench`. Peers: humming-kernels where installed, with its own choice of config (indexed and
grouped), and torch's grouped_mm on the same weights as bf16. The same random checkpoint tensors for all; the experts'
weights change with every call, so that L2 is cold; routing is uniform and made beforehand. DIR gets compare.json and
compare.md. Stops at --seconds with what it has.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import torch

from tilewright.bench.reference import error
from tilewright.bench.shapes import moe_shard
from tilewright.errors import TilewrightError
from tilewright.kernels import reference
from tilewright.kernels.choose import chosen_build, row_by_row
from tilewright.kernels.config import GroupedConfig
from tilewright.kernels.decode import SUMMED, DecodeConfig, decode_rows
from tilewright.kernels.launch import grouped, route
from tilewright.kernels.layout import PackedWeights, pack
from tilewright.kernels.moe import gpu_of
from tilewright.kernels.prefill import PrefillConfig, grouped_prefill, permuted
from tilewright.models.names import resolve_model
from tilewright.tune.build import use_cubin_cache

CALLS, MANY_TOKENS = (8, 40), 1024
REPLAYS, FEW_REPLAYS = 9, 5
SEED = 3
SORTED = [(1, 2, 4, 4, 4, 3), (1, 1, 4, 6, 4, 0), (1, 2, 4, 8, 2, 0), (2, 4, 4, 3, 4, 0), (2, 2, 4, 4, 4, 0),
          (4, 4, 4, 3, 4, 0), (4, 2, 4, 3, 4, 0), (8, 4, 4, 2, 4, 0)]  # fmt: skip
SINGLE = [(2, 16, 1), (2, 16, 3), (1, 8, 6), (1, 16, 3), (4, 16, 1), (4, 8, 2), (2, 4, 4), (2, 8, 3)]
WGMMA = [(16, 8, 8, 7), (24, 8, 8, 7), (24, 16, 8, 7), (32, 16, 8, 6), (48, 32, 8, 6), (64, 40, 8, 5), (64, 48, 16, 5),
         (80, 56, 8, 4), (96, 64, 16, 4), (128, 96, 16, 3), (144, 112, 16, 3), (160, 128, 16, 3)]  # fmt: skip
"""Builds that --search times, where they suit the rows an expert gets."""
Call = Callable[[int], Any]
Build = GroupedConfig | DecodeConfig | PrefillConfig


@dataclass(frozen=True)
class Problem:
    """One grouped GEMM: rows of `x` are tokens (w13) or already routed (w2)."""

    layer: str
    matrix: str
    experts: int
    n: int
    k: int
    topk: int
    tokens: int

    @property
    def rows(self) -> int:
        return self.tokens * self.topk

    @property
    def per_token(self) -> int:
        """Routed rows that share a row of x."""
        return self.topk if self.matrix == "w13" else 1

    @property
    def expert_bytes(self) -> int:
        return self.n * self.k * 9 // 16


def problems(layer: str, tokens: list[int]) -> Iterator[list[Problem]]:
    """The two GEMMs of `layer`, MODEL:tpN or MODEL:epN, for each number of tokens."""
    name, _, split = layer.partition(":")
    tp, ep = (int(split[2:]) if split.startswith(kind) else 1 for kind in ("tp", "ep"))
    shards, _ = moe_shard(resolve_model(name), tokens, tp=tp, ep=ep, dtype="nvfp4")
    for matrix in ("w13", "w2"):
        group: list[Problem] = []
        for it in shards:
            n, k = (2 * it.inter, it.hidden) if matrix == "w13" else (it.hidden, it.inter)
            group.append(Problem(layer, matrix, it.experts, n, k, it.topk, it.tokens))
        yield group


def seconds(call: Call, calls: int, replays: int) -> float:
    """Median over replays of one graph of `calls` calls."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call(0)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for i in range(calls):
                call(i)
        graph.replay()
        torch.cuda.synchronize()
        times: list[float] = []
        for _ in range(replays):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) / 1e3 / calls)
    return statistics.median(times)


class Case:
    """The operands of one problem: the packed weights twice, routings that take turns, the plain answer of one."""

    def __init__(self, problem: Problem, tensors: tuple[Any, Any, Any], packs: list[PackedWeights]) -> None:
        p, self.problem, self.packs = problem, problem, packs
        generator = torch.Generator().manual_seed(1000 + p.tokens)
        first = torch.rand(p.tokens, p.experts, generator=generator).topk(p.topk, 1).indices.int().cuda()
        self.hit = int(first.unique().numel())
        self.touched = self.hit * p.expert_bytes
        # Few experts are hit: the next call takes others, until all of the weights have been read.
        self.sets = max(1, min(20, p.experts * p.expert_bytes // self.touched)) if self.hit < p.experts else 1
        shape = (-1, p.topk) if p.per_token > 1 or p.topk == 1 else (-1, 1)
        self.ids = [((first + i * self.hit) % p.experts).int().reshape(shape).contiguous() for i in range(self.sets)]
        rows = p.tokens if p.per_token > 1 else p.rows
        self.x = torch.randn(rows, p.k, device="cuda", dtype=torch.bfloat16)
        self.out = torch.empty(p.rows, p.n, device="cuda", dtype=torch.bfloat16)
        self.want = torch.empty(p.rows, p.n, device="cuda")
        self.order = self.ids[0].view(-1).argsort(stable=True)
        routed = self.x.repeat_interleave(p.per_token, 0)
        for expert in first.unique().tolist():
            mine = self.ids[0].view(-1) == expert
            weight = reference.dequantise(*(tensor[expert : expert + 1] for tensor in tensors))[0]
            self.want[mine] = routed[mine].float() @ weight.T
        self.replays = REPLAYS if p.tokens < MANY_TOKENS else FEW_REPLAYS
        self.calls = max(CALLS[0], min(CALLS[1], 2 * self.sets))

    def turn(self, i: int) -> tuple[PackedWeights, int]:
        """(weights, index of the routing) of call `i`: other bytes than the call before."""
        return self.packs[(i // self.sets) % 2], i % self.sets

    def timed(self, call: Call, answer: Callable[[Any], Any] = lambda out: out) -> dict[str, Any]:
        """`call` of set 0 checked, then timed. `answer` makes rows in routed order of what it returns."""
        self.out.fill_(float("nan"))
        got = call(0)
        torch.cuda.synchronize()
        apart = error(answer(self.out if got is None else got), self.want)
        if not apart.right("gemm"):
            msg = f"wrong answer: largest deviation {apart.largest:.3g}, norm {apart.norm:.3g}"
            raise ValueError(msg)
        time_s = seconds(call, self.calls, self.replays)
        p = self.problem
        return {
            "time_s": time_s,
            "bytes_per_s": self.touched / time_s,
            "flop_per_s": 2 * p.rows * p.n * p.k / time_s,
            "error_max": apart.largest,
            "error_norm": apart.norm,
        }


def ours(case: Case, build: Build) -> Call:
    """The call of one build of ours; a permutation of the activations is part of it where the build wants one."""
    p = case.problem
    if isinstance(build, DecodeConfig):

        def rows(i: int) -> None:
            weights, at = case.turn(i)
            decode_rows(case.x, weights, case.ids[at], case.out, build, per_token=p.per_token)

        return rows
    row_tiles = build.row_tiles(p.n, gated=False) if isinstance(build, GroupedConfig) else 0
    routings = [route(ids, p.experts, build.block_rows, row_tiles) for ids in case.ids]

    def blocks(i: int) -> None:
        weights, at = case.turn(i)
        if isinstance(build, PrefillConfig):
            # Between the two GEMMs of a layer the first one writes the order that the second one wants.
            x = permuted(case.x, weights.steps) if p.matrix == "w13" else arranged
            grouped_prefill(x, weights, routings[at], case.out, build, rows_per_token=p.per_token)
        else:
            grouped(case.x, weights, routings[at], case.out, build, rows_per_token=p.per_token)

    arranged = permuted(case.x, case.packs[0].steps) if isinstance(build, PrefillConfig) else None
    return blocks


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


def humming(case: Case, layers: list[Any], kind: str) -> tuple[Call, Callable[[Any], Any]]:
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

        def answer(out: Any) -> Any:
            rows = torch.empty_like(out)
            rows[case.order] = out
            return rows[: p.rows]
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
            return out[: p.rows]

    return lambda i: layers[(i // case.sets) % 2](**prepared[i % case.sets]), answer


def grouped_mm(case: Case, dense: Any) -> tuple[Call, Callable[[Any], Any]]:
    """torch's bf16 grouped GEMM: 3.6 times the bytes, the first peer of many tokens."""
    p = case.problem
    rows = case.x[case.order // p.per_token].contiguous()
    ends = torch.bincount(case.ids[0].view(-1), minlength=p.experts).cumsum(0).int()

    def answer(out: Any) -> Any:
        back = torch.empty_like(out)
        back[case.order] = out
        return back

    return lambda _: torch._grouped_mm(rows, dense.transpose(1, 2), offs=ends), answer


def summed(case: Case, build: DecodeConfig) -> dict[str, Any]:
    """w2 with the weighted sum over a token's experts inside, as the layer runs it for few tokens."""
    p = case.problem
    router = torch.rand(p.rows, device="cuda")
    out = torch.empty(p.tokens, p.n, device="cuda", dtype=torch.bfloat16)
    want = (case.want * router[:, None]).view(p.tokens, p.topk, p.n).sum(1)
    ids = [each.reshape(p.tokens, p.topk) for each in case.ids]

    def call(i: int) -> None:
        weights, at = case.turn(i)
        decode_rows(case.x, weights, ids[at], out, build, per_token=p.topk, mode=SUMMED, router=router)

    call(0)
    torch.cuda.synchronize()
    apart = error(out, want)
    time_s = seconds(call, case.calls, case.replays)
    return {
        "time_s": time_s,
        "bytes_per_s": case.touched / time_s,
        "error_max": apart.largest,
        "error_norm": apart.norm,
    }


def table(records: list[dict[str, Any]]) -> str:
    """Markdown: for each problem the peers, our chosen and our fastest build."""
    lines = [
        "| problem | tokens | experts hit | Humming indexed, us | grouped, us | torch bf16, us | ours, us | build | "
        "TB/s | TFLOP/s | fastest build tried | best NVFP4 peer / ours |",
        "|--|--|--|--|--|--|--|--|--|--|--|--|",
    ]
    for record in records:
        results = {name: result for name, result in record["results"].items() if "time_s" in result}

        def us(name: str, results: dict[str, Any] = results) -> str:
            return f"{results[name]['time_s'] * 1e6:.1f}" if name in results else "-"

        mine = {name: result["time_s"] for name, result in results.items() if name.startswith("ours ")}
        peers = [result["time_s"] for name, result in results.items() if name.startswith("humming")]
        chosen = record["chosen"]
        if chosen not in results:
            continue
        best, it = min(mine, key=lambda name: mine[name]), results[chosen]
        ratio = f"{min(peers) / it['time_s']:.2f}x" if peers else "-"
        lines.append(
            f"| {record['layer']} {record['matrix']} | {record['tokens']} | {record['hit']} | "
            f"{us('humming indexed')} | {us('humming grouped')} | {us('torch bf16')} | {us(chosen)} | {chosen[5:]} | "
            f"{it['bytes_per_s'] / 1e12:.2f} | {it['flop_per_s'] / 1e12:.0f} | {best[5:]} {us(best)} | {ratio} |"
        )
    return "\n".join(lines) + "\n"


def named(build: Build) -> str:
    kind = {GroupedConfig: "sorted", DecodeConfig: "single rows", PrefillConfig: "wgmma"}[type(build)]
    values = ", ".join(str(getattr(build, field)) for field in build.__dataclass_fields__)
    return f"ours {kind} ({values})"


def worth_a_look(problem: Problem) -> list[Build]:
    """The builds of --search for a problem."""
    average = problem.rows / problem.experts
    builds: list[Build] = [
        GroupedConfig(*values) for values in SORTED if average / 4 <= values[0] * 8 <= 4 * max(4.0, average)
    ]
    if problem.tokens <= 16 or row_by_row(problem.rows, problem.experts):
        builds += [DecodeConfig(*values) for values in SINGLE]
    if torch.cuda.get_device_capability(0) == (9, 0):
        builds += [PrefillConfig(*values) for values in WGMMA if average <= values[0] <= max(32, 2 * average)]
    return [build for build in builds if build.legal]


def compare(problem: Problem, tensors: Any, packs: Any, layers: Any, dense: Any, search: bool) -> dict[str, Any]:
    case = Case(problem, tensors, packs)
    chosen = chosen_build(problem.rows, problem.n, problem.k, problem.experts, gpu_of(torch.device("cuda", 0)))
    builds = [chosen, *(build for build in worth_a_look(problem) if search and build != chosen)]
    results: dict[str, Any] = {}

    def keep(name: str, work: Callable[[], dict[str, Any]]) -> None:
        try:
            results[name] = work()
        except (TilewrightError, RuntimeError, ValueError, TypeError, AttributeError, KeyError) as fault:
            results[name] = {"fault": str(fault)[:300]}

    for kind in ("indexed", "grouped") if layers else ():
        keep(f"humming {kind}", lambda kind=kind: case.timed(*humming(case, layers, kind)))
    if dense is not None:
        keep("torch bf16", lambda: case.timed(*grouped_mm(case, dense)))
    for build in builds:
        keep(named(build), lambda build=build: case.timed(ours(case, build)))
        if isinstance(build, DecodeConfig) and problem.matrix == "w2" and problem.topk > 1:
            keep(f"summed {named(build)}", lambda build=build: summed(case, build))
    return {
        "layer": problem.layer, "matrix": problem.matrix, "tokens": problem.tokens, "hit": case.hit,
        "bytes": case.touched, "chosen": named(chosen), "results": results,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", default="GLM-5:tp8,GLM-5:ep8", help="MODEL:tpN or MODEL:epN, ...")
    parser.add_argument("--tokens", default="1,4,16,64,128,256,512,1024,4096")
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--search", action="store_true", help="time every build worth a look, not only the chosen one")
    parser.add_argument("--dense", action="store_true", help="torch's grouped_mm in bf16, too")
    options = parser.parse_args()
    try:
        counts = [int(count) for count in options.tokens.split(",")]
        groups = [group for layer in options.layers.split(",") for group in problems(layer, counts)]
    except (ValueError, TilewrightError) as fault:
        parser.error(str(fault))
    end = time.monotonic() + options.seconds
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        humming_version = getattr(import_module("humming"), "__version__", "installed")
    except ModuleNotFoundError:
        humming_version = None
    about = {"device": torch.cuda.get_device_name(0), "torch": torch.__version__, "humming": humming_version}
    records: list[dict[str, Any]] = []
    options.out.mkdir(parents=True, exist_ok=True)
    use_cubin_cache()
    for done, group in enumerate(groups):
        # Each matrix has its share of the time that is left.
        stop = time.monotonic() + (end - time.monotonic()) / (len(groups) - done)
        p = group[0]
        generator = torch.Generator("cuda").manual_seed(SEED)
        codes = torch.randint(0, 256, (p.experts, p.n, p.k // 2), dtype=torch.uint8, device="cuda", generator=generator)
        scales = torch.randint(
            40, 80, (p.experts, p.n, p.k // 16), dtype=torch.uint8, device="cuda", generator=generator
        )
        factor = torch.rand(p.experts, device="cuda", generator=generator) * 0.1 + 0.01
        tensors = (codes, scales, factor)
        first = pack(*tensors)
        packs = [first, PackedWeights(first.data.clone(), first.global_scale, first.rows, first.k, first.gated)]
        layers = humming_layers(p, tensors) if humming_version else []
        dense = reference.dequantise(*tensors).bfloat16() if options.dense else None
        for problem in group:
            if time.monotonic() > stop:
                break
            record = compare(problem, tensors, packs, layers, dense, options.search)
            records.append(record)
            print(table([record]).splitlines()[-1], flush=True)
            (options.out / "compare.json").write_text(json.dumps({"about": about, "records": records}))
            (options.out / "compare.md").write_text(table(records))


if __name__ == "__main__":
    main()
