"""How the bytes in a log line come about: the models' own arithmetic for the figures that the line prints."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Final

from tilewright.cutlass.budget import Budget
from tilewright.cutlass.config import KernelConfig, parse_config
from tilewright.cutlass.fit import fit
from tilewright.diagnose.rules import needs
from tilewright.diagnose.scan import Hit
from tilewright.diagnose.triton_need import explain_bytes

MAX_LINES: Final = 6
"""Explanations a finding carries at most."""
STATIC_LIMIT: Final = 49152
"""Static shared memory a block may have on every architecture, bytes (CUDA programming guide, table of compute
capabilities: 48 KiB without the opt-in)."""
_TILES: Final = (
    (128, 128, 128), (128, 128, 256), (128, 256, 128), (256, 128, 128), (128, 64, 128), (128, 64, 256), (128, 32, 128),
)  # fmt: skip
"""Tiles that FlashInfer and TensorRT-LLM generate for SM12x grouped FP4 kernels (moe_gemm generators)."""
_M = re.compile(r"sm12\d_M(\d{1,4})_")
_CUTLASS: Final = "4.2.1"
"""Release whose count is shown where a log does not say which one was used; these tiles come out the same in 4.2.1,
4.4.1, 4.4.2, 4.5.0 and 4.7.0 (compiled)."""


def _config(tile: tuple[int, int, int], fusion: str, swap: bool, operands: tuple[str, str]) -> KernelConfig:
    raw: dict[str, object] = {
        "cutlass": "4.5.0" if tile[1] < 128 else _CUTLASS,
        "arch": "sm120",
        "kind": "grouped",
        "a": operands[0],
        "b": operands[1],
        "tile": list(tile),
        "fusion": fusion,
        "swap_ab": swap,
    }
    raw |= {"d": "void", "final_output": "bf16"} if fusion == "finalize" else {"c": "bf16", "d": "bf16"}
    return parse_config(raw)


@cache
def _known_tiles() -> tuple[tuple[KernelConfig, Budget], ...]:
    """Every tile and fusion of those libraries, with its budget."""
    pairs: list[tuple[KernelConfig, Budget]] = []
    for operands in (("nvfp4", "nvfp4"), ("mxfp8_e4m3", "mxfp4")):
        for tile in _TILES:
            for fusion in ("linear_combination", "finalize"):
                for swap in (False, True):
                    config = _config(tile, fusion, swap, operands)
                    pairs.append((config, fit(config)))
    return tuple(pairs)


def _named(config: KernelConfig) -> str:
    swap = ", swap_ab" if config.swap_ab else ""
    return f"{'x'.join(map(str, config.tile))} {config.a} x {config.b} grouped, {config.fusion}{swap}"


def _said(pairs: Iterable[tuple[KernelConfig, Budget]]) -> list[str]:
    """A sentence for each group of tiles whose bytes come about in the same way."""
    groups: dict[tuple[int | None, int | None, str | None], list[tuple[KernelConfig, Budget]]] = {}
    for config, budget in pairs:
        groups.setdefault((budget.smem_bytes, budget.stages, budget.cause), []).append((config, budget))
    return [_group(found) for found in groups.values()]


def _group(found: list[tuple[KernelConfig, Budget]]) -> str:
    budget = found[0][1]
    text = f"{' and '.join(_named(config) for config, _ in found)}: {budget.smem_bytes or 0:,} bytes."
    if budget.cause:
        text += f" {budget.cause}"
    fix = next(iter(budget.fixes or ()), None)
    if fix is not None:
        change = ", ".join(f"{key} = {value}" for key, value in fix.change.items())
        text += f" {change} takes {fix.smem_bytes:,}."
    return text


def _over(need: int, limit: int) -> str:
    if need <= limit:
        return (
            f"{need:,} bytes asked for, {limit:,} allowed: {limit - need:,} to spare, so what was refused is more "
            "than this number: static shared memory counts too."
        )
    return f"{need:,} bytes asked for, {limit:,} allowed: {need - limit:,} too many."


def _cutlass(hit: Hit) -> list[str]:
    lines: list[str] = []
    for figures in hit.figures:
        need, limit = _figure(figures, "need"), _figure(figures, "limit")
        if need is None or limit is None:
            continue
        lines.append(_over(need, limit))
        lines += _said(pair for pair in _known_tiles() if pair[1].smem_bytes == need)
    return lines


def _cutlass_tile(hit: Hit) -> list[str]:
    """The tiles behind a generated file's name (`sm120_M256_...`) that can never run."""
    rows = {int(found[1]) for name in hit.kernels if (found := _M.match(name))}
    return _said(
        (config, budget)
        for config, budget in _known_tiles()
        if budget.status == "overflow" and (not rows or config.tile[0] in rows)
    )


def _triton(hit: Hit) -> list[str]:
    lines: list[str] = []
    for figures in hit.figures:
        need, limit = _figure(figures, "need"), _figure(figures, "limit")
        if need is not None and limit is not None:
            lines += [_over(need, limit), *explain_bytes(need, limit)]
            lines += [f"{item.text} ({item.source})" for item in needs() if (item.need, item.limit) == (need, limit)]
    return lines


def _static(hit: Hit) -> list[str]:
    return [
        _over(need, limit)
        for figures in hit.figures
        if (need := _figure(figures, "need")) is not None and (limit := _figure(figures, "limit")) is not None
    ]


def _figure(figures: dict[str, str], name: str) -> int | None:
    text = figures.get(name)
    return None if text is None else int(text, 0 if text.startswith("0x") else 10)


def arithmetic(hit: Hit) -> list[str]:
    """Sentences with the arithmetic of the bytes that `hit` shows; empty where no model speaks of them."""
    kind = hit.rule.arithmetic
    if kind is None:
        return []
    lines = {"cutlass": _cutlass, "cutlass_tile": _cutlass_tile, "triton": _triton, "static": _static}[kind](hit)
    return list(dict.fromkeys(lines))[:MAX_LINES]
