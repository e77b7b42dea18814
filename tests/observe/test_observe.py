"""The collector on a host whose tools, processes and metrics are laid out for it; the real code runs in each test."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.cli.main import invoke
from tilewright.observe.collector import gpus as gpu_part
from tilewright.observe.collector import host as host_part
from tilewright.observe.collector import metrics as metric_part
from tilewright.observe.collector import server as server_part
from tilewright.observe.collector.main import collect
from tilewright.observe.collector.tools import Notes
from tilewright.observe.script import script
from tilewright.observe.snapshot import parse_snapshot

NAME = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
SMI = f"""#!{sys.executable}
import sys
args = sys.argv[1:]
known = {{
    "index": ["0", "1"], "name": ["{NAME}"] * 2, "pci.bus_id": ["00000000:01:00.0", "00000000:41:00.0"],
    "power.draw": ["235.10", "233.90"], "power.limit": ["600.00"] * 2, "power.max_limit": ["600.00"] * 2,
    "clocks.sm": ["2400", "2392"], "clocks.max.sm": ["2430"] * 2, "clocks.mem": ["12481"] * 2,
    "clocks.max.mem": ["12481"] * 2, "temperature.gpu": ["48", "51"], "utilization.gpu": ["100", "99"],
    "utilization.memory": ["31", "30"], "memory.used": ["88000", "88000"], "memory.total": ["97887"] * 2,
    "pcie.link.gen.current": ["5", "5"], "pcie.link.gen.max": ["5", "5"], "pcie.link.width.current": ["16", "8"],
    "pcie.link.width.max": ["16", "16"], "ecc.mode.current": ["Enabled", "[N/A]"], "persistence_mode": ["Enabled"] * 2,
    "driver_version": ["580.82.09"] * 2, "clocks_throttle_reasons.active": ["0x0000000000000004"] * 2,
}}
if args and args[0].startswith("--query-gpu="):
    fields = args[0].split("=", 1)[1].split(",")
    for field in fields:
        if field not in known:
            sys.exit('Field "%s" is not a valid field to query.' % field)
    for gpu in range(2):
        print(", ".join(known[field][gpu] for field in fields))
elif args[:2] == ["topo", "-m"]:
    print("\\t\\x1b[4mGPU0\\tGPU1\\tCPU Affinity\\tNUMA Affinity\\x1b[0m")
    print("GPU0\\t X \\tNODE\\t0-63\\t0")
    print("GPU1\\tNODE\\t X \\t0-63\\t0")
elif args[:2] == ["topo", "-p2p"]:
    print(" \\tGPU0\\tGPU1\\t")
    print(" GPU0\\tX\\tOK\\t")
    print(" GPU1\\tCNS\\tX\\t")
    print("Legend: OK = Status Ok  CNS = Chipset not supported")
elif "-q" in args:
    for _ in range(2):
        print("    BAR1 Memory Usage\\n        Total                             : 131072 MiB")
else:
    print("| NVIDIA-SMI 580.82.09   Driver Version: 580.82.09   CUDA Version: 13.0 |")
"""


def tool(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host with nvidia-smi; answers the folder of its tools."""
    folder = tmp_path / "bin"
    folder.mkdir()
    tool(folder, "nvidia-smi", SMI)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


class Metrics(BaseHTTPRequestHandler):
    reads = 0

    def do_GET(self) -> None:
        Metrics.reads += 1
        text = (
            '# HELP vllm:num_requests_running x\nvllm:num_requests_running{engine="0"} 6.0\n'
            'vllm:num_requests_running{engine="1"} 2\nvllm:num_requests_waiting{engine="0"} 12\n'
            f'vllm:generation_tokens_total{{engine="0"}} {1000 * Metrics.reads}\nvllm:kv_cache_usage_perc 0.21\n'
            'vllm:num_preemptions_total 3.0\nvllm:x_bucket{le="+Inf"} +Inf\n'
        )
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def metrics() -> Iterator[int]:
    """A server's /metrics; answers its port."""
    Metrics.reads = 0
    server = HTTPServer(("127.0.0.1", 0), Metrics)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def engine(metrics: int) -> Iterator[int]:
    """A process that looks like a vLLM server to whoever reads /proc; answers its pid."""
    words = [
        "vllm", "-c", "import time; time.sleep(120)", "serve", "nvidia/GLM-5-NVFP4", "--port", str(metrics),
        "--tensor-parallel-size=8", "--enable-expert-parallel", "--gpu-memory-utilization", "0.92", "--api-key",
        "open-sesame", "--hf-token", "hf_abcdefghijklmnopqrstuvwxyz012345", "--served-model-name", "a", "b",
        "--max-num-batched-tokens", "8192", "--otlp-traces-endpoint", "http://me:pass@host:1/x",
    ]  # fmt: skip
    env = {**os.environ, "NCCL_P2P_LEVEL": "SYS", "OPENAI_API_KEY": "sk-abcdefghijklmnop", "NCCL_ALGO": "a b; rm -rf"}
    process = subprocess.Popen(words, executable=sys.executable, env=env)
    for _ in range(100):
        if server_part.command_line(process.pid)[:1] == ["vllm"]:
            break
        time.sleep(0.02)
    yield process.pid
    process.kill()
    process.wait()


def test_a_whole_snapshot(host: Path, engine: int) -> None:
    raw = json.dumps(collect(0.3, pid=engine)).encode()
    snapshot = parse_snapshot(raw)
    assert len(snapshot.gpus) == 2
    first, second = snapshot.gpus
    assert (first.name, first.power_draw_w, first.power_limit_w, first.clock_sm_mhz) == (NAME, 235.1, 600, 2400)
    assert first.throttle_reasons == ["sw_power_cap"]
    assert (first.pcie_width, second.pcie_width, second.pcie_width_max) == (16, 8, 16)
    assert first.memory_total_bytes == 97887 << 20
    assert first.bar1_total_bytes == 131072 << 20
    assert (first.ecc, second.ecc, first.persistence) == (True, None, True)
    assert [(pair.source, pair.target, pair.topology, pair.capable) for pair in snapshot.p2p] == [
        (0, 1, "NODE", True),
        (1, 0, "NODE", False),
    ]
    assert (snapshot.host.driver, snapshot.host.cuda) == ("580.82.09", "13.0")
    assert snapshot.engine is not None
    assert snapshot.engine.name == "vllm"
    assert snapshot.engine.flags["tensor-parallel-size"] == 8
    assert snapshot.engine.flags["enable-expert-parallel"] is True
    assert snapshot.engine.flags["gpu-memory-utilization"] == 0.92
    assert snapshot.engine.flags["served-model-name"] == "a b"
    assert snapshot.engine.flags["max-num-batched-tokens"] == 8192
    assert snapshot.metrics.running == 8
    assert snapshot.metrics.waiting == 12
    assert snapshot.metrics.kv_usage == 0.21
    assert snapshot.metrics.preemptions == 3
    assert snapshot.metrics.window_s is not None
    assert snapshot.metrics.generation_tok_s == pytest.approx(1000 / snapshot.metrics.window_s, rel=0.01)


def test_secrets_stay_on_the_host(host: Path, engine: int) -> None:
    text = json.dumps(collect(0.0, pid=engine))
    for secret in ("open-sesame", "hf_abc", "me:pass", "sk-abc", "rm -rf", "OPENAI"):
        assert secret not in text
    snapshot = parse_snapshot(text.encode())
    assert snapshot.engine is not None
    assert snapshot.engine.flags["api-key"] == "[withheld]"
    assert snapshot.engine.env == {"NCCL_P2P_LEVEL": "SYS"}


def test_the_server_is_found_without_its_pid(host: Path, engine: int) -> None:
    pid, _ = server_part.find_server()
    assert pid is not None
    assert server_part.engine_of(server_part.command_line(pid)) is not None


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["python3", "-m", "sglang.launch_server", "--model-path", "x"], "sglang"),
        (["/usr/bin/python3.12", "-u", "-m", "vllm.entrypoints.openai.api_server"], "vllm"),
        (["/opt/venv/bin/python", "/opt/venv/bin/vllm", "serve", "x"], "vllm"),
        (["vllm", "serve", "x"], "vllm"),
        (["trtllm-serve", "x"], "trtllm"),
        (["python3", "/x/sglang/launch_server.py"], "sglang"),
        (["nvcc", "-I/x/tensorrt_llm/include", "a.cu"], None),
        (["grep", "vllm serve"], None),
        (["vim", "vllm.py"], None),
        (["python3", "-m", "http.server"], None),
        ([], None),
    ],
)
def test_which_processes_are_servers(words: list[str], name: str | None) -> None:
    assert server_part.engine_of(words) == name


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("api-key", "x", False),
        ("ssl-keyfile-password", "x", False),
        ("hf-token", "x", False),
        ("max-total-tokens", "4096", True),
        ("max-num-batched-tokens", "8192", True),
        ("skip-tokenizer-init", "x", True),
        ("tokenizer-path", "x", True),
        ("model-path", "/models/snapshots/0123456789abcdef0123456789abcdef01234567", True),
        ("model-path", "/root/models/GLM-5-NVFP4-with-a-very-long-folder-name-of-no-importance", True),
        ("anything", "https://user:pw@host/x", False),
        ("anything", "ghp_0123456789abcdefABCDEF", False),
        ("anything", "QmFzZTY0c2VjcmV0IHRoYXQgaXMgbG9uZyBlbm91Z2g1", False),
    ],
)
def test_what_may_be_a_secret(name: str, value: str, kept: bool) -> None:
    assert (server_part.safe_value(name, value) == value) is kept


def test_without_any_tool_the_snapshot_is_partial_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    snapshot = parse_snapshot(json.dumps(collect(0.0, url="http://127.0.0.1:9")).encode())
    assert snapshot.gpus == []
    assert any("nvidia-smi" in line for line in snapshot.notes)
    assert any("/metrics did not answer" in line for line in snapshot.notes)
    assert snapshot.host.kernel


def test_an_older_nvidia_smi_is_asked_by_its_own_names(host: Path) -> None:
    """The one here knows clocks_throttle_reasons only; a field that it does not know at all is left out."""
    notes = Notes()
    fields = ["index", "clocks_event_reasons.active", "no.such.field"]
    rows = gpu_part.query(fields, notes)
    assert fields == ["index", "clocks_throttle_reasons.active"]
    assert len(rows) == 2
    assert notes.lines == ["nvidia-smi does not know no.such.field"]


def test_a_tool_that_hangs_or_fails_is_a_note(host: Path) -> None:
    from tilewright.observe.collector.tools import call

    tool(host, "slow", "#!/bin/sh\nsleep 30\n")
    tool(host, "bad", "#!/bin/sh\necho broken >&2\nexit 3\n")
    notes = Notes()
    assert call(["slow"], notes, seconds=0.2) is None
    assert call(["bad"], notes) is None
    assert notes.lines == ["slow could not be run: TimeoutExpired", "bad failed: broken"]


def test_throttle_reasons_over_a_window() -> None:
    heat, cap = "0x0000000000000040", "0x0000000000000004"
    idle = "0x0000000000000000"
    assert gpu_part.reasons_of([idle, idle, idle, heat]) == ["hw_thermal_slowdown"], "told even if it was short"
    assert gpu_part.reasons_of([idle, idle, idle, cap]) == []
    assert gpu_part.reasons_of([cap, cap, idle]) == ["sw_power_cap"]
    assert gpu_part.reasons_of(["[N/A]"]) is None


def acs_config(control: int, *, loop: bool = False) -> bytes:
    config = bytearray(4096)
    config[0x100:0x104] = (0x0001 | 1 << 16 | 0x148 << 20).to_bytes(4, "little")
    config[0x148:0x14C] = (0x000D | 1 << 16 | (0x100 if loop else 0) << 20).to_bytes(4, "little")
    config[0x14E:0x150] = control.to_bytes(2, "little")
    return bytes(config)


def test_acs_is_read_from_configuration_space() -> None:
    assert host_part.acs_control(acs_config(0x1D)) == 0x1D
    assert host_part.acs_control(bytes(4096)) is None
    assert host_part.acs_control(b"\xff" * 4096) is None
    ring = bytearray(acs_config(0, loop=True))
    ring[0x148:0x14A] = (0x0002).to_bytes(2, "little")
    assert host_part.acs_control(bytes(ring)) is None, "a list that runs in a circle ends"


@given(st.binary(max_size=600))
def test_any_configuration_space_is_read_or_not(data: bytes) -> None:
    host_part.acs_control(b"\0" * 0x100 + data)


@given(st.text(max_size=400))
def test_any_metrics_text_gives_numbers(text: str) -> None:
    found = metric_part.parse_metrics(text)
    section = metric_part.metric_section(found, found, 1.0)
    assert all(isinstance(value, (int, float, bool)) for value in section.values())


def test_a_counter_that_was_reset_gives_no_rate() -> None:
    first, last = {"vllm:generation_tokens_total": [5000.0]}, {"vllm:generation_tokens_total": [10.0]}
    assert "generation_tok_s" not in metric_part.metric_section(first, last, 30.0)


def test_sglang_names() -> None:
    text = 'sglang:num_running_reqs{x="1"} 8\nsglang:token_usage 0.5\nsglang:spec_accept_length 2.4\n'
    text += "sglang:is_cuda_graph 1"
    found = metric_part.parse_metrics(text)
    section = metric_part.metric_section(found, found, 10.0)
    assert section == {"window_s": 10.0, "running": 8, "kv_usage": 0.5, "accept_length": 2.4, "cuda_graph": True}


# --- the script and the command


def test_the_script_is_whole_and_needs_the_standard_library_only(host: Path) -> None:
    text = script()
    assert "from tilewright" not in text
    assert "import tilewright" not in text
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-", "--seconds", "0"], input=text.encode(), capture_output=True, timeout=60
    )
    assert done.returncode == 0, done.stderr.decode()
    assert len(parse_snapshot(done.stdout).gpus) == 2


def test_no_name_stands_in_two_parts_of_the_script() -> None:
    names = re.findall(r"^(?:def|class) (\w+)|^([A-Za-z_]\w*)(?:: [^=]+)? = ", script(), re.M)
    flat = [one or two for one, two in names]
    assert sorted(flat) == sorted(set(flat))


def test_the_collector_speaks_python_3_8() -> None:
    import ast

    ast.parse(script(), feature_version=(3, 8))
    assert "strict=" not in script()
    assert "removeprefix" not in script()


SSH = f"""#!{sys.executable}
import subprocess, sys
words = sys.argv[sys.argv.index("--") + 1 :]
if words[0] == "nowhere":
    sys.exit(print("ssh: connect to host nowhere port 22: Connection timed out", file=sys.stderr) or 255)
if words[0] == "bare":
    sys.exit(print("bash: python3: command not found", file=sys.stderr) or 127)
if words[0] == "chatty":
    print("Welcome to this host")
    sys.stdout.flush()
assert words[1] == "python3", words
sys.exit(subprocess.run([sys.executable, "-I", "-S", *words[2:]]).returncode)
"""


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = invoke(["observe", "--seconds", "0", *args])
    out, err = capsys.readouterr()
    return code, out, err


def test_another_host_through_ssh(host: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tool(host, "ssh", SSH)
    for name in ("far", "me@chatty", "chatty"):
        out = tmp_path / f"{name}.json"
        code, _, err = run(capsys, "--ssh", name, "-o", str(out))
        assert code == 0, err
        assert len(parse_snapshot(out.read_bytes()).gpus) == 2
    code, out_text, err = run(capsys, "--ssh", "nowhere")
    assert (code, out_text, len(err.splitlines())) == (2, "", 1)
    assert "Connection timed out" in err
    code, _, err = run(capsys, "--ssh", "bare")
    assert code == 2
    assert "no python3" in err


def test_the_command_writes_what_the_plan_reads(host: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "snapshot.json"
    assert run(capsys, "-o", str(out))[0] == 0
    flags = ["--model", "GLM-5-NVFP4", "--gpu", "rtx-pro-6000-server", "--gpus", "2", "--engine", "vllm", "--json"]
    assert invoke(["plan", *flags, "--observe", str(out)]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert "pcie_link" in [item["id"] for item in plan["findings"]], "the second GPU's link is eight lanes wide"
    code, _, err = run(capsys, "-o", str(out))
    assert code == 2
    assert "exists" in err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--ssh", "-oProxyCommand=x"), "no host"),
        (("--ssh", "a b"), "no host"),
        (("--ssh", "x" * 5000), "no host"),
        (("--ssh", ""), "no host"),
        (("--url", "file:///etc/passwd"), "http://"),
        (("--url", "http://x\n/"), "no address"),
        (("--url", "http://[::1"), "no address"),
        (("--url", "http://x:99999"), "no address"),
        (("--url", "http:///metrics"), "no address"),
        (("--url", "http://x/" + "y" * 5000 + " "), "no address"),
        (("--ssh", "far", "--url", "http://x/$(id)"), "no address"),
        (("--seconds", "-1"), "--seconds"),
        (("--seconds", "nan"), "no finite number"),
        (("--out", "/none/at/all"), "no folder"),
    ],
)
def test_bad_input_is_one_sentence(
    host: Path, capsys: pytest.CaptureFixture[str], args: tuple[str, ...], said: str
) -> None:
    tool(host, "ssh", SSH)
    code, out, err = run(capsys, *args)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert said in err
