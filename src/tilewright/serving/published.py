"""Published serving tables, read as questions: every cell with what it asks, what was measured, and its table.

`data/serving_tables.json` says how each packaged measurement is read, and which cells are left out and why.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from tilewright.data.figures import read_packaged
from tilewright.data.measurements import measurement
from tilewright.serving.questions import DecodeQuestion, PrefillQuestion, ServingQuestion, parse_serving_question

__all__ = ["Cell", "cells", "left_out"]

_KILO = 1024


@dataclass(frozen=True, slots=True)
class Cell:
    """One published figure: tokens a second that `question` was measured to give (of all requests together in
    decode, of the prompt in prefill). `excluded` says why it takes no part in fit and errors; empty: it does."""

    table: str
    group: str
    label: str
    question: ServingQuestion
    published: float
    source: str
    date: str
    excluded: str = ""
    reason: str = ""
    """Why the table is known to differ from what the model describes."""

    @property
    def prefill(self) -> bool:
        return isinstance(self.question, PrefillQuestion)


def _number(value: Any) -> float | None:
    """A figure; of a range its middle, None where there is none."""
    if isinstance(value, list):
        parts = [float(item) for item in cast("list[Any]", value) if isinstance(item, int | float)]
        return sum(parts) / len(parts) if parts else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _context(text: str) -> int:
    lower = text.lower()
    return int(float(lower[:-1]) * _KILO) if lower.endswith("k") else int(lower)


def _matrix(entry: dict[str, Any], table: dict[str, dict[str, Any]], row: dict[str, Any]) -> list[dict[str, Any]]:
    """Cells of a table context -> concurrency -> value."""
    out: list[dict[str, Any]] = []
    given = entry.get("acceptance")
    drafts = entry["question"].get("speculative_tokens", 0)
    for context, values in table.items():
        for concurrency, value in values.items():
            question = {"context": _context(context), "concurrency": int(concurrency)}
            if given == "table":
                rate = row["acceptance"].get(context, {}).get(concurrency)
                if rate is not None:
                    question["acceptance_length"] = 1 + drafts * rate
            elif given:
                question["acceptance_length"] = given["value"]
            out.append({"label": f"context {context}, {concurrency} requests", "question": question, "value": value})
    return out


def _single(entry: dict[str, Any], table: Any) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for item in entry["read"]:
        value = table
        for key in item["path"]:
            value = value[key]
        label = ", ".join(str(key) for key in item["path"] if isinstance(key, str)) or "single figure"
        out.append({"label": label, "question": item["question"], "value": value})
    return out


def _excluded(entry: dict[str, Any], question: ServingQuestion) -> str:
    for rule in entry.get("exclude", ()):
        if question.concurrency >= rule["concurrency_from"]:
            return rule["why"]
    return ""


@lru_cache(maxsize=1)
def cells() -> tuple[Cell, ...]:
    """Every cell that is read, in the order of the file; excluded ones included."""
    out: list[Cell] = []
    for entry in cast("list[dict[str, Any]]", read_packaged("serving_tables.json")["tables"]):
        item = measurement(entry["measurement"])
        row = dict(item.row)
        table: Any = row.get(entry.get("table", "table"), row.get("value"))
        read = _matrix(entry, table, row) if entry["read"] == "context_concurrency" else _single(entry, table)
        for cell in read:
            value = _number(cell["value"])
            if value is None:
                continue
            base = {"op": entry.get("op", "decode"), **entry["question"], **cell["question"]}
            question = parse_serving_question(base)
            out.append(
                Cell(
                    item.id, entry["group"], cell["label"], question, value, item.source, item.date,
                    _excluded(entry, question), entry.get("reason", ""),
                )
            )  # fmt: skip
    return tuple(out)


def left_out() -> tuple[tuple[str, str], ...]:
    """(measurement, why) of published tables that are not read at all, or of rows of one that are not."""
    raw = cast("list[dict[str, str]]", read_packaged("serving_tables.json")["left_out"])
    return tuple((item["measurement"], item["why"]) for item in raw)


def is_decode(question: ServingQuestion) -> bool:
    return isinstance(question, DecodeQuestion)
