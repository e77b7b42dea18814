"""What the engines do by themselves that a plan has to count with: memory shares and launch commands.

Read in SGLang 0.5.23 (`srt/server_args.py`, `arg_groups`) and vLLM 0.33.0 (`vllm/config`); other versions may differ,
and a snapshot's flags come before these.
"""

from __future__ import annotations

from typing import Final, Literal

from tilewright.serving.defaults import TRTLLM_SHARE, VLLM_SHARE, memory_share

__all__ = [
    "CONTEXT_FLAGS",
    "ENGINES",
    "SHARE_FLAGS",
    "TITLES",
    "TRTLLM_SHARE",
    "VLLM_SHARE",
    "EngineName",
    "launch",
    "layout_flags",
    "memory_share",
]

EngineName = Literal["sglang", "vllm", "trtllm"]
ENGINES: Final[tuple[EngineName, ...]] = ("sglang", "vllm", "trtllm")
TITLES: Final[dict[str, str]] = {"sglang": "SGLang", "vllm": "vLLM", "trtllm": "TensorRT-LLM"}

SHARE_FLAGS: Final[dict[str, tuple[str, ...]]] = {
    "sglang": ("--mem-fraction-static",),
    "vllm": ("--gpu-memory-utilization",),
    "trtllm": ("--free_gpu_memory_fraction", "--kv_cache_free_gpu_memory_fraction"),
}

CONTEXT_FLAGS: Final[dict[str, str]] = {
    "sglang": "--context-length",
    "vllm": "--max-model-len",
    "trtllm": "--max_seq_len",
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
