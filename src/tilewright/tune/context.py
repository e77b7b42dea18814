"""Where trials are comparable: the GPU, its driver, the versions of what takes part and the text of the kernel."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import Any

from tilewright.bench.backends.base import version_of
from tilewright.tune.trials import Context

_OUR_SOURCES = ("nvfp4_grouped.cu", "nvfp4_route.cu")


def source_digest(kernel: str, source: Any) -> str:
    """Digest of the kernel's text."""
    if kernel == "ours":
        from tilewright.kernels.nvrtc import HEADERS

        names = (*_OUR_SOURCES, *HEADERS)
        text = "".join(files("tilewright.kernels").joinpath(name).read_text() for name in names)
    else:
        text = source.source
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def context_of(device: Any, kernel: str, source: Any) -> Context:
    """The context of a run on `device` (`bench.device.Device`). `source`: the Triton kernel, None for ours."""
    packages = ("torch", "cuda-bindings") if kernel == "ours" else ("torch", "triton")
    versions = {name: found for name in packages if (found := version_of(name))}
    return Context(
        gpu=device.gpu, device_name=device.name, driver=device.driver, versions=versions, kernel=kernel,
        source=source_digest(kernel, source),
    )  # fmt: skip
