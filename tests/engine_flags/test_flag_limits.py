"""Numbers that a parser takes and the engine refuses, and lines that start no server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tilewright.collectives.tree import open_tree
from tilewright.errors import InputError
from tilewright.libraries.engine_flags import check_launch, engine_flags, snapshot, snapshot_versions
from tilewright.libraries.engine_flags.limits import legal, limits_of, outside
from tilewright.libraries.engine_flags.model import Limits

SGLANG = "python3 -m sglang.launch_server --model-path m "
VLLM = "vllm serve m "


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (VLLM + "--max-num-seqs -5", "1 or more; SchedulerConfig"),
        (VLLM + "--max_num_seqs=0", "1 or more; SchedulerConfig"),
        (VLLM + "--gpu-memory-utilization 1.7", "above 0, at most 1; CacheConfig"),
        (VLLM + "--gpu-memory-utilization nan", "above 0, at most 1; CacheConfig"),
        (VLLM + "--max-num-batched-tokens 0", "1 or more; SchedulerConfig"),
        (VLLM + "--watermark 1", "0 or more, below 1; SchedulerConfig"),
        (VLLM + "--seed 4294967296", "0 to 4294967295; ModelConfig"),
        (VLLM + "-tp 0", "1 or more"),
        (VLLM + "--port 65536", "0 to 65535; the operating system"),
        (SGLANG + "--max-running-requests -1", "1 or more; the scheduler"),
        (SGLANG + "--tp-size 0", "1 or more; a server without a rank"),
        (SGLANG + "--tensor-parallel-size 0", "1 or more; a server without a rank"),
        (SGLANG + "--mem-fraction-static 1.7", "above 0, at most 1"),
        (SGLANG + "--gpu-id-step 0", "1 or more; check_server_args"),
    ],
)
def test_a_number_that_the_engine_stops_at_is_refused(line: str, says: str) -> None:
    made = check_launch(snapshot("vllm" if line.startswith("vllm") else "sglang"), line)
    (remark,) = made.remarks
    assert remark.level == "refused"
    assert f"is out of range: it is {says}" in remark.message
    assert remark.place
    assert made.parses is True
    assert made.accepted is False


@pytest.mark.parametrize(
    "line",
    [
        VLLM + "--max-num-seqs 1 --gpu-memory-utilization 1 --max-model-len -1 --seed 4294967295",
        VLLM + "--max-num-seqs $N --gpu-memory-utilization ${SHARE}",
        VLLM + "--max-model-len auto --max-num-batched-tokens 8k",
        SGLANG + "--chunked-prefill-size -1 --tp-size 1 --port 0 --schedule-conservativeness 0",
    ],
)
def test_the_ends_of_a_range_are_inside(line: str) -> None:
    made = check_launch(snapshot("vllm" if line.startswith("vllm") else "sglang"), line)
    assert made.accepted is True, made.remarks


def test_limits_follow_the_release() -> None:
    assert check_launch(snapshot("sglang", "0.5.5"), SGLANG + "--swa-full-tokens-ratio 3").accepted
    assert check_launch(snapshot("sglang", "0.5.9"), SGLANG + "--swa-full-tokens-ratio 3").accepted is False
    assert check_launch(snapshot("vllm", "0.17.0"), VLLM + "--seed 4294967296").accepted
    assert check_launch(snapshot("vllm", "0.34.0"), VLLM + "--seed 4294967296").accepted is False


def test_what_is_looked_at_with_another_flag_only() -> None:
    flags = snapshot("vllm", "0.34.0")
    without = check_launch(flags, VLLM + "--max-loras 0")
    assert [(item.level, without.accepted) for item in without.remarks] == [("warning", True)]
    assert "with --enable-lora" in without.remarks[0].message
    assert check_launch(flags, VLLM + "--enable-lora --max-loras 0").accepted is False


def test_bounds_are_read_from_a_config_class(tmp_path: Path) -> None:
    files = {
        "vllm/config/x.py": "from pydantic import Field\nHIGH = 4\nclass XConfig:\n"
        "    size: int = Field(default=1, ge=1, le=2**HIGH - 1)\n    share: float | None = Field(None, gt=0, lt=1)\n"
        "    free: int = Field(default=1, ge=computed())\n    many: list[int] = Field(default=None, ge=1)\n",
        "vllm/engine/arg_utils.py": "from vllm.config.x import XConfig\nclass EngineArgs:\n"
        "    def add_cli_args(parser):\n        x = get_kwargs(XConfig)\n"
        + "".join(f'        parser.add_argument("--{n}", **x["{n}"])\n' for n in ("size", "share", "free", "many")),
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    with open_tree(tmp_path) as tree:
        flags = {flag.names[0]: flag for flag in engine_flags(tree, "vllm").flags}
    assert flags["--size"].limits == Limits(at_least=1, at_most=15, stops="XConfig", source="vllm/config/x.py:4")
    assert flags["--share"].limits == Limits(above=0, below=1, stops="XConfig", source="vllm/config/x.py:5")
    assert flags["--free"].limits is None
    assert flags["--many"].limits is None


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_no_default_lies_outside_of_its_own_range(engine: str) -> None:
    seen = 0
    for version in snapshot_versions(engine):
        flags = snapshot(engine, version)
        for flag in flags.flags:
            limits = limits_of(flags, flag)
            if limits is not None and flag.default is not None:
                seen += 1
                assert legal(limits)
                assert limits.source
                assert not outside(limits, flag, engine, str(flag.default)), (version, flag.names[0])
    assert seen > 50


@pytest.mark.parametrize(
    "line",
    ["docker", "foo --bar", "vllm", "vllm bench serve --model x", "python train.py --lr 3", "ollama serve m",
     "docker run ubuntu bash", "python -m http.server --port 1", "m --tensor-parallel-size 8"],
)  # fmt: skip
def test_a_line_that_starts_no_server_is_one_error(cli: Any, line: str) -> None:
    with pytest.raises(InputError, match="starts no server that is known; pass a line that has `vllm serve MODEL`"):
        check_launch(snapshot("vllm"), line)
    done = cli("flags", "vllm", "--check-launch", line, "--json")
    assert (done.code, done.out) == (2, "")


@pytest.mark.parametrize(
    "line",
    ["--max-num-seqs 4", "serve m", "docker run vllm/vllm-openai m --port 1", "docker run any/image --port 1",
     "numactl -N 0 vllm serve m", "uv run vllm serve m", "python3 -m dynamo.vllm --model m",
     "/opt/venv/bin/vllm serve m", "python api_server.py --model m"],
)  # fmt: skip
def test_ways_to_start_one(line: str) -> None:
    assert check_launch(snapshot("vllm"), line).accepted


def test_a_file_that_is_not_there_is_named(cli: Any) -> None:
    done = cli("flags", "vllm", "--check-launch", "launch.sh")
    assert done.code == 2
    assert "there is no file 'launch.sh'" in done.err


def test_check_asks_the_engine_too(cli: Any) -> None:
    asked = ("flags", "vllm", "--check", "--check-launch")
    done = cli(*asked, VLLM + "--max-num-seqs 0")
    assert done.code == 1
    assert "parses, and the engine would refuse it; 2 flags known" in done.out
    assert cli(*asked, VLLM + "--max-num-seqs 1").code == 0
