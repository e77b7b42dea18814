"""Remake tests/data/kernel_fit: coefficients of two kernels fitted without a quarter of the sample's shapes.

The tests then predict those shapes (every fourth of tests/data/kernel_rows) by the coefficients alone. Needs the
`calibrate` extra and the published extract of the kernel tables:

    python tools/make_kernel_fit.py aic_gemm_rtxpro6000.csv.gz aic_moe_rtxpro6000_lowprec.csv.gz
"""

from __future__ import annotations

import csv
import gzip
import sys
import tempfile
from pathlib import Path

from tilewright.calibrate.run import calibrate

DATA = Path(__file__).parent.parent / "tests" / "data"
KERNELS = {"sglang_flashinfer_cutlass_nvfp4", "sglang_flashinfer_cutlass_moe"}
SHAPE = ("n", "k", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size")


def shape(row: dict[str, str]) -> tuple[str, ...]:
    """What is held out together."""
    return tuple(row[name] for name in SHAPE if name in row)


def held_out(name: str) -> set[tuple[str, ...]]:
    """Every fourth shape of the sample."""
    with gzip.open(DATA / "kernel_rows" / f"{name}.csv.gz", "rt", encoding="utf-8") as stream:
        return set(sorted({shape(row) for row in csv.DictReader(stream)})[::4])


def main(paths: list[str]) -> None:
    held = held_out("gemm") | held_out("moe")
    with tempfile.TemporaryDirectory() as folder:
        files: list[str] = []
        for path in paths:
            with gzip.open(path, "rt", encoding="utf-8") as stream:
                reader = csv.DictReader(stream)
                kept = [row for row in reader if row["kernel_source"] in KERNELS and shape(row) not in held]
                names = list(reader.fieldnames or ())
            files.append(str(Path(folder) / f"{len(files)}.csv"))
            with Path(files[-1]).open("w", encoding="utf-8", newline="") as out:
                writer = csv.DictWriter(out, names)
                writer.writeheader()
                writer.writerows(kept)
        calibrate(tuple(files), str(DATA / "kernel_fit"), date="2026-12-02", force=True, tables=False, tell=print)


if __name__ == "__main__":
    main(sys.argv[1:])
