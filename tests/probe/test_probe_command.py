"""`tilewright probe` on the command line: what it asks for, what it refuses, and the shape of its answers."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from fake_nvcc import write_nvcc
from probe_trees import make_tree

from tilewright.collectives.known import KnownTree
from tilewright.probe.headers import open_headers

CONFIG = ("--arch", "sm120", "--a", "nvfp4", "--tile", "128x128x128")


@pytest.fixture(autouse=True)
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def tools(tmp_path: Path) -> tuple[str, ...]:
    """A tree and a compiler to which every config compiles."""
    return ("--root", str(make_tree(tmp_path / "tree")), "--nvcc", str(write_nvcc(tmp_path, "succeed()")))


def test_help_has_an_example(cli: Any) -> None:
    result = cli("probe", "--help")
    assert result.code == 0
    assert "Example: tilewright probe --root" in " ".join(result.out.split())


def test_without_a_tree_it_says_what_root_is(cli: Any) -> None:
    result = cli("probe", *CONFIG)
    assert result.code == 2
    assert "--root" in result.err
    assert "a folder or a wheel" in result.err


def test_one_config_is_one_document_with_the_keys_of_fit(cli: Any, tools: tuple[str, ...]) -> None:
    result = cli("probe", *CONFIG, "--json", "-q", *tools)
    assert (result.code, result.err) == (0, "")
    assert result.json["schema"] == "tilewright/probe/1"
    assert result.json["status_basis"] == "compiled"
    assert result.json["tools"] | {"tree": ""} == {
        "nvcc": "13.0.88", "nvcc_arch": "sm_120a", "cutlass": "4.2.1", "tree": "",
    }  # fmt: skip


def test_the_config_takes_the_version_of_the_tree(cli: Any, tools: tuple[str, ...]) -> None:
    assert "sm120, CUTLASS 4.2.1" in " ".join(cli("probe", *CONFIG, *tools).out.split())
    result = cli("probe", *CONFIG, *tools, "--cutlass", "4.7.0")
    assert result.code == 2
    assert "'4.7.0' is not in the trees given (they have 4.2.1)" in result.err


def test_a_tree_is_the_release_that_has_its_content_whatever_it_reports(
    cli: Any, tools: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tag 4.1.0 reports 4.0.0: its configs could not be probed, and were held against another release's rules."""
    fingerprint = open_headers([tools[1]])[0][0].fingerprint
    known = {fingerprint: KnownTree(fingerprint, "4.1.0", "4.1.0", ("CUTLASS 4.1.0",))}
    monkeypatch.setattr("tilewright.collectives.known.known_trees", lambda: known)
    result = cli("probe", *CONFIG, *tools, "--cutlass", "4.1.0", "--json", "-q")
    assert (result.code, result.json["tools"]["cutlass"]) == (0, "4.1.0")
    assert (
        "'4.2.1' is not in the trees given (they have 4.1.0)" in cli("probe", *CONFIG, *tools, "--cutlass", "4.2.1").err
    )


def test_a_stream_answers_every_line_in_order_and_never_stops(cli: Any, tools: tuple[str, ...], tmp_path: Path) -> None:
    lines: list[bytes] = [
        b'{"id":"one","arch":"sm120","a":"nvfp4","tile":[128,128,128]}',
        b"",
        b'{"id":"typo","arch":"sm120","a":"nvfp5","tile":[128,128,128]}',
        b"{nope",
        b"[1,2]",
        b'{"id":"\xff"}',
        b'{"id":"long","x":"' + b"y" * (1 << 20) + b'"}',
        b"[" * 100_000,
        b'{"id":"version","cutlass":"3.9.2","arch":"sm120","a":"nvfp4","tile":[128,128,128]}',
        b'{"id":"tag","arch":"sm120","a":"nvfp4","tile":[128,128,128],"schedule":"KernelNope"}',
        b'{"id":"two","arch":"sm121","a":"nvfp4","tile":"128x128x128"}',
    ]
    path = tmp_path / "configs.jsonl"
    path.write_bytes(b"\n".join(lines))
    result = cli("probe", "--from", str(path), "--json", *tools)
    answers = [json.loads(line) for line in result.out.splitlines()]
    assert result.code == 0
    assert [answer["id"] for answer in answers] == [
        "one", "typo", None, None, None, None, None, "version", "tag", "two",
    ]  # fmt: skip
    assert [answer["status"] for answer in answers] == ["fits"] + ["error"] * 7 + ["unsupported", "fits"]
    assert {answer["schema"] for answer in answers} == {"tilewright/probe/1"}
    assert answers[1]["error"]["field"] == "a"
    assert answers[7]["error"]["field"] == "cutlass"
    assert "KernelNope" in answers[8]["cause"]
    assert cli("probe", "--from", str(path), "--json", "--check", *tools).code == 1


def test_check_tells_whether_it_fits(cli: Any, tools: tuple[str, ...], tmp_path: Path) -> None:
    assert cli("probe", *CONFIG, "--check", *tools).code == 0
    refusing = write_nvcc(tmp_path, "refuse(0); sys.exit(2)")
    result = cli("probe", *CONFIG, "--check", "--no-cache", "--root", tools[1], "--nvcc", str(refusing))
    assert result.code == 1
    assert "ILLEGAL" in result.out
    assert "cutlass/gemm/collective/a.hpp:7" in result.out


def test_keep_leaves_the_sources(cli: Any, tools: tuple[str, ...], tmp_path: Path) -> None:
    cli("probe", *CONFIG, *tools, "--keep", str(tmp_path / "kept"))
    (source,) = (tmp_path / "kept").glob("types-sm_120a-*.cu")
    assert "CollectiveBuilder<cutlass::arch::Sm120" in source.read_text()


def test_the_model_is_held_against_the_compiler(cli: Any, tools: tuple[str, ...]) -> None:
    """The fake compiler says 1,000 bytes; the model knows better, and that is a disagreement."""
    result = cli("probe", *CONFIG, "--against-model", "--check", *tools)
    assert result.code == 1
    assert "smem_bytes: model " in result.out
    assert "compiled 1000" in result.out
    document = cli("probe", *CONFIG, "--against-model", "--json", *tools).json
    assert document["schema"] == "tilewright/probe-comparison/1"
    assert document["verdict"] == "differ"
    assert document["config"]["tile"] == [128, 128, 128]


def test_a_sample_is_drawn_for_the_trees_given(cli: Any, tools: tuple[str, ...]) -> None:
    first, again = (cli("probe", "--sample", "6", "--seed", "3", "--json", *tools).out for _ in range(2))
    assert len(first.splitlines()) == 6
    assert first == again


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--from", "absent.jsonl"), "cannot be read"),
        (("--from", "-", *CONFIG), "--from takes the configs from the file"),
        (("--sample", "3", "--from", "-"), "--from takes the configs from the file"),
        (("--sample", "3", "--a", "nvfp5"), "'nvfp5' is not legal"),
        (("--sample", "0"), "0 is not in the range"),
        ((*CONFIG, "--jobs", "0"), "0 is not in the range"),
        ((*CONFIG, "--timeout", "nan"), "'nan' is not a valid integer"),
        ((*CONFIG[:4], "--tile", "128x128"), "tile"),
        ((*CONFIG, "--schedule", "x; rm -rf /"), "schedule"),
        ((*CONFIG, "--epilogue-schedule", "X>"), "epilogue_schedule"),
        ((*CONFIG, "--extensions", "/nonexistent"), "nothing at"),
        ((*CONFIG, "--keep", "/proc/nope"), "--keep '/proc/nope' cannot be written"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(
    cli: Any, tools: tuple[str, ...], arguments: tuple[str, ...], sentence: str
) -> None:
    result = cli("probe", *arguments, *tools)
    assert (result.code, result.out) == (2, "")
    assert sentence in result.err
    assert len(result.err.strip().splitlines()) == 1


@pytest.mark.parametrize("kind", ["empty", "file", "truncated", "absent"])
def test_a_tree_without_cutlass_is_refused(cli: Any, tools: tuple[str, ...], tmp_path: Path, kind: str) -> None:
    root = tmp_path / "root"
    if kind == "empty":
        root.mkdir()
    elif kind == "file":
        root.write_text("nothing")
    elif kind == "truncated":
        root = tmp_path / "x.whl"
        root.write_bytes(b"PK\x03\x04" + bytes(200))
    result = cli("probe", *CONFIG, "--root", str(root), *tools[2:])
    assert (result.code, result.out) == (2, "")
    assert len(result.err.strip().splitlines()) == 1


def test_the_package_exports_what_it_says() -> None:
    import tilewright.probe as package

    assert dir(package) == sorted(package.__all__)
    for name in package.__all__:
        assert getattr(package, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        _ = package.nope


def test_relative_paths_work_from_where_they_are_typed(
    cli: Any, tools: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiles run in a folder of their own: nothing relative may reach them."""
    with zipfile.ZipFile(tmp_path / "x.whl", "w") as archive:
        for path in sorted((tmp_path / "tree").rglob("*.h*")):
            archive.write(path, path.relative_to(tmp_path / "tree"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", "relative-cache")
    for root in ("tree", "x.whl"):
        result = cli("probe", *CONFIG, "--no-cache", "--root", root, "--nvcc", "./nvcc", "--json")
        assert (result.code, result.json["status"]) == (0, "fits")
    copies = list((tmp_path / "relative-cache" / "probe" / "headers").iterdir())
    assert len(copies) == 1
    assert (copies[0] / "cutlass" / "version.h").is_file()


def test_a_cache_that_cannot_be_written_says_which_variable_to_set(
    cli: Any, tools: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(tmp_path / "x.whl", "w") as archive:
        for path in sorted((tmp_path / "tree").rglob("*.h*")):
            archive.write(path, path.relative_to(tmp_path / "tree"))
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "file" / "below"))
    result = cli("probe", *CONFIG, "--root", str(tmp_path / "x.whl"), *tools[2:])
    assert (result.code, result.out) == (2, "")
    assert "set TILEWRIGHT_CACHE_DIR" in result.err
    # a folder needs no copy, and a result that cannot be kept is still a result
    assert cli("probe", *CONFIG, *tools).code == 0
