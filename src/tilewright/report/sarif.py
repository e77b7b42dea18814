"""What can never run as SARIF 2.1.0 (OASIS), so that a library's CI can annotate the line that lists it.

One result a tactic: `ruleId` is the kind of verdict, `message` the bytes and the first fix, the location the file
relative to the root that was read, with the line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

from tilewright._version import __version__
from tilewright.errors import InputError, shown
from tilewright.report.budget_text import change_text
from tilewright.report.write_file import write_new

if TYPE_CHECKING:
    from tilewright.libraries.flashinfer.model import Tactic
    from tilewright.libraries.tuned.model import TunedTactic

SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
VERSION: Final = "2.1.0"
BASE: Final = "SRCROOT"
_HEAD_BYTES: Final = 4096
"""What is looked at of a file in the way: the schema and the first run stand there in every log."""
RULES: Final = {
    "tactic-overflow": "The kernel needs more shared memory than one block of the GPU may have.",
    "tactic-illegal": "The kernel breaks a rule of its compiler and cannot be built.",
}


class Finding(NamedTuple):
    """One tactic that can never run."""

    rule: str
    name: str
    message: str
    file: str
    line: int


def compiled_findings(tactics: Iterable[Tactic], arch: str) -> list[Finding]:
    """Findings on kernels compiled from C++."""
    return [
        Finding(f"tactic-{item.verdict.status}", item.name, _message(item.name, item.verdict, arch), item.source.file,
                item.source.line)
        for item in tactics
    ]  # fmt: skip


def tuned_findings(tactics: Iterable[TunedTactic]) -> list[Finding]:
    """Findings on Triton tiles."""
    return [
        Finding(
            f"tactic-{item.verdict.status}", item.name,
            _message(item.name, item.verdict, (item.config or {}).get("gpu") or item.device or "this GPU"),
            item.source.file, item.source.line,
        )
        for item in tactics
    ]  # fmt: skip


def _message(name: str, verdict: Any, where: str) -> str:
    if verdict.status == "overflow" and verdict.smem_bytes is not None:
        text = (
            f"{name} needs {verdict.smem_bytes:,} bytes of shared memory; a block on {where} may have "
            f"{verdict.limit_bytes:,} ({verdict.excess_bytes:,} too many)."
        )
    else:
        text = f"{name} cannot be built for {where}: {verdict.cause or 'no reason is given'}"
    if verdict.fixes:
        fix = verdict.fixes[0]
        change = change_text(fix.change)
        text += f" Fix: {change} ({fix.smem_bytes:,} bytes)."
    return text


def sarif_document(findings: Sequence[Finding]) -> dict[str, Any]:
    """The SARIF log of one run."""
    order = list(RULES)
    return {
        "$schema": SCHEMA,
        "version": VERSION,
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "tilewright",
                        "version": __version__,
                        "rules": [
                            {"id": key, "shortDescription": {"text": text}, "defaultConfiguration": {"level": "error"}}
                            for key, text in RULES.items()
                        ],
                    }
                },
                "columnKind": "utf16CodeUnits",
                "results": [
                    {
                        "ruleId": item.rule,
                        "ruleIndex": order.index(item.rule),
                        "level": "error",
                        "message": {"text": item.message},
                        "locations": [
                            {
                                "physicalLocation": {
                                    "artifactLocation": _artifact(item.file),
                                    "region": {"startLine": max(1, item.line)},
                                }
                            }
                        ],
                        "partialFingerprints": {"tactic/v1": item.name},
                    }
                    for item in findings
                ],
            }
        ],
    }


def _holds_something_else(path: str) -> bool:
    """Whether a file is there that no SARIF writer left: neither empty nor with the names that open every log."""
    try:
        with Path(path).open("rb") as stream:
            head = stream.read(_HEAD_BYTES)
    except (OSError, ValueError):  # nothing there, or nothing that can be read: writing it tells
        return False
    return bool(head.strip()) and (b"sarif" not in head.lower() or b'"runs"' not in head)


def _artifact(file: str) -> dict[str, str]:
    """Where a file is: relative to the root, or a file URI for one of the user's own folder."""
    path = quote(file, safe="/")
    return {"uri": f"file://{path}"} if file.startswith("/") else {"uri": path, "uriBaseId": BASE}


def write_sarif(path: str, findings: Sequence[Finding]) -> None:
    """Write the log to `path`; the log that a former run left there is replaced, any other file is kept.

    Raises:
        InputError: it cannot be written, or a file that is no SARIF log is in its place.
    """
    import json

    if _holds_something_else(path):
        raise InputError("sarif", f"--sarif {shown(path)} exists, is no SARIF log and is kept; give another file.")
    text = json.dumps(sarif_document(findings), indent=2, ensure_ascii=False) + "\n"
    write_new(path, text.encode("utf-8", "replace"), force=True, option="--sarif")
