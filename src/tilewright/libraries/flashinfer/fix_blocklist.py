"""FlashInfer's tactics blocklist: whether a version reads one, in which format, and what belongs in it.

A version that reads one (pull request 2997, July 2026) names its file in FLASHINFER_TACTICS_BLOCKLIST. The format is
read from the library's own parser (`flashinfer/tactics_blocklist.py`), the metadata that it compares from
`_collect_metadata` of the autotuner, operation and runner names from the calls of `choose_one` in
`fused_moe/core.py`. All by parsing; nothing is imported or run. A parser that reads otherwise is refused.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from tilewright.errors import InputError, TreeError, shown
from tilewright.libraries.flashinfer.decisions import AUTOTUNER
from tilewright.libraries.flashinfer.layout import Layout
from tilewright.libraries.flashinfer.model import Report, RuntimeMode
from tilewright.libraries.python_source.limits import CannotFollow
from tilewright.libraries.python_source.modules import parse_source

VARIABLE: Final = "FLASHINFER_TACTICS_BLOCKLIST"
PARSER: Final = "tactics_blocklist.py"
OPERATIONS: Final = "fused_moe/core.py"
ANY: Final = "*"
"""In a metadata field: whatever the running environment has."""
_GEMM_NUMBERS: Final = {1: "gemm1", 2: "gemm2"}


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """How one version reads its blocklist."""

    metadata_key: str
    tactics_key: str
    metadata: list[str]
    """Fields that must be there and equal (or "*"), or the whole file is skipped."""
    keys: dict[str, str]
    """"gemm1" and "gemm2" -> the key under which the ids of that GEMM stand: operation::runner class."""
    source: str


class Blocklist(msgspec.Struct, frozen=True, kw_only=True):
    """The content of one blocklist and what it means. `text` is what the file holds."""

    text: str
    ids: dict[str, list[int]]
    """Key of the file -> ids."""
    operands: tuple[str, str]
    format: Format
    warnings: list[str]


def reads_blocklist(layout: Layout) -> bool:
    """Whether this version's autotuner reads the variable."""
    return _autotuner(layout) is not None and layout.tree.exists(layout.inside(PARSER))


def _autotuner(layout: Layout) -> str | None:
    for file in AUTOTUNER:
        path = layout.inside(file)
        data = layout.read(path)
        if data is not None and VARIABLE.encode() in data:
            return path
    return None


def read_format(layout: Layout) -> Format:
    """How this version reads a blocklist.

    Raises:
        InputError: it reads none (field `write`).
        TreeError: it reads one in a form that is not known.
    """
    autotuner = _autotuner(layout)
    parser = layout.inside(PARSER)
    if autotuner is None or not layout.tree.exists(parser):
        msg = (
            f"FlashInfer {layout.version} reads no tactics blocklist: 0.7.2.post1 has it and 0.6.14 does not (pull "
            "request 2997). Nothing is lost: its autotuner skips what fails; or let the tactics run, with --write "
            "patch."
        )
        raise InputError("write", msg)
    load = _method(layout, parser, "TacticsBlocklist", "load")
    names = _constants(layout, autotuner)
    metadata_key = next((names[key] for key in _got(load) if key in names), None)
    tactics_key = next((key for key in _got(load) if key not in names), None)
    if metadata_key is None or tactics_key is None:
        raise _unknown(layout, parser, "`load` does not take metadata and tactics from the file")
    if not any(isinstance(node, ast.Constant) and node.value == ANY for node in ast.walk(load)):
        raise _unknown(layout, parser, f'`load` knows no wildcard "{ANY}"')
    separator = _separator(_method(layout, parser, "TacticsBlocklist", "filter"))
    if separator is None:
        raise _unknown(layout, parser, "`filter` does not look up operation and runner class")
    return Format(
        metadata_key=metadata_key,
        tactics_key=tactics_key,
        metadata=_metadata(layout, autotuner),
        keys={gemm: f"{op}{separator}{runner}" for gemm, (op, runner) in _operations(layout).items()},
        source=f"{parser}:{load.lineno}",
    )


def _unknown(layout: Layout, path: str, why: str) -> TreeError:
    msg = (
        f"The blocklist of FlashInfer {layout.version} is read in a form that is not known ({path}): {why}. Nothing "
        "was written; `python3 -m flashinfer generate-tactics-blocklist` on the GPU itself makes one."
    )
    return TreeError("root", msg)


def _parsed(layout: Layout, path: str) -> ast.Module:
    data = layout.read(path)
    if data is None:
        raise _unknown(layout, path, "there is no such file")
    try:
        return parse_source(data, path)
    except CannotFollow as stop:
        raise _unknown(layout, path, stop.why) from None


def _method(layout: Layout, path: str, owner: str, name: str) -> ast.FunctionDef:
    for node in _parsed(layout, path).body:
        if isinstance(node, ast.ClassDef) and node.name == owner:
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and item.name == name:
                    return item
    raise _unknown(layout, path, f"it defines no {owner}.{name}")


def _constants(layout: Layout, path: str) -> dict[str, str]:
    """Module-level names of strings."""
    out: dict[str, str] = {}
    for node in _parsed(layout, path).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    out[target.id] = node.value.value
    return out


def _got(function: ast.FunctionDef) -> Iterator[str]:
    """First arguments of `data.get(...)`: a string, or the name of one, in order."""
    for node in ast.walk(function):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "get"
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "data"
            and node.args
        ):
            first = node.args[0]
            if isinstance(first, ast.Name):
                yield first.id
            elif isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield first.value


def _separator(function: ast.FunctionDef) -> str | None:
    """What stands between operation and class name in the key that `filter` makes."""
    for node in ast.walk(function):
        if isinstance(node, ast.JoinedStr) and len(node.values) == 3:
            left, middle, right = node.values
            if (
                isinstance(left, ast.FormattedValue)
                and isinstance(left.value, ast.Name)
                and left.value.id == "custom_op"
                and isinstance(middle, ast.Constant)
                and isinstance(middle.value, str)
                and isinstance(right, ast.FormattedValue)
                and ast.unparse(right.value) == "runner.__class__.__name__"
            ):
                return middle.value
    return None


def _metadata(layout: Layout, autotuner: str) -> list[str]:
    """Fields that `_collect_metadata` fills."""
    for node in _parsed(layout, autotuner).body:
        if isinstance(node, ast.FunctionDef) and node.name == "_collect_metadata":
            found = [
                target.slice.value
                for item in ast.walk(node)
                if isinstance(item, ast.Assign)
                for target in item.targets
                if isinstance(target, ast.Subscript)
                and isinstance(target.slice, ast.Constant)
                and isinstance(target.slice.value, str)
            ]
            if found:
                return list(dict.fromkeys(found))
    raise _unknown(layout, autotuner, "`_collect_metadata` fills no field that can be read")


def _operations(layout: Layout) -> dict[str, tuple[str, str]]:
    """ "gemm1" and "gemm2" -> (operation, runner class): `choose_one(op, [runner], ..., gemm_idx=n)`."""
    path = layout.inside(OPERATIONS)
    out: dict[str, tuple[str, str]] = {}
    for function in ast.walk(_parsed(layout, path)):
        if not isinstance(function, ast.FunctionDef):
            continue
        made = {
            target.id: item.value.func.id
            for item in ast.walk(function)
            if isinstance(item, ast.Assign) and isinstance(item.value, ast.Call)
            if isinstance(item.value.func, ast.Name)
            for target in item.targets
            if isinstance(target, ast.Name)
        }
        for call in ast.walk(function):
            found = _chosen(call, made)
            if found is not None:
                out.setdefault(found[0], found[1:])
    if set(out) != set(_GEMM_NUMBERS.values()):
        raise _unknown(layout, path, "it does not tune both GEMMs of the CUTLASS MoE")
    return out


def _chosen(call: ast.AST, made: dict[str, str]) -> tuple[str, str, str] | None:
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "choose_one"):
        return None
    number = next((word.value for word in call.keywords if word.arg == "gemm_idx"), None)
    if not isinstance(number, ast.Constant) or len(call.args) < 2:
        return None
    gemm = _GEMM_NUMBERS.get(number.value) if isinstance(number.value, int) else None
    operation, runners = call.args[:2]
    if not (isinstance(operation, ast.Constant) and isinstance(operation.value, str)):
        return None
    if not (isinstance(runners, ast.List) and len(runners.elts) == 1 and isinstance(runners.elts[0], ast.Name)):
        return None
    runner = made.get(runners.elts[0].id)
    return None if gemm is None or runner is None else (gemm, operation.value, runner)


def choose_mode(report: Report, operands: str | None) -> RuntimeMode | None:
    """The autotuner's list to take ids from; None where no list has an id that can never run.

    Raises:
        InputError: `operands` names no list, or several lists need different files and none is named.
    """
    names = {f"{mode.a}x{mode.b}": mode for mode in report.runtime}
    if operands is not None:
        if operands not in names:
            msg = f"--operands {shown(operands)}: legal here are {', '.join(names) or '(none could be read)'}."
            raise InputError("operands", msg)
        mode = names[operands]
        return mode if mode.never else None
    failing = {name: mode for name, mode in names.items() if mode.never}
    if len(failing) > 1:
        msg = (
            f"The ids of {' and '.join(failing)} mean different tiles, and a blocklist does not tell them apart: "
            "say which one your model uses with --operands."
        )
        raise InputError("operands", msg)
    return next(iter(failing.values()), None)


def make_blocklist(layout: Layout, report: Report, operands: str | None = None, gpu: str = ANY) -> Blocklist | None:
    """The blocklist of the tactics that can never run; None where there is none.

    `gpu` is the name that torch reports for the device; "*" loads on any.

    Raises:
        InputError: this version reads no blocklist, or `operands` does not name one list.
        TreeError: the blocklist, or the autotuner's ids, cannot be read from the tree.
    """
    form = read_format(layout)
    if not report.runtime:
        why = " ".join(report.notes) or "the autotuner's lists could not be read"
        raise TreeError("root", f"No blocklist can be made for FlashInfer {layout.version}: {why}")
    mode = choose_mode(report, operands)
    if mode is None:
        return None
    ids: dict[str, list[int]] = {}
    for gemm, key in form.keys.items():
        numbers = sorted({tactic.id for tactic in mode.never if tactic.gemm == gemm})
        if numbers:
            ids[key] = numbers
    metadata: dict[str, Any] = dict.fromkeys(form.metadata, ANY)
    if "flashinfer_version" in metadata:
        metadata["flashinfer_version"] = layout.version
    if "gpu" in metadata:
        metadata["gpu"] = gpu
    metadata["generated_by"] = "tilewright fix"
    metadata["operands"] = f"{mode.a} x {mode.b}"
    document = {form.metadata_key: metadata, form.tactics_key: ids}
    return Blocklist(
        text=msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n",
        ids=ids,
        operands=(mode.a, mode.b),
        format=form,
        warnings=_warnings(report, mode, gpu),
    )


def _warnings(report: Report, mode: RuntimeMode, gpu: str) -> list[str]:
    others = [f"{other.a} x {other.b}" for other in report.runtime if other is not mode]
    out = [
        f"The ids hold for {mode.a} x {mode.b} experts with fused finalize. The file does not tell operands apart: in "
        f"a process that also tunes another MoE ({', '.join([*others, 'bf16 or FP8 layers'])}), the same numbers are "
        "skipped there too, and they mean other tiles.",
        "Without fused finalize (torch.use_deterministic_algorithms, use_fused_finalize=False) the list is shorter and "
        "the numbers mean other tiles: do not set the variable then.",
    ]
    if gpu == ANY:
        out.append(
            "It loads on any GPU: set the variable for processes on SM120/SM121 only, or name the device with "
            "--gpu-name as torch.cuda.get_device_name() spells it."
        )
    return out
