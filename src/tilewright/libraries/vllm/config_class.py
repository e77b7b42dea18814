"""vLLM's config classes (`vllm/config/*.py`): their fields, and the keys that JSON for one may have.

The decorator `config` (`vllm/config/utils.py`, 0.17.0 and later) makes pydantic dataclasses that forbid other keys; of
an earlier release, whose classes take any key, no keys are stated.
"""

from __future__ import annotations

import ast
import re
from typing import Any, Final, NamedTuple

from tilewright.libraries.engine_flags.fold import MAX_DEPTH, Module, Sources
from tilewright.libraries.vllm.flag_types import text_of

__all__ = ["NESTED", "ConfigField", "config_fields", "config_keys", "config_name", "made_from"]

NESTED: Final = 3
"""Levels of classes in classes that are followed; `pass_config` of `--compilation-config` is the second."""
_MAPS: Final = re.compile(r"\b(?:[Dd]ict|Mapping)\[")
"""What has a class for its values has keys of any name."""
_CONFIG: Final = re.compile(r"\b[A-Z]\w*(?:Config|ConfigArgs|Args)\b")


class ConfigField(NamedTuple):
    """A field of a config class as it is declared."""

    config: str
    name: str
    annotation: ast.expr
    value: ast.expr | None
    help: str | None
    module: Module
    line: int


def config_fields(config: str, module: Module, sources: Sources, depth: int = 0) -> dict[str, ConfigField]:
    """Fields of a config class, those of its bases in the tree first."""
    found = sources.find(config, module)
    if found is None or found[0] not in found[1].classes or depth > MAX_DEPTH:
        return {}
    cls, home = found[1].classes[found[0]], found[1]
    out: dict[str, ConfigField] = {}
    for base in reversed(cls.bases):
        if isinstance(base, ast.Name) and base.id != config:
            out.update(config_fields(base.id, home, sources, depth + 1))
    for index, node in enumerate(cls.body):
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=value):
                after = cls.body[index + 1] if index + 1 < len(cls.body) else None
                doc = None
                match after:
                    case ast.Expr(value=ast.Constant(value=str(written))):
                        doc = " ".join(written.split())
                    case _:
                        pass
                out[name] = ConfigField(cls.name, name, annotation, value, doc, home, node.lineno)
            case _:
                pass
    return out


def config_name(annotation: str) -> str | None:
    """The one config class that an annotation names: `CompilationConfig | None`."""
    names = set(_CONFIG.findall(annotation))
    return names.pop() if len(names) == 1 else None


def made_from(engine: Module) -> dict[str, str]:
    """Field of the engine's arguments -> class that is made of it: `SpeculativeConfig(**self.speculative_config)`."""
    out: dict[str, str] = {}
    for cls in engine.classes.values():
        for node in ast.walk(cls):
            match node:
                case ast.Call(
                    func=ast.Name(id=name),
                    args=[],
                    keywords=[ast.keyword(arg=None, value=ast.Attribute(value=ast.Name(id="self"), attr=field))],
                ):
                    out[field] = name
                case _:
                    pass
    return out


def config_keys(config: str, module: Module, sources: Sources, levels: int = NESTED) -> dict[str, Any] | None:
    """Key -> keys of its own value (None: any value) of a class that refuses other keys; None where it takes more.
    Classes inside of it are followed down to `levels`."""
    found = sources.find(config, module)
    if found is None or found[0] not in found[1].classes or levels < 1:
        return None
    cls, home = found[1].classes[found[0]], found[1]
    if not _forbids(cls, home, sources):
        return None
    out: dict[str, Any] = {}
    for name, field in config_fields(config, module, sources).items():
        annotation = text_of(field.annotation)
        inner = None if _MAPS.search(annotation) else config_name(annotation)
        out[name] = config_keys(inner, field.module, sources, levels - 1) if inner else None
    return out or None


def _forbids(cls: ast.ClassDef, home: Module, sources: Sources) -> bool:
    """Whether a class has the decorator that forbids other keys, and nothing that changes that: its own settings, a
    base class, other names of fields, a function that is handed the keys first."""
    marks = [text_of(item) for item in cls.decorator_list]
    mark = next((item for item in marks if item.split("(")[0] == "config"), None)
    if mark is None or "extra" in mark or cls.bases or "alias=" in text_of(cls):
        return False
    if any("model_validator(mode='before')" in text_of(item) for node in cls.body for item in _decorators(node)):
        return False
    imported = home.imported.get("config")
    utils = sources.module(sources.prefix + imported[0].replace(".", "/") + ".py") if imported else None
    function = utils.functions.get("config") if utils is not None else None
    return function is not None and "extra='forbid'" in text_of(function)


def _decorators(node: ast.stmt) -> list[ast.expr]:
    return node.decorator_list if isinstance(node, ast.FunctionDef) else []
