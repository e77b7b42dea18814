"""The packaged data is what the builder makes from the facts, every figure has a source, contradictions are decided."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tilewright.data.figures import read_packaged
from tilewright.data.measurements import find_measurements, measurement, measurements
from tilewright.errors import UnknownNameError
from tilewright.hardware import catalogue, resolve_gpu
from tilewright.models.catalogue import build_model, entries

REPO = Path(__file__).parent.parent.parent
FACTS = REPO / "tests" / "data" / "facts"


@pytest.fixture(scope="module")
def builder() -> Any:
    sys.path.insert(0, str(REPO / "tools"))
    try:
        import build_data

        yield build_data
    finally:
        sys.path.remove(str(REPO / "tools"))


def facts(name: str) -> Any:
    return json.loads(gzip.decompress((FACTS / f"{name}.gz").read_bytes()))


def test_packaged_files_are_what_the_builder_makes_from_the_facts(builder: Any) -> None:
    for name, content in builder.build_all(FACTS).items():
        packaged = (REPO / "src" / "tilewright" / "data" / name).read_bytes()
        assert packaged == content, f"{name} is stale: run tools/build_data.py tests/data/facts"


def test_a_decision_whose_fact_changed_stops_the_build(builder: Any) -> None:
    with pytest.raises(SystemExit, match="the facts changed"):
        builder.figure({"value": 1598, "source": "x"}, "published", builder.Sources(), {"expect": 1597})


def test_every_known_figure_has_a_source_and_a_kind() -> None:
    for gpu in catalogue():
        for key, figure in gpu.figures.items():
            if figure.known:
                assert figure.sources, f"{gpu.key}: {key}"
                assert figure.kind in ("published", "measured", "derived"), f"{gpu.key}: {key}"
            else:
                assert figure.kind is None, f"{gpu.key}: {key} has a kind, but no value"
            for item in figure.rejected:
                assert item.source
                assert item.why


def test_what_nobody_published_stays_unknown() -> None:
    raw = facts("gpus.json")["gpus"]
    by_name = {gpu.key: gpu for gpu in catalogue()}
    assert len(by_name) == len(raw) == 21
    nulls = {
        "rtx-pro-6000-max-q": "tflops_fp4_dense",
        "gb300": "sm_count",
        "h20": "l2_bytes",
        "b300-sxm": "boost_clock_mhz",
        "jetson-thor": "memory_bandwidth_gbs",
        "rtx-5080": "fp32acc_half_rate",
        "rtx-5090": "tflops_mxfp8_blockscaled_dense",
    }
    for key, field in nulls.items():
        assert by_name[key].value(field) is None, (key, field)


@pytest.mark.parametrize(
    ("gpu", "field", "value"),
    [
        ("rtx-pro-6000-server", "memory_bandwidth_gbs", 1597),
        ("rtx-pro-6000-server", "memory_bandwidth_measured_gbs", 1450),
        ("rtx-pro-6000-workstation", "memory_bandwidth_gbs", 1792),
        ("rtx-pro-6000-max-q", "boost_clock_mhz", 2288),
        ("rtx-pro-6000-max-q", "memory_clock_mhz", None),
        ("rtx-pro-6000-server", "fp32acc_half_rate", False),
        ("rtx-pro-5000", "fp32acc_half_rate", None),
        ("rtx-pro-5000", "tflops_fp8_fp32acc_dense", None),
        ("rtx-pro-4500", "tflops_bf16_fp32acc_dense", None),
        ("rtx-5090", "fp32acc_half_rate", True),
        ("gb10", "tflops_fp8_fp32acc_dense", None),
        ("l40s", "fp32acc_half_rate", False),
        ("b200-sxm", "l2_bytes", 126 << 20),
        ("l40s", "l2_bytes", 96 << 20),
        ("b200-sxm", "memory_gb", 180),
        ("b200-sxm", "memory_bytes", 180 << 30),
        ("b200-sxm", "memory_bandwidth_gbs", 7700),
        ("b200-sxm", "sm_count", 148),
        ("b300-sxm", "tflops_fp4_dense", 14000),
        ("b300-sxm", "tflops_fp4_sparse", 18000),
        ("b300-sxm", "int8_tops_dense", 153.5),
        ("gb10", "memory_bandwidth_gbs", 273),
        ("gb10", "tflops_fp4_dense", 500),
        ("rtx-pro-6000-server", "smem_optin_max_per_block_bytes", 101376),
        ("gb10", "smem_optin_max_per_block_bytes", 101376),
        ("rtx-5090", "max_threads_per_sm", 1536),
        ("rtx-5090", "max_blocks_per_sm", 24),
        ("rtx-pro-6000-server", "memory_bytes", 97887 << 20),
    ],
)
def test_contradictions_are_decided_as_the_notes_say(gpu: str, field: str, value: object) -> None:
    assert resolve_gpu(gpu).value(field) == value


@pytest.mark.parametrize(
    ("gpu", "field", "rejected"),
    [
        ("rtx-pro-6000-server", "memory_bandwidth_gbs", 1792),
        ("rtx-pro-6000-max-q", "boost_clock_mhz", 2617),
        ("rtx-pro-6000-max-q", "memory_clock_mhz", 15865),
        ("rtx-pro-5000", "tflops_fp8_fp32acc_dense", 294.8),
        ("b200-sxm", "memory_bandwidth_gbs", 8000),
        ("gb10", "memory_bandwidth_gbs", 301),
        ("gb10", "tflops_fp8_fp32acc_dense", 124),
        ("rtx-5090", "smem_optin_max_per_block_bytes", 102400),
    ],
)
def test_a_reading_that_was_not_taken_is_kept_with_its_reason(gpu: str, field: str, rejected: object) -> None:
    readings = {item.value: item.why for item in resolve_gpu(gpu).get(field).rejected}
    assert rejected in readings
    assert "notes" not in readings[rejected], "users do not have the facts' notes"


def test_every_model_and_checkpoint_has_a_source() -> None:
    raw = facts("models.json")["models"]
    assert [entry.key for entry in entries()] == [item["key"] for item in raw]
    for entry in entries():
        model = build_model(entry.key)
        assert model.source
        assert all(checkpoint.source for checkpoint in model.checkpoints), model.key
        for figure in (model.published_total_b, model.published_active_b):
            assert figure is None or (figure.known and figure.sources and figure.kind == "published")


def test_glm5_is_what_its_config_says_and_not_what_a_wiki_says() -> None:
    model = build_model("GLM-5")
    assert (model.hidden, len(model.main_layers), model.moe and model.moe.experts) == (6144, 78, 256)
    assert any("160 experts" in str(item.value) for item in model.rejected)


def test_measurements_keep_source_and_shape() -> None:
    raw = facts("measurements.json")["measurements"]
    assert [item.id for item in measurements()] == [row["id"] for row in raw]
    assert all(item.source and item.category for item in measurements())
    table = measurement("aic_moe_glm5_rtx_pro_6000_server_sglang_nvfp4").table
    assert table["tp1_ep1"]["32"] == 3739.6
    assert "not to be used for SM120" in measurement("flashinfer_pr5179_glm5").warning
    assert find_measurements(model="GLM-5", gpu="rtx pro 6000", category="power")
    with pytest.raises(UnknownNameError, match="nearest"):
        measurement("glm5_8xpro6000_powr")


def test_packaged_data_stays_small() -> None:
    folder = REPO / "src" / "tilewright" / "data"
    assert sum((folder / name).stat().st_size for name in ("gpus.json", "models.json", "measurements.json")) < 250_000
    assert read_packaged("gpus.json")["facts_of"]
