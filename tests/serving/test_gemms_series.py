"""The GEMMs of a model's layers, and the series for plots."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.errors import InputError
from tilewright.models.inventory import weights
from tilewright.models.memory import Parallel
from tilewright.models.names import resolve_model
from tilewright.serving.gemms import model_gemms, token_counts
from tilewright.serving.layout import layout
from tilewright.serving.questions import DecodeQuestion
from tilewright.serving.scenario import scenario_of
from tilewright.serving.series import ceiling, decode_series, roofline, rows_band, throughput_series

DRIVING = DecodeQuestion(
    model="GLM-5", checkpoint="community/GLM-5-NVFP4-experts-only", gpu="rtx-pro-6000-server", gpus=8
)


def test_the_driving_cases_gemms_are_listed() -> None:
    lines = {(line.component, line.name): line for line in model_gemms(
        resolve_model("GLM-5-NVFP4"), parallel=Parallel(tp=8), tokens=(1, 16, 8192)) if not line.mtp}  # fmt: skip
    w13, w2 = lines["experts_w13", "w13"], lines["experts_w2", "w2"]
    assert (w13.n, w13.k, w13.format, w13.layers, w13.matrices) == (512, 6144, "nvfp4", 75, 256)
    assert (w2.n, w2.k) == (6144, 256)
    assert w13.points[0].m == pytest.approx(1)
    assert w13.points[0].matrices == pytest.approx(8)
    assert w13.points[2].m == pytest.approx(256)
    latent = lines["attention", "fused_qkv_a_proj"]
    assert (latent.n, latent.k, latent.whole, latent.layers) == (2048 + 576, 6144, True, 78)
    assert (lines["lm_head", "lm_head"].n, lines["lm_head", "lm_head"].k) == (154880 // 8, 6144)


@pytest.mark.parametrize("name", ["GLM-5-NVFP4", "Qwen3.5-397B-A17B", "gpt-oss-120b", "Qwen3-Coder-480B-A35B"])
def test_on_one_gpu_the_gemms_hold_every_weight_that_multiplies(name: str) -> None:
    model = resolve_model(name)
    lines = model_gemms(model, tokens=(1,))
    counted = sum(line.n * line.k * line.matrices * line.layers for line in lines if line.name != "lm_head")
    rows = [
        row
        for row in weights(model)
        if row.component not in ("norms", "embedding", "lm_head")
        and row.inn > 1
        and not row.name.endswith("conv1d")
        and (model.checkpoint.has_mtp or not row.mtp)
    ]
    assert counted == sum(row.count * row.out * row.inn for row in rows)


def test_a_layout_that_cannot_be_cut_is_refused() -> None:
    with pytest.raises(InputError, match="block_n"):
        model_gemms(resolve_model("MiniMax-M2.5"), parallel=Parallel(tp=8))
    with pytest.raises(InputError, match="tokens"):
        token_counts("1,-2")
    with pytest.raises(InputError, match="whole numbers"):
        model_gemms(resolve_model("GLM-5"), tokens=(0,))


def test_the_roofline_names_what_each_gemm_waits_for() -> None:
    made = {item.name: item for item in roofline(scenario_of(DRIVING), (1, 64, 8192))}
    experts = made["w13"]
    assert experts.points[1].band is not None
    assert experts.points[1].band.low <= experts.points[1].band.mean <= experts.points[1].band.high
    assert experts.peak_tflops == pytest.approx(1871.2)
    attainable = [point.attainable_tflops or 0 for point in experts.points]
    assert attainable == sorted(attainable)
    assert attainable[0] < 0.01 * (experts.peak_tflops or 0)


def test_series_agree_with_the_answers_they_are_made_from() -> None:
    points = decode_series(scenario_of(DRIVING), (1, 8, 64))
    for point in points:
        assert sum(term.time_s for term in point.terms) == pytest.approx(point.time_s)
        assert point.low_tok_s < point.tok_s < point.high_tok_s
        assert 0 < point.idle_s < point.time_s
    answer = layout(DRIVING)
    series = throughput_series(answer, 3)
    assert {item.layout for item in series} >= set(answer.best.values())
    assert all(len(item.tok_s) == len(item.concurrency) for item in series)


def test_the_ceiling_is_above_what_was_measured() -> None:
    got = ceiling(scenario_of(DRIVING), 50.4)
    assert got.limit_tok_s is not None
    assert got.reached is not None
    assert got.limit_tok_s > got.predicted_tok_s > 0
    assert got.reached == pytest.approx(50.4 / got.limit_tok_s)
    assert got.headroom is not None
    assert 2 < got.headroom < 10  # a pure bandwidth roofline is several times optimistic at one request


@given(st.integers(1, 100_000), st.integers(1, 16), st.integers(16, 1024))
def test_a_band_holds_its_mean(tokens: int, topk: int, experts: int) -> None:
    band = rows_band(tokens, topk, experts)
    assert 1 <= band.low <= band.mean <= band.high or band.mean < 1 + 1e-9


def test_the_command_lists_gemms(cli: Any) -> None:
    shown = cli("models", "GLM-5-NVFP4", "--gemms", "--tp", "8", "--ep", "1", "--gpu", "rtx-pro-6000-server")
    assert shown.code == 0
    assert "experts_w13: w13" in shown.out
    assert "attainable TFLOPS" in shown.out
    document = cli("models", "GLM-5-NVFP4", "--gemms", "--tp", "8", "--tokens", "16", "--json").json
    assert document["schema"] == "tilewright/gemms/1"
    assert cli("models", "--gemms").code == 2
    assert cli("models", "GLM-5", "--gemms", "--tokens", "x").code == 2
