"""The line that starts an engine in a layout, with a context length that its cache really holds."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Final

from tilewright.errors import InputError
from tilewright.libraries.engine_flags.concepts import concept, name_of, value_for
from tilewright.libraries.engine_flags.model import FlagSet
from tilewright.libraries.engine_flags.snapshots import snapshot, snapshot_versions
from tilewright.models.checkpoint import Checkpoint
from tilewright.models.records import Model
from tilewright.serving.memory import ServerMemory
from tilewright.serving.scenario import Scenario, kv_layout_of

__all__ = [
    "STARTS",
    "context_length",
    "drafting_words",
    "flag_requests",
    "lacking",
    "launch_line",
    "launch_notes",
    "layout_words",
    "line_or_note",
    "packaged_flags",
    "served_name",
    "servers",
]

STARTS: Final = {"sglang": "python3 -m sglang.launch_server", "vllm": "vllm serve"}
"""How a launch line of each engine begins."""

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
    """Tokens of context that one request may have: at most what the cache holds, and what the model was made for.
    `wanted`: what the load needs, which is never rounded off, and all where nobody knows what the cache holds."""
    room = memory.kv_tokens if memory.cache is not None else wanted or model.context
    limit = min(room, model.context) if model.context else room
    return max(0, limit // _ROUND * _ROUND or limit, min(wanted, limit))


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


def packaged_flags(engine: str, version: str | None) -> FlagSet | None:
    """The packaged flags nearest to a version of the engine; None where the engine's are not read (TensorRT-LLM)."""
    return snapshot(engine, version) if snapshot_versions(engine) else None


def _titled(flags: FlagSet) -> str:
    return f"{flags.engine} {flags.version}" if flags.version else flags.engine


def _sized(flags: FlagSet, ident: str, size: int) -> list[str]:
    if size <= 1:
        return []
    name = name_of(flags, ident)
    if name is None:
        msg = (
            f"{_titled(flags)} has no flag for {concept(ident).title}; choose a layout without it, or another version."
        )
        raise InputError(ident, msg)
    flag = flags.get(name)
    return [name] if flag is not None and flag.kind in ("switch", "bool") else [name, str(size)]


def layout_words(flags: FlagSet, scenario: Scenario) -> list[str]:
    """Flags of the scenario's layout, as the version calls them. Raises InputError where it has none for it."""
    parallel = scenario.parallel
    one = name_of(flags, "tp")
    tp = parallel.tp if flags.engine == "sglang" else parallel.attention_tp
    out = [one, str(tp)] if one is not None else []
    out += _sized(flags, "pp", parallel.pp)
    out += _sized(flags, "ep", parallel.ep)
    copies = scenario.copies if servers(scenario) == 1 else 1
    if flags.engine == "vllm":
        out += _sized(flags, "dp", parallel.attention_dp * copies)
    elif parallel.attention_dp > 1 and name_of(flags, "attention_dp") is not None:
        out += _sized(flags, "attention_dp", parallel.attention_dp)
    elif parallel.attention_dp > 1:
        # Before --attn-dp-size, --enable-dp-attention made the ranks of --dp-size share one tensor-parallel group.
        out += [*_sized(flags, "attention_dp_switch", 2), *_sized(flags, "dp", parallel.attention_dp)]
    else:
        out += _sized(flags, "dp", copies)
    return out + _sized(flags, "dcp", parallel.dcp)


def drafting_words(flags: FlagSet, drafts: int) -> list[str]:
    """Flags that draft so many tokens with the checkpoint's own layers; empty where the version has none."""
    name = name_of(flags, "drafting")
    if name is None:
        return []
    if flags.engine == "vllm":
        config = json.dumps({"method": "mtp", "num_speculative_tokens": drafts}, separators=(",", ":"))
        return [name, shlex.quote(config)]
    algorithm = value_for(flags, "drafting", "mtp")
    rest = [name_of(flags, ident) for ident in ("draft_steps", "draft_topk", "draft_tokens")]
    if algorithm is None or None in rest:
        return []
    values = (algorithm, str(drafts), "1", str(drafts + 1))
    return [word for pair in zip((name, *rest), values, strict=True) for word in pair if word is not None]


def flag_requests(scenario: Scenario, requests: int) -> int:
    """The value of the engine's flag that lets `requests` run over all copies and ranks.

    SGLang divides --max-running-requests by the ranks of an attention-data-parallel server (0.5.9
    srt/model_executor/model_runner.py:597, 0.5.23 srt/mem_cache/kv_cache_configurator.py:3128) and gives each whole
    copy of --dp-size the full number; vLLM counts --max-num-seqs a data-parallel rank (0.33.0 config/scheduler.py,
    "applies per data-parallel rank").
    """
    ranks = scenario.parallel.attention_dp if scenario.engine == "vllm" else 1
    return max(1, -(-requests // (scenario.copies * ranks)))


def _kv_words(flags: FlagSet, scenario: Scenario) -> list[str]:
    """The cache format that the line's budget counts with; nothing where the engine takes that by itself and the
    version has no word for it."""
    name = name_of(flags, "kv_dtype")
    layout = {"fp8_ds_mla": "fp8"}.get(scenario.kv_layout, scenario.kv_layout)
    value = value_for(flags, "kv_dtype", layout) if name is not None else None
    if name is None:
        return []
    if value is not None:
        return [name, value]
    usual = kv_layout_of(scenario.model, scenario.checkpoint, scenario.engine, scenario.sparse, None)
    if usual == scenario.kv_layout:
        return []
    msg = f"{_titled(flags)} has no {layout} cache; choose another cache format, or another version."
    raise InputError("kv_dtype", msg)


def launch_line(scenario: Scenario, memory: ServerMemory, requests: int, flags: FlagSet | None = None) -> str:
    """A launch line for the layout, memory fraction, cache format and number of requests of all copies, in the words
    of `flags` (None: of the packaged release nearest to the scenario's version) or of trtllm-serve 1.x. Where
    `servers` says more than one, it starts one of them.

    Raises InputError where the version has no flag for the layout or the cache format.
    """
    engine, parallel = scenario.engine, scenario.parallel
    name = served_name(scenario.model, scenario.checkpoint)
    length = context_length(scenario.model, memory, scenario.context)
    fraction = f"{memory.fraction:g}"
    value = str(flag_requests(scenario, requests))
    flags = flags if flags is not None else packaged_flags(engine, scenario.engine_version)
    if flags is None:
        parts = [f"trtllm-serve {name}", f"--tp_size {parallel.tp}"]
        parts += [f"--pp_size {parallel.pp}"] if parallel.pp > 1 else []
        parts += [f"--ep_size {parallel.ep}"] if parallel.ep > 1 else []
        parts += [f"--kv_cache_free_gpu_memory_fraction {fraction}", f"--max_seq_len {length}"]
        return " ".join([*parts, f"--max_batch_size {value}"])
    words = [STARTS[engine]]
    words += [name] if engine == "vllm" else [name_of(flags, "model") or "--model-path", name]
    words += layout_words(flags, scenario)
    for ident, text in (("memory_share", fraction), ("context", str(length)), ("max_requests", value)):
        flag = name_of(flags, ident)
        words += [flag, text] if flag is not None else []
    words += _kv_words(flags, scenario)
    words += drafting_words(flags, scenario.speculative_tokens) if scenario.speculative_tokens else []
    return " ".join(words)


def lacking(flags: FlagSet | None, scenario: Scenario) -> str:
    """What the scenario's version has no flag for in its layout; empty where it has all, or its own flags are not
    known (a version between packaged ones)."""
    if flags is None or (flags.snapshot and scenario.engine_version not in (None, flags.version)):
        return ""
    try:
        layout_words(flags, scenario)
    except InputError as error:
        return error.msg.partition(";")[0]
    return ""


def line_or_note(
    scenario: Scenario, memory: ServerMemory, requests: int, flags: FlagSet | None, notes: list[str]
) -> str | None:
    """`launch_line`; None, and why in `notes`, where the version has no word for what it needs."""
    try:
        return launch_line(scenario, memory, requests, flags)
    except InputError as error:
        notes.append("no launch line: " + error.msg.removesuffix("."))
        return None
