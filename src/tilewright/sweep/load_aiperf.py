"""AIPerf (github.com/ai-dynamo/aiperf) as load generator: run as a program, its records read from its files.

Flags and record fields are those of AIPerf 0.13: `profile_export.jsonl` has one object a request, times in
nanoseconds of the wall clock and metrics in milliseconds (`aiperf/common/models/export_models.py`).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import msgspec

from tilewright.sweep.load import LoadFailedError, LoadTimeoutError, Target
from tilewright.sweep.metrics import RequestRecord
from tilewright.sweep.process import Supervised
from tilewright.sweep.prompts import DatasetPrompt
from tilewright.sweep.space import Load

__all__ = ["AiPerf", "aiperf_command", "read_records"]

_START_S: Final = 180.0
"""Seconds beyond the load's own limit: its dozen processes start, load a tokenizer and make the prompts first (20 s on
two slow cores)."""
_POLL_S: Final = 0.1


class _Value(msgspec.Struct):
    value: float | list[float] | None = None


class _Record(msgspec.Struct):
    metadata: dict[str, Any]
    metrics: dict[str, _Value] = {}
    error: dict[str, Any] | None = None


def aiperf_command(
    program: str, target: Target, load: Load, seed: int, folder: Path, prompts: Path | None
) -> list[str]:
    """The command line of one measurement; warm-up is not part of it."""
    words = [
        program, "profile", "--model", target.model, "--url", target.endpoint.url,
        "--endpoint-type", load.endpoint, "--custom-endpoint", target.path, "--streaming",
        "--use-server-token-count", "--use-legacy-max-tokens", "--random-seed", str(seed),
        "--ui", "none", "--no-gpu-telemetry", "--no-server-metrics", "--export-level", "records",
        "--artifact-dir", str(folder),
    ]  # fmt: skip
    if target.tokenizer:
        words += ["--tokenizer", target.tokenizer]
    for name, value in target.extra.items():
        words += ["--extra-inputs", json.dumps({name: value})]
    if load.in_flight is not None:
        words += ["--concurrency", str(load.in_flight)]
    if load.request_rate is not None:
        words += ["--request-rate", f"{load.request_rate:g}", "--arrival-pattern", load.arrival]
    if load.duration_s is not None:
        words += ["--benchmark-duration", f"{load.duration_s:g}", "--benchmark-grace-period", "inf"]
    else:
        words += ["--request-count", str(load.requests)]
    if prompts is not None:
        words += ["--input-file", str(prompts), "--custom-dataset-type", "single_turn"]
    else:
        words += ["--isl", str(load.input_tokens), "--isl-stddev", "0"]
        words += ["--num-dataset-entries", str(min(load.requests or 1000, 1000))]
    words += ["--osl", str(load.output_tokens), "--osl-stddev", "0"]
    return words


def _number(metrics: Mapping[str, _Value], *names: str) -> float | None:
    for name in names:
        value = metrics[name].value if name in metrics else None
        if isinstance(value, int | float):
            return float(value)
    return None


def read_records(path: Path) -> list[RequestRecord]:
    """The requests of the measurement proper in a `profile_export.jsonl`.

    Raises:
        LoadFailedError: it is not there, or is not what AIPerf writes.
    """
    decoder = msgspec.json.Decoder(_Record)
    found: list[RequestRecord] = []
    try:
        with path.open("rb") as stream:
            for line in stream:
                if not line.strip():
                    continue
                item = decoder.decode(line)
                if item.metadata.get("benchmark_phase") != "profiling":
                    continue
                start = float(item.metadata["request_start_ns"]) / 1e9
                end = float(item.metadata["request_end_ns"]) / 1e9
                took = _number(item.metrics, "request_latency")
                ttft = _number(item.metrics, "time_to_first_token")
                problem = item.error
                cancelled = bool(item.metadata.get("was_cancelled"))
                found.append(
                    RequestRecord(
                        start_s=start,
                        end_s=start + took / 1e3 if took is not None else end,
                        ttft_s=None if ttft is None else ttft / 1e3,
                        input_tokens=int(_number(item.metrics, "usage_prompt_tokens", "input_sequence_length") or 0),
                        output_tokens=int(
                            _number(item.metrics, "usage_completion_tokens", "output_sequence_length") or 0
                        ),
                        error=str(problem.get("message") or problem)[:300]
                        if problem
                        else "cancelled"
                        if cancelled
                        else None,
                    )
                )
    except FileNotFoundError:
        raise LoadFailedError("AIPerf wrote no records") from None
    except (OSError, msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        raise LoadFailedError(f"AIPerf's records cannot be read: {str(error)[:150]}") from None
    return found


class AiPerf:
    """AIPerf's program, supervised: it ends with the sweep as the servers do."""

    name = "aiperf"

    def __init__(self, program: str, folder: Path) -> None:
        self._program, self._folder = program, folder

    @property
    def version(self) -> str | None:
        """The version in the environment that its program is in, as its package's folder says."""
        real = Path(shutil.which(self._program) or self._program)
        for site in sorted(real.absolute().parent.parent.glob("lib/python3*/site-packages")):
            for entry in site.glob("aiperf-*.dist-info"):
                return entry.name.removeprefix("aiperf-").removesuffix(".dist-info")
        try:
            return metadata.version("aiperf")
        except metadata.PackageNotFoundError:
            return None

    def measure(self, target: Target, load: Load, dataset: Sequence[DatasetPrompt], seed: int) -> list[RequestRecord]:
        """One measurement; see `Generator`."""
        with tempfile.TemporaryDirectory(prefix="aiperf-", dir=self._folder, ignore_cleanup_errors=True) as name:
            folder = Path(name)
            prompts = self._prompts(folder, dataset, load) if dataset else None
            command = aiperf_command(self._program, target, load, seed, folder / "out", prompts)
            # With HF_HUB_OFFLINE it refuses a tokenizer's folder (0.13.0, tokenizer_validator.py).
            env = {key: value for key, value in os.environ.items() if key != "HF_HUB_OFFLINE"}
            secret = target.endpoint.headers.get("Authorization", "").removeprefix("Bearer ")
            if secret:
                command += ["--api-key", secret]
            log = folder / "aiperf.log"
            with Supervised(command, log, env) as run:
                end = time.monotonic() + load.timeout_s + _START_S
                while run.running:
                    if time.monotonic() > end:
                        raise LoadTimeoutError(load.timeout_s)
                    time.sleep(_POLL_S)
            written = folder / "out" / "profile_export.jsonl"
            # Where every request failed it ends with an error, and its records say what the server answered.
            if run.code != 0 and not (written.is_file() and written.stat().st_size):
                raise LoadFailedError(f"AIPerf ended with exit code {run.code}: {_last_words(log)}")
            records = read_records(written)
        if not records:
            raise LoadFailedError("AIPerf recorded no request")
        return records

    @staticmethod
    def _prompts(folder: Path, dataset: Sequence[DatasetPrompt], load: Load) -> Path:
        """The dataset as AIPerf's `single_turn` reads it."""
        path = folder / "prompts.jsonl"
        with path.open("wb") as stream:
            for item in dataset:
                if item.messages:
                    raise LoadFailedError("AIPerf is given prompts of text only; use --load-generator own for messages")
                line: dict[str, Any] = {"text": item.text or item.prompt}
                line["output_length"] = item.output_tokens or load.output_tokens
                stream.write(msgspec.json.encode(line) + b"\n")
        return path


def _last_words(log: Path) -> str:
    try:
        text = log.read_bytes()[-20_000:].decode("utf-8", "replace")
    except OSError:
        return "it said nothing"
    plain = re.sub(r"\x1b\[[0-9;?]*[ -/]*[@-~]", "", text)
    lines = [" ".join(line.split()) for line in plain.splitlines() if re.search(r"(?i)error|exception|invalid", line)]
    return lines[-1][:300] if lines else " ".join(plain.split())[-300:]
