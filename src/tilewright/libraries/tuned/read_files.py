"""The tuned files of an engine, its own and the user's: every entry judged, dead names told from live ones."""

from __future__ import annotations

import ast
import posixpath
from pathlib import Path
from typing import Any, Final

from tilewright.errors import InputError, TreeError, shown
from tilewright.libraries.flashinfer.model import Place
from tilewright.libraries.python_source.limits import CannotFollow
from tilewright.libraries.python_source.modules import parse_source
from tilewright.libraries.tuned.devices import device_of_file
from tilewright.libraries.tuned.engine import Engine
from tilewright.libraries.tuned.files import UnreadableFile, parse_table
from tilewright.libraries.tuned.judge import Judge, unsupported
from tilewright.libraries.tuned.lookup import build_name
from tilewright.libraries.tuned.model import Op, TunedTactic, UnreadFile
from tilewright.libraries.tuned.names import FileName, parse_name
from tilewright.libraries.tuned.request import Request
from tilewright.libraries.tuned.world import OUTSIDE, Device, World

MAX_FILES: Final = 20_000


class Files:
    """Reads the files of one engine."""

    def __init__(self, engine: Engine, judge: Judge, world: World, request: Request) -> None:
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
                verdict = unsupported(
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
