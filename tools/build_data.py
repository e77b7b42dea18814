"""Make the packaged data files from a facts folder.

    python tools/build_data.py FACTS_DIR [--out src/tilewright/data]

FACTS_DIR holds gpus.json, models.json and measurements.json (or the same with .gz). Every decision between sources
is a row of `gpu_decisions.py` or `model_decisions.py`, with its reason; what no row decides is taken as it is, with
its source. Sources are interned: a figure holds indices into the file's `sources` table. The output is deterministic,
and `tests/hardware/test_packaged_data.py` rebuilds it from the copies in tests/data/facts.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import gpu_decisions as gpu
import model_decisions as model
from plain import plain

MIB = 1 << 20
GIB = 1 << 30
# Figures that somebody read off a device or timed, by the facts' field name; all others are published.
MEASURED_FIELDS = {
    "measured_best_gemm_tflops",
    "memory_mib_reported",
    "sustained_clock_note",
    "smem_per_sm_queried_bytes",
}
RENAMED = {"sustained_clock_note": "sustained_clock_mhz"}
TENSOR_RATES = ("tflops_", "int8_tops")


class Sources:
    """The table of sources of one file: each once, figures hold indices."""

    def __init__(self) -> None:
        self.table: list[str] = []
        self._index: dict[str, int] = {}

    def add(self, text: str) -> int:
        if text not in self._index:
            self._index[text] = len(self.table)
            self.table.append(text)
        return self._index[text]


def read(facts: Path, name: str) -> Any:
    plain, packed = facts / name, facts / f"{name}.gz"
    if plain.exists():
        return json.loads(plain.read_text(encoding="utf-8"))
    if packed.exists():
        return json.loads(gzip.decompress(packed.read_bytes()))
    raise SystemExit(f"{facts} holds neither {name} nor {name}.gz; give the facts folder as the first argument")


def figure(
    entry: dict[str, Any], kind: str, sources: Sources, decision: dict[str, Any] | None = None
) -> dict[str, Any]:
    """One packaged figure from a facts entry {value, source, note} and what was decided about it."""
    decision = decision or {}
    if "expect" in decision and entry.get("value") != decision["expect"]:
        raise SystemExit(f"the facts changed: expected {decision['expect']!r}, found {entry.get('value')!r}")
    value = decision.get("value", entry.get("value")) if "value" in decision else entry.get("value")
    source = decision.get("source") or entry.get("source")
    note = decision.get("note", entry.get("note"))
    if value is not None and not source:
        raise SystemExit(f"no source for {value!r} ({note})")
    out: dict[str, Any] = {"value": value}
    if value is not None:
        out["kind"] = decision.get("kind", kind)
    if source and (value is not None or note):
        out["sources"] = [sources.add(source)]
    if note:
        out["note"] = plain(note)
    rejected = [
        {
            "value": item["value"],
            "source": sources.add(entry["source"] if item["source"] == "facts" else item["source"]),
            "why": plain(item["why"]),
        }
        for item in decision.get("rejected", ())
    ]
    if rejected:
        out["rejected"] = rejected
    return out


def kind_of(field: str, entry: dict[str, Any]) -> str:
    if field in MEASURED_FIELDS:
        return "measured"
    # The facts' conventions: tensor rates on this site are computed from core counts and clocks.
    if field.startswith(TENSOR_RATES) and "hmc-tech.com" in (entry.get("source") or ""):
        return "derived"
    return "published"


def split_pcie(entry: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The facts' one PCIe object as figures of their own."""
    value = entry.get("value") or {}
    base = {"source": entry.get("source"), "note": entry.get("note") or value.get("note")}
    per_direction = value.get("GBs_per_dir") or value.get("theoretical_GBs_per_dir")
    if per_direction is None and "GBs_bidir" in value:
        per_direction = value["GBs_bidir"] / 2
    out = {
        "pcie_gen": {**base, "value": value.get("gen")},
        "pcie_lanes": {**base, "value": value.get("lanes")},
        "pcie_gbs_per_direction": {**base, "value": per_direction},
    }
    if "measured_p2p_GBs_per_dir" in value:
        out["pcie_p2p_measured_gbs"] = {"value": value["measured_p2p_GBs_per_dir"], "source": entry["source"]}
    return out


def memory_bytes(figures: dict[str, Any]) -> dict[str, Any]:
    """Bytes of device memory: what the driver reports where somebody read it, else the nameplate taken as GiB."""
    reported, nameplate = figures.get("memory_mib_reported"), figures["memory_gb"]
    if reported and reported["value"] is not None:
        return {
            "value": reported["value"] * MIB,
            "kind": "derived",
            "sources": reported["sources"],
            "note": f"{reported['value']:,} MiB as the driver reports it",
        }
    if nameplate["value"] is None:
        return {"value": None}
    return {
        "value": round(nameplate["value"] * GIB),
        "kind": "derived",
        "sources": nameplate["sources"],
        "note": "the nameplate figure taken as GiB; drivers report 0.4 to 1% less",
    }


def build_gpus(facts: Path) -> dict[str, Any]:
    raw = read(facts, "gpus.json")
    sources = Sources()
    used: set[tuple[str, str]] = set()

    def decide(gpu_name: str, field: str) -> dict[str, Any] | None:
        decision = gpu.DECISIONS.get((gpu_name, field))
        if decision is not None:
            used.add((gpu_name, field))
        return decision

    architectures: dict[str, dict[str, Any]] = {}
    entries: list[dict[str, Any]] = []
    for name, row in raw["gpus"].items():
        identity = gpu.IDENTITY[name]
        cc = row["compute_capability"]["value"]
        limits = {
            field: figure(row[field], "published", sources, gpu.ARCHITECTURE_DECISIONS.get((cc, field)))
            for field in gpu.ARCHITECTURE_FIELDS
        }
        for field, entry in gpu.ARCHITECTURE_EXTRAS.get(cc, {}).items():
            limits[field] = figure(entry, "published", sources)
        if architectures.setdefault(cc, limits) != limits:
            raise SystemExit(f"{name}: limits differ from another GPU of compute capability {cc}")
        figures: dict[str, Any] = {}
        for field, entry in row.items():
            if field in gpu.ARCHITECTURE_FIELDS:
                continue
            if field == "interconnect_pcie":
                for sub, value in split_pcie(entry).items():
                    kind = "measured" if "measured" in sub else "published"
                    figures[sub] = figure(value, kind, sources, decide(name, sub))
                continue
            key = RENAMED.get(field, field)
            figures[key] = figure(entry, kind_of(field, entry), sources, decide(name, key))
        for (gpu_name, field), decision in gpu.DECISIONS.items():
            if gpu_name == name and field not in figures:
                figures[field] = figure({}, decision.get("kind", "published"), sources, decide(name, field))
        figures["memory_bytes"] = memory_bytes(figures)
        entries.append(
            {
                "key": identity["key"],
                "name": identity["name"],
                "compute_capability": cc,
                "aliases": identity.get("aliases", []),
                "words": identity["words"],
                "needs": identity["needs"],
                "figures": figures,
            }
        )
    unused = set(gpu.DECISIONS) - used
    if unused:
        raise SystemExit(f"decisions that apply to nothing: {sorted(unused)}")
    return {
        "facts_of": raw["generated"],
        "sources": sources.table,
        "architectures": architectures,
        "gpus": entries,
    }


def build_measurements(facts: Path) -> dict[str, Any]:
    raw = read(facts, "measurements.json")
    for row in raw["measurements"]:
        if not row.get("source"):
            raise SystemExit(f"measurement {row.get('id')} has no source")
        warning = model.MEASUREMENT_WARNINGS.get(row["id"])
        if warning:
            row["warning"] = plain(warning)
    ids = {row["id"] for row in raw["measurements"]}
    missing = set(model.MEASUREMENT_WARNINGS) - ids
    if missing or len(ids) != len(raw["measurements"]):
        raise SystemExit(f"measurement ids: unknown {sorted(missing)} or not unique")
    return {"facts_of": raw["generated"], "conventions": raw["conventions"], "measurements": raw["measurements"]}


def build_models(facts: Path) -> dict[str, Any]:
    from build_models import build

    return build(read(facts, "models.json"), Sources())


def render(document: dict[str, Any]) -> bytes:
    """JSON, one entry a line so that a change shows as a small diff."""
    lines = ["{"]
    items = list(document.items())
    for i, (key, value) in enumerate(items):
        comma = "," if i < len(items) - 1 else ""
        if isinstance(value, list):
            body = ",\n".join(json.dumps(item, ensure_ascii=False, separators=(",", ":")) for item in value)
            lines.append(f"{json.dumps(key)}:[\n{body}\n]{comma}")
        elif isinstance(value, dict):
            body = ",\n".join(
                f"{json.dumps(k)}:{json.dumps(v, ensure_ascii=False, separators=(',', ':'))}" for k, v in value.items()
            )
            lines.append(f"{json.dumps(key)}:{{\n{body}\n}}{comma}")
        else:
            lines.append(f"{json.dumps(key)}:{json.dumps(value, ensure_ascii=False)}{comma}")
    lines.append("}")
    return ("\n".join(lines) + "\n").encode()


BUILDERS = {"gpus.json": build_gpus, "models.json": build_models, "measurements.json": build_measurements}


def build_all(facts: Path) -> dict[str, bytes]:
    """File name -> bytes of each packaged file."""
    return {name: render(builder(facts)) for name, builder in BUILDERS.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("facts", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "src" / "tilewright" / "data")
    args = parser.parse_args()
    for name, content in build_all(args.facts).items():
        (args.out / name).write_bytes(content)
        print(f"{args.out / name}: {len(content):,} bytes")


if __name__ == "__main__":
    main()
