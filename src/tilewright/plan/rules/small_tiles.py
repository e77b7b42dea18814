"""Tiles with few token rows: whether this library has them, why it cannot, and what they brought elsewhere (C40)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilewright.cost.routing import tile_use
from tilewright.cutlass.budget import Budget
from tilewright.cutlass.config import parse_config
from tilewright.cutlass.fit import fit
from tilewright.libraries.flashinfer.model import Tactic
from tilewright.plan.evidence import published
from tilewright.plan.finding import Draft, Evidence, Fact, Fix, Gain, Outcome, Rejected
from tilewright.plan.registry import Rule
from tilewright.plan.rules.gemm_limits import BAND, TILES
from tilewright.plan.rules.tactics import rule_text, serving, tile_text
from tilewright.plan.target import Target

SMALL = 128
"""Token rows of the smallest tile without narrow N."""
FIRST_FLASHINFER = "0.6.14"
"""First FlashInfer wheel read that generates narrow tiles (0.6.10 does not): evidence small_n_versions."""
FIRST_CUTLASS = "4.5.0"
NARROW = ((128, 32, 128), (128, 64, 128))


def token_rows(tactic: Tactic) -> int:
    """Extent of the tile along the tokens: M, or N of a kernel with operands swapped."""
    config = tactic.config or {}
    return config["tile"][1] if config["swap_ab"] else config["tile"][0]


def narrow(cutlass: str, arch: str, tile: tuple[int, int, int]) -> Budget:
    """`fit` of a narrow tile as the MoE launcher would build it for the second GEMM."""
    config: dict[str, Any] = {
        "cutlass": cutlass, "arch": arch, "kind": "grouped", "op_class": "block_scaled", "a": "nvfp4", "b": "nvfp4",
        "tile": list(tile), "fusion": "finalize", "final_output": "bf16", "swap_ab": True,
    }  # fmt: skip
    return fit(parse_config(config))


def _use_text() -> str:
    parts = [
        f"{rows} rows use "
        + ", ".join(f"{tile_use(rows, size).used * 100:g} % of {size}" for size in TILES if size >= min(TILES))
        for rows in BAND[:1]
    ]
    return "; ".join(parts)


def run(target: Target) -> Iterator[Outcome]:
    library = target.library
    assert library is not None
    report = library.moe
    if report is None or not target.sm12x or target.expert_family != "nvfp4":
        return
    tactics = [item for item in serving(report, "nvfp4") if item.verdict.status == "fits"]
    if not tactics:
        return
    fewest = min(map(token_rows, tactics))
    yield Fact("smallest_token_tile", fewest)
    if fewest < SMALL:
        tiles = sorted({tile_text((item.config or {})["tile"]) for item in tactics if token_rows(item) < SMALL})
        yield Rejected(
            "Wait for narrow decode tiles",
            f"{library.title} has them already, with tokens on N: {', '.join(tiles)}. What is left is that the "
            "autotuner "
            "picks them at your token counts; an autotuner cache of an older version must be dropped.",
            [Evidence("exact", f"Smallest tile along the tokens: {fewest}.", "tilewright tactics flashinfer")],
        )
        return
    here = narrow(report.cutlass, target.gpu.arch, NARROW[0])
    later = [narrow(FIRST_CUTLASS, target.gpu.arch, tile) for tile in NARROW]
    sizes = "; ".join(
        f"{tile_text(tile)} {budget.smem_bytes:,} bytes, {budget.stages} stages"
        for tile, budget in zip(NARROW, later, strict=True)
        if budget.status == "fits"
    )
    why = rule_text(here)
    yield Draft(
        id="narrow_tiles",
        title=f"Move to a FlashInfer with narrow tiles ({FIRST_FLASHINFER} or later): 128 token rows are mostly "
        "padding",
        layer="library",
        evidence=[
            Evidence(
                "exact",
                f"Every tile of {library.title} has at least {fewest} token rows. With 16 tokens an expert: "
                f"{_use_text()}.",
                "tilewright tactics flashinfer; tiles a row count fills",
            ),
            Evidence(
                "exact",
                f"128x32x128 on CUTLASS {report.cutlass}: {here.status} ({why}). On {FIRST_CUTLASS}, tokens on N: "
                f"{sizes}, "
                "limit 101,376.",
                "tilewright fit",
            ),
            *published("small_n_tiles", "small_n_versions"),
        ],
        cause=f"FlashInfer {library.version} vendors CUTLASS {report.cutlass}, whose scale-factor layout needs 128 "
        "rows along N; "
        f"{FIRST_CUTLASS} lifted that. swap_ab then puts the tokens on N.",
        fix=Fix(
            "Take the engine release that pins such a FlashInfer (do not mix versions), then let it tune again from "
            "an empty "
            "autotuner cache. It saves arithmetic and epilogue work; the weights are read all the same, so expect "
            "less than "
            "the padding suggests.",
            [
                "pip show sglang vllm flashinfer-python 2>/dev/null | grep -E '^(Name|Version|Requires)'",
                f"pip install --upgrade {'vllm' if target.engine == 'vllm' else 'sglang'}",
            ],
        ),
        gain=Gain("decode tok/s at 1 to 4 requests, %", 0.0, 8.0, 27.0, "published"),
        confidence=0.4,
        effort_h=3.0,
        risk="an upgrade of the engine changes more than tiles",
        numerics="unchanged: the same products in another tile",
        confirm="`tilewright tactics flashinfer` lists 128x32 tiles for the installed version; tok/s at 1 to 4 "
        "requests rises.",
        undo="Install the former version and restore its autotuner cache.",
    )


RULE = Rule(id="small_tiles", looks_at="tiles with few token rows", run=run, needs=("library",))
