"""Flags of small engines as their sources declare them, and launch commands against them."""

from __future__ import annotations

import argparse
import json
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.cli.flags import command
from tilewright.collectives.tree import open_tree
from tilewright.errors import InputError, TreeError
from tilewright.libraries.engine_flags import FlagSet, engine_flags
from tilewright.libraries.engine_flags.command_line import split_command
from tilewright.libraries.engine_flags.launch import check_launch

_SGLANG_NEW = {
    "sglang/version.py": '__version__ = "9.9.1"\n',
    "sglang/srt/arg_groups/choices.py": 'BASE = ["auto", "triton"]\nBACKENDS = BASE + ["cutlass"]\n',
    "sglang/srt/arg_groups/fields/__init__.py": "",
    "sglang/srt/arg_groups/fields/exec_.py": """
from sglang.srt.arg_groups.arg_utils import A, Arg
from sglang.srt.arg_groups.choices import BACKENDS
class Exec:
    _NS_PATH = "exec"
    tp_size: A[int, Arg(help="Ranks.", aliases=["--tensor-parallel-size"])] = 1
    moe_runner_backend: A[str, Arg(help="Which.", choices=BACKENDS)] = "auto"
    fast: A[bool, "Go fast."] = False
    sizes: A[Optional[List[int]], Arg(help="Sizes.")] = None
    hidden: A[int, Arg(help="No flag.", no_cli=True)] = 3
    seed: A[int, "Drawn."] = draw_seed()
    level: A[Literal["low", "high"], "Level."] = "low"
    window: A[int, "Bytes."] = 4 * 1024
    plain: int = 4
""",
    "sglang/srt/server_args.py": """
class ServerArgs:
    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--old-fast", action=DeprecatedStoreTrueAction, new_flag="--fast", help="Deprecated.")
""",
    "sglang/srt/use.py": "def f(args):\n    return args.tp_size\n",
}
_SGLANG_OLD = {
    "sglang/version.py": '__version__ = "1.0"\n',
    "sglang/srt/server_args.py": """
class ServerArgs:
    model_path: str
    tp_size: int = 1
    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--model-path", "--model", type=str, required=True)
        parser.add_argument("--tp-size", "--tensor-parallel-size", type=int, default=ServerArgs.tp_size)
        parser.add_argument("--cuda-graph-max-bs", type=int, default=None)
""",
}
_VLLM = {
    "vllm/__init__.py": "",
    "vllm/entrypoints/launchers/cli_args.py": """
class BaseFrontendArgs:
    api_key: list[str] | None = None
    @classmethod
    def add_cli_args(cls, parser):
        kwargs = get_kwargs(cls)
        for key, value in kwargs.items():
            parser.add_argument(f"--{key.replace('_', '-')}", **value)
class FrontendArgs(BaseFrontendArgs):
    host: str | None = None
    port: int = 8000
""",
    "vllm/config/__init__.py": "from vllm.config.kernel import KernelConfig\n",
    "vllm/config/kernel.py": '''
MoEBackend = Literal["auto", "flashinfer_cutlass", "marlin"]
class KernelConfig:
    moe_backend: MoEBackend = "auto"
    """Which kernels
    run experts."""
    autotune: bool = None
    max_num_seqs: int = Field(default=128, ge=1)
    dtype: Literal["auto"] | str = "auto"
''',
    "vllm/engine/arg_utils.py": """
from vllm.config import KernelConfig
class EngineArgs:
    @staticmethod
    def add_cli_args(parser):
        kernel_kwargs = get_kwargs(KernelConfig)
        group = parser.add_argument_group(title="x")
        moe = kernel_kwargs["moe_backend"]
        moe["type"] = lambda s: s.lower().replace("-", "_")
        group.add_argument("--moe-backend", "-mb", **moe)
        group.add_argument("--autotune", **kernel_kwargs["autotune"])
        group.add_argument("--max-num-seqs", **{**kernel_kwargs["max_num_seqs"], "default": None})
        group.add_argument("--dtype", **kernel_kwargs["dtype"])
        return parser
""",
}


def _tree(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def _read(folder: Path, files: dict[str, str], engine: str) -> FlagSet:
    return engine_flags(open_tree(_tree(folder, files)), engine)


def test_fields_of_a_struct_are_flags(tmp_path: Path) -> None:
    flags = _read(tmp_path, _SGLANG_NEW, "sglang")
    assert flags.version == "9.9.1"
    assert not flags.has("--hidden")
    assert not flags.has("--plain")
    tp, moe = flags.get("--tensor-parallel-size"), flags.get("--moe-runner-backend")
    assert tp is not None
    assert moe is not None
    assert (tp.dest, tp.default, tp.kind) == ("tp_size", 1, "value")
    assert moe.choices == ("auto", "triton", "cutlass")
    kinds = {name: flag.kind for name in ("--fast", "--sizes", "--level") if (flag := flags.get(name))}
    assert kinds == {"--fast": "switch", "--sizes": "values", "--level": "value"}
    seed, window, old = flags.get("--seed"), flags.get("--window"), flags.get("--old-fast")
    assert seed is not None
    assert (seed.default, seed.default_text) == (None, "draw_seed()")
    assert window is not None
    assert window.default == 4096
    assert old is not None
    assert (old.deprecated, old.successor, old.kind) == (True, "--fast", "switch")


def test_choices_that_a_class_names_are_choices(tmp_path: Path) -> None:
    """`choices=Backend.ALL`, as SGLang's graph backends have it: any word was accepted. An Enum's are none of these."""
    files = _SGLANG_NEW | {
        "sglang/srt/graphs.py": """
class Backend:
    OFF: str = "off"
    FULL = "full"
    ALL = (FULL, OFF)
class Level(Enum):
    ALL = ("one", "two")
""",
        "sglang/srt/arg_groups/fields/graphs_.py": """
from sglang.srt.arg_groups.arg_utils import A, Arg
from sglang.srt.graphs import Backend, Level
class Graphs:
    graph_backend: A[Optional[str], Arg(help="Which.", choices=Backend.ALL)] = Backend.FULL
    level: A[Optional[str], Arg(help="Which.", choices=Level.ALL)] = None
    unknown: A[Optional[str], Arg(help="Which.", choices=Backend.NONE)] = None
""",
    }
    found = _read(tmp_path, files, "sglang")
    flags = {flag.dest: flag for flag in found.flags}
    assert (flags["graph_backend"].choices, flags["graph_backend"].default) == (("full", "off"), "full")
    assert (flags["level"].choices, flags["level"].choices_text) == (None, "Level.ALL")
    assert (flags["unknown"].choices, flags["unknown"].choices_text) == (None, "Backend.NONE")
    line = "python -m sglang.launch_server --graph-backend"
    assert [check_launch(found, f"{line} {word}").parses for word in ("off", "foo")] == [True, False]


def test_calls_of_an_older_parser_are_flags(tmp_path: Path) -> None:
    flags = _read(tmp_path, _SGLANG_OLD, "sglang")
    assert [flag.names[0] for flag in flags.flags] == ["--model-path", "--tp-size", "--cuda-graph-max-bs"]
    assert [flag.default for flag in flags.flags] == [None, 1, None]


def test_config_classes_of_vllm(tmp_path: Path) -> None:
    flags = _read(tmp_path, _VLLM, "vllm")
    moe, seqs, dtype = flags.get("--moe-backend"), flags.get("--max_num_seqs"), flags.get("--dtype")
    assert moe is not None
    assert moe.choices == ("auto", "flashinfer_cutlass", "marlin")
    assert moe.help == "Which kernels run experts."
    assert seqs is not None
    assert seqs.default is None
    assert flags.has("--no-autotune")
    assert all(flags.has(name) for name in ("--host", "--port", "--api-key"))
    assert dtype is not None
    assert dtype.choices is None  # a Literal beside `str` is a hint, and the parser takes any text


@pytest.mark.parametrize(
    ("words", "parses"),
    [
        ("--tp-size 8 --fast", True),
        ("--tp-size=8", True),
        ("--tensor 8", True),  # an unambiguous beginning, as argparse takes it
        ("--moe-runner-backend cutlas", False),
        ("--tp-size eight", False),
        ("--tp-size", False),
        ("--fast yes", False),
        ("--sizes 1 2 3 --fast", True),
        ("--window -5", True),
        ("--cuda-graph-max-bs 8", False),
        ("stray", False),
        ("--old-fast", True),
    ],
)
def test_verdict_is_argparse_s(tmp_path: Path, words: str, parses: bool) -> None:
    flags = _read(tmp_path, _SGLANG_NEW, "sglang")
    real = argparse.ArgumentParser(exit_on_error=False)
    real.add_argument("--tp-size", "--tensor-parallel-size", type=int)
    real.add_argument("--moe-runner-backend", choices=["auto", "triton", "cutlass"])
    real.add_argument("--fast", action="store_true")
    real.add_argument("--sizes", type=int, nargs="+")
    real.add_argument("--window", type=int)
    real.add_argument("--old-fast", action="store_true")
    try:
        real.parse_args(words.split())
        accepted = True
    except (SystemExit, argparse.ArgumentError):
        accepted = False
    assert accepted is parses
    assert check_launch(flags, f"python -m sglang.launch_server {words}").parses is parses


def test_command_line_of_vllm(tmp_path: Path) -> None:
    flags = _read(tmp_path, _VLLM, "vllm")
    made = check_launch(flags, "A=1 vllm serve some/model -mb flashinfer-CUTLASS --no-autotune --max_num_seqs 4")
    assert made.parses
    assert made.given["--model"] == "some/model"


def test_split_keeps_what_follows_the_program() -> None:
    assert split_command("X=1 python -m sglang.launch_server \\\n --tp 8 # why") == ["--tp", "8"]
    with pytest.raises(InputError):
        split_command("vllm serve 'x")


def test_command_shows_changes_uses_and_verdict(tmp_path: Path) -> None:
    new, old = _tree(tmp_path / "n", _SGLANG_NEW), _tree(tmp_path / "o", _SGLANG_OLD)
    run = CliRunner().invoke
    done = run(command, ["sglang", "--root", str(new), "--diff", str(old), "--json"])
    document = json.loads(done.stdout)
    assert document["schema"] == "tilewright/flags/1"
    assert {"name": "--cuda-graph-max-bs", "what": "removed"} in document["changes"]
    shown = run(command, ["sglang", "window", "tp-size", "--root", str(new), "--uses"])
    assert "--window: no other line of the package names it" in shown.stdout
    assert "sglang/srt/use.py:2" in shown.stdout
    launch = ["sglang", "--root", str(new), "--check", "--check-launch"]
    assert run(command, [*launch, "python -m sglang.launch_server --fst"]).exit_code == 1
    assert run(command, [*launch, "python -m sglang.launch_server --fast"]).exit_code == 0


@pytest.mark.parametrize("version", ["dev", "1.x", "0.0.0.dev"])
def test_a_checkout_that_names_no_release_is_advised_on(tmp_path: Path, version: str) -> None:
    sources = {**_SGLANG_NEW, "sglang/version.py": f'__version__ = "{version}"\n'}
    asked = ["--advise", "--model", "GLM-5-NVFP4", "--gpu", "rtx-pro-6000-server", "--gpus", "8"]
    line = ["--launch", "sglang serve --model x --tp-size 8 --cuda-graph-max-bs 9"]
    done = CliRunner().invoke(command, ["sglang", "--root", str(_tree(tmp_path, sources)), *asked, *line])
    assert done.exit_code == 0, done.exception
    assert f"SGLang {version}" in done.stdout


@pytest.mark.parametrize(
    "source",
    ["x = (" * 5000, "\0", "class ServerArgs:\n    a: A[int, B] = C\nB = D\nD = B\n", "(" * 200 + ")" * 200, ""],
)
def test_hostile_sources_are_one_error_or_read(tmp_path: Path, source: str) -> None:
    tree = _tree(tmp_path, {"sglang/srt/server_args.py": source})
    try:
        engine_flags(open_tree(tree), "sglang")
    except TreeError as error:
        assert "sglang" in error.msg


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=80))
def test_any_command_has_a_verdict(words: str) -> None:
    flags = FlagSet("vllm", None, "x", ())
    with suppress(InputError):
        assert check_launch(flags, words).parses in (True, False)
