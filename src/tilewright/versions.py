"""Version numbers of engines and libraries, and windows of them such as `>=0.5,<0.6`.

Enough of PEP 440 for what vLLM, SGLang, FlashInfer and CUTLASS really use: release numbers, rc/a/b/dev before them,
post after them, a local part that is ignored.
"""

from __future__ import annotations

import re
from functools import lru_cache

from tilewright.errors import InputError, shown

_VERSION = re.compile(
    r"v?(?P<release>\d{1,6}(?:\.\d{1,6}){0,5})"
    r"(?:[._-]?(?P<pre>dev|alpha|beta|rc|a|b|c)[._-]?(?P<pre_n>\d{0,12}))?"
    r"(?:[._-]?(?P<post>post|r)[._-]?(?P<post_n>\d{0,12}))?"
    r"(?:[._-]?dev\d{0,12})?(?:\+[A-Za-z0-9.]{1,64})?",
    re.ASCII,
)
_LEADING = re.compile(r"\s*v?(\d{1,6}(?:\.\d{1,6}){0,5})", re.ASCII)
_CLAUSE = re.compile(r"(>=|<=|==|>|<)\s*(\S+)")

_PRE_ORDER = {"dev": 0, "a": 1, "alpha": 1, "b": 2, "beta": 2, "c": 3, "rc": 3}
_FINAL = 4
"""Orders after every pre-release of the same number."""

Key = tuple[tuple[int, ...], int, int, int]


@lru_cache(maxsize=256)
def release_of(text: str, field: str = "version") -> tuple[int, ...]:
    """The release number that `text` begins with (0.17.1rc1 and 0.17.1+cu130 -> (0, 17, 1)), whatever follows it.

    For what a release reads or does, which its candidates and builds share. Raises InputError on what is no version.
    """
    found = _LEADING.match(text)
    if found is None:
        msg = f"{field} {shown(text)} is no version number; give it as the package reports it, for example 0.5.9."
        raise InputError(field, msg)
    return tuple(int(part) for part in found[1].split("."))


def release_told(text: str | None) -> tuple[int, ...] | None:
    """The release number of a tree's version; None where it names none (a checkout that calls itself `dev`)."""
    found = _LEADING.match(text) if text is not None else None
    return tuple(int(part) for part in found[1].split(".")) if found is not None else None


def precedes(version: str | None, since: str | None) -> bool:
    """Whether `version` is of a release before `since`; not where either is not known."""
    here = release_told(version)
    return since is not None and here is not None and here < release_of(since)


@lru_cache(maxsize=256)
def version_key(text: str, field: str = "version") -> Key:
    """`text` as something that compares; raises InputError on what is no version."""
    found = _VERSION.fullmatch(text.strip())
    if found is None:
        msg = f"{field} {shown(text)} is no version number; give it as the package reports it, for example 0.5.9."
        raise InputError(field, msg)
    release = [int(part) for part in found["release"].split(".")]
    while release and release[-1] == 0:
        release.pop()
    pre = _PRE_ORDER[found["pre"]] if found["pre"] else _FINAL
    post = int(found["post_n"] or 0) + 1 if found["post"] else 0
    return tuple(release), pre, int(found["pre_n"] or 0), post


def within(version: str | None, window: str | None) -> bool | None:
    """Whether `version` lies in `window` (clauses joined by commas); None where the version is not known."""
    if not window:
        return True
    if version is None:
        return None
    key = version_key(version)
    for clause in window.split(","):
        found = _CLAUSE.fullmatch(clause.strip())
        if found is None:  # a window is our own data, checked by a test
            msg = f"version window {shown(window)} is malformed"
            raise InputError("window", msg)
        operator, other = found[1], version_key(found[2])
        holds = {
            ">=": key >= other,
            "<=": key <= other,
            "==": key == other,
            ">": key > other,
            "<": key < other,
        }[operator]
        if not holds:
            return False
    return True
