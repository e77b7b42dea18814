"""`tactics vllm` and `tactics sglang` on small engines written here: names, search order, defaults, verdicts, SARIF."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.libraries.tuned.files import UnreadableFile, parse_table
from tilewright.libraries.tuned.names import parse_name

VLLM = """
import functools
import json
import os
import regex as re
import torch
import vllm.envs as envs
from vllm.logger import init_logger
from vllm.platforms import current_platform
from vllm.triton_utils import tl, triton

logger = init_logger(__name__)


def get_config_dtype_str(dtype, use_fp8_w8a8=False):
    if use_fp8_w8a8:
        return "fp8_w8a8"
    elif dtype == torch.float:
        return "float32"
    return None


def get_config_file_name(E, N, dtype, block_shape=None):
    device = re.sub(r"[\\s/]+", "_", current_platform.get_device_name())
    if "H200" in device.split("_"):
        device = "NVIDIA_H200"
    selector = "" if not dtype else f",dtype={dtype}"
    block = ("" if not block_shape or not all(block_shape) else f",block_shape={block_shape}").replace(" ", "")
    return f"E={E},N={N},device_name={device}{selector}{block}.json"


@functools.lru_cache
def get_moe_configs(E, N, dtype, block_n=None, block_k=None):
    block_shape = [block_n, block_k] if block_n and block_k else None
    name = get_config_file_name(E, N, dtype, block_shape)
    paths = []
    if envs.VLLM_TUNED_CONFIG_FOLDER is not None:
        paths.append(os.path.join(envs.VLLM_TUNED_CONFIG_FOLDER, name))
    paths.append(os.path.join(os.path.dirname(os.path.realpath(__file__)), "configs", name))
    for path in paths:
        if os.path.exists(path):
            with open(path) as f:
                table = json.load(f)
                table.pop("triton_version", None)
                return {int(key): val for key, val in table.items()}
    logger.warning_once("Using default MoE config. Config file not found at %s", ", ".join(paths))
    return None


def get_default_config(M, E, N, K, topk, dtype, block_shape=None):
    if dtype == "fp8_w8a8" and block_shape is None:
        return {"BLOCK_SIZE_M": 128 if M > E else 64, "BLOCK_SIZE_N": 256 if M > E else 128, "BLOCK_SIZE_K": 128,
                "GROUP_SIZE_M": 32, "num_warps": 8, "num_stages": 2 if current_platform.is_rocm() else 4}
    return {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 8}


def try_get_optimal_moe_config(w1_shape, w2_shape, top_k, dtype, M, block_shape=None):
    E, _, N = w2_shape
    configs = get_moe_configs(E, N, dtype, block_shape[0] if block_shape else 0, block_shape[1] if block_shape else 0)
    if configs:
        return configs[min(configs.keys(), key=lambda x: abs(x - M))]
    return get_default_config(M, E, N, w1_shape[2], top_k, dtype, block_shape)
"""

SGLANG = """
import json
import logging
import os
import torch
import triton
from sglang.srt.server_args import get_global_server_args
from sglang.srt.utils import get_device_name, is_hip

logger = logging.getLogger(__name__)
_is_hip = is_hip()


def get_config_file_name(E, N, dtype, block_shape=None, per_channel_quant=False, down_moe=False):
    device_name = get_device_name().replace(" ", "_")
    dtype_selector = "" if not dtype else f",dtype={dtype}"
    block = "" if not block_shape or not all(block_shape) else f",block_shape={block_shape}"
    channel = ",per_channel_quant=True" if per_channel_quant else ""
    return f"E={E},N={N},device_name={device_name}{dtype_selector}{block}{channel}{'_down' if down_moe else ''}.json"


def get_moe_configs(E, N, dtype, block_n=0, block_k=0, per_channel_quant=False, down_moe=False):
    if get_global_server_args().enable_deterministic_inference:
        return None
    name = get_config_file_name(E, N, dtype, [block_n, block_k], per_channel_quant, down_moe=down_moe)
    root = os.path.join(os.environ.get("SGLANG_MOE_CONFIG_DIR", os.path.dirname(os.path.realpath(__file__))), "configs")
    versions = sorted(
        (d.removeprefix("triton_").replace("_", ".") for d in os.listdir(root) if d.startswith("triton_")),
        key=lambda v: tuple(int(x) for x in v.split(".")), reverse=True,
    )
    for version in [triton.__version__, *versions]:
        path = os.path.join(root, f"triton_{version.replace('.', '_')}", name)
        if os.path.exists(path):
            with open(path) as f:
                return {int(key): val for key, val in json.load(f).items()}
    return None


def get_default_config(M, E, N, K, topk, dtype, is_marlin, block_shape=None):
    props = torch.cuda.get_device_properties(torch.cuda.current_device())
    small = getattr(props, "shared_memory_per_block_optin", None) < 128 * 1024
    return {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 64 if small else 128, "GROUP_SIZE_M": 1,
            "num_warps": 4, "num_stages": 2 if _is_hip else 3}


def try_get_optimal_moe_config(w1_shape, w2_shape, top_k, dtype, M, is_marlin=False, block_shape=None,
                               per_channel_quant=False, return_down_config=False):
    E, _, N = w2_shape
    block = block_shape or [0, 0]
    configs = get_moe_configs(E, N, dtype, block[0], block[1], per_channel_quant)
    down = None
    if configs:
        config = configs[min(configs.keys(), key=lambda x: abs(x - M))]
    else:
        config = get_default_config(M, E, N, w1_shape[2], top_k, dtype, is_marlin, block_shape)
    if return_down_config:
        downs = get_moe_configs(E, N, dtype, block[0], block[1], per_channel_quant, down_moe=True)
        if downs:
            down = dict(**downs[min(downs.keys(), key=lambda x: abs(x - M))])
            down["BLOCK_SIZE_M"] = config["BLOCK_SIZE_M"]
        return config, (down, 64)
    return config
"""

GOOD = {
    "BLOCK_SIZE_M": 64,
    "BLOCK_SIZE_N": 128,
    "BLOCK_SIZE_K": 128,
    "GROUP_SIZE_M": 1,
    "num_warps": 4,
    "num_stages": 3,
}
WIDE = {
    "BLOCK_SIZE_M": 128,
    "BLOCK_SIZE_N": 256,
    "BLOCK_SIZE_K": 128,
    "GROUP_SIZE_M": 1,
    "num_warps": 8,
    "num_stages": 4,
}
SERVER = "NVIDIA_RTX_PRO_6000_Blackwell_Server_Edition"
MAX_Q = "NVIDIA_RTX_PRO_6000_Blackwell_Max-Q_Workstation_Edition"


def write(path: Path, table: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(table if isinstance(table, str) else json.dumps(table, indent=4) + "\n")


@pytest.fixture
def vllm(tmp_path: Path) -> Path:
    package = tmp_path / "vllm"
    write(package / "__init__.py", "")
    write(package / "_version.py", "__version__ = '0.30.0'\n")
    home = package / "model_executor" / "layers" / "fused_moe"
    write(home / "fused_moe.py", VLLM)
    write(home / "configs" / f"E=8,N=512,device_name={SERVER},dtype=fp8_w8a8.json", {"1": GOOD, "4096": WIDE})
    write(
        home / "configs" / f"E=8,N=512,device_name={MAX_Q},dtype=fp8_w8a8.json", {"triton_version": "3.5.1", "1": GOOD}
    )
    write(home / "configs" / "E=8,N=512,device_name=NVIDIA_H200,dtype=fp8_w8a8.json", {"64": WIDE})
    write(home / "configs" / "E=8,N=512,device_name=NVIDIA_H200_NVL,dtype=fp8_w8a8.json", {"64": WIDE})
    write(home / "configs" / "E=8,N=512,device_name=NVIDIA_H200,dtype=bf16.json", {"64": GOOD})
    write(
        home / "configs" / "E=8,N=512,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128].json", {"1": GOOD}
    )
    write(home / "configs" / "notes.json", {"1": GOOD})
    write(home / "configs" / "E=9,N=512,device_name=NVIDIA_H200.json", "{")
    return tmp_path


@pytest.fixture
def sglang(tmp_path: Path) -> Path:
    package = tmp_path / "sglang"
    write(package / "__init__.py", "")
    home = package / "srt" / "layers" / "moe" / "moe_runner" / "triton_utils"
    write(home / "fused_moe_triton_config.py", SGLANG)
    base = f"E=8,N=512,device_name={SERVER},dtype=fp8_w8a8,block_shape=[128, 128]"
    write(home / "configs" / "triton_3_4_0" / f"{base}.json", {"1": GOOD, "64": {**GOOD, "num_stages": 4}})
    write(
        home / "configs" / "triton_3_10_0" / f"{base}_down.json", {"1": {**GOOD, "BLOCK_SIZE_M": 16, "USE_TMA": True}}
    )
    return tmp_path


def answer(cli: Any, *words: str) -> dict[str, Any]:
    result = cli("tactics", *words, "--json")
    assert result.code == 0, result.err
    return json.loads(result.out)


def test_each_file_is_judged_on_its_own_device_and_named_by_line(cli: Any, vllm: Path) -> None:
    document = answer(cli, "vllm", "--root", str(vllm))
    tactics = {item["name"]: item for item in document["tactics"]}
    wide = tactics[f"E=8,N=512,device_name={SERVER},dtype=fp8_w8a8.json#4096"]
    assert wide["verdict"]["status"] == "overflow"
    assert (wide["verdict"]["smem_bytes"], wide["verdict"]["limit_bytes"]) == (147_456, 101_376)
    assert wide["verdict"]["fixes"][0] == {
        "change": {"num_stages": 3}, "smem_bytes": 98_304,
        "note": "the tile stays; one buffer less hides a little less latency",
    }  # fmt: skip
    assert wide["source"]["line"] == 10
    assert tactics["E=8,N=512,device_name=NVIDIA_H200,dtype=fp8_w8a8.json#64"]["verdict"]["status"] == "fits"
    assert document["summary"] == {"total": 4, "fits": 3, "overflow": 1, "illegal": 0, "unsupported": 0}
    assert document["library_version"] == "0.30.0"


def test_files_that_no_lookup_reads_are_listed_and_not_fatal(cli: Any, vllm: Path) -> None:
    unread = {Path(item["file"]).name: item["why"] for item in answer(cli, "vllm", "--root", str(vllm))["unread"]}
    assert "NVIDIA_H200,dtype" in unread["E=8,N=512,device_name=NVIDIA_H200_NVL,dtype=fp8_w8a8.json"]
    assert "no selector" in unread["E=8,N=512,device_name=NVIDIA_H200,dtype=bf16.json"]
    spaced = "E=8,N=512,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128].json"
    assert "[128,128]" in unread[spaced]
    assert "none that a lookup builds" in unread["notes.json"]
    assert "not JSON" in unread["E=9,N=512,device_name=NVIDIA_H200.json"]


@pytest.mark.parametrize(
    ("gpu", "file"),
    [
        ("rtx-pro-6000-server", SERVER),
        ("rtx-pro-6000-max-q", MAX_Q),
        ("rtx-pro-6000-workstation", None),
        ("h200-sxm", "NVIDIA_H200"),
        ("NVIDIA H200 NVL", "NVIDIA_H200"),
    ],
)
def test_the_file_is_that_of_the_edition_and_the_h200_family_shares_one(
    cli: Any, vllm: Path, gpu: str, file: str | None
) -> None:
    layer = ("--gpu", gpu, "--e", "8", "--n", "512", "--dtype", "fp8_w8a8", "--tokens", "1,100")
    lookup = answer(cli, "vllm", "--root", str(vllm), *layer)["lookup"]
    if file is None:
        assert lookup["file"] is None
        assert [step["from_file"] for step in lookup["steps"]] == [False, False]
        assert lookup["steps"][1]["verdict"]["smem_bytes"] == 147_456
    else:
        assert lookup["file"].endswith(f"E=8,N=512,device_name={file},dtype=fp8_w8a8.json")


def test_the_nearest_number_of_tokens_is_taken(cli: Any, vllm: Path) -> None:
    layer = ("--gpu", "rtx-pro-6000-server", "--e", "8", "--n", "512", "--dtype", "fp8_w8a8", "--tokens", "2048,2049")
    steps = answer(cli, "vllm", "--root", str(vllm), *layer)["lookup"]["steps"]
    assert [step["config"]["block_n"] for step in steps] == [128, 256]


def test_the_users_folder_comes_first(cli: Any, vllm: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    write(own / f"E=8,N=512,device_name={SERVER},dtype=fp8_w8a8.json", {"7": GOOD})
    layer = ("--gpu", "rtx-pro-6000-server", "--e", "8", "--n", "512", "--dtype", "fp8_w8a8", "--folder", str(own))
    assert answer(cli, "vllm", "--root", str(vllm), *layer)["lookup"]["file"].startswith(str(own))


def test_built_in_defaults_are_the_sources_own(cli: Any, vllm: Path) -> None:
    document = answer(cli, "vllm", "--root", str(vllm), "--gpu", "gb10")
    defaults = {item["name"]: item["verdict"]["status"] for item in document["tactics"] if item["device"] is None}
    assert defaults["default:dtype=fp8_w8a8#1"] == "fits"
    assert defaults["default:dtype=fp8_w8a8#256"] == "overflow"
    source = vllm / "vllm" / "model_executor" / "layers" / "fused_moe" / "fused_moe.py"
    source.write_text(source.read_text().replace("else 4}", "else 3}"))
    document = answer(cli, "vllm", "--root", str(vllm), "--gpu", "gb10")
    assert {item["verdict"]["status"] for item in document["tactics"] if item["device"] is None} == {"fits"}


def test_sglang_falls_back_to_the_newest_folder_and_gives_down_its_own_tile(cli: Any, sglang: Path) -> None:
    layer = ("--gpu", "rtx-pro-6000-server", "--e", "8", "--n", "512", "--dtype", "fp8_w8a8", "--block-shape",
             "128,128", "--triton", "3.5.1", "--tokens", "64")  # fmt: skip
    lookup = answer(cli, "sglang", "--root", str(sglang), *layer)["lookup"]
    assert "triton_3_4_0" in lookup["file"]
    assert lookup["wanted"].endswith("block_shape=[128, 128].json")
    step = lookup["steps"][0]
    assert step["config"]["num_stages"] == 4
    assert step["down_config"]["block_m"] == 64


def test_a_decision_by_shared_memory_is_made_for_the_gpu_asked_about(cli: Any, sglang: Path) -> None:
    for gpu, extent in (("gb10", 64), ("h200-sxm", 128)):
        layer = ("--gpu", gpu, "--e", "3", "--n", "512", "--tokens", "8")
        lookup = answer(cli, "sglang", "--root", str(sglang), *layer)["lookup"]
        assert lookup["steps"][0]["config"]["block_k"] == extent


def test_what_depends_on_the_machine_is_said_and_not_guessed(cli: Any, vllm: Path) -> None:
    source = vllm / "vllm" / "model_executor" / "layers" / "fused_moe" / "fused_moe.py"
    source.write_text(source.read_text().replace("if M > E", "if torch.rand(1) > M"))
    source.write_text(source.read_text().replace("    if dtype ==", "    if torch.rand(1) > 0.5 and dtype =="))
    lookup = answer(cli, "vllm", "--root", str(vllm), "--gpu", "gb10", "--e", "3", "--n", "5")["lookup"]
    assert "torch.rand" in lookup["problem"]
    assert lookup["steps"][0]["verdict"]["status"] == "unsupported"


def test_check_and_baseline(cli: Any, vllm: Path, tmp_path: Path) -> None:
    first = cli("tactics", "vllm", "--root", str(vllm), "--json", "--check")
    assert first.code == 1
    baseline = tmp_path / "baseline.json"
    baseline.write_text(first.out)
    assert cli("tactics", "vllm", "--root", str(vllm), "--baseline", str(baseline), "--check").code == 0
    folder = vllm / "vllm" / "model_executor" / "layers" / "fused_moe" / "configs"
    write(folder / "E=8,N=64,device_name=NVIDIA_GB10,dtype=fp8_w8a8.json", {"8": WIDE})
    again = cli("tactics", "vllm", "--root", str(vllm), "--baseline", str(baseline), "--check", "--json")
    assert again.code == 1
    assert json.loads(again.out)["new_failures"] == ["E=8,N=64,device_name=NVIDIA_GB10,dtype=fp8_w8a8.json#8"]


def test_sarif_has_a_result_a_tile_that_can_never_run(cli: Any, vllm: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.sarif"
    assert cli("tactics", "vllm", "--root", str(vllm), "--sarif", str(target)).code == 0
    log = json.loads(target.read_text())
    assert log["version"] == "2.1.0"
    run = log["runs"][0]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    (result,) = run["results"]
    assert rules[result["ruleIndex"]] == result["ruleId"] == "tactic-overflow"
    assert result["level"] == "error"
    assert "147,456" in result["message"]["text"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"].startswith("vllm/model_executor/")
    assert " " not in place["artifactLocation"]["uri"]
    assert place["region"]["startLine"] == 10


def test_text_stays_within_100_columns(cli: Any, vllm: Path) -> None:
    layer = ("--gpu", "rtx-pro-6000-server", "--e", "8", "--n", "512", "--dtype", "fp8_w8a8")
    result = cli("tactics", "vllm", "--root", str(vllm), *layer)
    assert result.code == 0
    assert max(map(len, result.out.splitlines())) <= 100
    assert "147,456" in result.out


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--dtype", "nvfp4", "--e", "8", "--n", "512", "--gpu", "gb10"), "read no tuned Triton file"),
        (("--e", "8", "--gpu", "gb10"), "--e and --n"),
        (("--e", "8", "--n", "512"), "add --gpu"),
        (("--e", "x", "--n", "512", "--gpu", "gb10"), "e: 'x'"),
        (("--tokens", "1,,2", "--gpu", "gb10"), "tokens"),
        (("--gpu", "voodoo"), "nearest"),
        (("--arch", "sm90"), "flashinfer"),
        (("--folder", "/nowhere/at/all"), "no folder"),
    ],
)
def test_a_wrong_flag_is_one_sentence_and_exit_2(cli: Any, vllm: Path, words: tuple[str, ...], part: str) -> None:
    result = cli("tactics", "vllm", "--root", str(vllm), *words)
    assert result.code == 2
    assert part in result.err
    assert "Traceback" not in result.err


def test_a_tree_without_the_engine_says_what_to_pass(cli: Any, vllm: Path) -> None:
    result = cli("tactics", "sglang", "--root", str(vllm))
    assert result.code == 2
    assert "SGLang" in result.err


@given(st.binary(max_size=200))
def test_any_bytes_are_a_table_or_say_why_not(data: bytes) -> None:
    try:
        parse_table(data)
    except UnreadableFile as error:
        assert str(error)


@given(st.text(max_size=60))
def test_any_text_is_a_name_or_none(text: str) -> None:
    parse_name(text)


def test_a_deeply_nested_file_is_refused_in_bounded_time() -> None:
    with pytest.raises(UnreadableFile):
        parse_table(b"[" * 200_000)


def test_a_release_before_block_scales_names_its_files_from_three_parts(cli: Any, vllm: Path) -> None:
    """vLLM to 0.7.1: get_config_file_name(E, N, dtype)."""
    source = vllm / "vllm" / "model_executor" / "layers" / "fused_moe" / "fused_moe.py"
    text = source.read_text().replace(
        "get_config_file_name(E, N, dtype, block_shape=None)", "get_config_file_name(E, N, dtype)"
    )
    text = text.replace("get_config_file_name(E, N, dtype, block_shape)", "get_config_file_name(E, N, dtype)")
    source.write_text(text.replace('    block = (""', '    block_shape = None\n    block = (""'))
    asked = ("tactics", "vllm", "--root", str(vllm), "--gpu", "rtx-pro-6000-server", "--e", "8", "--n", "512")
    found = cli(*asked, "--dtype", "fp8_w8a8", "--json").json
    assert found["lookup"]["wanted"] == f"E=8,N=512,device_name={SERVER},dtype=fp8_w8a8.json"
    assert found["lookup"]["file"].endswith(found["lookup"]["wanted"])
