"""Shared fixtures: the compiled truth rows, and the command line run in this process."""

from __future__ import annotations

import gzip
import json
import os
import signal
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

# A runner that was started in the background ignores Ctrl-C, and every program that a test starts would too.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Programs that tests start run in other folders, where a relative entry (PYTHONPATH=src) names nothing.
if os.environ.get("PYTHONPATH"):
    os.environ["PYTHONPATH"] = os.pathsep.join(
        str(Path(entry).absolute()) for entry in os.environ["PYTHONPATH"].split(os.pathsep) if entry
    )

DATA = Path(__file__).parent / "data"
REPO = Path(__file__).parent.parent


def truth_rows(name: str) -> list[dict[str, Any]]:
    """Rows of `tests/data/truth/<name>.jsonl.gz`: what compiling the real types gave."""
    with gzip.open(DATA / "truth" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


@pytest.fixture(scope="session")
def flashinfer_062() -> Path:
    """The FlashInfer 0.6.2 wheel that `make test` downloads; tests are skipped where it could not be had."""
    found = sorted((REPO / ".cache" / "wheels").glob("flashinfer_python-0.6.2-*.whl"))
    if not found:
        pytest.skip("the FlashInfer 0.6.2 wheel is not in .cache/wheels (no network?)")
    return found[0]


@lru_cache(maxsize=1)
def _no_nvcc() -> str | None:
    """Why nothing can be compiled here; None where it can."""
    from tilewright.errors import TilewrightError
    from tilewright.probe.compiler import find_nvcc

    try:
        find_nvcc()
    except TilewrightError as error:
        return str(error)
    return None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests marked `compiler` are skipped where there is none."""
    if item.get_closest_marker("compiler") is not None and (why := _no_nvcc()) is not None:
        pytest.skip(why)


class CliResult:
    """What one run of the command line gave."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def cli(capfdbinary: pytest.CaptureFixture[bytes]) -> Iterator[Any]:
    """Run `tilewright ARGS...` in this process, as `cli("fit", "--arch", "sm120", ...)`."""
    from tilewright.cli.main import invoke

    def run(*args: str) -> CliResult:
        capfdbinary.readouterr()
        code = invoke(list(args))
        got = capfdbinary.readouterr()
        result = CliResult(code, got.out.decode(), got.err.decode())
        assert "Traceback" not in result.err
        return result

    return run
