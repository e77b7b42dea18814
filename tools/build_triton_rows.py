"""Remake or add to tests/data/triton_rows.jsonl.gz: real Triton kernels of vLLM and SGLang compiled, and their bytes.

    python tools/build_triton_rows.py --vllm ROOT --sglang ROOT --python PATH [--sm 90,100,120] [--count N] [--seed S]

`--python` is an interpreter that has Triton; no GPU is needed. Tiles are drawn at random over what tuners try and a
little beyond: every kernel and data type, FP16 beside BF16, scales per channel, zero points, weights through a tensor
descriptor, one stage, small and narrow tiles. `--fast` stops at the pass that sets `metadata.shared` (under a second a
row); without it every row goes through `triton.compile` to the end. Each row is held against the formula as it comes,
and what lies outside is printed. `--append` keeps the rows that the file has.

The rows kept: Triton 3.7.1 unless `triton` says otherwise, vLLM 0.34.0 and SGLang 0.5.23. Those without `seed` are of
an earlier draw (891 rows) to which the formula was fitted; seeds 99, 2, 3, 5 and one row of 6 were drawn
afterwards, with `--fast` (60, 180 on sm 90, 100 and 120, 90 on sm 80, 89, 103 and 121, and 6).
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tilewright.collectives.tree import open_tree
from tilewright.libraries.tuned.engine import SPECS, package_folder
from tilewright.triton_.config import illegal, parse_triton
from tilewright.triton_.extract import Kernel
from tilewright.triton_.functions import find_kernel, read_features
from tilewright.triton_.kernels import operands_of
from tilewright.triton_.launch import job
from tilewright.triton_.model import Operands, TritonConfig
from tilewright.triton_.shared import shared_memory

HERE = Path(__file__).resolve().parent
OUT = HERE.parent / "tests" / "data" / "triton_rows.jsonl.gz"
FAST = HERE / "triton_rows_worker.py"
FULL = HERE.parent / "src" / "tilewright" / "triton_" / "worker.py"
GPUS = {80: "a100-80gb-sxm", 89: "l40s", 90: "h100-sxm", 100: "b200-sxm", 103: "b300-sxm", 120: "rtx-5090", 121: "gb10"}
CHECKED = {103: 100, 121: 120}
CHUNK = 40
"""Compilations of one process of the worker."""
KINDS: tuple[tuple[str, tuple[str, ...], str, list[int] | None, dict[str, Any]], ...] = (
    ("fused-moe", ("vllm", "sglang"), "bf16", None, {}),
    ("fused-moe", ("vllm", "sglang"), "fp16", None, {}),
    ("fused-moe", ("vllm", "sglang"), "fp8_w8a8", None, {}),
    ("fused-moe", ("vllm", "sglang"), "fp8_w8a8", None, {"per_channel": True}),
    ("fused-moe", ("vllm", "sglang"), "fp8_w8a8", [128, 128], {}),
    ("fused-moe", ("vllm", "sglang"), "fp8_w8a8", [128, 128], {}),
    ("fused-moe", ("vllm",), "fp8_w8a8", [128, 128], {"descriptor": True}),
    ("fused-moe", ("vllm", "sglang"), "int8_w8a8", None, {"per_channel": True}),
    ("fused-moe", ("vllm", "sglang"), "int8_w8a8", [128, 128], {}),
    ("fused-moe", ("vllm", "sglang"), "int8_w8a16", None, {}),
    ("fused-moe", ("vllm", "sglang"), "int8_w8a16", [0, 128], {}),
    ("fused-moe", ("vllm", "sglang"), "int8_w8a16", [0, 64], {"zero_points": True}),
    ("fused-moe", ("vllm", "sglang"), "int4_w4a16", [0, 128], {}),
    ("fused-moe", ("vllm", "sglang"), "int4_w4a16", [0, 32], {"zero_points": True}),
    ("fp8-linear", ("vllm", "sglang"), "fp8_w8a8", [128, 128], {}),
    ("fp8-linear", ("sglang",), "int8_w8a8", [128, 128], {}),
)
FP8_FROM = 89
DESCRIPTORS = (90, 100, 103)


def draw(rng: random.Random, sms: list[int]) -> dict[str, Any]:
    """One tile as a raw config, with `sm` and `descriptor`."""
    while True:
        family, engines, dtype, block, extra = rng.choice(KINDS)
        sm = rng.choice(sms)
        if (dtype == "fp8_w8a8" and sm < FP8_FROM) or (extra.get("descriptor") and sm not in DESCRIPTORS):
            continue
        return {
            "kernel": f"{rng.choice(engines)}-{family}", "gpu": GPUS[sm], "sm": sm, "dtype": dtype,
            "block_shape": block, "block_m": rng.choice((16, 32, 64, 64, 128, 128, 256)),
            "block_n": rng.choice((16, 32, 64, 128, 128, 256, 256)), "block_k": rng.choice((32, 64, 64, 128, 128, 256)),
            "num_warps": rng.choice((2, 4, 4, 4, 8, 8, 8, 16)), "num_stages": rng.choice((1, 2, 2, 3, 3, 4, 5)),
            **extra,
        }  # fmt: skip


def split(row: dict[str, Any]) -> TritonConfig:
    """The config of a row."""
    return parse_triton({key: value for key, value in row.items() if key not in ("sm", "descriptor")})


def operands(row: dict[str, Any], config: TritonConfig, kernel: Kernel) -> Operands:
    return replace(operands_of(config, read_features(kernel), row["sm"]), b_descriptor=bool(row.get("descriptor")))


def ask(python: str, worker: Path, kernel: Kernel, jobs: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """One answer a job."""
    for first in range(0, len(jobs), CHUNK):
        lines = [{"source": kernel.source, "kernel": kernel.name}, *jobs[first : first + CHUNK]]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        done = subprocess.run([python, str(worker)], input=text, capture_output=True, text=True, check=False)
        if done.returncode:
            print(done.stderr[-1000:], file=sys.stderr)
        yield from (json.loads(line) for line in done.stdout.splitlines())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm", required=True)
    parser.add_argument("--sglang", required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--sm", default="90,100,120")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--append", action="store_true")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    sms = [int(word) for word in args.sm.split(",")]
    drawn = [{"id": f"{args.seed}.{number}", **draw(rng, sms)} for number in range(args.count)]
    found: dict[str, Kernel] = {}
    jobs: dict[str, list[dict[str, Any]]] = {}
    by_id: dict[str, dict[str, Any]] = {}
    with open_tree(args.vllm) as vllm, open_tree(args.sglang) as sglang:
        for row in drawn:
            config = split(row)
            if illegal(config) is not None:
                continue
            engine = "vllm" if config.kernel.startswith("vllm") else "sglang"
            tree = vllm if engine == "vllm" else sglang
            family = f"{config.kernel} {config.dtype} {bool(config.block_shape and not config.block_shape[0])}"
            if family not in found:
                package = package_folder(tree, SPECS[engine])
                assert package is not None, f"no {engine} in {tree.name}"
                found[family] = find_kernel(tree, package, config)
            kernel = found[family]
            jobs.setdefault(family, []).append(job(kernel, config, operands(row, config, kernel), row["sm"]))
            by_id[row["id"]] = row
    rows: list[dict[str, Any]] = []
    seen: Counter[str] = Counter()
    for family, wanted in jobs.items():
        for answer in ask(args.python, FAST if args.fast else FULL, found[family], wanted):
            row = by_id[answer["id"]]
            if "error" in answer:
                seen["refused"] += 1
                print(f"refused {row}: {' '.join(answer['error'].split())[-200:]}", file=sys.stderr)
                continue
            config = split(row)
            memory = shared_memory(config, operands(row, config, found[family]), CHECKED.get(row["sm"], int(row["sm"])))
            kind = "exact" if memory.least == memory.most else "bound"
            inside = memory.least <= answer["shared"] <= memory.most
            seen[f"{kind} {'inside' if inside else 'OUTSIDE'}"] += 1
            if not inside:
                print(f"OUTSIDE {row} takes {answer['shared']}: {memory}", file=sys.stderr)
            rows.append({**row, "seed": args.seed, "triton": answer["triton"], "shared": answer["shared"]})
    kept = gzip.decompress(args.out.read_bytes()).decode() if args.append and args.out.exists() else ""
    text = kept + "".join(json.dumps(row) + "\n" for row in rows)
    args.out.write_bytes(gzip.compress(text.encode(), mtime=0))
    print(f"{len(rows)} rows in {args.out}: {dict(seen)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
