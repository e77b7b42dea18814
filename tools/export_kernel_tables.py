"""Write the kernel tables of aiconfigurator-core as the CSV files that `tilewright calibrate` reads.

Together with `merge_coefficients.py` this remakes src/tilewright/data/coefficients and data/tables:

    pip download --no-deps aiconfigurator-core==0.12.0        (Apache-2.0)
    python -m zipfile -e aiconfigurator_core-0.12.0-*.whl aic
    pip install pandas pyarrow 'tilewright[calibrate]'
    python tools/export_kernel_tables.py aic rows
    for t in gemm moe moe_glm5; do
        tilewright calibrate --rows rows/$t.csv.gz --out fitted/$t --date 2026-12-02 --source "$(cat rows/SOURCE)"
    done
    python tools/merge_coefficients.py fitted/gemm fitted/moe fitted/moe_glm5

The files that were shipped came from numpy 2.4.6 and lightgbm 4.7.0 with one thread (OMP_NUM_THREADS=1).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import pandas as pd  # pyright: ignore[reportMissingImports, reportMissingTypeStubs]

from tilewright.cost.kernel_dtypes import kernel_dtype
from tilewright.cost.kernel_models import load
from tilewright.hardware.names import resolve_gpu

VERSIONS: Final = (("sglang", "0.5.14"), ("trtllm", "1.3.0rc20"), ("vllm", "0.24.0"))
"""One version of each framework: the newest of which RTX PRO 6000 Server has GEMM and MoE tables."""
HOME: Final = "rtx_pro_6000_server"
OTHERS: Final = ("b200_sxm", "b300_sxm", "gb200", "gb300", "h100_sxm", "h200_sxm", "l40s")
"""GPUs of which only the expert layer of GLM-5 is taken, split over up to 8 GPUs either way, to keep the package small:
the kernels that the packaged index names (it leaves out 30 more that the tables hold)."""
MAX_WAYS: Final = 8
GLM5: Final = {"hidden_size": 6144, "inter_size": 2048, "topk": 8, "num_experts": 256}
GEMM_COLUMNS: Final = ["fw_version", "kernel_source", "gemm_dtype", "m", "n", "k", "latency_ms"]
MOE_COLUMNS: Final = [
    "fw_version", "kernel_source", "moe_dtype", "num_tokens", *GLM5, "moe_tp_size", "moe_ep_size", "distribution",
    "latency_ms",
]  # fmt: skip
SOURCE: Final = (
    "Latencies of NVIDIA's aiconfigurator project (aiconfigurator-core 0.12.0, Apache-2.0, Copyright (c) 2025-2026 "
    "NVIDIA CORPORATION & AFFILIATES), RTX PRO 6000 Server"
)


def table(root: Path, system: str, operation: str) -> Any:
    """All rows of one operation on one GPU, frameworks one after another; None when there are none."""
    parts: list[Any] = []
    for framework, version in VERSIONS:
        path = root / system / operation / framework / version / f"{operation}_perf.parquet"
        if path.exists():
            parts.append(pd.read_parquet(path))
    if not parts:
        return None
    rows = pd.concat(parts)
    rows["fw_version"] = rows["framework"].str.lower() + " " + rows["version"]
    return rows.rename(columns={"latency": "latency_ms"})


def write(rows: Any, path: Path) -> None:
    """A CSV.gz that is equal for equal rows."""
    rows.to_csv(path, index=False, compression={"method": "gzip", "compresslevel": 6, "mtime": 0})
    print(f"{path}: {len(rows):,} rows")


def main(unpacked: str, out: str) -> None:
    root = Path(unpacked) / "aiconfigurator_core" / "systems" / "data"
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    for operation, columns in (("gemm", GEMM_COLUMNS), ("moe", MOE_COLUMNS)):
        rows = table(root, HOME, operation)
        if rows is None:
            sys.exit(f"{root / HOME / operation} holds none of {VERSIONS}; give the folder of the unpacked wheel.")
        write(rows[columns], folder / f"{operation}.csv.gz")
    packaged = {(entry.gpu, entry.backend, entry.dtype) for entry in load().index.entries}
    parts: list[Any] = []
    for system in OTHERS:
        rows = table(root, system, "moe")
        if rows is None:
            continue
        for name, size in GLM5.items():
            rows = rows[rows[name] == size]
        tp, ep = rows["moe_tp_size"], rows["moe_ep_size"]
        rows = rows[((tp == 1) | (ep == 1)) & (tp <= MAX_WAYS) & (ep <= MAX_WAYS)]
        key = resolve_gpu(system).key
        named = zip(rows["kernel_source"], rows["moe_dtype"], strict=True)
        rows = rows[[(key, backend, kernel_dtype(dtype).name) in packaged for backend, dtype in named]]
        parts.append(rows.assign(system=system)[["system", *MOE_COLUMNS]])
    write(pd.concat(parts), folder / "moe_glm5.csv.gz")
    (folder / "SOURCE").write_text(SOURCE, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:3])
