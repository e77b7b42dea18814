"""One snapshot, as JSON on stdout."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from tilewright.observe.collector.gpus import gpu_section
from tilewright.observe.collector.host import host_section
from tilewright.observe.collector.metrics import fetch_metrics, metric_section
from tilewright.observe.collector.server import server_section
from tilewright.observe.collector.tools import Notes

SCHEMA = "tilewright/observe/1"
PORTS = {"sglang": 30000, "vllm": 8000, "trtllm": 8000}
"""Default ports of the engines' servers."""


def local_url(engine: dict[str, Any] | None) -> str | None:
    """Where a server that runs on this host answers, from its flags."""
    if engine is None:
        return None
    port = engine["flags"].get("port", PORTS[engine["name"]])
    return "http://127.0.0.1:" + str(port) if isinstance(port, int) else None


def collect(seconds: float, pid: int | None = None, url: str | None = None) -> dict[str, Any]:
    """The snapshot: the window is `seconds` long, everything else is read once."""
    notes = Notes()
    server = server_section(pid, notes)
    address = url or local_url(server.get("engine"))
    first = fetch_metrics(address, notes) if address else None
    begun = time.monotonic()
    gpus = gpu_section(seconds, notes)
    left = seconds - (time.monotonic() - begun)
    if first is not None and left > 0:
        time.sleep(left)
    window = time.monotonic() - begun
    last = fetch_metrics(address, notes) if first is not None and address else None
    host = host_section(gpus["bus_ids"], notes)
    for key in ("driver", "cuda"):
        if gpus[key]:
            host[key] = gpus[key]
    snapshot: dict[str, Any] = {
        "schema": SCHEMA,
        "taken_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seconds": round(window, 3),
        "gpus": gpus["gpus"],
        "p2p": gpus["p2p"],
        "host": host,
        "libraries": server["libraries"],
        "trees": server["trees"],
        "metrics": metric_section(first, last, window),
        "notes": notes.lines,
    }
    if "engine" in server:
        snapshot["engine"] = server["engine"]
    return snapshot


def collect_main(words: list[str]) -> int:
    """The script's own command line."""
    parser = argparse.ArgumentParser(description="One read-only snapshot of this host and its server, as JSON.")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--pid", type=int)
    parser.add_argument("--url")
    given = parser.parse_args(words)
    json.dump(collect(max(0.0, given.seconds), given.pid, given.url), sys.stdout, separators=(",", ":"))
    sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(collect_main(sys.argv[1:]))
