"""models.json from the facts: configs under the families' own keys, checkpoints with their exclude lists."""

from __future__ import annotations

from typing import Any

import model_decisions as decide
from plain import plain


def _config(entry: dict[str, Any], sources: Any) -> tuple[dict[str, Any], dict[str, int]]:
    """The config under the keys of its family, and the sources of the keys that do not come from the config file."""
    key, own_source = entry["key"], entry.get("config_source")
    config: dict[str, Any] = {}
    others: dict[str, int] = {}
    for field, figure in entry["config"].items():
        value = figure["value"]
        if value is None or field in decide.DROPPED:
            continue
        name = decide.RENAMED.get(field, field)
        config[name] = value
        if figure["source"] and figure["source"] != own_source:
            others[name] = sources.add(figure["source"])
    values, source = decide.SUPPLEMENTS.get(key, ({}, None))
    for name, value in values.items():
        config[name] = value
        if source:
            others[name] = sources.add(source)
    pattern = entry["config"]["layer_pattern"]["value"]
    if isinstance(pattern, str):
        config["hybrid_override_pattern"] = pattern
    for name, value in decide.OVERRIDES.get(key, {}).items():
        if value is None:
            config.pop(name, None)
        else:
            config[name] = value
    return config, others


def _figure(entry: dict[str, Any] | None, sources: Any) -> dict[str, Any] | None:
    if not entry or entry.get("value") is None:
        return None
    out = {"value": entry["value"], "kind": "published", "sources": [sources.add(entry["source"])]}
    if entry.get("note"):
        out["note"] = entry["note"]
    return out


def _quantisation(entry: dict[str, Any]) -> dict[str, Any]:
    """The checkpoint's config as such configs are written; layer ranges stay packed as [pattern, "0-77"]."""
    patterns = [
        [item["pattern"], item["layers"]] if item["layers"] else item["pattern"]
        for item in entry.get("unquantised_patterns", [])
    ]
    algorithm = entry["quant_algo"]
    if algorithm in ("fp8", "mxfp4"):
        out: dict[str, Any] = {"quant_method": algorithm}
        if entry.get("weight_block_size"):
            out["weight_block_size"] = entry["weight_block_size"]
        if patterns:
            out["modules_to_not_convert"] = patterns
        return out
    out = {"quant_method": "modelopt", "quant_algo": algorithm}
    if entry.get("kv_cache_quant_algo"):
        out["kv_cache_quant_algo"] = entry["kv_cache_quant_algo"]
    if entry.get("group_size"):
        out["group_size"] = entry["group_size"]
    if patterns:
        out["ignore"] = patterns
    return out


def _checkpoint(key: str, index: int, entry: dict[str, Any], sources: Any) -> dict[str, Any]:
    rule = decide.CHECKPOINTS.get((key, index), {})
    if rule.get("skip"):
        return {"skip": rule["skip"]}
    name = rule.get("name", entry["checkpoint"])
    out: dict[str, Any] = {"name": name}
    source = entry.get("source")
    if not source:
        raise SystemExit(f"{key}: checkpoint {name} has no source")
    out["source"] = sources.add(source)
    if "format" in rule:
        out["uniform"] = {"format": rule["format"], "quantised": rule["quantised"]}
    elif "algorithm" in rule:
        patterns = [[p, layers] if layers else p for p, layers in rule["ignore"]]
        out["quantization"] = {"quant_method": "modelopt", "quant_algo": rule["algorithm"], "ignore": patterns}
    else:
        if "unquantised_patterns" not in entry:
            raise SystemExit(f"{key}: checkpoint {name} is described in words and no decision says how to take it")
        out["quantization"] = _quantisation({**entry, **rule})
    for field in ("has_mtp", "experts"):
        if field in rule:
            out[field] = rule[field]
    if entry.get("size_GB"):
        out["size_gb"] = entry["size_GB"]
    notes = [text for text in (entry.get("note"), rule.get("note")) if text]
    if notes:
        out["notes"] = notes
    return out


def build(raw: dict[str, Any], sources: Any) -> dict[str, Any]:
    models: list[dict[str, Any]] = []
    used: set[tuple[str, int]] = set()
    for entry in raw["models"]:
        key = entry["key"]
        config, others = _config(entry, sources)
        hf_ids = decide.HF_IDS.get(key, [entry["hf_id"]])
        if any(" " in hf_id or "," in hf_id for hf_id in hf_ids):
            raise SystemExit(f"{key}: {entry['hf_id']!r} is no Hugging Face id and no decision gives one")
        checkpoints, notes = [], [entry["notes"]] if entry.get("notes") else []
        for index, checkpoint in enumerate(entry.get("quantised_checkpoints") or []):
            used.add((key, index))
            packed = _checkpoint(key, index, checkpoint, sources)
            if "skip" in packed:
                notes.append(packed["skip"])
            else:
                checkpoints.append(packed)
        out: dict[str, Any] = {
            "key": key,
            "aliases": decide.ALIASES.get(key, []),
            "hf_ids": hf_ids,
            "config_source": sources.add(entry["config_source"]),
            "config": config,
        }
        if others:
            out["config_sources"] = others
        for field, name in (("published_total_params_B", "total_b"), ("published_active_params_B", "active_b")):
            figure = _figure(entry.get(field), sources)
            if figure:
                out[name] = figure
        if key in decide.MODEL_REJECTED:
            out["rejected"] = [
                {"value": item["value"], "source": sources.add(item["source"]), "why": plain(item["why"])}
                for item in decide.MODEL_REJECTED[key]
            ]
        if key in decide.MTP_NOT_STORED:
            for checkpoint in checkpoints:
                checkpoint["has_mtp"] = False
            notes.append(decide.MTP_NOT_STORED[key])
        out["checkpoints"] = checkpoints
        if notes:
            out["notes"] = notes
        models.append(out)
    unused = set(decide.CHECKPOINTS) - used
    if unused:
        raise SystemExit(f"checkpoint decisions that apply to nothing: {sorted(unused)}")
    return {
        "facts_of": raw["generated"],
        "licence": raw["licence_note"],
        "sources": sources.table,
        "models": models,
    }
