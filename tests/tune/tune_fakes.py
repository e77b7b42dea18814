"""What the tuning tests share: recorded tables, and the command of a process that measures nothing."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parents[1] / "data"
FAKE = (sys.executable, str(Path(__file__).with_name("fake_worker.py")))


@pytest.fixture(name="tables", scope="session")
def recorded_tables() -> list[dict[str, Any]]:
    """Exhaustive tables measured on an H200 (tools/tune_exhaustive.py, tools/build_tune_tables.py)."""
    return json.loads(gzip.decompress((DATA / "tune_tables.json.gz").read_bytes()))


@pytest.fixture(name="fake")
def fake_command() -> tuple[str, ...]:
    """The command of a measuring process that needs no GPU."""
    return FAKE
