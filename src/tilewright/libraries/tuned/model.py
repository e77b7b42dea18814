"""What `tactics vllm` and `tactics sglang` answer (DESIGN 4.4): a tactic is one tile that the engine may launch."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from tilewright.libraries.flashinfer.model import Place, Summary
from tilewright.triton_.model import TritonVerdict

Op = Literal["moe", "moe_down", "linear"]


class TunedTactic(msgspec.Struct, frozen=True, kw_only=True):
    """One tile of a tuned file, or one that the engine takes where it has no file."""

    name: str
    """File (below its `configs` folder) and number of tokens, `E=...json#64`; `default:...` for built-in ones."""
    source: Place
    config: dict[str, Any] | None
    """The tile (DESIGN 4.2); null where it is none."""
    verdict: TritonVerdict
    op: Op
    tokens: int
    device: str | None
    """The file's device name; null for a built-in default."""
    read: bool | None = None
    """Whether the GPU asked about reads the file (or default); null without --gpu."""


class UnreadFile(msgspec.Struct, frozen=True):
    """A file in a folder of tuned files that no lookup reads, or that cannot be read."""

    file: str
    why: str


class LookupStep(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine launches for one number of tokens."""

    tokens: int
    config: dict[str, Any] | None
    verdict: TritonVerdict
    from_file: bool
    down_config: dict[str, Any] | None = None
    down_verdict: TritonVerdict | None = None


class Lookup(msgspec.Struct, frozen=True, kw_only=True):
    """One MoE layer on one GPU: which file the engine reads, and what comes of it."""

    experts: int
    inter: int
    dtype: str
    block_shape: list[int] | None
    device: str
    wanted: str | None
    """The file name that the engine looks for; null where its code does not say."""
    file: str | None
    """The file that it reads; null: its built-in default is used."""
    tried: list[str]
    default_at: Place
    steps: list[LookupStep]
    problem: str | None = None


class TunedReport(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="tilewright/tactics/1"):
    """Every tuned tile of one engine, its built-in defaults, and what a given layer gets."""

    library: str
    library_version: str
    cutlass: None = None
    """No CUTLASS is involved: these are Triton kernels."""
    gpu: str | None
    """The GPU asked about, as torch names it; null: every file is judged on its own device."""
    triton: str | None
    root: str
    files: int
    tactics: list[TunedTactic]
    summary: Summary
    unread: list[UnreadFile] = []
    lookup: Lookup | None = None
    notes: list[str] = []


def summarize_tuned(tactics: list[TunedTactic]) -> Summary:
    """How many tactics got which verdict."""
    counts = dict.fromkeys(("fits", "overflow", "illegal", "unsupported"), 0)
    for tactic in tactics:
        counts[tactic.verdict.status] += 1
    return Summary(len(tactics), **counts)
