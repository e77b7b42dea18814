"""One engine in a tree, asked the questions its own code answers: which file, which tile, which default.

The engine's functions are followed (`world.py`), so the answer is that of the version in the tree: its file names, its
search order, its fallbacks, its defaults. What cannot be followed is said, never guessed.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from tilewright.collectives.tree import SourceTree
from tilewright.errors import TreeError, shown
from tilewright.libraries.python_source.limits import CannotFollow
from tilewright.libraries.python_source.modules import parse_source
from tilewright.libraries.python_source.values import Function, Raised, Scope, Value, is_dict, is_tuple
from tilewright.libraries.tuned.world import Device, Trace, World

TOP_LEVEL_LOOKUP: Final = "try_get_optimal_moe_config"
LINEAR_LOOKUP: Final = "get_w8a8_block_fp8_configs"
LINEAR_LAUNCH: Final = re.compile(r"(?:_)?w8a8_(?:triton_)?block_(?:scaled_mm|fp8_matmul)(?:_triton)?")
_LINEAR_DTYPE: Final = re.compile(r"device_name=\{[^{}]{1,60}\},dtype=([a-z0-9_]{1,40})(?:,block_shape|\.json)")
_TRITON_PIN: Final = re.compile(r"triton_(\d+(?:_\d+)+)")


@dataclass(frozen=True)
class Spec:
    """Where an engine keeps its kernels and files, relative to its package."""

    name: str
    label: str
    moe_folders: tuple[str, ...]
    """Folders that may hold the lookup of the fused-MoE kernel."""
    linear_folders: tuple[str, ...]
    environment: str
    """The variable that names a folder of the user's own files."""
    moe_kernel: str
    linear_kernel: str


VLLM: Final = Spec(
    name="vllm",
    label="vLLM",
    moe_folders=("model_executor/layers/fused_moe",),
    linear_folders=("model_executor/layers/quantization/utils",),
    environment="VLLM_TUNED_CONFIG_FOLDER",
    moe_kernel="vllm-fused-moe",
    linear_kernel="vllm-fp8-linear",
)
SGLANG: Final = Spec(
    name="sglang",
    label="SGLang",
    moe_folders=("srt/layers/moe",),
    linear_folders=("kernels/ops/gemm", "srt/layers/quantization"),
    environment="SGLANG_MOE_CONFIG_DIR",
    moe_kernel="sglang-fused-moe",
    linear_kernel="sglang-fp8-linear",
)
SPECS: Final = {spec.name: spec for spec in (VLLM, SGLANG)}


@dataclass(frozen=True)
class Answer:
    """What the engine does for one layer and number of tokens."""

    tile: dict[str, Any] | None
    """Tile of the (first) GEMM as the engine's keys say it; None where its code cannot be followed."""
    down: dict[str, Any] | None
    """Tile of the second GEMM where a file of its own gives it."""
    trace: Trace
    problem: str = ""


@dataclass(frozen=True)
class Question:
    """One MoE layer on one GPU: what the engine's lookup is called with."""

    experts: int
    inter: int
    """Width of a routed expert on one GPU, after its gate."""
    hidden: int
    topk: int
    dtype: str | None
    """The engine's own selector; None for BF16 and FP16."""
    block_shape: tuple[int, int] | None
    per_channel: bool = False


class Engine:
    """One engine of a tree; `package` is its folder in the tree."""

    def __init__(self, tree: SourceTree, spec: Spec) -> None:
        self.tree, self.spec = tree, spec
        library = next((item for item in tree.libraries() if item.name == spec.name), None)
        prefix = package_folder(tree, spec)
        if library is None and prefix is None:
            msg = (
                f"There is no {spec.label} in {shown(tree.name)}: pass its wheel or source archive, the folder that "
                f"holds {spec.name}/, or a site-packages."
            )
            raise TreeError("root", msg)
        self.package = prefix if prefix is not None else library.package if library is not None else spec.name
        self.version = library.version if library is not None else "unknown"
        self._moe_file = self._find(spec.moe_folders, f"def {TOP_LEVEL_LOOKUP}(")
        self._linear_file = self._find(spec.linear_folders, f"def {LINEAR_LOOKUP}(")

    @property
    def moe_file(self) -> str:
        """The file with the lookup of the fused-MoE kernel.

        Raises:
            TreeError: there is none.
        """
        if self._moe_file is None:
            msg = (
                f"The {self.spec.label} {self.version} in {shown(self.tree.name)} has no function {TOP_LEVEL_LOOKUP}: "
                "it is not whole, or of a version that reads no tuned files; pass another."
            )
            raise TreeError("root", msg)
        return self._moe_file

    @property
    def linear_file(self) -> str | None:
        """The file with the lookup of the FP8 block-scaled linear kernel, where there is one."""
        return self._linear_file

    def linear_dtypes(self) -> frozenset[str]:
        """Selectors in the names that the engine's linear kernels build, from their source text."""
        found: set[str] = set()
        for folder in self.spec.linear_folders:
            base = posixpath.join(self.package, folder) if self.package else folder
            for path in self.tree.files((".py",), base):
                found.update(_LINEAR_DTYPE.findall(self.tree.read_text(path)))
        return frozenset(found)

    def config_folders(self) -> list[str]:
        """Folders of the tree that hold tuned files of the MoE and linear kernels, as paths of the tree."""
        out: list[str] = []
        for file in (self._moe_file, self._linear_file):
            if file is not None:
                folder = posixpath.join(posixpath.dirname(file), "configs")
                if folder not in out and self.tree.exists(folder):
                    out.append(folder)
        return out

    def triton_versions(self) -> list[str]:
        """Versions of Triton for which the tree has folders, newest first (SGLang keeps one folder a version)."""
        folder = posixpath.join(posixpath.dirname(self.moe_file), "configs")
        found = [
            hit[1].replace("_", ".") for name in self.tree.list_dir(folder) if (hit := _TRITON_PIN.fullmatch(name))
        ]
        return sorted(found, key=lambda text: tuple(map(int, text.split("."))), reverse=True)

    def world(self, device: Device, triton: str, folders: Mapping[str, str]) -> World:
        """The engine's code with this GPU and these folders to look at."""
        return World(self.tree, self.spec.name, self.package, device, triton, folders)

    def moe(self, world: World, question: Question, tokens: int) -> Answer:
        """What the engine uses for `tokens` tokens of a layer."""
        packed = question.inter // 2 if question.dtype == "int4_w4a16" and self.spec.name == "vllm" else question.inter
        w1 = (question.experts, 2 * question.inter, question.hidden)
        w2 = (question.experts, question.hidden, packed)
        block = list(question.block_shape) if question.block_shape else None
        found = self._answer(world, self.moe_file, TOP_LEVEL_LOOKUP, [w1, w2, question.topk, question.dtype, tokens], {
            "is_marlin": False, "block_shape": block, "per_channel_quant": question.per_channel,
            "return_down_config": True,
        })  # fmt: skip
        if found.tile is None or "BLOCK_SIZE_N" in found.tile:
            return found
        return self._completed(world, question, tokens, found)

    def _completed(self, world: World, question: Question, tokens: int, found: Answer) -> Answer:
        """A weight-only tile of rows alone, with the extents that vLLM's launcher adds to it."""
        assert found.tile is not None
        groups = question.block_shape[1] if question.block_shape else 0
        rows = tokens * question.topk
        bits = 4 if question.dtype == "int4_w4a16" else 8
        try:
            decide = _function(world, self.moe_file, "should_moe_wna16_use_cuda")
            complete = _function(world, self.moe_file, "get_moe_wna16_block_config")
            if world.call(decide, [rows, groups, question.experts, bits], {}):
                return replace(
                    found, tile=None, problem="these tokens run a CUDA kernel (moe_wna16_gemm), no Triton tile"
                )
            more = world.call(complete, [], {
                "config": dict(found.tile), "use_moe_wna16_cuda": False, "num_valid_tokens": rows,
                "size_k": question.hidden, "size_n": 2 * question.inter, "num_experts": question.experts,
                "group_size": groups, "real_top_k": question.topk, "block_size_m": found.tile["BLOCK_SIZE_M"],
            })  # fmt: skip
        except CannotFollow as stop:
            return replace(found, tile=None, problem=f"{stop.where or self.moe_file}: {stop.why}")
        except Raised as raised:
            return replace(found, tile=None, problem=f"{self.moe_file}: it raises {raised.value.kind.name}")
        return replace(found, tile={**found.tile, **more}) if is_dict(more) else found

    def _answer(self, world: World, file: str, name: str, args: list[Value], kwargs: dict[str, Value]) -> Answer:
        trace = world.fresh()
        try:
            value = world.call(_function(world, file, name), args, kwargs)
        except CannotFollow as stop:
            return Answer(None, None, trace, f"{stop.where or file}: {stop.why}")
        except Raised as raised:
            return Answer(None, None, trace, f"{file}: {name} raises {raised.value.kind.name} {raised.value.args}")
        down: Value = None
        if is_tuple(value) and len(value) == 2:
            value, second = value
            down = second[0] if is_tuple(second) and second else None
        if not is_dict(value):
            return Answer(None, None, trace, f"{file}: {name} answers no tile")
        return Answer(dict(value), dict(down) if is_dict(down) else None, trace)

    def linear_default(self, world: World, rows: int, columns: int, block: tuple[int, int], tokens: int) -> Answer:
        """The tile that the FP8 block-scaled linear kernel gets where no file has one."""
        file = self._linear_file
        trace = world.fresh()
        if file is None:
            return Answer(None, None, trace, "it has no such kernel")
        try:
            body = _default_branch(self.tree.read(file), file)
            module = world.module(file)
            scope = Scope(
                {"block_size": list(block), "N": rows, "K": columns, "M": tokens, "configs": None},
                module, globals_=module, file=file,
            )  # fmt: skip
            world.interp.exec(body, scope)
            tile = scope.names.get("config")
        except CannotFollow as stop:
            return Answer(None, None, trace, f"{stop.where or file}: {stop.why}")
        except Raised as raised:
            return Answer(None, None, trace, f"{file}: the default raises {raised.value.kind.name}")
        if not is_dict(tile):
            return Answer(None, None, trace, f"{file}: its default is no dict")
        return Answer(dict(tile), None, trace)

    def default_line(self) -> tuple[str, int]:
        """Where the engine's default tiles are written."""
        return self.moe_file, self._line(self.moe_file, "def get_default_config(")

    def _line(self, file: str, text: str) -> int:
        lines = self.tree.read_text(file).splitlines()
        return next((i for i, line in enumerate(lines, 1) if line.startswith(text)), 1)

    def _find(self, folders: tuple[str, ...], text: str) -> str | None:
        wanted = text.encode()
        for folder in folders:
            base = posixpath.join(self.package, folder) if self.package else folder
            for path in self.tree.files((".py",), base):
                try:
                    if wanted in self.tree.read(path):
                        return path
                except TreeError:
                    continue
        return None


def package_folder(tree: SourceTree, spec: Spec) -> str | None:
    """The engine's folder in the tree: `vllm`, "" (the tree is the package), `vllm-0.34.0/vllm`, `python/sglang`."""
    marks = tuple(posixpath.join(folder) for folder in (*spec.moe_folders,))
    tops = ["", *tree.list_dir("")]
    places = [spec.name, "", f"python/{spec.name}"]
    for top in tops[:2000]:
        for place in places:
            base = posixpath.join(top, place) if top and place else top or place
            if any(tree.exists(posixpath.join(base, mark) if base else mark) for mark in marks):
                return base
    return None


def _function(world: World, file: str, name: str) -> Function:
    """The plain function `name` of a file.

    Raises:
        CannotFollow: there is none.
    """
    found = world.function(file, name)
    if not isinstance(found, Function):
        raise CannotFollow(f"{name} is no plain function", file, 1)
    return found


def _default_branch(source: bytes, file: str) -> list[ast.stmt]:
    """What the launcher does where `if configs:` is false.

    Raises:
        CannotFollow: no launcher decides that way.
    """
    for node in ast.walk(parse_source(source, file)):
        if not isinstance(node, ast.FunctionDef) or not LINEAR_LAUNCH.fullmatch(node.name):
            continue
        for part in ast.walk(node):
            if (
                isinstance(part, ast.If)
                and isinstance(part.test, ast.Name)
                and part.test.id == "configs"
                and part.orelse
            ):
                return part.orelse
    raise CannotFollow("no branch without a tuned file was found", file, 1)
