"""What the tuning tests share: recorded tables, a fleet of processes that measure nothing, a machine to prune for."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tilewright.bench.device import Device
from tilewright.hardware.names import resolve_gpu

DATA = Path(__file__).parents[1] / "data"
FAKE = (sys.executable, str(Path(__file__).with_name("fake_worker.py")))


@pytest.fixture(scope="session")
def tables() -> list[dict[str, Any]]:
    """Exhaustive tables measured on an H200 (tools/tune_exhaustive.py, tools/build_tune_tables.py)."""
    return json.loads(gzip.decompress((DATA / "tune_tables.json.gz").read_bytes()))


@pytest.fixture
def h200() -> Device:
    """An H200 as NVML would tell it."""
    return Device(0, "NVIDIA H200", resolve_gpu("h200-sxm"), (9, 0), 140_000_000_000, "580.159.04", 1)


@pytest.fixture
def fake() -> tuple[str, ...]:
    """The command of a measuring process that needs no GPU."""
    return FAKE
