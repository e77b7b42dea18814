"""The sweep on a real vLLM: `make sweep-demo` sets it up; `-m engine` runs this where $TILEWRIGHT_ENGINE names it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from statistics import fmean

import pytest

from tilewright.sweep.free_port import free_port
from tilewright.sweep.http_client import Endpoint
from tilewright.sweep.load import Target, find_generator
from tilewright.sweep.load_own import OwnClient
from tilewright.sweep.metrics import client_metrics
from tilewright.sweep.server import LiveServer
from tilewright.sweep.space import Load

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif("TILEWRIGHT_ENGINE" not in os.environ, reason="no $TILEWRIGHT_ENGINE with a real vLLM"),
]
TOOL = Path(__file__).parents[2] / "tools" / "sweep_demo.py"


def test_ten_configurations_two_failing_a_kill_and_a_resume(tmp_path: Path) -> None:
    command = [sys.executable, str(TOOL), "--root", os.environ["TILEWRIGHT_ENGINE"], "--out", str(tmp_path)]
    aiperf = os.environ.get("TILEWRIGHT_AIPERF")
    command += ["--model", os.environ["TILEWRIGHT_MODEL"], *(["--aiperf", aiperf] if aiperf else [])]
    assert subprocess.run(command, check=False).returncode == 0


def test_the_light_client_agrees_with_aiperf(tmp_path: Path) -> None:
    """Alternating measurements of one server: rates and latencies differ by less than their spread, or by 15 %."""
    aiperf = os.environ.get("TILEWRIGHT_AIPERF")
    if not aiperf:
        pytest.skip("no $TILEWRIGHT_AIPERF")
    root, model, port = os.environ["TILEWRIGHT_ENGINE"], os.environ["TILEWRIGHT_MODEL"], free_port("127.0.0.1")
    command = [
        f"{root}/bin/vllm", "serve", model, "--load-format", "dummy", "--host", "127.0.0.1", "--port", str(port),
        "--max-model-len", "1024", "--max-num-seqs", "8", "--enforce-eager",
    ]  # fmt: skip
    env = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    where = Endpoint("127.0.0.1", port)
    load = Load(concurrency=4, requests=64, input_tokens=64, output_tokens=32)
    theirs, _ = find_generator("aiperf", aiperf, tmp_path)
    figures: dict[str, dict[str, list[float]]] = {"own": {}, "aiperf": {}}
    with LiveServer(command, env, tmp_path / "log", where) as server:
        name = server.wait_ready("/health", 600)
        target = Target(where, name, "/v1/completions", {"ignore_eos": True}, 280, model)
        OwnClient().measure(target, load, (), 99)
        for seed in range(4):
            for generator in (OwnClient(), theirs):
                found = client_metrics(generator.measure(target, load, (), seed))
                for key in ("output_tok_s", "mean_e2e_s", "mean_ttft_s", "error_rate"):
                    figures[generator.name].setdefault(key, []).append(found[key])
    print(figures)
    for key in ("output_tok_s", "mean_e2e_s", "mean_ttft_s"):
        own, other = figures["own"][key], figures["aiperf"][key]
        spread = (max(own) - min(own) + max(other) - min(other)) / 2
        assert abs(fmean(own) - fmean(other)) < max(spread, 0.15 * fmean(other)), (key, own, other)
    assert set(figures["own"]["error_rate"] + figures["aiperf"]["error_rate"]) == {0.0}
