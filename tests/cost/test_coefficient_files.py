"""Coefficient and table files: what is written is read back, and broken ones are refused."""

from __future__ import annotations

import gzip
import json
import math
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright
from conftest import DATA
from tilewright.cost.gemm_features import gemm_work
from tilewright.cost.kernel_dtypes import kernel_dtype, kernel_rates
from tilewright.cost.kernel_models import load
from tilewright.cost.moe_load import moe_load
from tilewright.cost.questions import GemmQuestion
from tilewright.cost.surface import Surface, SurfaceTable
from tilewright.cost.tables import pack_table, read_table
from tilewright.cost.trees import Forest, Trees
from tilewright.errors import InputError
from tilewright.hardware.names import resolve_gpu


def test_trees_are_walked_as_they_are_stored() -> None:
    # x0 <= 1 ? (x1 <= 2 ? 0.1 : 0.2) : 0.3, and a tree of one leaf
    forest = Forest(Trees([0, 1, -1, -1, -1, -1], [0, 0, 1000, 2000, 3000, 5], [[1.0], [2.0]]), 2)
    assert forest.value([1.0, 2.0]) == pytest.approx(0.1005)
    assert forest.value([0.0, 3.0]) == pytest.approx(0.2005)
    assert forest.value([1.5, 0.0]) == pytest.approx(0.3005)


@pytest.mark.parametrize(
    "trees",
    [
        Trees([0, -1], [0, 1], [[1.0]]),
        Trees([0, -1, -1], [7, 1, 1], [[1.0]]),
        Trees([3, -1, -1], [0, 1, 1], [[1.0]]),
        Trees([0, -1, -1], [0, 1], [[1.0]]),
    ],
)
def test_broken_trees_are_refused(trees: Trees) -> None:
    with pytest.raises(InputError):
        Forest(trees, 1)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.dictionaries(
        st.tuples(st.integers(1, 64), st.integers(1, 5), st.sampled_from(["", "balanced"])),
        st.floats(1e-6, 5.0),
        min_size=1,
        max_size=40,
    )
)
def test_a_table_gives_back_its_rows(rows: dict[tuple[int, int, str], float], tmp_path_factory: Any) -> None:
    folder = tmp_path_factory.mktemp("table")
    (folder / "t.gz").write_bytes(pack_table([(at, (n,), name, time) for (at, n, name), time in rows.items()]))
    table = read_table("t.gz", folder)
    assert table is not None
    for (at, n, name), time in rows.items():
        near = table.near(at, (n,), name)
        assert near is not None
        assert near.rows[0][0] == at
        assert near.rows[0][1] == pytest.approx(time, rel=0.001)
    assert table.near(1, (9,), "") is None


def test_broken_files_are_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "t.gz").write_bytes(b"no gzip")
    (tmp_path / "u.gz").write_bytes(gzip.compress(b'{"axis":[1],"lines":[[0,1]],"names":["x"]}\nabc'))
    for name in ("t.gz", "u.gz"):
        with pytest.raises(InputError):
            read_table(name, tmp_path)
    assert read_table("absent.gz", tmp_path) is None
    for content in (b"", b"[]", b"\x00", b'{"schema":"tilewright/coefficients/1"}', b"[" * 100_000):
        (tmp_path / "index.json").write_bytes(content)
        load.cache_clear()
        with pytest.raises(InputError):
            load(str(tmp_path))
    load.cache_clear()


def test_packaged_index_names_files_that_are_there_and_load() -> None:
    coefficients = load()
    for entry in coefficients.index.entries:
        model = coefficients.model(entry)
        assert len(model.low) == len(model.high) > 0
        assert all(low < 1 < high for low, high in zip(model.low, model.high, strict=True))


@pytest.mark.parametrize("tokens", [1, 7, 64, 1000])
@pytest.mark.parametrize("ep", [1, 2, 8, 16])
@pytest.mark.parametrize("name", ["balanced", "power_law_1.2", "power_law_1", "uniform"])
def test_loads_of_a_rank_are_possible(tokens: int, ep: int, name: str) -> None:
    load_ = moe_load(tokens, 8, 128, ep, name)
    assert 0 <= load_.hit <= load_.experts == 128 / ep
    assert load_.hit <= load_.rows + 1  # quantiles are rounded to whole rows
    assert load_.rows <= tokens * min(8, 128 // ep) + 1e-9
    assert load_.largest <= tokens or name == "uniform"
    if ep == 1:
        assert load_.rows == tokens * 8
    for size, tiles in zip((16, 32, 64, 128), load_.tiles, strict=True):
        assert tiles * size >= 0.8 * load_.rows - 1
    assert not math.isnan(sum(load_.tiles))


def test_balanced_counts_are_those_of_the_rule() -> None:
    for tokens, topk, experts, ep in ((5, 4, 64, 4), (100, 8, 256, 8), (16, 6, 160, 2), (1, 22, 512, 1)):
        stride = -(-experts // topk)
        counts = [0] * (experts // ep)
        for token in range(tokens):
            for i in range(topk):
                start = token if tokens >= stride else token * stride / tokens
                expert = int((start + i * stride) % experts)
                if expert < len(counts):
                    counts[expert] += 1
        got = moe_load(tokens, topk, experts, ep, "balanced")
        assert got.rows == sum(counts)
        assert got.hit == sum(count > 0 for count in counts)


def test_calibrate_needs_its_extra_and_says_so(cli: Any, tmp_path: Path) -> None:
    if find_spec("lightgbm") is not None:
        pytest.skip("lightgbm is installed")
    rows = str(DATA / "kernel_rows" / "gemm.csv.gz")
    result = cli("calibrate", "--rows", rows, "--out", str(tmp_path / "c"))
    assert result.code == 3
    assert "tilewright[calibrate]" in result.err


@pytest.mark.parametrize("date", ["2026-13-45", "2026-1-1", "20260101", "", "x" * 5000, "2026-W01-1"])
def test_a_date_is_a_day(date: str, tmp_path: Path) -> None:
    from tilewright.calibrate.run import calibrate

    with pytest.raises(InputError, match="must be a day as YYYY-MM-DD"):
        calibrate((str(DATA / "kernel_rows" / "gemm.csv.gz"),), str(tmp_path / "c"), date=date)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc here")
def test_a_folder_that_takes_no_file_is_found_before_the_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    import tilewright.calibrate.run as module

    monkeypatch.setattr(module, "fit_group", None)  # would take minutes; here it would be no function
    rows = (str(DATA / "kernel_rows" / "gemm.csv.gz"),)
    with pytest.raises(InputError, match="--out '/proc/x/y' cannot be used"):
        module.calibrate(rows, "/proc/x/y", date="2026-01-01")


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("a,b\n1,2\n", "--rows"),
        ("kernel_source,gemm_dtype,m,n,k,latency_ms\nx,nvfp4,1,2,three,0.1\n", "k"),
        ("kernel_source,gemm_dtype,m,n,k,latency_ms\nx,nvfp4,1,2,3,nan\n", "latency_ms"),
        ("kernel_source,gemm_dtype,m,n,k,latency_ms\nx,nvfp9,1,2,3,1\n", "gemm_dtype"),
        ("", "--rows"),
        ("x" * 200_000, "--rows"),
        ("kernel_source,gemm_dtype,m,n,k,latency_ms\n" + "x" * 200_000, "--rows"),
    ],
)
def test_bad_rows_name_file_line_and_column(text: str, field: str, tmp_path: Path) -> None:
    from tilewright.calibrate.rows import read_groups

    file = tmp_path / "rows.csv"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        read_groups((str(file),))
    assert caught.value.field == field


def test_calibration_holds_on_shapes_it_did_not_see(tmp_path: Path) -> None:
    """Two thirds of the sample's shapes fitted, the others predicted by the coefficients alone."""
    pytest.importorskip("lightgbm")
    from tilewright.calibrate.rows import read_groups
    from tilewright.calibrate.run import calibrate

    source = DATA / "kernel_rows" / "gemm.csv.gz"
    text = gzip.decompress(source.read_bytes()).decode().splitlines()
    held = [line for line in text[1:] if hash_of(line) == 0]
    (tmp_path / "fit.csv").write_text("\n".join([text[0], *(line for line in text[1:] if hash_of(line))]))
    (tmp_path / "held.csv").write_text("\n".join([text[0], *held]))
    out = str(tmp_path / "c")
    entries = calibrate((str(tmp_path / "fit.csv"),), out, date="2026-01-01")
    again = calibrate((str(tmp_path / "fit.csv"),), str(tmp_path / "d"), date="2026-01-01")
    assert entries == again
    errors: list[float] = []
    for sample in read_groups((str(tmp_path / "held.csv"),))[0].samples:
        m, n, k = sample.sizes
        ask = GemmQuestion(gpu="rtx_pro_6000_server", dtype="nvfp4", m=m, n=n, k=k)
        errors.append(abs(tilewright.predict(ask, basis="modelled", coefficients=out).time_s / sample.time_s - 1))
    assert sum(errors) / len(errors) < 0.15
    assert json.loads((tmp_path / "c" / "index.json").read_text())["schema"] == "tilewright/coefficients/1"


def hash_of(line: str) -> int:
    """0 for a third of the shapes."""
    _, _, _, _, n, k, *_ = line.split(",")
    return (int(n) // 256 + 7 * int(k) // 256) % 3


def test_a_weight_of_a_power_of_two_is_kept_up_to_the_cache() -> None:
    dtype = kernel_dtype("bfloat16")
    rates = kernel_rates(resolve_gpu("rtx_pro_6000_server"), dtype.name)
    kept, other = gemm_work(1, 8192, 8192, dtype, rates), gemm_work(1, 8192, 7168, dtype, rates)
    larger, small = gemm_work(1, 8192, 16384, dtype, rates), gemm_work(1, 3072, 3072, dtype, rates)
    assert kept.kept_base_s < 0.55 * kept.base_s
    assert small.kept_base_s < 0.6 * small.base_s
    assert (other.kept_base_s, larger.kept_base_s) == (other.base_s, larger.base_s)
    assert [work.features[-2] for work in (kept, other, larger, small)] == [1.0, 0.0, 0.0, 0.0]


def test_a_surface_is_linear_in_the_logarithms_between_knots_and_flat_beyond() -> None:
    table = SurfaceTable(
        m=[1.0, 4.0], n=[16.0, 64.0], k=[32.0], held=[512.0, 2048.0], body=[100, 300, 500, 700], weight=[0, 40, 80, -40]
    )
    surface = Surface(table)
    # At knots: the body's value, and the weight's running sum along the bytes (here n k).
    assert surface.value(1, 16, 32, math.log(512)) == pytest.approx(0.100 + 0.000)
    assert surface.value(1, 64, 32, math.log(2048)) == pytest.approx(0.300 + 0.040)
    assert surface.value(4, 64, 32, math.log(2048)) == pytest.approx(0.700 + 0.040)
    assert surface.value(2, 32, 32, math.log(1024)) == pytest.approx(
        (0.1 + 0.3 + 0.5 + 0.7) / 4 + (0.0 + 0.04 + 0.08 + 0.04) / 4
    )
    assert surface.value(1000, 1000, 4096, math.log(4096000)) == pytest.approx(surface.value(4, 64, 32, math.log(2048)))


@pytest.mark.parametrize(
    "changes",
    [{"body": [1, 2, 3]}, {"weight": []}, {"m": [4.0, 1.0]}, {"n": []}, {"k": [0.0]}, {"held": [float("nan"), 1.0]}],
)
def test_a_broken_surface_is_refused(changes: dict[str, Any]) -> None:
    whole: dict[str, Any] = {
        "m": [1.0, 4.0], "n": [16.0, 64.0], "k": [32.0], "held": [512.0, 2048.0],
        "body": [1, 2, 3, 4], "weight": [0] * 4,
    }  # fmt: skip
    with pytest.raises(InputError):
        Surface(SurfaceTable(**{**whole, **changes}))


@pytest.mark.skipif(find_spec("numpy") is None, reason="needs numpy")
def test_the_smooth_part_of_a_smooth_table_holds_on_shapes_left_out() -> None:
    import numpy as np  # pyright: ignore[reportMissingImports]

    from tilewright.calibrate.smooth import smooth_part

    sizes = [(m, n, k) for n in (256, 512, 1024, 2048, 4096, 8192) for k in (256, 768, 1536, 3072, 6144, 9216)
             for m in (1, 8, 64, 512)]  # fmt: skip
    x = np.array(sizes, dtype=float)
    logs = np.log(x)
    y = 0.05 * logs[:, 0] - 0.03 * logs[:, 1] * (logs[:, 2] - 8) + 0.02 * np.abs(logs[:, 1] + logs[:, 2] - 15)
    shapes = [size[1:] for size in sizes]
    numbers = {shape: place for place, shape in enumerate(sorted(set(shapes)))}
    folds = np.array([(numbers[shape] * 7) % 3 for shape in shapes])
    got = smooth_part(np, x, logs[:, 1] + logs[:, 2], y, folds, 3, shapes)
    assert got is not None
    spread = float(np.abs(y - y.mean()).mean())
    for held in (got.held_out, got.own):
        assert float(np.abs(held - y).mean()) < spread / 4
    for fold in range(3):
        other = folds != fold
        assert float(np.abs(got.inside[fold][other] - y[other]).mean()) < spread / 3
    surface = Surface(got.table)
    assert (
        max(
            abs(surface.value(*size, math.log(size[1] * size[2])) - value)
            for size, value in zip(sizes, y.tolist(), strict=True)
        )
        < 0.01
    )


@pytest.mark.skipif(find_spec("numpy") is None, reason="needs numpy")
def test_few_shapes_have_no_smooth_part() -> None:
    import numpy as np  # pyright: ignore[reportMissingImports]

    from tilewright.calibrate.smooth import smooth_part

    x = np.array([(m, 256, 256) for m in (1, 2, 4)], dtype=float)
    assert smooth_part(np, x, np.ones(3), np.zeros(3), np.array([0, 1, 0]), 2, [(256, 256)] * 3) is None


def test_between_rows_near_shapes_that_hold_that_value_are_given(tmp_path: Path) -> None:
    rows = [(m, (n, 512), "", 1e-5 * m * n / 256) for n in (256, 512, 4096) for m in (32, 48, 64)]
    rows = [row for row in rows if row[:2] != (48, (256, 512))]
    (tmp_path / "t.gz").write_bytes(pack_table(rows))
    table = read_table("t.gz", tmp_path)
    assert table is not None
    found = table.near(48, (256, 512), "", beside=1)
    assert found is not None
    assert [at for at, _ in found.rows] == [32, 64]
    ((shape, times),) = found.beside
    assert shape == (512, 512)
    assert times == pytest.approx((6.4e-4, 9.6e-4, 1.28e-3), rel=2e-3)
    assert table.near(40, (256, 512), "", beside=1).beside == ()  # pyright: ignore[reportOptionalMemberAccess]
    assert table.near(48, (512, 512), "", beside=1).beside == ()  # pyright: ignore[reportOptionalMemberAccess]
