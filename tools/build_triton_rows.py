"""Remake tests/data/triton_rows.jsonl.gz: real Triton kernels of vLLM and SGLang compiled, and what each takes.

    python tools/build_triton_rows.py --vllm DIR_OR_WHEEL --sglang DIR_OR_WHEEL --python PATH [--count N] [--seed S]

`--python` is an interpreter that has Triton; no GPU is needed. Tiles are drawn at random over what tuners try. The
rows kept were made with Triton 3.7.1, vLLM 0.34.0 and SGLang 0.5.23 (those whose `triton` says 3.6.0 or 3.9.0 with
these), up to the pass that sets `metadata.shared`; every one of the latter two through `triton.compile` to the end.
About one second a row.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
from pathlib import Path
from typing import Any

from tilewright.errors import ToolError
from tilewright.triton_.compile import ask_triton
from tilewright.triton_.config import illegal, parse_triton

OUT = Path(__file__).resolve().parent.parent / "tests" / "data" / "triton_rows.jsonl.gz"
KINDS: tuple[tuple[str, str, list[int] | None], ...] = (
    ("fused-moe", "bf16", None),
    ("fused-moe", "fp8_w8a8", None),
    ("fused-moe", "fp8_w8a8", [128, 128]),
    ("fused-moe", "int8_w8a8", None),
    ("fused-moe", "int8_w8a8", [128, 128]),
    ("fused-moe", "int8_w8a16", None),
    ("fused-moe", "int8_w8a16", [0, 128]),
    ("fused-moe", "int4_w4a16", [0, 128]),
    ("fp8-linear", "fp8_w8a8", [128, 128]),
)


def draw(rng: random.Random, number: int) -> dict[str, Any]:
    """One tile as a raw config."""
    family, dtype, block = rng.choice(KINDS)
    engine = rng.choice(("vllm", "sglang"))
    return {
        "id": str(number), "kernel": f"{engine}-{family}", "gpu": rng.choice(("h100-sxm", "b200-sxm", "rtx-5090")),
        "dtype": dtype, "block_shape": block, "block_m": rng.choice((16, 32, 64, 128, 256)),
        "block_n": rng.choice((32, 64, 128, 256)), "block_k": rng.choice((32, 64, 128, 256)),
        "num_warps": rng.choice((4, 8)), "num_stages": rng.choice((1, 2, 3, 4, 5)),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm", required=True)
    parser.add_argument("--sglang", required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    architectures = {"h100-sxm": 90, "b200-sxm": 100, "rtx-5090": 120}
    rows: list[dict[str, Any]] = []
    for number in range(args.count):
        raw = draw(rng, number)
        config = parse_triton(raw)
        if illegal(config) is not None:
            continue
        root = args.vllm if raw["kernel"].startswith("vllm") else args.sglang
        sm = architectures[raw["gpu"]]
        try:
            done = ask_triton(config, sm, root, args.python)
        except ToolError as error:
            print(f"{raw}: {error.msg}", file=sys.stderr)
            continue
        rows.append({**raw, "sm": sm, "triton": done.triton, "shared": done.shared_bytes})
    text = "".join(json.dumps(row) + "\n" for row in rows)
    args.out.write_bytes(gzip.compress(text.encode(), mtime=0))
    print(f"{len(rows)} rows in {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
