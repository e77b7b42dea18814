"""The line that starts an engine in a layout, with a context length that its cache really holds."""

from __future__ import annotations

import shlex
from pathlib import Path

from tilewright.models.checkpoint import Checkpoint
from tilewright.models.records import Model
from tilewright.serving.memory import ServerMemory
from tilewright.serving.scenario import Scenario

__all__ = ["context_length", "launch_line", "served_name"]

_ROUND = 256
"""Context lengths are rounded down to whole pages of this many tokens."""


def served_name(model: Model, checkpoint: Checkpoint) -> str:
    """What a launch command calls the checkpoint, quoted for a shell: a repository, a folder, or the model's name."""
    name = checkpoint.name
    if "/" in name and not name.startswith("community/"):
        return shlex.quote(name)
    if model.source.endswith(".json") and "://" not in model.source:
        folder = str(Path(model.source).parent)
        return shlex.quote(folder) if folder.isprintable() else "PATH_OF_THE_MODEL"
    return (
        "PATH_OF_THE_CHECKPOINT" if checkpoint.rules else shlex.quote(model.hf_ids[0] if model.hf_ids else model.name)
    )


def context_length(model: Model, memory: ServerMemory, wanted: int = 0) -> int:
    """Tokens of context that one request may have: at most what the cache holds, and what the model was made for."""
    room = memory.kv_tokens if memory.cache is not None else wanted or model.context
    limit = min(room, model.context) if model.context else room
    return max(0, limit // _ROUND * _ROUND)


def launch_line(scenario: Scenario, memory: ServerMemory, requests: int) -> str:
    """A launch line for the layout, memory fraction, cache format and number of requests; flags of SGLang 0.5.23,
    vLLM 0.33.0 and trtllm-serve 1.x."""
    parallel, engine = scenario.parallel, scenario.engine
    name = served_name(scenario.model, scenario.checkpoint)
    length = context_length(scenario.model, memory)
    drafts = scenario.speculative_tokens
    fraction = f"{memory.fraction:g}"
    parts: list[str]
    if engine == "sglang":
        parts = [f"python3 -m sglang.launch_server --model-path {name}", f"--tp-size {parallel.tp}"]
        parts += [f"--pp-size {parallel.pp}"] if parallel.pp > 1 else []
        parts += [f"--ep-size {parallel.ep}"] if parallel.ep > 1 else []
        parts += [f"--attn-dp-size {parallel.attention_dp}"] if parallel.attention_dp > 1 else []
        parts += [f"--dp-size {scenario.copies}"] if scenario.copies > 1 and parallel.attention_dp == 1 else []
        parts += [f"--mem-fraction-static {fraction}", f"--context-length {length}"]
        parts += [f"--max-running-requests {requests}"]
        kv = {"fp8": "fp8_e4m3", "bf16": "bf16", "nvfp4": "nvfp4"}.get(scenario.kv_layout, "auto")
        parts += [f"--kv-cache-dtype {kv}"]
        if drafts:
            parts += [
                f"--speculative-algorithm NEXTN --speculative-num-steps {drafts} --speculative-eagle-topk 1 "
                f"--speculative-num-draft-tokens {drafts + 1}"
            ]
    elif engine == "vllm":
        inside = parallel.attention_tp
        parts = [f"vllm serve {name}", f"-tp {inside}"]
        parts += [f"-pp {parallel.pp}"] if parallel.pp > 1 else []
        copies = scenario.copies * parallel.attention_dp
        parts += [f"-dp {copies}"] if copies > 1 else []
        parts += ["--enable-expert-parallel"] if parallel.ep > 1 else []
        parts += [f"-dcp {parallel.dcp}"] if parallel.dcp > 1 else []
        parts += [f"--gpu-memory-utilization {fraction}", f"--max-model-len {length}", f"--max-num-seqs {requests}"]
        kv = {"fp8": "fp8", "fp8_ds_mla": "fp8", "nvfp4": "nvfp4"}.get(scenario.kv_layout, "auto")
        parts += [f"--kv-cache-dtype {kv}"]
        if drafts:
            config = f'{{"method":"mtp","num_speculative_tokens":{drafts}}}'
            parts += [f"--speculative-config {shlex.quote(config)}"]
    else:
        parts = [f"trtllm-serve {name}", f"--tp_size {parallel.tp}"]
        parts += [f"--pp_size {parallel.pp}"] if parallel.pp > 1 else []
        parts += [f"--ep_size {parallel.ep}"] if parallel.ep > 1 else []
        parts += [f"--kv_cache_free_gpu_memory_fraction {fraction}", f"--max_seq_len {length}"]
        parts += [f"--max_batch_size {requests}"]
    return " ".join(parts)
