"""Compile the product's own Triton kernels for SM90, SM100 and SM120 and write what came out as data rows.

    python tools/build_triton_kernel_rows.py [--out tests/data/triton_kernels.jsonl.gz] [--sm 120]

Run it in a Python that has Triton (extra `triton`); no GPU is needed and none is used. A row holds the kernel, its
tile, the target, Triton's version, shared and tensor memory by Triton, registers, stack and local memory by cuobjdump
on the cubin, the MMA instructions of the PTX and of the SASS, and the SASS instructions in all.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

REPO = Path(__file__).parent.parent
sys.path.insert(0, str(REPO / "src"))

EXPERTS = ((256, 8), (32, 1), (128, 4), (128, 8), (8, 2))
"""Experts on a GPU and top-k: GLM-5 at TP8 and EP8, gpt-oss-120b, Qwen3-235B, and few experts (many rows each)."""
TOKENS = (1, 4, 16, 64, 256, 1024, 4096)
MMA = re.compile(r"(?:wgmma\.mma_async|tcgen05\.mma|mma\.sync)[\w.:]*")
SASS_MMA = re.compile(r"\b(?:HGMMA|QGMMA|UTC\w*MMA|HMMA|QMMA|OMMA)[\w.]*")


def jobs(sm: int) -> list[dict[str, Any]]:
    """Every tile that the table gives for the shapes and token counts, each once."""
    from tilewright.kernels.triton_tiles import for_steps, tile_of

    found: dict[str, dict[str, Any]] = {}
    for experts, topk in EXPERTS:
        for tokens in TOKENS:
            for kernel, activations in (("w4a16_kernel", "bf16"), ("w4a4_kernel", "nvfp4")):
                if activations == "nvfp4" and sm < 100:
                    continue
                chosen = tile_of(tokens * topk, experts, activations)
                # The second one is for K of an odd number of steps.
                for tile, gated in product((chosen, for_steps(chosen, 1)), (True, False)):
                    job = {
                        "kernel": kernel, "sm": sm, "gated": gated, "block_n": tile.block_n, "block_m": tile.block_m,
                        "block_k": tile.block_k, "warps": tile.warps, "stages": tile.stages,
                        "weights_left": tile.weights_left,
                    }  # fmt: skip
                    found[json.dumps(job)] = job
    return list(found.values())


POINTERS = {
    "x": {"w4a16_kernel": "*bf16", "w4a4_kernel": "*u8"}, "x_scales": "*fp8e4nv", "x_factors": "*fp32", "codes": "*u8",
    "scales": "*fp8e4nv", "factors": "*fp32", "ids_of": "*i32", "expert_of": "*i32", "block_count": "*i32",
    "router": "*fp32", "out": "*bf16",
}  # fmt: skip
WHOLE = ("x_stride", "n", "k")
"""Integers that are multiples of 16 at run time: Triton specialises on it."""


def compile_job(job: dict[str, Any]) -> dict[str, Any]:
    """The row of one job."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from tilewright.kernels import triton_kernels

    function = getattr(triton_kernels, job["kernel"])
    constants = {
        "gated": job["gated"], "weighted": not job["gated"], "whole_k": True, "wide": False,
        "weights_left": job["weights_left"], "ahead": job["sm"] >= 120,
        "block_n": job["block_n"], "block_m": job["block_m"], "block_k": job["block_k"],
    }  # fmt: skip
    signature: dict[str, str] = {}
    attributes: dict[tuple[int], Any] = {}
    constexprs: dict[tuple[int], Any] = {}
    for at, name in enumerate(function.arg_names):
        if name in constants:
            signature[name], constexprs[at,] = "constexpr", constants[name]
            continue
        kind = POINTERS.get(name, "i32")
        signature[name] = kind[job["kernel"]] if isinstance(kind, dict) else kind
        if name in POINTERS or name in WHOLE:
            attributes[at,] = [["tt.divisibility", 16]]
    source = ASTSource(fn=function, signature=signature, constexprs=constexprs, attrs=attributes)
    options = {"num_warps": job["warps"], "num_stages": job["stages"]}
    built = triton.compile(source, target=GPUTarget("cuda", job["sm"], 32), options=options)
    row = {**job, "triton": triton.__version__, "shared": built.metadata.shared}
    row["tensor_memory"] = getattr(built.metadata, "tmem_size", None)
    row["target"] = re.search(r"\.target\s+(\w+)", built.asm["ptx"]).group(1)
    row["ptx_mma"] = sorted(set(MMA.findall(built.asm["ptx"])))
    row.update(_of_cubin(built.asm["cubin"]))
    return row


def _of_cubin(cubin: bytes) -> dict[str, Any]:
    import triton

    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        usage = subprocess.run(
            [tools / "cuobjdump", "-res-usage", path], capture_output=True, text=True, check=True
        ).stdout
        sass = subprocess.run([tools / "nvdisasm", "-c", path], capture_output=True, text=True, check=True).stdout
    line = next(line for line in usage.splitlines() if "REG:" in line)
    figures = {name.lower(): int(value) for name, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", line)}
    names = Counter(re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", sass))
    return {
        "registers": figures["reg"], "stack": figures["stack"], "local": figures["local"],
        "sass_mma": sorted(set(SASS_MMA.findall(sass))), "instructions": sum(names.values()),
    }  # fmt: skip


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as docs/kernels.md shows them: each kernel, target and tile, the worse of gated and plain."""
    worst: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        key = tuple(row[name] for name in ("kernel", "sm", "block_n", "block_m", "block_k", "warps", "stages"))
        worst[key] = max(worst.get(key, row), row, key=lambda item: item["registers"])
    lines = [
        "| kernel | target | tile n x m x k, warps, stages | shared memory | registers | MMA (SASS) |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for key, row in sorted(worst.items()):
        kernel, _, n, m, k, warps, stages = key
        lines.append(
            f"| {kernel.removesuffix('_kernel').upper()} | {row['target']} | {n} x {m} x {k}, {warps}, {stages} | "
            f"{row['shared']:,} B | {row['registers']} | {', '.join(row['sass_mma'])} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default=str(REPO / "tests" / "data" / "triton_kernels.jsonl.gz"))
    parser.add_argument("--sm", type=int, action="append")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for sm in arguments.sm or (90, 100, 120):
        for job in jobs(sm):
            try:
                row = compile_job(job)
            except Exception as error:  # what the compiler refuses is a row, too
                row = {**job, "error": f"{type(error).__name__}: {error}"[:500]}
            rows.append(row)
            print(json.dumps(row), flush=True)
    with gzip.GzipFile(arguments.out, "wb", mtime=0) as stream:
        stream.write("".join(json.dumps(row) + "\n" for row in rows).encode())


if __name__ == "__main__":
    main()
