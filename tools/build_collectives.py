"""Remake src/tilewright/data/collectives.json from the communication tables of aiconfigurator-core.

Each (GPU, library, collective, number of GPUs) gets t = alpha + half * sqrt(bytes) + beta * bytes, all three at least
zero and fitted to relative errors, beside its measured rows. Needs pandas, pyarrow and scipy:

    pip download --no-deps aiconfigurator-core==0.12.0
    python -m zipfile -e aiconfigurator_core-0.12.0-*.whl aic
    python tools/build_collectives.py aic [OUT.json]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np  # pyright: ignore[reportMissingImports]
import pandas as pd  # pyright: ignore[reportMissingImports, reportMissingTypeStubs]
from scipy.optimize import nnls  # pyright: ignore[reportMissingImports, reportMissingTypeStubs]

from tilewright.hardware.names import resolve_gpu

OUT: Final = Path(__file__).parent.parent / "src" / "tilewright" / "data" / "collectives.json"
SYSTEMS: Final = (
    "rtx_pro_6000_server", "h100_sxm", "h200_sxm", "b200_sxm", "gb200", "gb300", "b300_sxm", "l40s", "a100_sxm",
)  # fmt: skip
LIBRARIES: Final = (("nccl", "nccl"), ("sglang", "sglang_custom"), ("trtllm", "trtllm"), ("vllm", "vllm_custom"))
"""Folder of the tables, and what `predict` calls the library."""
PREFERRED: Final = ("2.29.2", "0.5.14", "1.3.0rc20", "vllm/0.24.0")
"""Versions that the kernel tables are of; another one only where a GPU has no such table."""
GPUS: Final = (2, 4, 8)
MIN_SIZES: Final = 6
ELEMENT_BYTES: Final = 2
"""Sizes in the tables count elements of BF16 or FP16."""
NOTICE: Final = (
    "Latencies of NVIDIA's aiconfigurator project (Apache-2.0, Copyright (c) 2025-2026 NVIDIA CORPORATION & "
    "AFFILIATES), aiconfigurator-core 0.12.0; sizes are bytes of BF16/FP16 messages; alpha, half and beta are fitted "
    "here."
)


def curve(rows: Any) -> dict[str, Any] | None:
    """Law, errors and rows of one collective among one number of GPUs; None when there are too few sizes."""
    best = rows.groupby("message_size").latency.min()
    best = best[best > 0]
    size, time = best.index.values.astype(float) * ELEMENT_BYTES, best.values * 1e3
    if len(size) < MIN_SIZES:
        return None
    terms = np.c_[np.ones(len(size)), np.sqrt(size), size * 1e-3]
    law, _ = nnls(terms / time[:, None], np.ones(len(size)))
    gap = np.abs(terms @ law / time - 1)
    return {
        "alpha_us": float(f"{law[0]:.4g}"), "half_us": float(f"{law[1]:.4g}"), "beta_ns": float(f"{law[2]:.4g}"),
        "error": round(float(np.quantile(gap, 0.95)), 3), "mean_error": round(float(gap.mean()), 3),
        "bytes": [int(value) for value in size], "us": [float(f"{value:.4g}") for value in time],
    }  # fmt: skip


def tables(folder: Path) -> tuple[str, list[tuple[str, Any]]] | None:
    """The version of a library's table, and its half-precision rows by how they were launched: "" from CUDA graphs, as
    servers do (or in the only way that was timed), "_eager" without."""
    paths = sorted(str(path) for path in folder.glob("*/*_perf.parquet") if "a2a" not in str(path))
    if not paths:
        return None
    preferred = [path for path in paths if any(version in path for version in PREFERRED)]
    path = Path((preferred or paths)[-1])
    rows = pd.read_parquet(path)
    rows = rows[rows["nccl_dtype" if "nccl_dtype" in rows else "allreduce_dtype"].isin(["half", "bfloat16"])]
    graphs = rows.kernel_source.str.contains("graph")
    if not graphs.any():
        return path.parent.name, [("", rows)]
    return path.parent.name, [("", rows[graphs]), ("_eager", rows[rows.kernel_source.str.contains("eager")])]


def main(unpacked: str, out: str = str(OUT)) -> None:
    root = Path(unpacked) / "aiconfigurator_core" / "systems" / "data"
    curves: list[dict[str, Any]] = []
    for system in SYSTEMS:
        key = resolve_gpu(system).key
        for library, backend in LIBRARIES:
            found = tables(root / system / "comm" / library)
            if found is None:
                continue
            version, ways = found
            groups = [(way, *group) for way, rows in ways for group in rows.groupby(["op_name", "num_gpus"])]
            for way, (name, gpus), part in groups:
                fitted = curve(part) if gpus in GPUS else None
                if fitted is None:
                    continue
                points = {item: fitted.pop(item) for item in ("bytes", "us")}
                collective = name.replace("allreduce", "all_reduce")
                head = {"gpu": key, "backend": backend + way, "collective": collective, "gpus": int(gpus)}
                source = f"{library} {version}{way.replace('_', ', ')}"
                curves.append({**head, **fitted, "source": source, **points})
    lines = ",\n".join(json.dumps(item, separators=(",", ":")) for item in curves)
    text = '{"notice":' + json.dumps(NOTICE) + ',\n"curves":[\n' + lines + "\n]}\n"
    Path(out).write_text(text, encoding="utf-8")
    print(f"{len(curves)} curves, {len(text):,} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:3])
