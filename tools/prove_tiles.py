"""Build whole kernels of tiles that FlashInfer does not list, and keep what ptxas says: what `fix` may propose.

    python tools/prove_tiles.py ROOT 256x32x128 [--swap-ab]

NVFP4, grouped, fused finalize to bf16, on the CUTLASS of ROOT (a FlashInfer folder or wheel), for sm_120a. Merged into
`src/tilewright/data/fix_tiles.json`. Needs nvcc, no GPU; a kernel takes minutes.
"""

from __future__ import annotations

import datetime
import json
import sys
from pathlib import Path
from typing import Any

from tilewright.cutlass.config import parse_config
from tilewright.probe import Request, Settings, find_nvcc, open_headers, probe
from tilewright.probe.cache import write_atomically

DATA = Path(__file__).parents[1] / "src" / "tilewright" / "data" / "fix_tiles.json"


def main(root: str, tiles: list[str], swap: bool) -> None:
    compiler = find_nvcc()
    trees, scatter = open_headers([root])
    for tile in tiles:
        config = parse_config(
            {
                "arch": "sm120", "kind": "grouped", "a": "nvfp4", "tile": tile, "fusion": "finalize",
                "swap_ab": swap, "cutlass": trees[0].version,
            }
        )  # fmt: skip
        result = probe([Request(config, trees[0])], Settings(compiler, scatter), ptxas=True)[0]
        built = result.kernel
        if built is None or not built.compiles:
            print(tile, "does not build:", result.cause, built and built.errors)
            continue
        row: dict[str, Any] = {
            "tree": trees[0].fingerprint, "tile": list(config.tile), "swap_ab": swap, "smem_bytes": result.smem_bytes,
            "stages": result.stages, "registers": built.registers, "spill_store_bytes": built.spill_store_bytes,
            "spill_load_bytes": built.spill_load_bytes, "nvcc": compiler.version,
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        }  # fmt: skip
        rows: list[dict[str, Any]] = json.loads(DATA.read_text())["tiles"] if DATA.exists() else []
        same = ("tree", "tile", "swap_ab")
        rows = [item for item in rows if any(item[key] != row[key] for key in same)] + [row]
        text = ",\n".join(json.dumps(item) for item in rows)
        write_atomically(DATA, f'{{"tiles": [\n{text}\n]}}\n'.encode())
        print(row, flush=True)


if __name__ == "__main__":
    given = [item for item in sys.argv[1:] if item != "--swap-ab"]
    main(given[0], given[1:], "--swap-ab" in sys.argv)
