"""The sweep on a real vLLM: `make sweep-demo` sets it up; `-m engine` runs this where $TILEWRIGHT_ENGINE names it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.sweep.free_port import free_port
from tilewright.sweep.http_client import parse_url
from tilewright.sweep.load import Target, find_generator
from tilewright.sweep.load_own import OwnClient
from tilewright.sweep.metrics import client_metrics
from tilewright.sweep.space import Load

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif("TILEWRIGHT_ENGINE" not in os.environ, reason="no $TILEWRIGHT_ENGINE with a real vLLM"),
]
FAKE = Path(__file__).with_name("fake_server.py")
TOOL = Path(__file__).parents[2] / "tools" / "sweep_demo.py"


def test_ten_configurations_two_failing_a_kill_and_a_resume(tmp_path: Path) -> None:
    command = [sys.executable, str(TOOL), "--root", os.environ["TILEWRIGHT_ENGINE"], "--out", str(tmp_path)]
    aiperf = os.environ.get("TILEWRIGHT_AIPERF")
    command += ["--model", os.environ["TILEWRIGHT_MODEL"], *(["--aiperf", aiperf] if aiperf else [])]
    assert subprocess.run(command, check=False).returncode == 0


@pytest.mark.parametrize(
    "load",
    [
        Load(concurrency=4, requests=48, input_tokens=64, output_tokens=32),
        Load(request_rate=4, arrival="constant", requests=32, input_tokens=64, output_tokens=16),
    ],
    ids=["closed", "open"],
)
def test_the_light_client_agrees_with_aiperf(tmp_path: Path, load: Load) -> None:
    """Against a server whose pace is a clock's: on few cores AIPerf would slow one that computes."""
    aiperf, model = os.environ.get("TILEWRIGHT_AIPERF"), os.environ["TILEWRIGHT_MODEL"]
    if not aiperf:
        pytest.skip("no $TILEWRIGHT_AIPERF")
    port = free_port("127.0.0.1")
    theirs, _ = find_generator("aiperf", aiperf, tmp_path)
    target = Target(parse_url(f"http://127.0.0.1:{port}"), "fake", "/v1/completions", {}, 250, model)
    command = [sys.executable, str(FAKE), "--port", str(port), "--slots", "4", "--step-ms", "20"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"serving\n"
        own, other = (client_metrics(g.measure(target, load, (), 1)) for g in (OwnClient(), theirs))
        process.kill()
    for key in ("output_tok_s", "requests_s", "mean_e2e_s", "mean_tpot_s"):
        assert own[key] == pytest.approx(other[key], rel=0.08), (own, other)
    assert own["mean_ttft_s"] == pytest.approx(other["mean_ttft_s"], abs=0.03)
    assert own["error_rate"] == other["error_rate"] == 0
