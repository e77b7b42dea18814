"""What engines choose by themselves: memory shares, chunks, captured batches.

Read in SGLang 0.5.23 (`srt/server_args.py`, `arg_groups`) and vLLM 0.33.0 (`vllm/config`). A version whose flags are
at hand comes first where it declares a plain value (`declared`); most of these it computes at start-up. A flag that is
given comes before both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tilewright.libraries.engine_flags.model import FlagSet

__all__ = ["Declared", "chunk_tokens", "declared", "graph_batch", "memory_share"]

MIB: Final = 1 << 20
VLLM_SHARE: Final = 0.92
"""vLLM 0.33.0 `--gpu-memory-utilization`, default."""
TRTLLM_SHARE: Final = 0.9
"""TensorRT-LLM `free_gpu_memory_fraction`, default; it is of what is free after loading, so this is an upper bound."""
_SGLANG_CHUNK_MIB: Final = 1.5
_SGLANG_GRAPH_MIB: Final = 2.0
_SMALL_CARD: Final = 40 << 30
"""Cards below this size get SGLang's smaller defaults (read for 32 GB: chunk 4096, graphs to 48 or 160)."""
_LARGE_CARD: Final = 70 << 30
"""Cards from this size get vLLM's larger chunks."""


def chunk_tokens(engine: str, total_bytes: int) -> int:
    """Tokens that the engine takes at once by default."""
    if engine == "vllm":
        return 8192 if total_bytes >= _LARGE_CARD else 2048
    return 4096 if total_bytes < _SMALL_CARD else 8192


def graph_batch(engine: str, total_bytes: int, tp: int) -> int:
    """Largest number of requests that the engine captures a decode graph for by default."""
    if engine == "sglang":
        if total_bytes < _SMALL_CARD:
            return 48 if tp < 4 else 160
        return 256 if tp < 4 else 512
    return 512


def memory_share(engine: str, total_bytes: int, tp: int) -> tuple[float, str]:
    """(share of the GPU's memory for weights and KV cache, where it comes from) with default flags."""
    if engine == "sglang":
        kept = chunk_tokens(engine, total_bytes) * _SGLANG_CHUNK_MIB
        kept += graph_batch(engine, total_bytes, tp) * _SGLANG_GRAPH_MIB
        share = round(max(0.1, (total_bytes - kept * MIB) / total_bytes), 3)
        return share, "SGLang 0.5.23's own rule: total - (1.5 x chunk + 2 x graph batch) MiB"
    if engine == "vllm":
        return VLLM_SHARE, "vLLM 0.33.0 --gpu-memory-utilization, default"
    return TRTLLM_SHARE, "TensorRT-LLM free_gpu_memory_fraction, default"


@dataclass(frozen=True, slots=True)
class Declared:
    """Defaults that a version declares as plain values; None: it computes them. `graphs` counts tokens in vLLM, as its
    flag does, and requests in SGLang; `requests` is of one rank in vLLM."""

    share: float | None = None
    share_source: str = ""
    chunk: int | None = None
    graphs: int | None = None
    requests: int | None = None


def declared(flags: FlagSet | None) -> Declared:
    """What a version's own flags declare, as far as it is plain."""
    from tilewright.libraries.engine_flags.concepts import find

    if flags is None:
        return Declared()

    def count(ident: str) -> int | None:
        flag = find(flags, ident)
        value = flag.default if flag is not None else None
        return value if type(value) is int and value > 0 else None

    flag = find(flags, "memory_share")
    value: object = flag.default if flag is not None else None
    share = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    share = share if share is not None and 0 < share <= 1 else None
    title = {"sglang": "SGLang", "vllm": "vLLM"}.get(flags.engine, flags.engine)
    titled = f"{title} {flags.version}" if flags.version else title
    return Declared(
        share=share,
        share_source=f"{titled} {flag.names[0]}, default" if share is not None and flag is not None else "",
        chunk=count("chunk"),
        graphs=count("graph_batch"),
        requests=count("max_requests"),
    )
