"""Keys of JSON flags: read from config classes that refuse others, and checked in launch lines."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from tilewright.collectives.tree import open_tree
from tilewright.libraries.engine_flags import FlagSet, check_launch, snapshot
from tilewright.libraries.engine_flags.read import engine_flags

FORBIDS = """def config(cls=None, **kwargs):
    return dataclass(cls, config=ConfigDict(extra="forbid"))
"""
TAKES_ALL = "def config(cls):\n    return cls\n"
CLASSES = """from vllm.config.utils import config

@config
class InnerConfig:
    deep: bool = False

@config
class OuterConfig:
    size: int = 1
    inner: InnerConfig = Field(default_factory=InnerConfig)
    by_name: dict[str, InnerConfig] = Field(default_factory=dict)
    several: list[InnerConfig] | None = None

@config(config=ConfigDict(extra="allow"))
class OpenConfig:
    size: int = 1

@config
class DerivedConfig(Elsewhere):
    size: int = 1

@config
class ChangedConfig:
    size: int = 1

    @model_validator(mode="before")
    @classmethod
    def rename(cls, data):
        return data

@config
class DraftConfig:
    method: str | None = None
    inner: InnerConfig | None = None
"""
ENGINE = """from vllm.config.x import OuterConfig, OpenConfig, DerivedConfig, ChangedConfig, DraftConfig

class EngineArgs:
    outer: OuterConfig = None
    open: OpenConfig = None
    derived: DerivedConfig | None = None
    changed: ChangedConfig = None
    draft: dict[str, Any] | None = None

    def add_cli_args(parser):
        x = get_kwargs(EngineArgs)
        parser.add_argument("--outer", **x["outer"])
        parser.add_argument("--open", **x["open"])
        parser.add_argument("--derived", **x["derived"])
        parser.add_argument("--changed", **x["changed"])
        parser.add_argument("--draft", type=optional_type(json.loads))

    def create(self):
        return DraftConfig(**self.draft)
"""
KEYS = {"size": None, "inner": {"deep": None}, "by_name": None, "several": {"deep": None}}


def read(folder: Path, utils: str) -> FlagSet:
    files = {"config/utils.py": utils, "config/x.py": CLASSES, "engine/arg_utils.py": ENGINE}
    for name, text in files.items():
        path = folder / "vllm" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    with open_tree(folder) as tree:
        return engine_flags(tree, "vllm")


def test_keys_are_those_of_a_class_that_refuses_others(tmp_path: Path) -> None:
    flags = {flag.names[0]: flag.keys for flag in read(tmp_path, FORBIDS).flags}
    assert flags == {
        "--outer": KEYS,
        "--open": None,
        "--derived": None,
        "--changed": None,
        "--draft": {"method": None, "inner": None},
    }


def test_of_classes_that_take_any_key_none_are_stated(tmp_path: Path) -> None:
    assert all(flag.keys is None for flag in read(tmp_path, TAKES_ALL).flags)


def keys_told(words: str, version: str = "0.34.0") -> list[tuple[str, str]]:
    made = check_launch(snapshot("vllm", version), f"vllm serve m {words}")
    return [(item.level, item.word) for item in made.remarks if "has no key" in item.message]


@pytest.mark.parametrize(
    ("flag", "value", "told"),
    [
        ("--compilation-config", {"cudagraph_mode": "FULL", "pass_config": {"fuse_norm_quant": True}}, []),
        ("-cc", {"cudagraph_mod": "FULL"}, ["cudagraph_mod"]),
        ("-cc", {"pass_config": {"fuse_norm": True}, "no": 1}, ["pass_config.fuse_norm", "no"]),
        ("-cc", {"inductor_compile_config": {"any": 1}}, []),
        ("--kv-transfer-config", {"kv_connector": "X", "kv_connector_extra_config": {"any": 1}}, []),
        ("--kv-transfer-config", {"connector": "X"}, ["connector"]),
    ],
)
def test_the_parser_stops_at_a_key_that_is_not_there(flag: str, value: dict[str, Any], told: list[str]) -> None:
    words = f"{flag} {shlex.quote(json.dumps(value))}"
    assert keys_told(words) == [("error", key) for key in told]
    assert check_launch(snapshot("vllm", "0.34.0"), f"vllm serve m {words}").parses is not bool(told)


def test_the_engine_stops_at_a_key_of_what_the_parser_takes_as_any_json() -> None:
    words = """--speculative-config '{"method": "mtp", "num_speculative_token": 3}'"""
    made = check_launch(snapshot("vllm", "0.34.0"), f"vllm serve m {words}")
    assert (made.parses, made.accepted) == (True, False)
    assert made.remarks[0].nearest[0] == "num_speculative_tokens"
    assert not keys_told("""-sc '{"method": "mtp", "num-speculative-tokens": 3}'""")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--compilation-config.cudagraph_mode FULL", []),
        ("-cc.pass_config.fuse_norm_quant true", []),
        ("-cc.custom_ops+ all", []),
        ("-cc.pass_config.fuse true", [("error", "pass_config.fuse")]),
        ("--speculative-config.tokens=3", [("refused", "tokens")]),
        ("-cc '{\"max_cudagraph_capture_size\": 1k}'", []),
    ],
)
def test_keys_in_a_flag_s_name(words: str, told: list[tuple[str, str]]) -> None:
    assert keys_told(words) == told


def test_a_release_whose_classes_take_any_key_says_nothing() -> None:
    assert not keys_told("--compilation-config '{\"no\": 1}'", "0.11.2")


def test_every_later_release_has_keys() -> None:
    for version in ("0.17.0", "0.27.1", "0.33.0", "0.34.0"):
        for name in ("--compilation-config", "--speculative-config", "--kv-transfer-config", "--attention-config"):
            flag = snapshot("vllm", version).get(name)
            assert flag is not None
            assert len(flag.keys or ()) >= 9
