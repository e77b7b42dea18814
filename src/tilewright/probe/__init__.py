"""The only place that runs a compiler: real types in, sizes, registers and spills out.

    from tilewright.probe import Request, Settings, find_nvcc, open_headers, probe

    trees, scatter = open_headers(["flashinfer_python-0.6.2-py3-none-any.whl"])
    results = probe([Request(config, trees[0])], Settings(find_nvcc(), scatter))

The names are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.probe.against import Comparison, compare
    from tilewright.probe.compiler import Compiler, find_nvcc
    from tilewright.probe.headers import Headers, open_headers, pick_headers
    from tilewright.probe.result import KernelBuild, ProbeResult
    from tilewright.probe.rounds import Settings
    from tilewright.probe.run import Request, probe
    from tilewright.probe.sampling import sample_configs

_HOME = {
    "Comparison": "against",
    "Compiler": "compiler",
    "Headers": "headers",
    "KernelBuild": "result",
    "ProbeResult": "result",
    "Request": "run",
    "Settings": "rounds",
    "compare": "against",
    "find_nvcc": "compiler",
    "open_headers": "headers",
    "pick_headers": "headers",
    "probe": "run",
    "sample_configs": "sampling",
}

__all__ = [
    "Comparison",
    "Compiler",
    "Headers",
    "KernelBuild",
    "ProbeResult",
    "Request",
    "Settings",
    "compare",
    "find_nvcc",
    "open_headers",
    "pick_headers",
    "probe",
    "sample_configs",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        msg = f"module 'tilewright.probe' has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"tilewright.probe.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
