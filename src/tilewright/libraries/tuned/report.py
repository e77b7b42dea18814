"""The report on an engine's tuned tiles: every file and entry judged, defaults, and one layer's lookup."""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from tilewright.collectives.tree import SourceTree
from tilewright.errors import ConfigError, InputError, TreeError, shown
from tilewright.libraries.flashinfer.model import Place
from tilewright.libraries.python_source.limits import CannotFollow
from tilewright.libraries.python_source.modules import parse_source
from tilewright.libraries.python_source.values import Function, Raised
from tilewright.libraries.tuned.devices import device_of_file
from tilewright.libraries.tuned.engine import Answer, Engine, Question, Spec
from tilewright.libraries.tuned.files import UnreadableFile, parse_table
from tilewright.libraries.tuned.model import (
    Lookup,
    LookupStep,
    Op,
    TunedReport,
    TunedTactic,
    UnreadFile,
    summarize_tuned,
)
from tilewright.libraries.tuned.names import FileName, parse_name
from tilewright.libraries.tuned.world import OUTSIDE, Device, World, shown_path
from tilewright.triton_.config import parse_triton
from tilewright.triton_.fit import fit_on
from tilewright.triton_.functions import find_kernel, read_features
from tilewright.triton_.kernels import KERNELS, Features
from tilewright.triton_.model import TritonConfig, TritonVerdict, as_dict

DEFAULT_TOKENS: Final = (1, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
"""Numbers of tokens at which built-in defaults are asked for: both sides of every boundary that engines use."""
_TYPICAL: Final = Question(experts=128, inter=1024, hidden=4096, topk=8, dtype=None, block_shape=None)
"""Layer for which built-in defaults are asked where none is given."""
_DEFAULTS: Final[tuple[tuple[str | None, tuple[int, int] | None], ...]] = (
    (None, None), ("fp8_w8a8", None), ("fp8_w8a8", (128, 128)), ("int8_w8a8", None), ("int8_w8a16", None),
    ("int4_w4a16", (0, 128)),
)  # fmt: skip
_GROUPS: Final = (0, 128)
"""Groups along K of weight-only files: no name says them, and the bytes do not depend on them."""
MAX_FILES: Final = 20_000


@dataclass(frozen=True)
class Request:
    """What is asked beside the files themselves."""

    device: Device | None = None
    question: Question | None = None
    tokens: tuple[int, ...] = DEFAULT_TOKENS
    triton: str | None = None
    folder: str | None = None
    """The user's own folder, as the engine's environment variable names it."""
    notes: tuple[str, ...] = ()


@dataclass
class _Judge:
    """Verdicts on tiles of one engine."""

    spec: Spec
    version: str
    features: dict[str, tuple[Features, ...]] = field(default_factory=dict[str, tuple[Features, ...]])

    def judge(
        self, name: str, kernel: str, dtype: str | None, block: tuple[int, int] | None, tile: Mapping[str, Any],
        device: Device, per_channel: bool,
    ) -> tuple[dict[str, Any] | None, TritonVerdict]:  # fmt: skip
        """The tile as a config, and its verdict on `device`."""
        if dtype not in KERNELS[kernel].dtypes:
            return None, _unsupported(name, f"The kernels of {dtype} are not modelled.", device.smem_optin)
        if dtype is None and block is not None:
            return None, _unsupported(name, "Block scales without a dtype: another kernel's file.", device.smem_optin)
        if dtype == "int4_w4a16" and block is None:
            block = _GROUPS
        if "BLOCK_SIZE_N" not in tile or "BLOCK_SIZE_K" not in tile:
            why = "The tile gives BLOCK_SIZE_M only; the launcher chooses the rest (weight-only kernels)."
            return None, _unsupported(name, why, device.smem_optin)
        raw = {
            "id": name, "kernel": kernel, "version": self.version, "gpu": device.name, "dtype": dtype,
            "block_m": tile["BLOCK_SIZE_M"], "block_n": tile["BLOCK_SIZE_N"], "block_k": tile["BLOCK_SIZE_K"],
            "group_m": tile.get("GROUP_SIZE_M"), "num_warps": tile.get("num_warps"),
            "num_stages": tile.get("num_stages"), "block_shape": block, "per_channel": per_channel,
        }  # fmt: skip
        try:
            config = replace(parse_triton(raw), tma=tile.get("USE_TMA") is True)
        except ConfigError as error:
            return None, TritonVerdict(
                id=name, status="illegal", limit_bytes=device.smem_optin, cause=error.msg, rules=[error.msg]
            )
        sm = device.capability[0] * 10 + device.capability[1]
        verdict = fit_on(config, sm, device.smem_optin, self.features.get(kernel))
        if dtype == "int8_w8a16" and block is None:
            verdict = _either(verdict, fit_on(replace(config, block_shape=_GROUPS), sm, device.smem_optin))
        return as_dict(config), verdict


def _unsupported(name: str, cause: str, limit: int | None) -> TritonVerdict:
    return TritonVerdict(id=name, status="unsupported", limit_bytes=limit, cause=cause)


def _either(plain: TritonVerdict, grouped: TritonVerdict) -> TritonVerdict:
    """Files of int8_w8a16 are read for scales a channel and for groups alike: two kernels. What can run in one of them
    is not said to be impossible; the other one's bytes are in the rules."""
    first, second = (grouped, plain) if plain.status == "overflow" and grouped.status == "fits" else (plain, grouped)
    if second.smem_bytes is None or second.smem_bytes == first.smem_bytes:
        return first
    kind = "with groups along K" if second is grouped else "with a scale a channel"
    more = (
        f"The kernel of weights {kind}, which reads the same file, takes {second.smem_bytes:,} bytes: {second.status}."
    )
    return msgspec.structs.replace(first, rules=[*first.rules, more])


def read_tuned(tree: SourceTree, spec: Spec, request: Request) -> TunedReport:
    """Every tuned tile of the engine in `tree`, judged on its own device or on that of `request`.

    Raises:
        TreeError: there is no such engine.
        InputError: the folder of `request` cannot be read.
    """
    engine = Engine(tree, spec)
    triton = request.triton or next(iter(engine.triton_versions()), None)
    notes = list(request.notes)
    judge = _Judge(spec, engine.version, _read_features(engine, notes))
    folders = {spec.environment: request.folder} if request.folder else {}
    device = request.device or Device("NVIDIA H100 80GB HBM3", (9, 0), None)
    world = engine.world(device, triton or "0.0.0", folders)
    reader = _Files(engine, judge, world, request)
    for folder in engine.config_folders():
        reader.read_folder(folder)
    if request.folder:
        reader.read_outside(request.folder, nested=spec.name == "sglang")
    tactics = reader.tactics
    lookup = None
    if request.device is not None:
        world = engine.world(request.device, triton or "0.0.0", folders)
        if request.question is not None:
            lookup = _lookup(engine, judge, world, request.question, request.tokens)
        tactics = tactics + _defaults(engine, judge, world, request)
    notes.append("Bytes are those of Triton 3.6 to 3.9; a file tuned with an older Triton may have fitted there.")
    if spec.name == "vllm":
        notes.append("NVFP4 and MXFP4 MoE layers read no tuned file in vLLM: there is no selector for them.")
    if triton is not None and spec.name == "sglang":
        given = "" if request.triton else ", the newest that has a folder; --triton names the installed one"
        notes.append(f"Lookups take Triton {triton}{given}.")
    return TunedReport(
        library=spec.name,
        library_version=engine.version,
        gpu=request.device.name if request.device else None,
        triton=triton,
        root=tree.name,
        files=reader.count,
        tactics=tactics,
        summary=summarize_tuned(tactics),
        unread=reader.unread,
        lookup=lookup,
        notes=notes,
    )


def _read_features(engine: Engine, notes: list[str]) -> dict[str, tuple[Features, ...]]:
    """What the kernels of this tree can do, as their own text says; a kernel not found keeps its version's."""
    out: dict[str, tuple[Features, ...]] = {}
    for kernel in (engine.spec.moe_kernel, engine.spec.linear_kernel):
        probe = TritonConfig(None, kernel, None, "", None, 16, 16, 32, 1, 4, 3)
        try:
            out[kernel] = (read_features(find_kernel(engine.tree, engine.package, probe)),)
        except TreeError as error:
            notes.append(f"{KERNELS[kernel].label}: {error.msg}")
    return out


class _Files:
    """Reads the files of one engine."""

    def __init__(self, engine: Engine, judge: _Judge, world: World, request: Request) -> None:
        self.engine, self.judge, self.world, self.request = engine, judge, world, request
        self.tactics: list[TunedTactic] = []
        self.unread: list[UnreadFile] = []
        self.count = 0
        self.selectors = _selectors(engine)
        self.linear_dtypes = engine.linear_dtypes()

    def read_folder(self, folder: str) -> None:
        for path in self.engine.tree.files((".json",), folder):
            if self.count >= MAX_FILES:
                self.unread.append(UnreadFile(path, f"more than {MAX_FILES:,} files; the rest was not read"))
                return
            try:
                data = self.engine.tree.read(path)
            except TreeError as error:
                self.unread.append(UnreadFile(path, error.msg))
                continue
            self._file(path, posixpath.relpath(path, folder), data)

    def read_outside(self, folder: str, nested: bool) -> None:
        """Files of the user's own folder."""
        base = Path(folder) / "configs" if nested else Path(folder)
        try:
            paths = sorted(base.rglob("*.json") if nested else base.glob("*.json"))[:MAX_FILES]
            if not base.is_dir():
                raise InputError("folder", f"--folder: there is no folder {shown(str(base))}; give an existing one.")
        except OSError as error:
            raise InputError("folder", f"--folder: {shown(folder)} cannot be read ({error.strerror}).") from None
        for path in paths:
            try:
                data = self.world.read(OUTSIDE + str(path))
            except CannotFollow as stop:
                self.unread.append(UnreadFile(str(path), stop.why))
                continue
            self._file(str(path), path.name, data)

    def _file(self, path: str, name: str, data: bytes) -> None:
        base = posixpath.basename(name)
        parsed = parse_name(base)
        if parsed is None:
            self.unread.append(UnreadFile(path, "its name is none that a lookup builds"))
            return
        try:
            table = parse_table(data)
        except UnreadableFile as error:
            self.unread.append(UnreadFile(path, f"{error}"))
            return
        self.unread.extend(UnreadFile(path, problem) for problem in table.problems)
        dead = self._dead(parsed, base)
        if dead:
            self.unread.append(UnreadFile(path, dead))
            return
        self.count += 1
        op: Op = "linear" if parsed.experts is None else "moe_down" if parsed.down else "moe"
        device = self.request.device
        read = self._expected(parsed, device) == base if device is not None else None
        target = device or device_of_file(parsed.device)
        spec = self.engine.spec
        kernel = spec.linear_kernel if op == "linear" else spec.moe_kernel
        for entry in table.entries:
            ident = f"{name}#{entry.m}"
            config: dict[str, Any] | None = None
            if entry.problem:
                self.unread.append(UnreadFile(path, f"line {entry.line}, key {entry.m}: {entry.problem}"))
                continue
            if target is None:
                verdict = _unsupported(
                    ident, f"{parsed.device or 'A nameless device'} is no NVIDIA GPU known here.", None
                )
            else:
                config, verdict = self.judge.judge(
                    ident, kernel, parsed.dtype, parsed.block_shape, entry.tile, target, parsed.per_channel
                )
            self.tactics.append(
                TunedTactic(
                    name=ident,
                    source=Place(path, entry.line),
                    config=config,
                    verdict=verdict,
                    op=op,
                    tokens=entry.m,
                    device=parsed.device,
                    read=read,
                )
            )

    def _dead(self, parsed: FileName, base: str) -> str:
        """Why no lookup builds this name; "" where one does (or where the engine's code does not say)."""
        if parsed.experts is None:
            if self.linear_dtypes and parsed.dtype not in self.linear_dtypes:
                known = ", ".join(sorted(self.linear_dtypes))
                return f"no lookup: this version's linear kernels look for dtype={known} only"
            return ""
        if parsed.dtype and self.selectors and parsed.dtype not in self.selectors:
            return (
                f"no lookup: dtype={parsed.dtype} is no selector of this version ({', '.join(sorted(self.selectors))})"
            )
        built = self._expected(parsed, Device(parsed.device.replace("_", " "), (9, 0), None))
        if built is not None and built != base:
            return f"no lookup: for these values the engine looks for {built}"
        return ""

    def _expected(self, parsed: FileName, device: Device | None) -> str | None:
        """The name that the engine looks for, given what a file's name says but for the device."""
        if device is None:
            return None
        if parsed.experts is None:
            # Both engines build the linear kernel's name in one line, with the MoE rules for blanks and devices.
            return self._linear_name(parsed, device)
        return self._call_name(parsed, device)

    def _call_name(self, parsed: FileName, device: Device) -> str | None:
        block = list(parsed.block_shape) if parsed.block_shape else None
        kwargs = {"per_channel_quant": parsed.per_channel, "down_moe": parsed.down}
        name = build_name(
            self.engine, self.world, device, parsed.experts or 0, parsed.inter, parsed.dtype, block, kwargs
        )
        if name is not None and parsed.down and not name.endswith("_down.json"):
            name = name.removesuffix(".json") + "_down.json"  # vLLM appends it in get_moe_configs
        return name

    def _linear_name(self, parsed: FileName, device: Device) -> str | None:
        gap = "" if self.engine.spec.name == "vllm" else " "
        label = "_".join(
            device.name.replace("/", " ").split() if self.engine.spec.name == "vllm" else device.name.split(" ")
        )
        block = f",block_shape=[{parsed.block_shape[0]},{gap}{parsed.block_shape[1]}]" if parsed.block_shape else ""
        return f"N={parsed.inter},K={parsed.columns},device_name={label},dtype={parsed.dtype}{block}.json"


def build_name(
    engine: Engine, world: World, device: Device, experts: int, inter: int, dtype: str | None,
    block: list[int] | None, kwargs: dict[str, Any],
) -> str | None:  # fmt: skip
    """The file name that the engine's own `get_config_file_name` builds; None where it cannot be followed."""
    before, world.device = world.device, device
    try:
        function = world.function(engine.moe_file, "get_config_file_name")
        if not isinstance(function, Function):
            return None
        args = [experts, inter, dtype, block]
        spec = function.node.args
        takes = [arg.arg for arg in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)]
        # Releases before block scales (vLLM to 0.7.1, SGLang to 0.4.2) take fewer: what is asked for must be sayable.
        args, left_out = (args[:3], [block]) if len(takes) < len(args) else (args, [])
        left_out += [value for key, value in kwargs.items() if key not in takes]
        if any(left_out):
            return None
        name = world.call(function, args, {key: value for key, value in kwargs.items() if key in takes})
    except (CannotFollow, Raised):
        return None
    finally:
        world.device = before
    return name if isinstance(name, str) else None


def _selectors(engine: Engine) -> frozenset[str]:
    """Every dtype selector that the engine's lookup can be given, from its `get_config_dtype_str`."""
    places = [engine.moe_file, posixpath.join(posixpath.dirname(engine.moe_file), "config.py")]
    for path in places:
        if not engine.tree.exists(path):
            continue
        try:
            tree = parse_source(engine.tree.read(path), path)
        except (CannotFollow, TreeError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name.strip("_") == "get_config_dtype_str":
                return frozenset(
                    part.value.value
                    for part in ast.walk(node)
                    if isinstance(part, ast.Return)
                    and isinstance(part.value, ast.Constant)
                    and isinstance(part.value.value, str)
                )
    return frozenset()


def _step(engine: Engine, judge: _Judge, question: Question, device: Device, tokens: int, answer: Answer) -> LookupStep:
    name = f"M={tokens}"
    if answer.tile is None:
        return LookupStep(
            tokens=tokens, config=None, verdict=_unsupported(name, answer.problem + ".", device.smem_optin),
            from_file=False,
        )  # fmt: skip
    kernel = engine.spec.moe_kernel
    parts = (kernel, question.dtype, question.block_shape)
    config, verdict = judge.judge(name, *parts, answer.tile, device, question.per_channel)
    down_config = down_verdict = None
    if answer.down is not None:
        down_config, down_verdict = judge.judge(name, *parts, answer.down, device, question.per_channel)
    return LookupStep(
        tokens=tokens, config=config, verdict=verdict, from_file=bool(answer.trace.opened), down_config=down_config,
        down_verdict=down_verdict,
    )  # fmt: skip


def _lookup(engine: Engine, judge: _Judge, world: World, question: Question, tokens: Iterable[int]) -> Lookup:
    device = world.device
    steps: list[LookupStep] = []
    tried: list[str] = []
    file: str | None = None
    problem: str | None = None
    for count in tokens:
        answer = engine.moe(world, question, count)
        problem = problem or answer.problem or None
        tried.extend(shown_path(path) for path in answer.trace.tried)
        if answer.trace.opened:
            file = shown_path(answer.trace.opened[0])
        steps.append(_step(engine, judge, question, device, count, answer))
    block = list(question.block_shape) if question.block_shape else None
    wanted = build_name(
        engine, world, device, question.experts, question.inter, question.dtype, block,
        {"per_channel_quant": question.per_channel},
    )  # fmt: skip
    return Lookup(
        experts=question.experts, inter=question.inter, dtype=question.dtype or "bf16", block_shape=block,
        device=device.name, wanted=wanted, file=file, tried=list(dict.fromkeys(tried)),
        default_at=Place(*engine.default_line()), steps=steps, problem=problem,
    )  # fmt: skip


def _defaults(engine: Engine, judge: _Judge, world: World, request: Request) -> list[TunedTactic]:
    """The engine's built-in tiles on this GPU, each once, with the numbers of tokens it is taken for."""
    base = request.question or _TYPICAL
    place = Place(*engine.default_line())
    bare = engine.world(replace(world.device, name="no such device"), "0.0.0", {})
    out: list[TunedTactic] = []
    for dtype, block in _DEFAULTS:
        seen: set[str] = set()
        question = replace(base, dtype=dtype, block_shape=block, per_channel=dtype == "int8_w8a8")
        for tokens in sorted({*DEFAULT_TOKENS, *request.tokens}):
            answer = engine.moe(bare, question, tokens)
            label = dtype or "bf16"
            blocks = f",block_shape=[{block[0]},{block[1]}]" if block else ""
            name = f"default:dtype={label}{blocks}#{tokens}"
            if answer.tile is None:
                if answer.problem not in seen:
                    seen.add(answer.problem)
                    cause = answer.problem[:1].upper() + answer.problem[1:] + "."
                    out.append(_default(name, place, None, _unsupported(name, cause, None), tokens))
                continue
            key = str(sorted(answer.tile.items()))
            if key in seen:
                continue
            seen.add(key)
            config, verdict = judge.judge(
                name, engine.spec.moe_kernel, dtype, block, answer.tile, world.device, question.per_channel
            )
            out.append(_default(name, place, config, verdict, tokens))
    return out + _linear_default(engine, judge, world, bare)


def _linear_default(engine: Engine, judge: _Judge, world: World, bare: World) -> list[TunedTactic]:
    if engine.linear_file is None:
        return []
    name = "default:linear,dtype=fp8_w8a8,block_shape=[128,128]#64"
    place = Place(engine.linear_file, 1)
    answer = engine.linear_default(bare, 4096, 4096, (128, 128), 64)
    if answer.tile is None:
        return [_default(name, place, None, _unsupported(name, answer.problem + ".", None), 64, "linear")]
    config, verdict = judge.judge(
        name, engine.spec.linear_kernel, "fp8_w8a8", (128, 128), answer.tile, world.device, False
    )
    return [_default(name, place, config, verdict, 64, "linear")]


def _default(
    name: str, place: Place, config: dict[str, Any] | None, verdict: TritonVerdict, tokens: int, op: Op = "moe"
) -> TunedTactic:
    return TunedTactic(
        name=name, source=place, config=config, verdict=verdict, op=op, tokens=tokens, device=None, read=True
    )
