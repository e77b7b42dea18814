"""A whole `bench` with a measuring process of our own making: what is stored, compared, refused and shown."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tilewright.bench.backends import NAMES, backend
from tilewright.bench.device import Device, read_device, visible
from tilewright.bench.problem import (
    AllreduceProblem,
    CopyProblem,
    GemmProblem,
    MoeProblem,
    Problem,
    ReadProblem,
    as_dict,
    check,
    flops,
    kind_of,
    moved_bytes,
    problem_of,
    routing,
    touched_bytes,
    weight_bytes,
)  # fmt: skip
from tilewright.bench.run import Options, bench, bench_allreduce, choose, foresee, published_limit_s
from tilewright.bench.shapes import moe_shard
from tilewright.bench.work import copies_of, refusal
from tilewright.errors import InputError, MissingPartError, TilewrightError
from tilewright.hardware.names import resolve_gpu
from tilewright.models.names import resolve_model
from tilewright.report.bench_text import show
from tilewright.report.output import Output
from tilewright.report.schema import checker
from tilewright.store import Query, Store

LAYER = MoeProblem(tokens=16, hidden=6144, inter=256, experts=256, topk=8)
H200 = Device(0, "NVIDIA H200", resolve_gpu("h200"), (9, 0), 140 * 10**9, "580.1", 1)


@pytest.fixture
def every_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if torch, Triton and the bindings were installed here: nothing of them is imported in this process."""
    for name in ("torch_", "triton_", "cublaslt", "tilewright_"):
        monkeypatch.setattr(f"tilewright.bench.backends.{name}.not_found", lambda *_: None)


def measuring(tmp_path: Path, answers: dict[str, str]) -> list[str]:
    """A measuring process that gives the answer of the first key that the job contains."""
    script = tmp_path / "measuring.py"
    script.write_text(
        "import sys, os, time\n"
        f"answers = {answers!r}\n"
        "for line in sys.stdin:\n"
        "    said = next(text for key, text in answers.items() if key in line)\n"
        "    if said == 'crash': os.abort()\n"
        "    print(said, flush=True)\n"
    )
    return [sys.executable, str(script)]


def ok(time_s: float) -> str:
    return json.dumps(
        {"status": "ok", "time_s": time_s, "low_s": time_s * 0.99, "high_s": time_s * 1.02, "samples": 9,
         "error": 0.003, "versions": {"torch": "2.11.0"}, "marks": []}
    )  # fmt: skip


def test_each_backend_loses_only_its_own_result(tmp_path: Path, every_package: None) -> None:
    wrong = json.dumps({"status": "wrong", "error": 0.5, "note": "the answer is off by 0.5 of the largest value"})
    answers = {
        '"read"': ok(20e-6), '"backend":"torch"': ok(40e-6), '"backend":"triton"': "crash",
        '"backend":"tilewright"': ok(25e-6), '"backend":"cublaslt"': wrong,
    }  # fmt: skip
    problems: list[Problem] = [GemmProblem(m=16, n=4096, k=4096, dtype=name) for name in ("bf16", "nvfp4", "fp8")]
    store = tmp_path / "results.sqlite"
    options = Options(store=str(store), limit_s=20, command=measuring(tmp_path, answers))
    told: list[str] = []
    document = bench(problems, H200, options, told.append)
    by = {(line.result.backend, line.result.problem["dtype"]): line for line in document.lines}
    assert by["torch", "bf16"].result.status == "ok"
    assert by["triton", "bf16"].result.status == by["triton", "fp8"].result.status == "failed"
    assert "SIGABRT" in by["triton", "fp8"].result.note
    assert by["cublaslt", "fp8"].result.status == "wrong"
    assert by["cublaslt", "fp8"].result.time_s is None
    assert by["torch", "bf16"].of_read_limit == pytest.approx(0.5)
    assert by["torch", "bf16"].ratio_to_best == 1.0
    assert set(document.missing) >= {"flashinfer", "vllm", "sglang"}
    with Store.read(store) as opened:
        kept = list(opened.find(Query()))
    assert len(kept) == len(document.lines) + 3  # the reads of three formats' bytes
    assert len(told) == len(kept)
    assert kept[-1].result.environment["gpu"] == "h200-sxm"
    checker("bench")(json.loads(json.dumps(_builtin(document))))


def _builtin(document: Any) -> Any:
    import msgspec

    return msgspec.to_builtins(document)


def test_the_table_names_what_is_missing(
    tmp_path: Path, every_package: None, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = {'"read"': ok(20e-6), '"torch"': ok(40e-6), "": ok(80e-6)}
    options = Options(keep=False, command=measuring(tmp_path, answers))
    document = bench([GemmProblem(m=1, n=4096, k=4096)], H200, options, lambda _: None)
    show(document, Output())
    text = capsys.readouterr().out
    assert "triton" in text
    assert "2.00x" in text
    assert "Not measured" in text
    assert document.store is None


def test_of_processes_in_a_collective_the_slowest_counts(tmp_path: Path) -> None:
    answers = {'"rank":1': ok(30e-6), "": ok(20e-6)}
    pair = Device(0, "NVIDIA H200", resolve_gpu("h200"), (9, 0), 140 * 10**9, "580.1", 2)
    options = Options(keep=False, limit_s=20, command=measuring(tmp_path, answers))
    document = bench_allreduce([AllreduceProblem(bytes=1024, gpus=2)], pair, options, lambda _: None)
    assert document.lines[0].result.time_s == pytest.approx(30e-6)
    with pytest.raises(InputError, match="--gpus 4 is more than the 2"):
        bench_allreduce([AllreduceProblem(bytes=1024, gpus=4)], pair, options, lambda _: None)


def test_what_cannot_fit_is_refused_before_anything_starts() -> None:
    with pytest.raises(InputError, match=r"needs .* GB of GPU memory") as caught:
        foresee([GemmProblem(m=1, n=1 << 20, k=1 << 20)], H200)
    assert caught.value.field == "memory"
    foresee([LAYER], H200)


def test_copies_make_l2_cold_and_stay_in_memory() -> None:
    one = MoeProblem(tokens=1, hidden=6144, inter=256, experts=256, topk=8)
    copies = copies_of(one, 140 * 10**9)
    assert copies * touched_bytes(one) >= 260_000_000
    assert copies_of(one, 4 * 10**9) * weight_bytes(one) <= 2 * 10**9
    assert refusal(one, 140 * 10**9) is None
    assert "GB are free" in (refusal(one, 10**9) or "")
    assert refusal(CopyProblem(bytes=40 * 10**9), 100 * 10**9) is None  # 80 GB, and nothing is repacked
    assert refusal(CopyProblem(bytes=50 * 10**9), 100 * 10**9) is not None


def test_backends_that_cannot_run_say_why(every_package: None) -> None:
    able, missing = choose([GemmProblem(m=1, n=16, k=16, dtype="fp8")], H200, ["cublaslt", "torch"])
    assert [item.name for item in able] == ["cublaslt"]
    assert "torch" in missing
    old = Device(0, "NVIDIA A100", None, (8, 0), None, None, 1)
    with pytest.raises(InputError, match=r"needs compute capability 8\.9, this GPU has 8\.0"):
        choose([GemmProblem(m=1, n=16, k=16, dtype="fp8")], old, ["cublaslt"])
    with pytest.raises(InputError, match="the nearest are"):
        choose([LAYER], H200, ["tritton"])


@pytest.mark.parametrize("name", NAMES)
def test_every_backend_can_be_asked_without_its_package(name: str) -> None:
    item = backend(name)
    reason = item.missing((9, 0))
    assert item.name == name
    assert item.kinds
    assert reason is None or (reason and "\n" not in reason)


def test_limits_are_those_of_the_formulae() -> None:
    """16 x 8192 x 8192 in bf16 on 4.8 TB/s: the weights alone are 134 MB, 28 us; at 4,096 rows the operations rule."""
    thin, thick = (GemmProblem(m=rows, n=8192, k=8192) for rows in (16, 4096))
    assert published_limit_s(thin, H200) == pytest.approx((2 * 8192 * 8192 + 16 * 4 * 8192) / 4.8e12)
    assert published_limit_s(thick, H200) == pytest.approx(2 * 4096 * 8192 * 8192 / 989e12)
    unknown = Device(0, "NVIDIA Z1", None, (9, 0), None, None, 1)
    assert published_limit_s(thin, unknown) is None
    assert flops(LAYER) == 6 * 16 * 8 * 6144 * 256
    assert moved_bytes(CopyProblem(bytes=160)) == 320


def test_routing_is_the_same_on_every_run_and_distinct() -> None:
    first, again = routing(LAYER), routing(LAYER)
    assert first == again
    assert all(len(set(experts)) == 8 and max(experts) < 256 for experts in first)
    hot = MoeProblem(tokens=5, hidden=64, inter=64, experts=8, topk=2, distribution="one_expert")
    assert touched_bytes(hot) == weight_bytes(hot) * 2 // 8


@pytest.mark.parametrize("problem", [LAYER, GemmProblem(m=1, n=2, k=3), ReadProblem(bytes=16), CopyProblem(bytes=32)])
def test_problems_survive_the_way_to_the_process(problem: Problem) -> None:
    assert problem_of(kind_of(problem), json.loads(json.dumps(as_dict(problem)))) == problem


def test_messages_are_whole_words() -> None:
    with pytest.raises(InputError, match="multiple of 16"):
        check(CopyProblem(bytes=17))
    with pytest.raises(InputError, match="at least 2 GPUs"):
        check(AllreduceProblem(bytes=16, gpus=1))


def test_a_layer_of_the_catalogue_is_cut_as_the_layout_says() -> None:
    glm = resolve_model("GLM-5")
    (cut,), note = moe_shard(glm, [16], tp=8, ep=1, dtype="nvfp4")
    assert cut == LAYER
    assert note == ""
    (spread,), note = moe_shard(glm, [16], tp=1, ep=8, dtype="nvfp4")
    assert (spread.experts, spread.topk, spread.tokens, spread.inter) == (32, 1, 16, 2048)
    assert "mean share" in note
    (wide,), _ = moe_shard(glm, [16], tp=1, ep=16, dtype="nvfp4")
    assert (wide.experts, wide.topk, wide.tokens) == (16, 1, 8)
    with pytest.raises(InputError, match="does not divide"):
        moe_shard(glm, [16], tp=1, ep=7, dtype="nvfp4")


def test_devices_are_counted_as_cuda_does() -> None:
    assert visible(4, None) == [0, 1, 2, 3]
    assert visible(4, "2,0") == [2, 0]
    assert visible(4, "1,9,0") == [1]
    assert visible(4, "") == []
    assert visible(2, "GPU-1f") == [0, 1]


class NoDriver:
    """NVML on a machine without a driver."""

    class NVMLError(Exception):
        pass

    def nvmlInit(self) -> None:  # noqa: N802
        raise self.NVMLError("Driver Not Loaded")


def test_no_gpu_is_one_sentence_with_what_works_without() -> None:
    with pytest.raises(TilewrightError, match="`predict` answers") as caught:
        read_device(0, NoDriver())
    assert caught.value.exit_code == 2


def test_no_torch_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import tilewright.bench.device as device

    monkeypatch.setattr(device, "find_spec", lambda name: None)
    with pytest.raises(MissingPartError, match=r"tilewright\[bench\]") as caught:
        read_device(0)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    ("args", "field"),
    [
        (("gemm", "--m", "1,x", "--n", "16", "--k", "16"), "--m takes whole numbers"),
        (("gemm", "--m", "1", "--n", "16", "--k", "16", "--dtype", "fp5"), "--dtype"),
        (("moe", "--tokens", "1"), "--hidden is missing"),
        (("moe", "--model", "GLM-5", "--hidden", "5", "--tokens", "1"), "comes with the model"),
        (("moe", "--model", "Llama-3.1-70B", "--tokens", "1"), ""),
        (("gemm", "--m", "1", "--n", "16", "--k", "24", "--dtype", "nvfp4"), "--k 24 is no multiple of 16"),
        (("moe", "--hidden", "64", "--inter", "40", "--experts", "4", "--topk", "2", "--tokens", "1"), "--inter 40"),
        (("copy", "--bytes", "12QB"), "--bytes takes sizes"),
        (("copy", "--bytes", "-1"), "--bytes takes sizes"),
        (("allreduce", "--gpus", "1"), "at least 2 GPUs"),
        (("allreduce", "--gpus", "2,x"), "--gpus takes whole numbers"),
        (("allreduce", "--gpus", "2", "--device", "1"), "CUDA_VISIBLE_DEVICES"),
    ],
)
def test_bad_questions_are_refused_by_name(cli: Any, args: tuple[str, ...], field: str) -> None:
    result = cli("bench", *args)
    assert result.code == 2
    assert field in result.err
    assert len(result.err.strip().splitlines()) == 1
