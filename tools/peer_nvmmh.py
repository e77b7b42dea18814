"""What nvMatmulHeuristics proposes on its RTX_PRO_6000 preset, judged by `fit`, beside what `fit --search` proposes.

Needs no GPU. Run it with a Python that has the peer and Tilewright's own dependency:

    python -m venv /tmp/peer && /tmp/peer/bin/pip install nvidia-matmul-heuristics msgspec
    PYTHONPATH=src /tmp/peer/bin/python tools/peer_nvmmh.py

Precisions are spelled A, B, C, compute, D: O is FP4 (e2m1), Q is FP8 (e4m3), T is BF16, S is FP32.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import version
from typing import Any, Final

PROBLEMS: Final = ((4096, 4096, 4096), (16, 4096, 6144), (64, 4096, 6144))
PRECISIONS: Final = (("OOTST", "nvfp4", "block_scaled"), ("QQTST", "e4m3", "tensor_op"))
PRESET: Final = "RTX_PRO_6000"
GPU: Final = "rtx-pro-6000-workstation"
COUNT: Final = 5


def _suggestions(peer: Any, precision: str, problem: tuple[int, int, int]) -> list[dict[str, Any]]:
    interface = peer.NvMatmulHeuristicsInterfaceEx(
        backend=peer.NvMatmulHeuristicsTarget.CUTLASS3,
        flags=peer.NvMatmulHeuristicsFlags.PERF_MODEL_BASED_AUTO_TUNING,
        load_discovery_implicitly=True,
        gpu=peer.NvMatmulHeuristicsNvidiaGpu[PRESET],
    )
    layout = peer.NvMatmulHeuristicsMatmulLayout.TN_ROW_MAJOR
    asked = interface.makeNvMatmulHeuristicsProblem(*problem, layout, 1)
    found = interface.get(asked, COUNT, precision=precision)
    return sorted(found, key=lambda item: item["runtime"])


def main() -> int:
    from tilewright import fit, parse_config, resolve_gpu, search_configs

    peer = import_module("nvMatmulHeuristics")
    print("nvidia-matmul-heuristics", version("nvidia-matmul-heuristics"), "preset", PRESET)
    asked = refused = 0
    for precision, element, op_class in PRECISIONS:
        for problem in PROBLEMS:
            print(f"\n{element} {'x'.join(map(str, problem))}")
            for item in _suggestions(peer, precision, problem):
                kernel = item["kernel"]
                tile = [kernel.cta_tile_m, kernel.cta_tile_n, kernel.cta_tile_k]
                cluster = [kernel.cluster_m, kernel.cluster_n, 1]
                raw = {"arch": "sm120", "a": element, "op_class": op_class, "tile": tile, "stages": kernel.stages}
                budgets = [fit(parse_config({**raw, "cluster": shape})) for shape in (cluster, [1, 1, 1])]
                asked += 1
                refused += budgets[0].status != "fits"
                said = [
                    f"{budget.status} {f'{budget.smem_bytes:,} B' if budget.smem_bytes else ''} "
                    f"{budget.rules[0].split('. ')[0] if budget.rules else ''}".strip()
                    for budget in budgets
                ]
                print(
                    f"  peer {tile} cluster {cluster[:2]} stages {kernel.stages} split-k {kernel.split_k} "
                    f"{item['runtime'] * 1e6:.1f} us: {said[0]}; as 1x1: {said[1]}"
                )
            m, n, k = problem
            best = search_configs({"a": element, "op_class": op_class}, gpu=resolve_gpu(GPU), m=m, n=n, k=k, top=1)
            first = best.candidates[0]
            print(f"  ours {first.config['tile']} swap {first.config['swap_ab']} stages {first.stages} fits")
    print(f"\n{refused} of {asked} suggestions of the peer are refused as they stand.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
