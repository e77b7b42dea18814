"""Compile configs drawn at random and keep them as rows for the tests: tests/data/compiled/wide.jsonl.gz.

    python tools/build_compiled.py --extensions FLASHINFER --run sm120:60:41001:TREE [--run ARCH:N:SEED:TREE ...]

Each run draws N configs of ARCH with SEED (as `tilewright probe --sample N --seed SEED --arch ARCH` does) and compiles
them against TREE; what was compiled before comes from the probe's cache. Rows have the form of tests/data/truth. A row
without an answer (a tag that the release does not have) is left out and counted. Needs nvcc; no GPU.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from tilewright.cutlass.config import config_to_dict, parse_config
from tilewright.cutlass.fit import fit
from tilewright.probe.against import FIGURES, compare
from tilewright.probe.compiler import find_nvcc
from tilewright.probe.headers import open_headers
from tilewright.probe.result import ProbeResult
from tilewright.probe.rounds import Settings
from tilewright.probe.run import Request, probe
from tilewright.probe.sampling import sample_configs

OUT = Path(__file__).parents[1] / "tests" / "data" / "compiled" / "wide.jsonl.gz"


def row(request: Request, result: ProbeResult) -> dict[str, Any]:
    """One compiled config as a truth row."""
    truth: dict[str, Any] = {name: getattr(result, name) for name in FIGURES}
    truth |= {"status": result.type_status, "error": result.error, "assert_fired": result.assert_fired}
    truth["fields"] = [
        {"path": field.path, "offset": field.offset, "bytes": field.bytes, "type_align": field.type_align}
        for field in result.fields
    ]
    config = {key: value for key, value in config_to_dict(request.config).items() if value is not None}
    return {"config": config, "truth": {key: value for key, value in truth.items() if value is not None}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", action="append", required=True, metavar="ARCH:N:SEED:TREE")
    parser.add_argument("--extensions", help="FlashInfer tree with the header of the finalize fusion")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    counts: dict[str, dict[str, int]] = {}
    for run in arguments.run:
        arch, count, seed, tree = run.split(":", 3)
        trees, scatter = open_headers([tree], arguments.extensions)
        raws = sample_configs(int(count), int(seed), [trees[0].version], finalize=True, fixed={"arch": arch})
        requests = [Request(parse_config(raw), trees[0]) for raw in raws]
        results = probe(requests, Settings(compiler=find_nvcc(None), extensions=scatter))
        mine = counts.setdefault(arch, {"drawn": 0, "agree": 0, "differ": 0, "not_compared": 0})
        for request, result in zip(requests, results, strict=True):
            mine["drawn"] += 1
            mine[compare(request.config, fit(request.config), result).verdict] += 1
            if result.type_status is not None:
                rows.append(row(request, result))
        sys.stderr.write(f"{run}: {json.dumps(mine)}\n")
    OUT.parent.mkdir(parents=True, exist_ok=True)
    with OUT.open("wb") as raw_file, gzip.GzipFile("", "wb", 9, raw_file, mtime=0) as stream:
        for item in rows:
            stream.write(msgspec.json.encode(item, order="sorted") + b"\n")
    sys.stderr.write(f"{len(rows)} rows, {json.dumps(counts)}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
