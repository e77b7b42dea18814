"""Which flags the SGLang or vLLM in a tree has."""

from __future__ import annotations

import re
from typing import Final

from tilewright.collectives.tree import SourceTree
from tilewright.errors import TreeError, shown
from tilewright.libraries.engine_flags.fold import Sources
from tilewright.libraries.engine_flags.model import FlagSet

ENGINES: Final = ("sglang", "vllm")
_KEY_FILES: Final = {"sglang": "srt/server_args.py", "vllm": "engine/arg_utils.py"}
_ENVIRONMENT: Final = {
    "sglang": ("srt/environ.py", re.compile(rb"(?m)^    (SGLANG_[A-Z0-9_]{1,80})\s*=")),
    "vllm": ("envs.py", re.compile(rb"(?m)^    (VLLM_[A-Z0-9_]{1,80})\s*:")),
}
"""File that declares an engine's environment variables, and how it does."""
_PLACES: Final = ("", "python/")
"""Where the package's folder may stand: in site-packages, a wheel or vLLM's sources; in SGLang's sources."""
_HEAD: Final = 4096
"""Bytes of a PKG-INFO in which its name and version stand."""
_VERSION: Final = re.compile(
    rb"(?m)^(?:__version__|version)\s*(?::\s*str\s*)?=\s*(?:version\s*=\s*)?['\"]([^'\"\s]{1,60})['\"]"
)


def engine_flags(tree: SourceTree, engine: str) -> FlagSet:
    """The flags of `engine` (`sglang` or `vllm`) in `tree`: site-packages, an unpacked source, or a wheel.

    Raises:
        TreeError: the engine is not there, or none of its flags could be read.
    """
    key = _KEY_FILES[engine]
    for place in _PLACES:
        if tree.exists(f"{place}{engine}/{key}"):
            prefix, package = place, f"{place}{engine}"
            break
    else:
        msg = (
            f"{shown(str(tree.path))} holds no {engine}/{key}; pass --root the folder that contains {engine}/ "
            f"(site-packages, or unpacked sources) or {engine}'s wheel."
        )
        raise TreeError("root", msg)
    sources = Sources(lambda path: tree.read(path) if tree.exists(path) else None, prefix)
    if engine == "sglang":
        from tilewright.libraries.sglang.flags import sglang_flags

        folder = f"{package}/srt/arg_groups/fields"
        fields = sorted(path for path in tree.files((".py",), folder)) if tree.exists(folder + "/__init__.py") else []
        flags = sglang_flags(sources, package, fields)
    else:
        from tilewright.libraries.vllm.flags import vllm_flags

        entry = f"{package}/entrypoints"
        fronts = [path for path in tree.files((".py",), entry) if path.endswith("/cli_args.py")]
        flags = vllm_flags(sources, package, sorted(fronts))
    if not flags:
        why = f" ({sources.problems[0]})" if sources.problems else ""
        msg = f"No flag of {engine} could be read from {shown(str(tree.path))}{why}; pass an unmodified {engine}."
        raise TreeError("root", msg)
    version, environment = _version(tree, engine, package), _environment(tree, engine, package)
    return FlagSet(engine, version, str(tree.path), tuple(flags), tuple(sources.problems), environment)


def _environment(tree: SourceTree, engine: str, package: str) -> tuple[str, ...]:
    file, pattern = _ENVIRONMENT[engine]
    path = f"{package}/{file}"
    found = pattern.findall(tree.read(path)) if tree.exists(path) else []
    return tuple(sorted({name.decode("ascii") for name in found}))


def _version(tree: SourceTree, engine: str, package: str) -> str | None:
    for path in (f"{package}/_version.py", f"{package}/version.py"):
        if tree.exists(path) and (hit := _VERSION.search(tree.read(path))):
            return hit.group(1).decode("ascii", "replace")
    named = re.match(rf"{engine}(?:_cpu)?-(\d[\w.+]*?)(?:-|\.tar|$)", tree.path.name)
    if named:
        return named.group(1)
    place = package.rsplit("/", 1)[0] if "/" in package else ""
    if tree.exists("PKG-INFO"):  # unpacked sources
        head = tree.read("PKG-INFO")[:_HEAD]
        hit = re.search(rb"(?m)^Version: ([^\s]{1,60})\s*$", head)
        if hit and re.search(rb"(?mi)^Name: " + engine.encode() + rb"\s*$", head):
            return hit.group(1).decode("ascii", "replace")
    for name in tree.list_dir(place):
        if (hit := re.fullmatch(rf"{engine}(?:_cpu)?-(\d[\w.+]*)\.dist-info", name)) is not None:
            return hit.group(1)
    return None
