"""Time our NVFP4 grouped GEMMs beside what else the machine has, in one run, each answer checked first.

    python tools/compare_nvfp4.py --layers GLM-5:tp8,GLM-5:ep8 --tokens 1,16,64,1024,4096 --seconds 200 --out DIR

Needs a GPU and the extra `bench`. Peers: humming-kernels where installed, with its own choice of config (indexed and
grouped); triton_kernels where installed (tokenspeed-triton-kernels), on the same weights quantised once more to MXFP4,
checked against the product of those; torch's grouped_mm on the same weights as bf16. The same random checkpoint tensors
for all; the experts' weights change with every call, so that L2 is cold; routing is uniform and made beforehand. DIR
gets compare.json and compare.md. Stops at --seconds with what it has.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).parent))

import torch
from nvfp4_case import Call, Case, Problem, Run, problems, seconds
from nvfp4_peers import (
    MXFP4,
    MXFP4_WARPS,
    grouped_mm,
    humming,
    humming_version,
    kept,
    mxfp4,
    mxfp4_version,
    prepared,
)

from tilewright.bench.reference import error
from tilewright.errors import TilewrightError
from tilewright.kernels.choose import choose_decode, chosen_build, row_by_row
from tilewright.kernels.config import GroupedConfig
from tilewright.kernels.decode import SUMMED, DecodeConfig, decode_rows
from tilewright.kernels.launch import grouped, route
from tilewright.kernels.layout import STEP_K, PackedWeights, pack
from tilewright.kernels.moe import gpu_of
from tilewright.kernels.prefill import PrefillConfig, grouped_prefill, permuted

SEED = 3
SORTED = [(1, 4, 4, 3, 4, 2), (1, 4, 4, 2, 4, 4), (1, 2, 4, 4, 4, 3), (2, 4, 4, 3, 4, 0), (2, 2, 4, 4, 4, 0),
          (4, 4, 4, 3, 4, 0), (4, 2, 4, 3, 4, 0), (8, 4, 4, 2, 4, 0)]  # fmt: skip
SINGLE = [
    (1, 16, 1),
    (2, 16, 1),
    (1, 8, 1),
    (2, 8, 1),
    (4, 8, 1),
    (4, 4, 1),
    (2, 4, 1),
    (2, 1, 1),
    (4, 2, 1),
    (2, 8, 3),
]
WGMMA = [(16, 8, 8, 7), (24, 8, 8, 7), (24, 16, 8, 7), (32, 16, 8, 6), (48, 32, 8, 6), (64, 40, 8, 5), (64, 48, 16, 5),
         (80, 56, 8, 4), (96, 64, 16, 4), (128, 96, 16, 3), (144, 112, 16, 3), (160, 128, 16, 3)]  # fmt: skip
"""Builds that --search times, where they suit the rows an expert gets."""
Build = GroupedConfig | DecodeConfig | PrefillConfig


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
        f"| problem | tokens | experts hit | Humming indexed, us | grouped, us | {MXFP4}, us | torch bf16, us | "
        "ours, us | build | TB/s | TFLOP/s | fastest build tried | best NVFP4 peer / ours |",
        "|--|--|--|--|--|--|--|--|--|--|--|--|--|",
    ]
    for record in records:
        results = {name: result for name, result in record["results"].items() if "time_s" in result}

        def us(name: str, results: dict[str, Any] = results) -> str:
            return f"{results[name]['time_s'] * 1e6:.1f}" if name in results else "-"

        mine = {name: result["time_s"] for name, result in results.items() if name.startswith("ours ")}
        peers = [result["time_s"] for name, result in results.items() if name.startswith("humming")]
        other = [result["time_s"] for name, result in results.items() if name.startswith(MXFP4)]
        chosen = record["chosen"]
        if chosen not in results:
            continue
        best, it = min(mine, key=lambda name: mine[name]), results[chosen]
        ratio = f"{min(peers) / it['time_s']:.2f}x" if peers else "-"
        lines.append(
            f"| {record['layer']} {record['matrix']} | {record['tokens']} | {record['hit']} | "
            f"{us('humming indexed')} | {us('humming grouped')} | "
            f"{f'{min(other) * 1e6:.1f}' if other else '-'} | {us('torch bf16')} | {us(chosen)} | {chosen[5:]} | "
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


def compare(problem: Problem, tensors: Any, packs: Any, peers: dict[str, Any], search: bool) -> dict[str, Any]:
    case = Case(problem, tensors, packs)
    gpu = gpu_of(torch.device("cuda", 0))
    chosen = chosen_build(problem.rows, problem.n, problem.k, problem.experts, gpu)
    builds = [chosen, *(build for build in worth_a_look(problem) if search and build != chosen)]
    results: dict[str, Any] = dict(peers["faults"])

    def keep(name: str, work: Callable[[], dict[str, Any]]) -> None:
        if (result := kept(results, name, work)) is not None:
            results[name] = result

    for kind in ("indexed", "grouped") if peers["humming"] else ():
        keep(f"humming {kind}", lambda kind=kind: case.timed(humming(case, peers["humming"], kind)))
    if peers["dense"] is not None:
        keep("torch bf16", lambda: case.timed(grouped_mm(case, peers["dense"])))
    for build in builds:
        keep(named(build), lambda build=build: case.timed(Run(ours(case, build))))
    if isinstance(chosen, DecodeConfig) and problem.matrix == "w2" and problem.topk > 1:
        steps = problem.topk * -(-problem.k // STEP_K)
        build = choose_decode(problem.tokens, problem.n, steps, gpu.sms, place="summed")
        keep(f"summed {named(build)}", lambda: summed(case, build))
    for warps in MXFP4_WARPS if peers["mxfp4"] else ():
        keep(f"{MXFP4}, {warps} warps", lambda warps=warps: case.timed(mxfp4(case, peers["mxfp4"], warps)))
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
        words = options.tokens.split(",")
        wrong = [word for word in words if not word.isdecimal() or int(word) < 1]
        if wrong:
            parser.error(f"--tokens: {wrong[0]!r} is no number of tokens; give whole numbers from 1, as in 1,64,4096.")
        counts = [int(word) for word in words]
        groups = [group for layer in options.layers.split(",") for group in problems(layer, counts)]
    except (ValueError, TilewrightError) as fault:
        parser.error(str(fault))
    end = time.monotonic() + options.seconds
    torch.backends.cuda.matmul.allow_tf32 = False
    about = {
        "device": torch.cuda.get_device_name(0), "torch": torch.__version__, "humming": humming_version(),
        "triton_kernels": mxfp4_version(),
    }  # fmt: skip
    records: list[dict[str, Any]] = []
    options.out.mkdir(parents=True, exist_ok=True)
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
        peers = prepared(p, tensors, options.dense)
        for problem in group:
            if time.monotonic() > stop:
                break
            record = compare(problem, tensors, packs, peers, options.search)
            records.append(record)
            print(table([record]).splitlines()[-1], flush=True)
            (options.out / "compare.json").write_text(json.dumps({"about": about, "records": records}))
            (options.out / "compare.md").write_text(table(records))


if __name__ == "__main__":
    main()
