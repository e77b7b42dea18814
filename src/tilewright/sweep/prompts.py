"""What requests ask: synthetic prompts of a given length, or those of a file. The same seed gives the same prompts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from tilewright.errors import InputError, shown
from tilewright.sweep.space import Load

__all__ = ["DatasetPrompt", "prompt_of", "read_dataset", "request_body", "vocabulary"]

MAX_FILE: Final = 512 << 20
MAX_PROMPTS: Final = 200_000
_FIRST_ID: Final = 16
"""Below it stand the special tokens of most vocabularies (end of text, padding ...), which could end an answer."""
_SAFE_IDS: Final = 250
"""A vocabulary that no model's is smaller than: byte-level ones begin with 256 bytes."""
_WORDS: Final = (
    "time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school", "state",
    "family", "student", "group", "country", "problem", "hand", "part", "place", "case", "week", "company", "system",
    "program", "question", "work", "number", "night", "point", "home", "water", "room", "mother", "area", "money",
)  # fmt: skip
"""Common English words: one token each in most vocabularies, which is what a prompt of text counts on."""


class DatasetPrompt(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of a dataset: `text` (or `prompt`), or `messages` for chat; how many tokens to ask for, if it says."""

    text: str | None = None
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    output_tokens: int | None = None


def read_dataset(load: Load) -> list[DatasetPrompt]:
    """The prompts of `load.dataset`.

    Raises:
        InputError: it cannot be read, is empty, or a line is no prompt.
    """
    assert load.dataset is not None
    label = shown(load.dataset)
    found: list[DatasetPrompt] = []
    decoder = msgspec.json.Decoder(DatasetPrompt)
    try:
        path = Path(load.dataset)
        if path.stat().st_size > MAX_FILE:
            raise InputError("space", f"load.dataset {label} is larger than {MAX_FILE >> 20} MiB; give a part of it.")
        with path.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                if not line.strip():
                    continue
                item = decoder.decode(line)
                if (item.text or item.prompt or item.messages) in (None, "", []):
                    msg = f'load.dataset {label}: line {number} has no "text", "prompt" or "messages".'
                    raise InputError("space", msg)
                if item.messages and load.endpoint != "chat":
                    msg = f'load.dataset {label}: line {number} has messages; they need load.endpoint = "chat".'
                    raise InputError("space", msg)
                found.append(item)
                if len(found) >= MAX_PROMPTS:
                    break
    except OSError as error:
        msg = f"load.dataset {label} cannot be read: {error.strerror or error}; give a JSON Lines file of prompts."
        raise InputError("space", msg) from None
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        msg = f"load.dataset {label} is no JSON Lines file of prompts: {str(error)[:150]}."
        raise InputError("space", msg) from None
    if not found:
        raise InputError("space", f"load.dataset {label} holds no prompt.")
    return found


def vocabulary(model: str | None) -> int:
    """How many token ids may be asked with: what the model folder's config says, else those that every model has."""
    if model is None:
        return _SAFE_IDS
    try:
        raw = (Path(model) / "config.json").read_bytes()[: 1 << 20]
        told: Any = msgspec.json.decode(raw)
        inner: Any = told.get("text_config") or told
        size: Any = inner.get("vocab_size")
    except (OSError, ValueError, msgspec.DecodeError, AttributeError, RecursionError):
        return _SAFE_IDS
    # The last ids are often special tokens or padding of the embedding.
    return max(_FIRST_ID + 1, size - size // 10) if isinstance(size, int) and size > _SAFE_IDS else _SAFE_IDS


def prompt_of(load: Load, dataset: Sequence[DatasetPrompt], index: int, seed: int, ids: int) -> tuple[Any, int]:
    """Prompt number `index` and the output tokens to ask for. Completions get token ids: exactly as many as said."""
    if dataset:
        item = dataset[index % len(dataset)]
        return item.messages or item.text or item.prompt, item.output_tokens or load.output_tokens
    draw = random.Random(f"{seed}/{index}")
    if load.endpoint == "completions":
        return [draw.randrange(_FIRST_ID, ids) for _ in range(load.input_tokens)], load.output_tokens
    return " ".join(draw.choice(_WORDS) for _ in range(load.input_tokens)), load.output_tokens


def request_body(load: Load, model: str, prompt: Any, output_tokens: int, extra: dict[str, Any]) -> bytes:
    """The body of one streamed request."""
    body: dict[str, Any] = {
        "model": model,
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": output_tokens,
        "temperature": 0,
        **extra,
    }
    if load.endpoint == "chat":
        body["messages"] = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}]
    else:
        body["prompt"] = prompt
    return msgspec.json.encode(body)
