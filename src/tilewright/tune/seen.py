"""Whether the engine reads what was written for it: its own lookup, followed in its source for all tokens."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import msgspec

from tilewright.collectives.tree import open_tree
from tilewright.errors import TilewrightError
from tilewright.libraries.tuned.engine import SPECS, Answer, Engine, Question
from tilewright.libraries.tuned.files import parse_table
from tilewright.libraries.tuned.world import Device
from tilewright.triton_.compile import installed_root
from tilewright.tune.export import KEYS, VARIABLE, Exported
from tilewright.tune.export import Engine as EngineName
from tilewright.tune.layer import Layer
from tilewright.tune.space import Config


def _tables(files: Sequence[Exported]) -> tuple[dict[int, Config], dict[int, Config] | None]:
    """(tokens -> tile of the first GEMM, and of the second where it has a file of its own), as the files hold them."""
    tables = {
        file.gemm: {entry.m: {key: entry.tile[key] for key in KEYS} for entry in parse_table(data).entries}
        for file in files
        if (data := Path(file.path).read_bytes())
    }
    return tables.get("both") or tables["up"], tables.get("down")


def _same(found: Answer, up: Config, down: Config | None) -> bool:
    def equal(tile: dict[str, object] | None, wanted: Config) -> bool:
        return tile is not None and all(tile.get(key) == value for key, value in wanted.items())

    return equal(found.tile, up) and (down is None or equal(found.down, down))


def root_of(name: EngineName, kernel: str, root: str | None) -> str | None:
    """Where the engine's source is: the tree that was given for its kernel, or what is installed beside this Python."""
    if root is not None and kernel.startswith(name):
        return root
    return installed_root(name) if find_spec(name) is not None else None


def seen(
    name: EngineName, root: str, layer: Layer, device: Device, triton: str, out: str, files: Sequence[Exported]
) -> tuple[list[Exported], str]:
    """(`files` of one engine with `seen_by` where its lookup answers each entry, why it does not or "")."""
    spec = SPECS[name]
    try:
        up, down = _tables(files)
        with open_tree(root) as tree:
            engine = Engine(tree, spec)
            label = spec.label if engine.version == "unknown" else f"{spec.label} {engine.version}"
            world = engine.world(device, triton, {VARIABLE[name]: out})
            question = Question(layer.experts, layer.inter, layer.hidden, layer.topk, layer.selector, layer.block_shape)
            for tokens, tile in up.items():
                found = engine.moe(world, question, tokens)
                if not _same(found, tile, down[tokens] if down is not None else None):
                    why = f"{label} does not read the files: it takes {found.tile} at {tokens} tokens."
                    if found.problem:
                        why = f"Whether {label} reads the files could not be followed: {found.problem}."
                    return list(files), why
    except TilewrightError as error:
        return list(files), f"Whether {spec.label} reads the files could not be followed: {error.msg}"
    return [msgspec.structs.replace(file, seen_by=label) for file in files], ""
