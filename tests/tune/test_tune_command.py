"""The command and the whole run: files written, resumed, refused; one clear error each."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

import msgspec
import pytest
from tune_fakes import FAKE

import tilewright.bench.device
import tilewright.tune.moe
import tilewright.tune.tuner
from tilewright.bench.device import Device
from tilewright.cli.main import invoke
from tilewright.errors import InputError, MissingPartError
from tilewright.hardware.names import resolve_gpu
from tilewright.kernels.config import GroupedConfig
from tilewright.report.schema import checker
from tilewright.tune.layer import Layer, Problem
from tilewright.tune.moe import NotWrittenError, Tuner, tune_moe
from tilewright.tune.order import machine_of
from tilewright.tune.our_builds import default_build, other_kernels
from tilewright.tune.run import Outcome
from tilewright.tune.settings import Settings
from tilewright.tune.trials import Trial, TrialStore

LAYER = Layer(hidden=2048, inter=256, experts=64, topk=4, dtype="bf16")
H200 = Device(0, "NVIDIA H200", resolve_gpu("h200-sxm"), (9, 0), 140_000_000_000, "580.159.04", 2)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two H200s as NVML would tell them, Triton 3.6.0, and nothing to compile."""
    monkeypatch.setattr(tilewright.bench.device, "read_device", lambda index: replace(H200, index=index))
    for module in (tilewright.tune.moe, tilewright.tune.tuner):
        monkeypatch.setattr(module, "triton_version", lambda: "3.6.0")
    monkeypatch.setattr(tilewright.tune.tuner, "absent_compiler", lambda kernel: None)
    monkeypatch.setattr(Tuner, "builds_of", lambda self, request: [])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def settings(tmp_path: Path, **more: object) -> Settings:
    fields: dict[str, object] = {
        "kernel": "vllm-fused-moe", "layer": LAYER, "tokens": [1, 16, 2048], "command": FAKE, "limit_s": 5.0,
        "store": str(tmp_path / "s.sqlite"), "trials": 40, "builders": 1,
    }  # fmt: skip
    return Settings(**{**fields, **more})  # type: ignore[arg-type]


class Winners:
    """Whose outcome was told."""

    def __init__(self) -> None:
        self.tokens: list[int] = []

    def trial(self, problem: Problem, trial: Trial, reused: bool) -> None:
        """Not needed."""

    def outcome(self, outcome: Outcome) -> None:
        assert outcome.best is not None
        self.tokens.append(outcome.problem.tokens)


@pytest.mark.usefixtures("machine")
def test_a_whole_run(tmp_path: Path) -> None:
    """Every number of tokens has a winner, both GPUs took part, the file is the engine's, the winners go on."""
    out = tmp_path / "tuned"
    watched = Winners()
    document = tune_moe(settings(tmp_path, out=str(out)), watched)
    assert [item.tokens for item in document.results] == [1, 16, 2048]
    assert sorted(watched.tokens) == [1, 16, 2048]  # each told once, not again where winners are held against others
    assert all(item.config and item.config["BLOCK_SIZE_N"] == 128 for item in document.results)
    assert sorted(document.workers) == ["gpu0", "gpu1"]
    assert len(document.elsewhere) == 2
    table = json.loads((out / "E=64,N=256,device_name=NVIDIA_H200.json").read_text())
    assert list(table) == ["triton_version", "1", "16", "2048"]
    checker("tune")(msgspec.to_builtins(document))
    with pytest.raises(InputError, match="--force"):
        tune_moe(settings(tmp_path, out=str(out)))
    again = tune_moe(settings(tmp_path, out=str(out), force=True, resume=True, formats=("sglang",), tokens=[16]))
    assert again.results[0].reused > 0
    assert len(again.files) == 2
    start = str(out / "E=64,N=256,device_name=NVIDIA_H200.json")
    tuner = Tuner(settings(tmp_path, start=start))
    assert tuner.hints(tuner.problems[0])[0]["BLOCK_SIZE_N"] == 128


@pytest.mark.usefixtures("machine")
def test_our_kernels_builds_are_what_its_reader_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--kernel ours --out` ends in the folder that `kernels/tuned.py` reads; the kernel's own build is looked at."""
    from tilewright.kernels.tuned import tuned_build

    layer = Layer(hidden=2048, inter=256, experts=64, topk=4, dtype="nvfp4")
    out, command = tmp_path / "tuned", (sys.executable, str(Path(__file__).with_name("fake_ours.py")))
    document = tune_moe(
        settings(tmp_path, kernel="ours", layer=layer, tokens=[1, 24, 256], out=str(out), command=command)
    )
    build = document.results[2].config
    assert build is not None
    found = tuned_build("NVIDIA H200", 64, 512, 2048, 256 * 4, str(out))
    assert found is not None
    assert asdict(found) == build
    h200 = machine_of(resolve_gpu("h200"))
    # At 256 tokens, 16 rows an expert, wgmma runs untuned.
    assert default_build(Problem(kernel="ours", layer=layer, tokens=256), h200) is None
    untuned = default_build(Problem(kernel="ours", layer=layer, tokens=24), h200)
    assert untuned in asked_of(tmp_path / "s.sqlite", 24)
    assert any("At 1, 256 tokens fused_moe runs another kernel" in note for note in document.notes)


def asked_of(store: Path, tokens: int) -> list[dict[str, int]]:
    with TrialStore.read(store) as opened:
        return [trial.config for _, problem, trial in opened.everything() if problem.tokens == tokens]


def test_without_the_compiler_of_our_kernel_nothing_starts(
    machine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise every config would be kept as one that does not compile."""
    monkeypatch.setattr(tilewright.tune.tuner, "absent_compiler", lambda kernel: "cuda-bindings")
    layer = Layer(hidden=2048, inter=256, experts=64, topk=4, dtype="nvfp4")
    with pytest.raises(MissingPartError, match="cuda-bindings"):
        tune_moe(settings(tmp_path, kernel="ours", layer=layer))


def test_memory_is_asked_first(
    machine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence with what fits, and nothing is started or written."""
    small = replace(H200, free_bytes=3_000_000_000)
    monkeypatch.setattr(tilewright.bench.device, "read_device", lambda index: replace(small, index=index))
    sizes = ("--hidden", "2048", "--inter", "256", "--experts", "64", "--topk", "4", "--tokens", "16,200000")
    assert invoke(["tune", "moe", *sizes, "--store", str(tmp_path / "s.sqlite"), "--out", str(tmp_path / "o")]) == 2
    assert "3.0 GB free: up to" in capsys.readouterr().err
    assert not (tmp_path / "s.sqlite").exists()
    assert not (tmp_path / "o").exists()


@pytest.mark.usefixtures("machine")
def test_files_that_cannot_be_written_do_not_lose_what_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run wrote the file meanwhile: it is kept, and the document is there."""

    def taken(*_: object, **__: object) -> None:
        raise InputError("out", "it exists and is kept")

    monkeypatch.setattr(tilewright.tune.moe, "write", taken)
    with pytest.raises(NotWrittenError, match="is kept") as caught:
        tune_moe(settings(tmp_path, out=str(tmp_path / "o")))
    assert [item.tokens for item in caught.value.document.results] == [1, 16, 2048]
    assert caught.value.document.files == []


@pytest.mark.usefixtures("machine")
def test_a_budget_ends_a_run(tmp_path: Path) -> None:
    """What was not finished is named, what was measured is kept."""
    document = tune_moe(settings(tmp_path, budget_s=1e-3))
    assert document.results == []
    assert document.unfinished == [1, 16, 2048]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "GLM-5", "--tp", "8", "--kernel", "cutlass"], "No kernel is called"),
        (["--model", "no such model"], "model"),
        (["--model", "GLM-5", "--tp", "8", "--tokens", "64..1"], "is empty"),
        (["--model", "GLM-5", "--tp", "8", "--tokens", "1..999999999"], "--tokens must be"),
        (["--model", "GLM-5", "--tp", "7"], "does not divide"),
        (["--model", "GLM-5", "--tp", "8", "--dtype", "nvfp4"], "no such format"),
        (
            ["--kernel", "ours", "--model", "GLM-5", "--tp", "8", "--out", "x", "--format", "vllm"],
            "reads no tuned file for NVFP4",
        ),
        (["--model", "GLM-5", "--tp", "8", "--out", "x", "--format", "tilewright"], "--kernel ours"),
        (["--model", "GLM-5", "--tp", "8", "--out", "x", "--format", "trt"], "vllm, sglang, tilewright"),
        (["--model", "GLM-5", "--tp", "8", "--resume", "--no-store"], "drop one"),
        (["--model", "GLM-5", "--tp", "8", "--format", "vllm"], "--out DIR"),
        (["--model", "GLM-5", "--tp", "8", "--ray", "auto", "--devices", "0"], "drop one"),
        (["--model", "GLM-5", "--tp", "8", "--compile-only"], "--gpu"),
        (["--model", "GLM-5", "--tp", "8", "--compile-only", "--gpu", "none"], "gpu"),
        (["--hidden", "4096", "--inter", "100", "--experts", "8", "--topk", "2"], "multiple of 16"),
        (["--hidden", "4096"], "--inter is missing"),
        (["--model", "GLM-5", "--hidden", "64"], "comes with the model"),
        (["--model", "GLM-5", "--tp", "8", "--root", "/nowhere"], "nowhere"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2, on stderr, naming what is wrong."""
    assert invoke(["tune", "moe", *arguments]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    last = told.err.strip().splitlines()[-1]
    assert last.startswith("tilewright: ")
    assert words in last


@pytest.mark.usefixtures("machine")
def test_gpus_of_two_kinds_are_not_tuned_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store would keep both under the first one's name."""

    def mixed(index: int) -> Device:
        return replace(H200, index=index, name="NVIDIA H200" if index == 0 else "NVIDIA L40S")

    monkeypatch.setattr(tilewright.bench.device, "read_device", mixed)
    with pytest.raises(InputError, match="GPU 1 is a NVIDIA L40S and GPU 0 a NVIDIA H200") as caught:
        Tuner(settings(tmp_path))
    assert caught.value.field == "devices"
    assert Tuner(settings(tmp_path, devices=(0,))).devices == (0,)


def test_without_a_gpu_the_space_is_still_pruned(capsys: pytest.CaptureFixture[str]) -> None:
    """And it is said that nothing was measured."""
    arguments = ["--hidden", "2048", "--inter", "256", "--experts", "64", "--topk", "4", "--tokens", "16"]
    code = invoke(
        ["tune", "moe", *arguments, "--trials", "1", "--compile-only", "--gpu", "rtx-pro-6000-server", "--json"]
    )
    document = json.loads(capsys.readouterr().out)
    assert code == 0
    assert document["mode"] == "compile only"
    assert document["space"]["kept"] == 944
    assert document["results"] == []
    assert any("not run" in note or "only" in note for note in document["notes"])


@pytest.mark.parametrize(
    "more", [("--out", "x"), ("--devices", "1"), ("--ray", "auto"), ("--resume",), ("--budget", "9"), ("--store", "s")]
)
def test_what_needs_measurements_is_refused_where_none_are_made(
    more: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """They would otherwise be ignored without a word."""
    common = ("tune", "moe", "--compile-only", "--gpu", "h200", "--model", "GLM-5", "--tokens", "1")
    assert invoke([*common, "--tp", "8", *more]) == 2
    assert f"{more[0]} needs measurements" in capsys.readouterr().err
    assert invoke([*common, "--tp", "0"]) == 2
    assert "--tp" in capsys.readouterr().err


def test_what_runs_untuned_is_that_of_the_gpu() -> None:
    """Many rows an expert run on wgmma where there is one, on the grouped kernel elsewhere."""
    problem = Problem(kernel="ours", layer=Layer(hidden=2048, inter=256, experts=8, topk=4, dtype="nvfp4"), tokens=512)
    h200, blackwell = (machine_of(resolve_gpu(name)) for name in ("h200", "rtx-pro-6000-server"))
    assert default_build(problem, h200) is None
    assert default_build(problem, blackwell) == asdict(GroupedConfig(columns=4, blocks=4, warps=4, stages=3, units=4))
    assert "At 512 tokens" in other_kernels([problem], h200)[0]
    assert other_kernels([problem], blackwell) == []
