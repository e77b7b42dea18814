"""The line that starts an engine in a layout, with a context length that its cache really holds."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Final

from tilewright.models.checkpoint import Checkpoint
from tilewright.models.records import Model
from tilewright.serving.memory import ServerMemory
from tilewright.serving.scenario import Scenario
from tilewright.versions import release_of

__all__ = ["context_length", "launch_line", "launch_notes", "served_name", "servers"]

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


_NAMED_ATTENTION_DP: Final = (0, 5, 23)
"""The SGLang release whose arguments were read with --attn-dp-size; before it, --enable-dp-attention made the data
parallel ranks share one tensor-parallel group."""


def _before(version: str | None, release: tuple[int, ...]) -> bool:
    """Whether an engine's version is known and older than `release`."""
    return version is not None and release_of(version, "engine_version") < release


def servers(scenario: Scenario) -> int:
    """Servers of their own that the layout takes, beside data parallelism inside one server.

    vLLM's -dp slices or deals out the experts over all ranks (`FusedMoEParallelConfig.make`), so whole copies of a
    model with experts are servers of their own; SGLang's --dp-size runs whole copies, unless they share attention.
    """
    if scenario.engine == "sglang":
        return scenario.copies if scenario.parallel.attention_dp > 1 else 1
    if scenario.engine == "vllm":
        return scenario.copies if scenario.model.moe is not None else 1
    return scenario.copies


def launch_notes(scenario: Scenario) -> list[str]:
    """What the launch line does not say by itself."""
    out: list[str] = []
    count = servers(scenario)
    if count > 1:
        out.append(
            f"start {count:,} such servers, each on {scenario.parallel.gpus:,} GPUs of its own, behind a load balancer"
        )
    if scenario.engine == "trtllm" and scenario.parallel.attention_dp > 1:
        out.append(
            "copies of the attention need enable_attention_dp: true in the file given to --extra_llm_api_options"
        )
    return out


def launch_line(scenario: Scenario, memory: ServerMemory, requests: int) -> str:
    """A launch line for the layout, memory fraction, cache format and number of requests of all copies; flags of
    SGLang 0.5.23, vLLM 0.33.0 and trtllm-serve 1.x. Where `servers` says more than one, it starts one of them."""
    parallel, engine = scenario.parallel, scenario.engine
    name = served_name(scenario.model, scenario.checkpoint)
    length = context_length(scenario.model, memory)
    drafts = scenario.speculative_tokens
    fraction = f"{memory.fraction:g}"
    requests = -(-requests // scenario.copies)  # SGLang and vLLM limit a copy's requests, not those of all
    parts: list[str]
    if engine == "sglang":
        parts = [f"python3 -m sglang.launch_server --model-path {name}", f"--tp-size {parallel.tp}"]
        parts += [f"--pp-size {parallel.pp}"] if parallel.pp > 1 else []
        parts += [f"--ep-size {parallel.ep}"] if parallel.ep > 1 else []
        if parallel.attention_dp > 1 and _before(scenario.engine_version, _NAMED_ATTENTION_DP):
            parts += [f"--dp-size {parallel.attention_dp} --enable-dp-attention"]
        elif parallel.attention_dp > 1:
            parts += [f"--attn-dp-size {parallel.attention_dp}"]
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
        ranks = parallel.attention_dp * (scenario.copies if servers(scenario) == 1 else 1)
        parts += [f"-dp {ranks}"] if ranks > 1 else []
        requests = -(-requests // parallel.attention_dp)  # --max-num-seqs is of one data-parallel rank
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
