"""What may hold a secret and is not repeated: values of flags and variables that name keys, tokens or passwords, and
text that looks like one. Answers get shared.

Standard library only, Python 3.8 or later: `tilewright observe --script` carries this file to other hosts.
"""

from __future__ import annotations

import re

WITHHELD = "[withheld]"
_SECRET_NAME = re.compile(
    r"(?:api|access|private|secret|admin|auth|encryption|signing|account|master|watermark)[-_]?key(?![a-z])"
    r"|(?:^|[-_])key(?:[-_]b)?$|(?:^|[-_])token$|[a-z]Token$|secret|passw|passphrase|credential|cookie|bearer"
    r"|(?:^|[-_])auth(?:orization)?(?:$|[-_])|(?:^|[-_])sas(?:$|[-_])|pwd$|token[-_](?:id|value)$|headers$",
    re.I,
)
_HARMLESS_NAME = re.compile(
    r"(?:per|first|next|inter|max|num|min|new|start|end|eos|bos|pad|decode|prefill)[-_](?:\w+[-_])?tokens?$"
    r"|(?:graph|cache|group)[-_]key$|allowed[-_]headers$|token[-_]?(?:izer|parser|step)",
    re.I,
)
_TOKEN = re.compile(
    r"(?<![A-Za-z0-9])(?:hf_|gh[opsu]_|AKIA|AIza)[A-Za-z0-9]{12,}"
    r"|(?<![A-Za-z0-9])(?:sk-|glpat-|xox[abps]-|nvapi-|github_pat_|eyJ)[-_A-Za-z0-9]{12,}|(?<=//)[^/\s:@]+:[^/\s@]+(?=@)"
    r"|(?<=\bBearer )\S+"
)
_RANDOM = re.compile(r"(?<!snapshots/)\b(?=[A-Za-z_-]*\d)[A-Za-z0-9+_]{40,}\b")
_SETTING = re.compile(
    r"""(?<![\w.-])(?P<head>(?:--)?(?P<name>[A-Za-z_][\w.-]{0,60})['"]?(?:\s?[=:]\s?|(?<=\w)\ (?=[^-\s]))\[?['"]?)"""
    r"""(?P<value>[^'"\s,\])}]+)"""
)
_PAIR = re.compile(r'"([^"\\]{1,80})"(\s*:\s*)"((?:[^"\\]|\\.)*)"')
_QUERY = re.compile(r"([?&]([\w.-]{1,80})=)[^&\s\"']+")


def names_secret(name: str) -> bool:
    """Whether the value of a flag or variable of this name may be a secret."""
    return bool(_SECRET_NAME.search(name)) and not _HARMLESS_NAME.search(name)


def holds_secret(value: str) -> bool:
    """Whether a text looks like a secret itself: a known kind of token, a password in an address, a long random word,
    a setting of JSON or an address that names one."""
    if _TOKEN.search(value) or _RANDOM.search(value):
        return True
    pairs = [found.group(1) for found in _PAIR.finditer(value)] + [found.group(2) for found in _QUERY.finditer(value)]
    return any(names_secret(name) for name in pairs)


def safe_value(name: str, value: str) -> str:
    """The value of a flag or variable, `WITHHELD` where it may be a secret."""
    return WITHHELD if names_secret(name) or holds_secret(value) else value


def masked(text: str) -> str:
    """A line of a log with what may be a secret replaced: settings that name one (`api_key='x'`, `--api-key x`), known
    kinds of token, passwords in addresses. Long words stay: names of kernels are such."""

    def without(found: re.Match[str]) -> str:
        spaced = found.group("head").endswith(" ") and not found.group("head").startswith("--")
        return found.group() if spaced or not names_secret(found.group("name")) else found.group("head") + WITHHELD

    return _TOKEN.sub(WITHHELD, _SETTING.sub(without, text))
