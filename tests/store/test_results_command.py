"""`tilewright results`: what a user types and gets."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from tilewright.cli.main import invoke
from tilewright.report.results_text import configs_told
from tilewright.report.schema import checker
from tilewright.store import Result, Store


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "results.sqlite"
    monkeypatch.setenv("TILEWRIGHT_STORE", str(path))
    with Store.append_to(path) as opened:
        opened.append(
            Result(
                kind="moe",
                backend=backend,
                at="2026-12-02T13:00:00Z",
                status="ok",
                problem={"tokens": tokens},
                environment={"gpu": "h200_sxm"},
                time_s=time_s,
                low_s=time_s * 0.99,
                high_s=time_s * 1.01,
                samples=21,
            )
            for backend, tokens, time_s in (("ours", 1, 20e-6), ("humming", 1, 25e-6), ("ours", 16, 100e-6))
        )
    return path


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = invoke(["results", *args])
    out, err = capsys.readouterr()
    return code, out, err


def document(capsys: pytest.CaptureFixture[str], *args: str) -> Any:
    code, out, err = run(capsys, *args, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_list(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "list", "--where", "tokens=1", "--backend", "ours")
    checker("results")(found)
    assert [item["result"]["time_s"] for item in found["results"]] == [20e-6]
    code, out, _ = run(capsys, "list")
    assert code == 0
    assert "tokens=16" in out
    assert "100.00" in out


def test_compare(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "compare", "--baseline", "humming")
    checker("results-compare")(found)
    (row,) = found["rows"]
    assert row["ratio"] == {"ours": pytest.approx(0.8)}
    assert row["apart"] == {"ours": True}
    assert "0.800x the time" in run(capsys, "compare", "--baseline", "humming")[1]


def test_configs_are_compared_in_words_that_tell_them_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "configs.sqlite"
    common: dict[str, Any] = {"kind": "moe", "backend": "triton", "at": "2026-12-02T13:00:00Z", "status": "ok"}
    configs: list[dict[str, Any]] = [
        {"block_n": 64, "block_m": 16},
        {"block_n": 64, "block_m": 32, "kernel": "k" * 500},
        {},
    ]
    with Store.append_to(path) as store:
        store.append(Result(**common, time_s=1e-6 * (n + 1), config=config) for n, config in enumerate(configs))
    code, out, _ = run(capsys, "compare", "--by", "config", "--store", str(path))
    assert code == 0
    lines = {line.split("  ")[-1].strip(): line.split()[0] for line in out.splitlines()[2:] if line}
    cut = f"block_n=64 block_m=32 kernel={'k' * 48}..."
    assert set(lines) == {"block_n=64 block_m=16", cut, "(no config)"}
    key = lines[cut]
    assert f"{key}  2.00" in run(capsys, "compare", "--by", "config", "--store", str(path), "--baseline", key)[1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"at": "x" * 5000}, "at of a result must be a time"),
        ({"at": ""}, "at of a result must be a time"),
        ({"at": "2026-13-45T00:00:00Z"}, "at of a result must be a time"),
        ({"status": "x" * 5000}, "status is one of ok, wrong"),
        ({"x" * 5000: 1}, "unknown field"),
        ({"low_s": 2e-6, "high_s": 1e-6}, "low_s of a result is above its high_s"),
    ],
)
def test_a_line_that_is_no_result_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], said: str
) -> None:
    line = {"kind": "moe", "backend": "x", "at": "2026-12-02T13:00:00Z", "status": "ok", "time_s": 1e-6}
    (tmp_path / "in.jsonl").write_text(json.dumps({**line, **change}))
    code, out, err = run(capsys, "import", str(tmp_path / "in.jsonl"), "--store", str(tmp_path / "s.sqlite"))
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert said in err
    assert len(err) < 400
    assert not (tmp_path / "s.sqlite").exists()


def test_what_configs_share_is_left_out() -> None:
    assert configs_told([{"a": 1, "b": 2}, {"a": 1, "b": 3}]) == ["b=2", "b=3"]
    assert configs_told([{"a": 1}, {"a": 1, "b": 3}]) == ["(what all the others have)", "b=3"]


def test_a_gpu_is_found_by_any_of_its_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "two.sqlite"
    common: dict[str, Any] = {"kind": "gemm", "at": "2026-12-02T13:00:00Z", "status": "ok", "time_s": 1e-6}
    with Store.append_to(path) as store:
        store.append(
            Result(**common, backend=backend, environment={"gpu": gpu})
            for gpu in ("h200-sxm", "NVIDIA Z1") for backend in ("torch", "triton")
        )  # fmt: skip
    for asked, gpu in (("NVIDIA H200", "h200-sxm"), ("h200", "h200-sxm"), ("NVIDIA Z1", "NVIDIA Z1")):
        code, out, _ = run(capsys, "list", "--store", str(path), "--gpu", asked, "--json")
        assert code == 0
        found = [item["result"]["environment"]["gpu"] for item in json.loads(out)["results"]]
        assert found == [gpu, gpu]
    text = run(capsys, "compare", "--store", str(path))[1]
    assert "(h200-sxm)" in text
    assert "(NVIDIA Z1)" in text


def test_what_is_exported_can_be_brought_in_elsewhere(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, other = str(tmp_path / "out.jsonl"), str(tmp_path / "other.sqlite")
    assert run(capsys, "export", "--out", file)[0] == 0
    first = document(capsys, "import", file, "--store", other)
    checker("results-import")(first)
    assert (first["read"], first["new"]) == (3, 3)
    assert document(capsys, "import", file, "--store", other)["new"] == 0
    with Store.read(store) as one, Store.read(Path(other)) as two:
        assert [item.digest for item in one.find()] == [item.digest for item in two.find()]
    code, _, err = run(capsys, "export", "--out", file)
    assert code == 2
    assert "exists" in err


def test_csv_has_a_column_a_field(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "export", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert len(rows) == 3
    assert json.loads(rows[2]["problem"]) == {"tokens": 16}
    assert float(rows[2]["time_s"]) == 100e-6


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("list", "--status", "fine"), "ok, wrong, failed, timeout, refused"),
        (("list", "--kind", "nope"), "gemm, moe, copy, read, allreduce, serve"),
        (("compare", "--kind", "Moe"), "gemm, moe"),
        (("export", "--kind", ""), "gemm, moe"),
        (("list", "--since", "yesterday"), "2026-12-31"),
        (("list", "--where", "tokens"), "KEY=VALUE"),
        (("list", "--last", "0"), "--last"),
        (("compare", "--baseline", "nobody"), "there are: humming, ours"),
        (("list", "--store", "/nowhere/at/all"), "There is no store"),
        (("import", "/nowhere/at/all"), "cannot be read"),
        (("frob",), "frob"),
    ],
)
def test_bad_input_is_one_sentence(
    store: Path, capsys: pytest.CaptureFixture[str], args: tuple[str, ...], said: str
) -> None:
    code, out, err = run(capsys, *args)
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.splitlines()) == 1


def test_kinds(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One of ours that is not there is an empty answer; one that was brought in is found."""
    from tilewright.bench.problem import KINDS
    from tilewright.store import result

    assert set(KINDS.values()) < set(result.KINDS)
    assert document(capsys, "list", "--kind", "serve")["results"] == []
    with Store.append_to(store) as opened:
        opened.append([Result(kind="mine", backend="b", at="2026-12-02T13:00:00Z", status="ok", time_s=1.0)])
    assert len(document(capsys, "list", "--kind", "mine")["results"]) == 1


@pytest.mark.parametrize("line", ["{", "[]", '{"kind":"moe"}', '{"kind":1}', '{"x":1}', "\udcff"])
def test_one_bad_line_and_nothing_is_stored(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    file, other = tmp_path / "in.jsonl", tmp_path / "other.sqlite"
    assert run(capsys, "export", "--out", str(file))[0] == 0
    file.write_bytes(file.read_bytes() + line.encode("utf-8", "surrogateescape") + b"\n")
    code, _, err = run(capsys, "import", str(file), "--store", str(other))
    assert code == 2
    assert "Line 4" in err
    assert not other.exists()
