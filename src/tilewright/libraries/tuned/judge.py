"""Verdicts on an engine's tiles: each as a Triton config, on a device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from tilewright.errors import ConfigError
from tilewright.libraries.tuned.engine import Spec
from tilewright.libraries.tuned.world import Device
from tilewright.triton_.config import parse_triton
from tilewright.triton_.fit import fit_on
from tilewright.triton_.kernels import KERNELS, Features
from tilewright.triton_.model import TritonVerdict, as_dict

_GROUPS: Final = (0, 128)
"""Groups along K of weight-only files: no name says them, and the bytes do not depend on them."""


@dataclass
class Judge:
    """Verdicts on tiles of one engine."""

    spec: Spec
    version: str
    features: dict[str, tuple[Features, ...]] = field(default_factory=dict[str, tuple[Features, ...]])

    def judge(
        self, name: str, kernel: str, dtype: str | None, block: tuple[int, int] | None, tile: Mapping[str, Any],
        device: Device, per_channel: bool,
    ) -> tuple[dict[str, Any] | None, TritonVerdict]:  # fmt: skip
        """The tile as a config, and its verdict on `device`."""
        if dtype not in KERNELS[kernel].dtypes:
            return None, unsupported(name, f"The kernels of {dtype} are not modelled.", device.smem_optin)
        if dtype is None and block is not None:
            return None, unsupported(name, "Block scales without a dtype: another kernel's file.", device.smem_optin)
        if dtype == "int4_w4a16" and block is None:
            block = _GROUPS
        if "BLOCK_SIZE_N" not in tile or "BLOCK_SIZE_K" not in tile:
            why = "The tile gives BLOCK_SIZE_M only; the launcher chooses the rest (weight-only kernels)."
            return None, unsupported(name, why, device.smem_optin)
        raw = {
            "id": name, "kernel": kernel, "version": self.version, "gpu": device.name, "dtype": dtype,
            "block_m": tile["BLOCK_SIZE_M"], "block_n": tile["BLOCK_SIZE_N"], "block_k": tile["BLOCK_SIZE_K"],
            "group_m": tile.get("GROUP_SIZE_M"), "num_warps": tile.get("num_warps"),
            "num_stages": tile.get("num_stages"), "block_shape": block, "per_channel": per_channel,
        }  # fmt: skip
        try:
            config = replace(parse_triton(raw), tma=tile.get("USE_TMA") is True)
        except ConfigError as error:
            return None, TritonVerdict(
                id=name, status="illegal", limit_bytes=device.smem_optin, cause=error.msg, rules=[error.msg]
            )
        sm = device.capability[0] * 10 + device.capability[1]
        verdict = fit_on(config, sm, device.smem_optin, self.features.get(kernel))
        if dtype == "int8_w8a16" and block is None:
            verdict = _either(verdict, fit_on(replace(config, block_shape=_GROUPS), sm, device.smem_optin))
        return as_dict(config), verdict


def unsupported(name: str, cause: str, limit: int | None) -> TritonVerdict:
    """The verdict on a tile that the model does not cover."""
    return TritonVerdict(id=name, status="unsupported", limit_bytes=limit, cause=cause)


def _either(plain: TritonVerdict, grouped: TritonVerdict) -> TritonVerdict:
    """Files of int8_w8a16 are read for scales a channel and for groups alike: two kernels. What can run in one of them
    is not said to be impossible; the other one's bytes are in the rules."""
    first, second = (grouped, plain) if plain.status == "overflow" and grouped.status == "fits" else (plain, grouped)
    if second.smem_bytes is None or second.smem_bytes == first.smem_bytes:
        return first
    kind = "with groups along K" if second is grouped else "with a scale a channel"
    more = (
        f"The kernel of weights {kind}, which reads the same file, takes {second.smem_bytes:,} bytes: {second.status}."
    )
    return msgspec.structs.replace(first, rules=[*first.rules, more])
