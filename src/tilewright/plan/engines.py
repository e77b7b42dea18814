"""What the engines do by themselves that a plan has to count with: memory shares and launch commands.

Read in SGLang 0.5.23 (`srt/server_args.py`, `arg_groups`) and vLLM 0.33.0 (`vllm/config`); other versions may differ,
and a snapshot's flags come before these.
"""

from __future__ import annotations

from typing import Final, Literal

EngineName = Literal["sglang", "vllm", "trtllm"]
ENGINES: Final[tuple[EngineName, ...]] = ("sglang", "vllm", "trtllm")
TITLES: Final[dict[str, str]] = {"sglang": "SGLang", "vllm": "vLLM", "trtllm": "TensorRT-LLM"}

MIB: Final = 1 << 20
VLLM_SHARE: Final = 0.92
"""vLLM 0.33.0 `--gpu-memory-utilization`, default."""
TRTLLM_SHARE: Final = 0.9
"""TensorRT-LLM `free_gpu_memory_fraction`, default; it is of what is free after loading, so this is an upper bound."""

_SGLANG_CHUNK_MIB = 1.5
_SGLANG_GRAPH_MIB = 2.0
_SMALL_CARD: Final = 40 << 30
"""Cards below this size get SGLang's smaller defaults (read for 32 GB: chunk 4096, graphs to 48 or 160)."""


def memory_share(engine: str, total_bytes: int, tp: int) -> tuple[float, str]:
    """(share of the GPU's memory for weights and KV cache, where it comes from) with default flags."""
    if engine == "sglang":
        small = total_bytes < _SMALL_CARD
        chunk = 4096 if small else 8192
        graphs = (48 if tp < 4 else 160) if small else (256 if tp < 4 else 512)
        kept = (chunk * _SGLANG_CHUNK_MIB + graphs * _SGLANG_GRAPH_MIB) * MIB
        share = round(max(0.1, (total_bytes - kept) / total_bytes), 3)
        return share, "SGLang 0.5.23's own rule: total - (1.5 x chunk + 2 x graph batch) MiB"
    if engine == "vllm":
        return VLLM_SHARE, "vLLM 0.33.0 --gpu-memory-utilization, default"
    return TRTLLM_SHARE, "TensorRT-LLM free_gpu_memory_fraction, default"


SHARE_FLAGS: Final[dict[str, tuple[str, ...]]] = {
    "sglang": ("--mem-fraction-static",),
    "vllm": ("--gpu-memory-utilization",),
    "trtllm": ("--free_gpu_memory_fraction", "--kv_cache_free_gpu_memory_fraction"),
}


def launch(engine: str, model: str, *flags: str) -> str:
    """A launch line of the engine with these flags; `model` is quoted already. The user adds their own flags."""
    start = {
        "sglang": f"python3 -m sglang.launch_server --model-path {model}",
        "vllm": f"vllm serve {model}",
        "trtllm": f"trtllm-serve {model}",
    }[engine]
    return " ".join([start, *(flag for flag in flags if flag)])


def layout_flags(engine: str, tp: int, pp: int = 1, ep: int = 1) -> str:
    """The flags that set a layout."""
    parts = {
        "sglang": (f"--tp-size {tp}", f"--pp-size {pp}", f"--ep-size {ep}"),
        "vllm": (f"-tp {tp}", f"-pp {pp}", "--enable-expert-parallel"),
        "trtllm": (f"--tp_size {tp}", f"--pp_size {pp}", f"--ep_size {ep}"),
    }[engine]
    return " ".join(part for part, on in zip(parts, (True, pp > 1, ep > 1), strict=True) if on)
