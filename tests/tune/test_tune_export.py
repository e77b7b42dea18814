"""Files as vLLM and SGLang read them: names held against their own functions, contents, places, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tilewright.errors import InputError, UnknownNameError
from tilewright.tune.export import check_format, check_targets, file_name, pair_of, targets, triton_folder, write
from tilewright.tune.layer import Layer, check_kernel
from tilewright.tune.start import nearest, read_start
from tilewright.tune.tokens import parse_tokens
from tilewright.tune.trials import Trial

ROWS = json.loads((Path(__file__).parents[1] / "data" / "tune_file_names.json").read_text())
LAYER = Layer(hidden=6144, inter=256, experts=256, topk=8, dtype="fp8_block")


def trial(m: int, n: int, up_s: float, down_s: float) -> Trial:
    config = {
        "BLOCK_SIZE_M": m, "BLOCK_SIZE_N": n, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 3,
    }  # fmt: skip
    return Trial(config=config, rung="look", at="x", time_s=up_s + down_s, up_s=up_s, down_s=down_s, samples=3)


@pytest.mark.parametrize("row", ROWS["rows"], ids=lambda row: row["name"])
def test_names_are_those_of_the_engines_own_functions(row: dict[str, object]) -> None:
    """Recorded by running get_config_file_name of vLLM 0.33.0 and SGLang 0.5.23."""
    layer = Layer(hidden=4096, inter=int(str(row["n"])), experts=int(str(row["e"])), topk=1, dtype=str(row["dtype"]))
    engine = check_format(layer, str(row["engine"]))
    assert engine != "tilewright"
    assert file_name(engine, layer, str(row["device"]), down=bool(row["down"])) == row["name"]


def test_vllm_reads_one_file_with_its_keys(tmp_path: Path) -> None:
    """triton_version first, tokens as text, four blanks, a newline at the end."""
    found = {16: [trial(16, 64, 2e-5, 1e-5)], 4: [trial(16, 128, 1e-5, 1e-5)]}
    [file] = write("vllm", LAYER, "NVIDIA H200", "3.6.0", found, str(tmp_path / "new"), force=False)
    path = Path(file.path)
    assert path.name == "E=256,N=256,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json"
    text = path.read_text()
    assert text.startswith('{\n    "triton_version": "3.6.0",\n    "4": {\n        "BLOCK_SIZE_M": 16,')
    assert text.endswith("}\n")
    assert list(json.loads(text)) == ["triton_version", "4", "16"]


def test_sglang_reads_two_files_with_equal_rows(tmp_path: Path) -> None:
    """Below configs/triton_3_6_0, every key a number, BLOCK_SIZE_M alike; the pair that is fastest together."""
    ranked = [trial(16, 64, 5e-5, 5e-5), trial(16, 128, 4e-5, 9e-5), trial(64, 64, 1e-5, 9.5e-5)]
    files = write("sglang", LAYER, "NVIDIA H200", "3.6.0+git1", {16: ranked}, str(tmp_path), force=False)
    up, down = (json.loads(Path(file.path).read_text())["16"] for file in files)
    assert [Path(file.path).parent for file in files] == [tmp_path / "configs" / "triton_3_6_0"] * 2
    assert Path(files[1].path).name.endswith(",block_shape=[128, 128]_down.json")
    assert up["BLOCK_SIZE_M"] == down["BLOCK_SIZE_M"] == 16
    assert (up["BLOCK_SIZE_N"], down["BLOCK_SIZE_N"]) == (128, 64)
    assert all(name[7:].replace("_", "").isdigit() for name in [triton_folder("3.6.0rc1+cu130")])
    assert pair_of([]) is None


def test_a_file_that_exists_is_kept(tmp_path: Path) -> None:
    """Before anything is measured, and byte for byte; --force replaces it."""
    paths = targets("vllm", LAYER, "NVIDIA H200", "3.6.0", str(tmp_path))
    paths[0].write_text("mine")
    with pytest.raises(InputError, match="--force"):
        check_targets(paths, str(tmp_path), force=False)
    found = {16: [trial(16, 64, 2e-5, 1e-5)]}
    with pytest.raises(InputError, match="--force"):
        write("vllm", LAYER, "NVIDIA H200", "3.6.0", found, str(tmp_path), force=False)
    assert paths[0].read_text() == "mine"
    write("vllm", LAYER, "NVIDIA H200", "3.6.0", found, str(tmp_path), force=True)
    assert "BLOCK_SIZE_M" in paths[0].read_text()
    with pytest.raises(InputError, match="no folder"):
        check_targets(paths, str(paths[0]), force=False)


def test_nvfp4_is_refused_with_the_reason() -> None:
    """Neither engine reads such a file, and their kernels have no such format."""
    layer = Layer(hidden=6144, inter=256, experts=256, topk=8, dtype="nvfp4")
    with pytest.raises(InputError, match="reads no tuned file for NVFP4"):
        check_format(layer, "vllm")
    with pytest.raises(InputError, match="no such format"):
        check_kernel("vllm-fused-moe", "nvfp4")
    with pytest.raises(InputError, match="--format tilewright writes"):
        check_format(layer, "sglang")
    with pytest.raises(UnknownNameError, match="vllm-fused-moe"):
        check_kernel("vllm-fused", None)


def test_files_of_the_engines_are_read_as_a_start(tmp_path: Path) -> None:
    """Ours and those with missing keys; what is no such file is refused."""
    [file] = write("vllm", LAYER, "NVIDIA H200", "3.6.0", {16: [trial(16, 64, 2e-5, 1e-5)]}, str(tmp_path), force=False)
    table = read_start(file.path)
    assert table[16]["BLOCK_SIZE_N"] == 64
    assert nearest({1: {"a": 1}, 64: {"a": 2}}, 40) == {"a": 2}
    for content in (b"", b"[]", b"{}", b"\0" * 10, b'{"16": 3}', b"[" * 100_000):
        (tmp_path / "bad.json").write_bytes(content)
        with pytest.raises(InputError, match="--start"):
            read_start(str(tmp_path / "bad.json"))
    for path in (str(tmp_path), str(tmp_path / "none"), "a\0b"):
        with pytest.raises(InputError, match="--start"):
            read_start(path)


@pytest.mark.parametrize("size", [-16, 0, 1 << 17, 10**20])
def test_tiles_that_no_kernel_has_are_no_start(tmp_path: Path, size: int) -> None:
    file = tmp_path / "start.json"
    file.write_text(json.dumps({"1": {"BLOCK_SIZE_M": size, "BLOCK_SIZE_N": 64}, "8": {"BLOCK_SIZE_M": 16}}))
    # 0 stands for a part that is left out, as in files without all of them.
    assert list(read_start(str(file))) == ([1, 8] if size == 0 else [8])
    file.write_text(json.dumps({"1": {"BLOCK_SIZE_M": size or -1}}))
    with pytest.raises(InputError, match="holds no tile that can be read"):
        read_start(str(file))


def test_tokens() -> None:
    """Ranges are cut where vLLM's tuner cuts them, with both ends; nonsense is one sentence."""
    assert parse_tokens("1..64") == [1, 2, 4, 8, 16, 24, 32, 48, 64]
    assert len(parse_tokens("1..4096")) == 18
    assert parse_tokens("5..7") == [5, 7]
    assert parse_tokens("64, 1,64") == [1, 64]
    for text in ("", "64..1", "0", "0..4", "-1", "1..999999999", "1,x", "1...4", ",", "1e3", "4" * 40):
        with pytest.raises(InputError, match="--tokens"):
            parse_tokens(text)
    with pytest.raises(InputError, match="at most"):
        parse_tokens(",".join(str(count) for count in range(1, 100)))
