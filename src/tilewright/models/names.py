"""From a name or a path to a model: catalogue keys, checkpoints, Hugging Face ids, a config.json, a folder."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from tilewright.errors import AmbiguousNameError, InputError, UnknownNameError, nearest, shown
from tilewright.models.catalogue import build_model, entries
from tilewright.models.config import parse_model_config
from tilewright.models.hf_cache import cached_snapshot
from tilewright.models.inventory import parameters
from tilewright.models.quantisation import parse_quantisation
from tilewright.models.reading import read_object
from tilewright.models.records import Model
from tilewright.models.stored import StoredWeights, read_stored

__all__ = ["load_model", "resolve_model"]

MAX_NAME = 4096
_CONFIG = "config.json"
_QUANT_CONFIG = "hf_quant_config.json"
_OWNER = "nvidia-"
_SEPARATORS = re.compile(r"[\s_]+")
# How far the bytes of the files may be from those of the config before it is said: towers and small tensors that the
# record does not count stay below this.
_TOLERANCE = 0.05


def _folded(name: str) -> str:
    return _SEPARATORS.sub("-", name.strip().lower())


def _tail(name: str) -> str:
    """The repository name without its owner, and without the owner's name that NVIDIA repeats in some of them."""
    tail = name.rpartition("/")[2]
    return tail[len(_OWNER) :] if tail.lower().startswith(_OWNER) else tail


@lru_cache(maxsize=64)
def _with_checkpoint(key: str, name: str) -> Model:
    """The catalogue's model with one of its checkpoints chosen; the same object each time, as it is costly to count."""
    model = build_model(key)
    checkpoint = next(made for made in model.checkpoints if made.name == name)
    moe = model.moe
    if moe is not None and checkpoint.experts:  # a pruned checkpoint
        moe = replace(moe, experts=checkpoint.experts)
    return replace(model, name=_tail(name), checkpoint=checkpoint, moe=moe)


@lru_cache(maxsize=64)
def _called(key: str, wanted: str) -> Model:
    """The catalogue's model; where one entry stands for several releases, under the name of the one that was meant."""
    model = build_model(key)
    if "/" in key:
        for item in model.hf_ids:
            if wanted in (_folded(item), _folded(_tail(item))):
                return replace(model, name=_tail(item))
    return model


def _by_format(wanted: str) -> list[tuple[str, str]]:
    """Checkpoints that `MODEL-FORMAT` means where no repository is called so: those of the model in that format."""
    stem, _, fmt = wanted.rpartition("-")
    fmt = {"fp4": "nvfp4"}.get(fmt, fmt)
    hits: list[tuple[str, str]] = []
    for entry in entries():
        if stem and (stem in map(_folded, entry.names) or stem in (_tail(_folded(item)) for item in entry.names)):
            model = build_model(entry.key)
            for item in model.checkpoints:
                formats = {name.partition("_")[0] for name in item.formats} | set(item.formats)
                if fmt in formats:
                    hits.append((entry.key, item.name))
    return hits


def _from_catalogue(name: str) -> Model | None:
    """The model whose key, name, id or checkpoint is `name`, the checkpoint chosen with it."""
    wanted = _folded(name)
    owner = "/" in wanted
    hits: list[tuple[str, str]] = []
    for entry in entries():
        names = [_folded(item) for item in entry.names]
        # A Hugging Face id may be typed without its owner; one typed with an owner must be that owner's.
        if wanted in names or (not owner and _tail(wanted) in map(_tail, names)):
            hits.append((entry.key, ""))
            continue
        for item in entry.checkpoints:
            folded = _folded(item)
            if wanted == folded or (not owner and _tail(wanted) == _tail(folded)):
                hits.append((entry.key, item))
    if not hits:
        hits = _by_format(wanted)
    if not hits:
        return None
    if len(hits) > 1:
        raise AmbiguousNameError("model", name, [checkpoint or key for key, checkpoint in hits])
    key, checkpoint = hits[0]
    return _with_checkpoint(key, checkpoint) if checkpoint else _called(key, wanted)


def _looks_like_path(name: str) -> bool:
    return name.startswith((".", "~", os.sep)) or name.endswith(".json") or name.count("/") > 1


def _check_against_files(model: Model, stored: StoredWeights) -> list[str]:
    """Where the config and the weight files contradict each other."""
    from tilewright.models.memory import disk_bytes

    problems: list[str] = []
    if model.moe is not None and stored.experts and stored.experts != model.moe.experts:
        problems.append(
            f"the config says {model.moe.experts:,} experts a layer, the weight files hold {stored.experts:,}: "
            "bytes and memory follow the config, so they are wrong until it is corrected"
        )
    main, found = len(model.main_layers), stored.layers
    if found and not main <= found <= len(model.layers):
        problems.append(f"the config says {main:,} layers, the weight files hold {found:,}")
    if stored.packed_fp4 and not model.checkpoint.rules:
        problems.append("the weight files hold packed 4-bit weights, but no quantization config says so")
    if stored.total_bytes is not None and not problems:
        expected = disk_bytes(model)
        without_mtp = disk_bytes(model, mtp=False)
        low, high = without_mtp * (1 - _TOLERANCE), expected * (1 + _TOLERANCE)
        if not low <= stored.total_bytes <= high:
            problems.append(
                f"the weight files hold {stored.total_bytes:,} bytes, the config describes {expected:,}: something is "
                "not counted, or not quantised as the config says"
            )
    return problems


def load_model(path: str | Path) -> Model:
    """The model that a config.json, or the folder that holds one, describes.

    Beside it, `hf_quant_config.json` is read where the config itself holds no quantisation, and so are the index and
    the headers of safetensors files. Nothing is executed. Raises InputError, one sentence, for anything unreadable,
    huge, or absurd.
    """
    try:
        given = Path(path).expanduser()
        is_folder = given.is_dir()
        config = given / _CONFIG if is_folder else given
        lacking = is_folder and not config.exists()
    except (OSError, RuntimeError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InputError("model", f"{shown(str(path))} is not a usable path: {why}.") from None
    folder = given if is_folder else given.parent
    if lacking:
        raise InputError("model", f"{shown(str(given))} holds no {_CONFIG}; give a folder that does, or a file.")
    raw = read_object(config, _CONFIG)
    quant = folder / _QUANT_CONFIG
    name = folder.resolve().name or "model"
    model = parse_model_config(raw, shown(config.name).strip("'"), name=name)
    checkpoint = model.checkpoint
    if not checkpoint.rules and config.name == _CONFIG and quant.exists():
        checkpoint = parse_quantisation(read_object(quant, _QUANT_CONFIG), _QUANT_CONFIG)
    if not checkpoint.rules and checkpoint.name == "as trained":
        checkpoint = replace(checkpoint, name=f"{name}, as trained")
    model = replace(model, source=str(config), checkpoint=checkpoint, checkpoints=(checkpoint,))
    stored = read_stored(folder) if config.name == _CONFIG else None
    if stored is not None:
        model = replace(model, stored=stored, problems=tuple(_check_against_files(model, stored)))
    parameters(model)  # what cannot be counted is found here, not when somebody asks
    return model


def resolve_model(name: str | Path) -> Model:
    """The model that `name` means: a catalogue key or checkpoint, a Hugging Face id, or a path.

    `GLM-5`, `glm-5-nvfp4` and `nvidia/GLM-5-NVFP4` are looked up in the catalogue (the model's `checkpoint` is then
    the one named); anything that exists on disk is read by `load_model`, and an id that Hugging Face's local cache
    holds from there. Raises UnknownNameError with the nearest names, AmbiguousNameError with the choices, InputError
    for a file that is no such config.
    """
    text = str(name)
    if len(text) > MAX_NAME:
        raise InputError("model", f"A name of {len(text):,} characters is not looked up (at most {MAX_NAME:,}).")
    if isinstance(name, str) and not text.startswith((".", "~", os.sep)):
        found = _from_catalogue(text)
        if found is not None:
            return found
    try:
        exists = Path(text).expanduser().exists()
    except (OSError, RuntimeError, ValueError):
        exists = False
    if exists and text.strip():
        return load_model(text)
    snapshot = cached_snapshot(text)
    if snapshot is not None:
        return replace(load_model(snapshot), key=text, name=_tail(text), hf_ids=(text,))
    if _looks_like_path(text):
        raise InputError(
            "model", f"{shown(text)} does not exist; give a config.json, a folder that holds one, or a name."
        )
    legal = [item for entry in entries() for item in (*entry.names, *entry.checkpoints)]
    near = nearest(_tail(text), [_tail(item) for item in legal]) or [entry.key for entry in entries()][:3]
    hint = "See 'tilewright models' for all, or download its config.json and give that path: nothing is fetched."
    raise UnknownNameError("model", text, near, hint)
