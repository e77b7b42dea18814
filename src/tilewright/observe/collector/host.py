"""The machine: kernel, CPU, NUMA, huge pages, IOMMU and ACS, as the kernel shows them. Nothing is changed."""

from __future__ import annotations

import os
import platform
import re

from tilewright.observe.collector.gpus import bus_path
from tilewright.observe.collector.tools import Notes, listing, read_bytes, read_text

ACS_CAPABILITY = 0x000D
ACS_CONTROL = 6
REQUEST_REDIRECT, COMPLETION_REDIRECT = 0x4, 0x8
"""PCI Express base specification: extended capability 000Dh, control register at offset 6, bits 2 and 3."""
EXTENDED = 0x100
"""Where the extended capabilities begin in configuration space."""
ROOT_ONLY_BYTES = 64
"""What the kernel shows of configuration space to everybody; the rest is for root."""


def iommu_mode(bus_ids: list[str]) -> str | None:
    """How the IOMMU treats the GPUs: off, passthrough or translated."""
    if not listing("/sys/class/iommu"):
        return "off"
    kinds: set[str] = set()
    for bus_id in bus_ids:
        kind = read_text(bus_path(bus_id) + "/iommu_group/type")
        if kind:
            kinds.add("passthrough" if kind == "identity" else "translated")
    if kinds:
        return "translated" if "translated" in kinds else "passthrough"
    line = read_text("/proc/cmdline") or ""
    return "passthrough" if re.search(r"\biommu=pt\b", line) else None


def acs_control(config: bytes) -> int | None:
    """The ACS control register in a device's configuration space; None where it has none."""
    place = EXTENDED
    for _ in range(96):  # a list of capabilities that ran in a circle would otherwise never end
        if place < EXTENDED or place + 8 > len(config):
            return None
        head = int.from_bytes(config[place : place + 4], "little")
        if head in (0, 0xFFFFFFFF):
            return None
        if head & 0xFFFF == ACS_CAPABILITY:
            return int.from_bytes(config[place + ACS_CONTROL : place + ACS_CONTROL + 2], "little")
        place = head >> 20
    return None


def bridges_above(bus_ids: list[str]) -> list[str]:
    """The sysfs folders of every bridge and root port above the GPUs."""
    found: list[str] = []
    for bus_id in bus_ids:
        path = os.path.dirname(os.path.realpath(bus_path(bus_id)))
        while re.search(r"/[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]\Z", path):
            if path not in found:
                found.append(path)
            path = os.path.dirname(path)
    return found


def acs_redirect(bus_ids: list[str], notes: Notes) -> bool | None:
    """Whether a port above a GPU redirects peer requests; None where that cannot be read."""
    known: bool | None = None
    for path in bridges_above(bus_ids):
        config = read_bytes(path + "/config", 4096)
        if config is None or len(config) <= ROOT_ONLY_BYTES:
            notes.add("ACS is readable for root only")
            continue
        control = acs_control(config)
        if control is not None and control & (REQUEST_REDIRECT | COMPLETION_REDIRECT):
            return True
        known = False
    return known


def host_section(bus_ids: list[str], notes: Notes) -> dict[str, object]:
    """`host`, without what nvidia-smi knows."""
    info = read_text("/proc/cpuinfo") or ""
    model = re.search(r"^model name\s*: (.+)$", info, re.M)
    memory = re.search(r"^MemTotal:\s+(\d+) kB", read_text("/proc/meminfo") or "", re.M)
    pages = re.search(r"\[(\w+)\]", read_text("/sys/kernel/mm/transparent_hugepage/enabled") or "")
    nodes = [name for name in listing("/sys/devices/system/node") if re.match(r"node\d+\Z", name)]
    entry: dict[str, object] = {
        "kernel": platform.release() or None,
        "cpu": model.group(1).strip()[:200] if model else platform.machine() or None,
        "cpus": os.cpu_count(),
        "memory_bytes": int(memory.group(1)) * 1024 if memory else None,
        "transparent_hugepages": pages.group(1) if pages else None,
        "numa_nodes": len(nodes) or None,
        "iommu": iommu_mode(bus_ids),
        "acs_redirect": acs_redirect(bus_ids, notes),
    }
    return {name: value for name, value in entry.items() if value is not None}
