"""Exhaustive tables for the tests from a store that `tune_exhaustive.py` filled: tests/data/tune_tables.json.gz.

    python tools/build_tune_tables.py all.sqlite [more.sqlite ...]

Only problems whose every config was measured are kept. Times are in units of 10 ns, in the order of `space.prune`.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import msgspec

from tilewright.store.result import key_of
from tilewright.tune.layer import fields_of
from tilewright.tune.space import axes_of, prune
from tilewright.tune.trials import TrialStore

TARGET = Path(__file__).parents[1] / "tests" / "data" / "tune_tables.json.gz"
SM, LIMIT = 90, 232_448
"""H200: architecture, and bytes of shared memory that one block may have (`tilewright gpus h200-sxm`)."""
UNIT_S = 1e-8


def main(paths: list[str]) -> int:
    found: dict[str, dict[str, Any]] = {}
    for path in paths:
        with TrialStore.read(Path(path)) as store:
            for context, problem, trial in store.everything():
                if not trial.ok or trial.rung != "look":
                    continue
                entry = found.setdefault(
                    key_of([msgspec.to_builtins(context), fields_of(problem)]),
                    {"context": msgspec.to_builtins(context), "problem": problem, "times": {}},
                )
                # A config that was given up after its first GEMM has no second time: what it took so far stands.
                pair = (trial.up_s or 0.0, trial.down_s if trial.down_s is not None else 1.0)
                entry["times"].setdefault(key_of(trial.config), pair)
    tables: list[dict[str, Any]] = []
    for entry in found.values():
        problem = entry["problem"]
        configs = prune(problem.kernel, problem.layer, SM, LIMIT, clamp=True).kept
        if any(key_of(config) not in entry["times"] for config in configs):
            continue
        pairs = [entry["times"][key_of(config)] for config in configs]
        axes = {name: list(values) for name, values in axes_of(problem.kernel).items()}
        tables.append(
            {
                "context": entry["context"], "problem": fields_of(problem), "axes": axes,
                "configs": [[axes[name].index(config[name]) for name in axes] for config in configs],
                "up": [round(up / UNIT_S) for up, _ in pairs], "down": [round(down / UNIT_S) for _, down in pairs],
            }
        )  # fmt: skip
    TARGET.write_bytes(gzip.compress(json.dumps(tables, separators=(",", ":")).encode(), 9, mtime=0))
    print(
        f"{len(tables)} tables, {sum(len(table['up']) for table in tables):,} configs, {TARGET.stat().st_size:,} bytes"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
