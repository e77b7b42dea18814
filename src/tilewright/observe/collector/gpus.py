"""The GPUs as nvidia-smi shows them: power, clocks, throttling, links, over a window; topology and peer access."""

from __future__ import annotations

import re
import time
from typing import Any

from tilewright.observe.collector.tools import Notes, call, middle_of, number, read_text, whole

MIB = 1 << 20
FIELDS = [
    "index", "name", "pci.bus_id", "power.draw", "power.limit", "power.max_limit", "clocks.sm", "clocks.max.sm",
    "clocks.mem", "clocks.max.mem", "temperature.gpu", "utilization.gpu", "utilization.memory", "memory.used",
    "memory.total", "pcie.link.gen.current", "pcie.link.gen.max", "pcie.link.width.current", "pcie.link.width.max",
    "ecc.mode.current", "persistence_mode", "driver_version", "clocks_event_reasons.active",
]  # fmt: skip
OLD_NAMES = {"clocks_event_reasons.active": "clocks_throttle_reasons.active"}
REASONS = {
    0x1: "gpu_idle", 0x2: "applications_clocks_setting", 0x4: "sw_power_cap", 0x8: "hw_slowdown", 0x10: "sync_boost",
    0x20: "sw_thermal_slowdown", 0x40: "hw_thermal_slowdown", 0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}  # fmt: skip
"""nvml.h: nvmlClocksEventReason*."""
ALWAYS_TOLD = {"hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"}
"""Reasons that matter even if they held for one sample of the window; the others count when they held for half."""
_INVALID = re.compile(r'Field "([\w.]+)" is not a valid field')
TOPOLOGY = re.compile(r"(?:X|PIX|PXB|PHB|NODE|SYS|NV\d{1,2})\Z")


def query(fields: list[str], notes: Notes) -> list[dict[str, str]]:
    """One reading of every GPU; fields that this nvidia-smi does not know are taken out of `fields`."""
    for _ in range(len(fields)):
        command = ["nvidia-smi", "--query-gpu=" + ",".join(fields), "--format=csv,noheader,nounits"]
        quiet = Notes()
        out = call(command, quiet)
        if out is not None:
            rows = [line.split(", ") for line in out.splitlines() if line.strip()]
            return [dict(zip(fields, row)) for row in rows if len(row) == len(fields)]
        wrong = _INVALID.search(" ".join(quiet.lines))
        if not wrong or wrong.group(1) not in fields:
            for line in quiet.lines:
                notes.add(line)
            return []
        place = fields.index(wrong.group(1))
        older = OLD_NAMES.get(fields[place])
        if older:
            fields[place] = older
        else:
            notes.add("nvidia-smi does not know " + fields.pop(place))
    return []


def reasons_of(samples: list[str | None]) -> list[str] | None:
    """Names of the throttle reasons of one GPU over its samples (hex masks)."""
    masks: list[int] = []
    for text in samples:
        try:
            masks.append(int((text or "").strip(), 16))
        except ValueError:
            continue
    if not masks:
        return None
    found: list[str] = []
    for bit, name in REASONS.items():
        held = sum(1 for mask in masks if mask & bit)
        if held and (name in ALWAYS_TOLD or held * 2 >= len(masks)):
            found.append(name)
    return found


def bus_path(bus_id: str) -> str:
    """The sysfs folder of a GPU: nvidia-smi writes the domain with eight digits, the kernel with four."""
    domain, _, rest = bus_id.strip().lower().partition(":")
    return "/sys/bus/pci/devices/" + domain[-4:] + ":" + rest


def one_gpu(readings: list[dict[str, str]]) -> dict[str, object]:
    """A GPU's entry from its readings: medians of what varies, the last of what does not."""
    last = readings[-1]

    def median(field: str) -> float | None:
        return middle_of([number(row.get(field)) for row in readings])

    def count(field: str) -> int | None:
        value = median(field)
        return None if value is None else round(value)

    def size(field: str) -> int | None:
        value = median(field)
        return None if value is None else int(value) * MIB

    def switch(field: str) -> bool | None:
        return {"Enabled": True, "Disabled": False}.get(last.get(field, "").strip())

    masks = [row.get("clocks_event_reasons.active", row.get("clocks_throttle_reasons.active")) for row in readings]
    node = read_text(bus_path(last.get("pci.bus_id", "")) + "/numa_node")
    entry: dict[str, object] = {
        "index": whole(last.get("index")),
        "name": last.get("name", "").strip() or None,
        "power_draw_w": median("power.draw"),
        "power_limit_w": median("power.limit"),
        "power_limit_max_w": median("power.max_limit"),
        "clock_sm_mhz": count("clocks.sm"),
        "clock_sm_max_mhz": count("clocks.max.sm"),
        "clock_mem_mhz": count("clocks.mem"),
        "clock_mem_max_mhz": count("clocks.max.mem"),
        "throttle_reasons": reasons_of(masks),
        "temperature_c": median("temperature.gpu"),
        "utilization_gpu_pct": median("utilization.gpu"),
        "utilization_mem_pct": median("utilization.memory"),
        "memory_used_bytes": size("memory.used"),
        "memory_total_bytes": size("memory.total"),
        "pcie_gen": count("pcie.link.gen.current") or None,
        "pcie_gen_max": count("pcie.link.gen.max") or None,
        "pcie_width": count("pcie.link.width.current") or None,
        "pcie_width_max": count("pcie.link.width.max") or None,
        "numa_node": whole(node),
        "ecc": switch("ecc.mode.current"),
        "persistence": switch("persistence_mode"),
    }
    return {name: value for name, value in entry.items() if value is not None}


def sample(seconds: float, notes: Notes, tick: float = 1.0) -> tuple[list[list[dict[str, str]]], str | None]:
    """(readings of each GPU over the window, driver version)."""
    fields = list(FIELDS)
    end = time.monotonic() + seconds
    by_gpu: dict[str, list[dict[str, str]]] = {}
    driver: str | None = None
    while True:
        begun = time.monotonic()
        rows = query(fields, notes)
        for row in rows:
            by_gpu.setdefault(row.get("index", ""), []).append(row)
            driver = row.get("driver_version", "").strip() or driver
        now = time.monotonic()
        if not rows or now >= end:
            break
        time.sleep(max(0.0, min(tick - (now - begun), end - now)))
    return [readings for _, readings in sorted(by_gpu.items(), key=lambda item: whole(item[0]) or 0)], driver


def bar1_bytes(text: str) -> list[int]:
    """BAR1 sizes in the order of the GPUs, from `nvidia-smi -q -d MEMORY`."""
    return [int(size) * MIB for size in re.findall(r"BAR1 Memory Usage\s+Total\s+: (\d+) MiB", text)]


def matrix(text: str) -> dict[tuple[int, int], str]:
    """(source, target) -> cell of a matrix that `nvidia-smi topo` prints."""
    cells: dict[tuple[int, int], str] = {}
    columns: list[int] = []
    for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines():
        words = line.split()
        if not words:
            continue
        if not columns and words[0].startswith("GPU") and line[:1].isspace():
            columns = [int(word[3:]) for word in words if re.match(r"GPU\d+\Z", word)]
        elif columns and re.match(r"GPU\d+\Z", words[0]):
            for column, cell in zip(columns, words[1:]):
                cells[(int(words[0][3:]), column)] = cell
    return cells


def peers(notes: Notes) -> list[dict[str, object]]:
    """Every ordered pair of GPUs: how they are connected and whether the driver allows peer reads."""
    links = matrix(call(["nvidia-smi", "topo", "-m"], notes) or "")
    access = matrix(call(["nvidia-smi", "topo", "-p2p", "r"], Notes()) or "")
    pairs: list[dict[str, object]] = []
    for source, target in sorted(set(links) | set(access)):
        if source == target:
            continue
        pair: dict[str, object] = {"source": source, "target": target}
        if TOPOLOGY.match(links.get((source, target), "")):
            pair["topology"] = links[(source, target)]
        if (source, target) in access:
            pair["capable"] = access[(source, target)] == "OK"
        pairs.append(pair)
    return pairs


def gpu_section(seconds: float, notes: Notes) -> dict[str, Any]:
    """`gpus`, `p2p` and what nvidia-smi says of driver and CUDA."""
    readings, driver = sample(seconds, notes)
    gpus = [one_gpu(rows) for rows in readings]
    if not gpus:
        return {"gpus": [], "p2p": [], "driver": None, "cuda": None, "bus_ids": []}
    sizes = bar1_bytes(call(["nvidia-smi", "-q", "-d", "MEMORY"], notes) or "")
    if len(sizes) == len(gpus):
        for gpu, size in zip(gpus, sizes):
            gpu["bar1_total_bytes"] = size
    head = re.search(r"CUDA Version\s*: ?([\d.]+)", call(["nvidia-smi"], notes) or "")
    return {
        "gpus": gpus,
        "p2p": peers(notes) if len(gpus) > 1 else [],
        "driver": driver,
        "cuda": head.group(1) if head else None,
        "bus_ids": [rows[-1].get("pci.bus_id", "") for rows in readings],
    }
