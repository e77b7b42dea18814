"""How an engine's parser reads the text of a value: which words are numbers to it.

Mirrors `human_readable_int` and `human_readable_int_or_auto` of vLLM (`vllm/utils/argparse_utils.py`, 0.33.0; up to
0.17 in `vllm/engine/arg_utils.py`), `optional_type` (same file) and `human_readable_int` of SGLang
(`srt/utils/common.py`, 0.5.23). Which flags go through them is read from the sources of each version.
"""

from __future__ import annotations

import json
import re
from typing import Final

from tilewright.libraries.engine_flags.model import Flag

__all__ = ["BARE_NUMBER", "number", "refusal"]

_DECIMAL: Final = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY: Final = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SI: Final = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_IEC: Final = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_SUFFIXED: Final = re.compile(r"(\d+(?:\.\d+)?)(Ki|Mi|Gi|Ti|[kKmMgGtT])")
BARE_NUMBER: Final = re.compile(r"\b\d+(?:\.\d+)?[kKmMgGtT]\b")
"""A number with a suffix in the JSON of a config."""
_MAX_DIGITS: Final = 4000
"""Digits of an integer above which Python itself refuses to convert (sys.int_info.default_max_str_digits is 4300)."""
_EXAMPLES: Final = {
    "sglang": "8192, 8k (8,000) or 8Ki (8,192)",
    "vllm": "8192, 8k (8,000) or 8K (8,192)",
}


def _suffixed(text: str, engine: str) -> int | None:
    hit = _SUFFIXED.fullmatch(text)
    if hit is None or len(text) > _MAX_DIGITS:
        return None
    digits, suffix = hit.groups()
    if engine == "sglang":
        whole, decimal = _IEC.get(suffix), _SI.get(suffix)
    else:
        whole, decimal = _BINARY.get(suffix), _DECIMAL.get(suffix)
    if decimal is not None:
        return int(float(digits) * decimal) if len(digits) < 300 else None
    if whole is not None and "." not in digits:
        return int(digits) * whole
    return None


def number(flag: Flag, engine: str, text: str) -> int | float | None:
    """The number that the parser makes of `text`; None where the flag takes none, or the parser would refuse it.

    vLLM's `auto` for a length is -1, as there.
    """
    plain = text.strip()
    if len(plain) > _MAX_DIGITS:
        return None
    try:
        if flag.reads == "int":
            return int(plain)
        if flag.reads == "float":
            return float(plain)
        if flag.reads in ("human_int", "human_int_or_auto"):
            if flag.reads == "human_int_or_auto" and plain.lower() == "auto":
                return -1
            made = _suffixed(plain, engine)
            return int(plain) if made is None else made
    except (ValueError, OverflowError):
        pass
    return None


def refusal(flag: Flag, engine: str, text: str) -> str | None:
    """What is wrong with `text` as a value of a flag without choices; None where the parser takes it."""
    if flag.reads is None or (flag.nullable and text in ("", "None")):
        return None
    if flag.reads in ("json", "config"):
        # Keys of a config may be given with suffixed numbers (`_expand_json_human_readable_numbers`).
        if flag.reads == "config":
            good = text.strip().startswith("{") and _is_json(BARE_NUMBER.sub("0", text))
            return None if good else "is no JSON object of settings"
        return None if _is_json(text) else "is no JSON"
    if number(flag, engine, text) is not None:
        return None
    if flag.reads == "human_int":
        return f"is no whole number; write it as {_EXAMPLES[engine]}"
    if flag.reads == "human_int_or_auto":
        return f"is no length; write it as {_EXAMPLES[engine]}, or auto"
    hint = ""
    if flag.reads == "int" and (_SUFFIXED.fullmatch(text) or text.lower() == "auto"):
        hint = "; this flag takes plain digits only"
    return f"is no {'whole number' if flag.reads == 'int' else 'number'}{hint}"


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
