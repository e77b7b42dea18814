"""From what people type, and what torch and NVML report, to one catalogue entry.

A name is cut into words ("NVIDIA GeForce RTX 5090" -> rtx, 5090). An entry is a candidate when every word of the name
is one that names of that GPU contain: a word it does not know ("NVL", "Laptop", "72GB", "Ada") means another product.
Of several candidates, the one whose deciding words are all there is meant; where there is none such, the name is
ambiguous and is asked back.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from tilewright.errors import AmbiguousNameError, UnknownNameError
from tilewright.hardware.catalogue import catalogue
from tilewright.hardware.fields import FIELDS, format_value
from tilewright.hardware.gpu import Gpu

__all__ = ["resolve_gpu"]

MAX_NAME = 200
"""Longest name that is looked at, in characters; device names have at most 96 (NVML_DEVICE_NAME_V2_BUFFER_SIZE)."""

_NOISE = frozenset({"nvidia", "geforce", "quadro", "tesla", "gpu", "graphics", "card", "corporation", "tensor", "core"})
# Trademark signs, also as the letters people type for them.
_MARKS = re.compile(r"[®™©℠]|\((?:r|tm|c)\)", re.IGNORECASE)
# Words that people glue to their neighbours: "RTXPRO6000Server", "rtx5090", "H200SXM".
_GLUED = re.compile(
    r"nvidia|geforce|quadro|jetson|blackwell|workstation|edition|server|superchip|hopper|max[\s_-]*q|rtx"
    r"|(?<![a-z])pro(?=[\s_-]*\d)|sxm\d?|pcie|hbm\d+e?|dgx|hgx|nvl\d+|\d+\s*gi?b\b",
    re.IGNORECASE,
)
_SEPARATORS = re.compile(r"[^a-z0-9]+")
_CAPABILITY = re.compile(r"(?:sm|compute|cc)?[\s_-]*(\d{1,2})\.(\d)|(?:sm|compute|cc)[\s_-]*(\d{1,2})(\d)[af]?")
_MIG = re.compile(r"\bmig\b", re.IGNORECASE)
# Words that tell the members of a family apart but name no product by themselves.
_QUALIFIERS = frozenset({"server", "se", "workstation", "ws", "maxq", "sxm", "sxm5", "pcie", "hbm3", "hbm2e"})
_MAX_EXPLAINED = 4  # more choices than this, and the differences would fill a screen
_NEAREST_SHOWN = 3
# Figures whose differences make it matter which GPU is meant.
_TELLING = ("memory_bandwidth_gbs", "sm_count", "memory_gb", "tdp_w")


def _words(name: str) -> list[str]:
    text = _MARKS.sub(" ", name[:MAX_NAME]).lower()
    text = _GLUED.sub(lambda hit: f" {_SEPARATORS.sub('', hit.group().lower()).replace('gib', 'gb')} ", text)
    return [word for word in _SEPARATORS.split(text) if word and word not in _NOISE]


def _squashed(name: str) -> str:
    return _SEPARATORS.sub("", name.lower())


def _why_it_matters(choices: Sequence[Gpu]) -> str:
    """The figures in which the choices differ, as one clause."""
    parts: list[str] = []
    for key in _TELLING:
        values = [gpu.value(key) for gpu in choices]
        if len(set(map(str, values))) > 1:
            shown = ", ".join(
                f"{gpu.key} {format_value(key, value)}" for gpu, value in zip(choices, values, strict=True)
            )
            parts.append(f"{FIELDS[key].label}: {shown}")
    return "they differ in " + "; ".join(parts[:2]) if parts else ""


def _ask_back(name: str, choices: Sequence[Gpu]) -> AmbiguousNameError:
    why = _why_it_matters(choices) if len(choices) <= _MAX_EXPLAINED else ""
    return AmbiguousNameError("gpu", name, [gpu.key for gpu in choices], why)


def _of_capability(name: str, text: str) -> Gpu | None:
    hit = _CAPABILITY.fullmatch(text)
    if hit is None:
        return None
    capability = f"{int(hit[1] or hit[3])}.{hit[2] or hit[4]}"
    choices = [gpu for gpu in catalogue() if gpu.compute_capability == capability]
    if not choices:
        known = sorted({gpu.arch for gpu in catalogue()})
        raise UnknownNameError("gpu", name, known, f"No GPU of compute capability {capability} is in the catalogue.")
    if len(choices) > 1:
        raise _ask_back(name, choices)
    return choices[0]


def _nearest(words: frozenset[str], name: str) -> list[str]:
    """Keys of the entries that look most like the name: shared words first, then likeness of the spelling."""
    plain = " ".join(sorted(words)) or name[:MAX_NAME].lower()

    def score(gpu: Gpu) -> tuple[int, float]:
        likeness = difflib.SequenceMatcher(None, plain, " ".join(sorted({*gpu.key.split("-")})))
        return len(words & gpu.words), likeness.ratio()

    return [gpu.key for gpu in sorted(catalogue(), key=score, reverse=True)[:_NEAREST_SHOWN]]


def resolve_gpu(name: str) -> Gpu:
    """The catalogue entry that `name` means: a key, a product name, a torch or NVML device name, an aiconfigurator
    system, or a compute capability that only one entry has.

    Raises AmbiguousNameError with the choices when it fits several that differ, UnknownNameError with the nearest
    names when it fits none.
    """
    entries = catalogue()
    squashed = _squashed(name[:MAX_NAME])
    for gpu in entries:
        if squashed in (_squashed(gpu.key), _squashed(gpu.name), *map(_squashed, gpu.aliases)):
            return gpu
    by_capability = _of_capability(name, name.strip().lower())
    if by_capability is not None:
        return by_capability
    words = frozenset(_words(name))
    # At least one word must point at a product: "rtx" or "blackwell server" alone names nothing.
    pointing = {word for gpu in entries for need in gpu.needs for word in need} - _QUALIFIERS
    candidates = [gpu for gpu in entries if words and words <= gpu.words and words & pointing & gpu.words]
    decided = [gpu for gpu in candidates if any(need <= words for need in gpu.needs)]
    if len(decided) == 1:
        return decided[0]
    if len(candidates) > 1:
        raise _ask_back(name, decided or candidates)
    if candidates:
        return candidates[0]
    hint = "See 'tilewright gpus' for all."
    if _MIG.search(name):
        hint = "A MIG slice has a part of its GPU's SMs, memory and bandwidth, so no entry describes it. " + hint
    raise UnknownNameError("gpu", name, _nearest(words, name), hint)
