"""`tilewright gpus`: the table, one entry, JSON, and what it says to bad names."""

from __future__ import annotations

from typing import Any

from tilewright.hardware import catalogue


def test_all_gpus_are_listed_and_unknown_figures_say_so(cli: Any) -> None:
    result = cli("gpus")
    assert result.code == 0
    rows = {line.split()[0]: line for line in result.out.splitlines() if line.strip()}
    assert {gpu.key for gpu in catalogue()} <= set(rows)
    assert "unknown" in rows["gb300"]
    assert "1,597" in rows["rtx-pro-6000-server"]
    assert "none" in rows["h200-sxm"], "no FP4 tensor type is not the same as an unknown rate"


def test_one_gpu_shows_value_kind_source_and_what_was_rejected(cli: Any) -> None:
    out = cli("gpus", "NVIDIA RTX PRO 6000 Blackwell Server Edition").out
    assert "1,597 GB/s  published" in out
    assert "1,450 GB/s  measured" in out
    assert "Readings not taken" in out
    assert "1,792 GB/s" in out
    assert "https://github.com/sgl-project/sglang/issues/33711" in out
    assert "unknown" in out


def test_json_has_every_figure_with_unit_kind_and_source(cli: Any) -> None:
    document = cli("gpus", "gb10", "--json").json
    (gpu,) = document["gpus"]
    assert document["schema"] == "tilewright/gpus/1"
    assert gpu["figures"]["memory_bandwidth_gbs"] | {"rejected": 0} == {
        "value": 273,
        "kind": "published",
        "sources": [
            "https://blog.kubesimplify.com/blog/day-3-the-dgx-spark-unpacked-gb10-unified-memory-sm-121-and-the-"
            "one-reason-this-hardware-exists"
        ],
        "unit": "GB/s",
        "note": "as shipped",
        "rejected": 0,
    }
    assert gpu["figures"]["tflops_mxfp8_blockscaled_dense"]["value"] is None
    assert len(cli("gpus", "--json").json["gpus"]) == 21


def test_bad_names_get_exit_2_and_one_sentence(cli: Any) -> None:
    for name in ("rtx pro 6000", "h900", "", "\x00", "x" * 5000):
        result = cli("gpus", name)
        assert result.code == 2
        assert result.err.count("\n") == 1
        assert not result.out
    assert cli("gpus", "h200", "--live").code == 2
