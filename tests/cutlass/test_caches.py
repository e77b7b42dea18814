"""The layout caches: bounded, so that a file of many configs is answered in the memory of a few."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import tilewright.cutlass
from tilewright.cutlass.caches import LAYOUTS
from tilewright.cutlass.config import parse_config
from tilewright.cutlass.fit import fit

AT_LEAST = 10
"""Caches of laid-out types that the package has."""


def caches() -> Iterator[tuple[str, Any]]:
    for module in pkgutil.iter_modules(tilewright.cutlass.__path__, "tilewright.cutlass."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if hasattr(value, "cache_parameters") and value.__module__ == module.name:
                yield f"{module.name}.{name}", value


def test_no_cache_grows_with_the_file() -> None:
    sizes = {name: cache.cache_parameters()["maxsize"] for name, cache in caches()}
    assert {name: size for name, size in sizes.items() if size is None or size > LAYOUTS} == {}
    assert sum(size == LAYOUTS for size in sizes.values()) >= AT_LEAST


def test_an_answer_from_the_caches_is_the_first_answer() -> None:
    """Nothing that a caller gets is shared with the cache in a form that can be changed."""
    keys = {"kind": "grouped", "a": "nvfp4", "fusion": "finalize", "tile": [128, 256, 128]}
    for arch in ("sm90", "sm100", "sm103", "sm120"):
        operand = {"a": "bf16"} if arch == "sm90" else {}
        config = parse_config({**keys, "arch": arch, **operand})
        for _, cache in caches():
            cache.cache_clear()
        first = fit(config)
        want = repr(first)
        first.fields.clear()
        first.rules.clear()
        first.fixes.clear()
        assert repr(fit(config)) == want
