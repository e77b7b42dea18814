"""Compiling: a Triton kernel or our CUDA one into a cache that the measuring process reads. No GPU is needed."""

from __future__ import annotations

import hashlib
import os
import tempfile
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from tilewright.tune.layer import Layer

CACHE_VARIABLE: Final = "TILEWRIGHT_TUNE_CACHE"
"""Folder in which builds are kept for the processes of one run."""


def cache_folder() -> Path:
    """Where builds go: the folder that the run gave, else one of this process."""
    named = os.environ.get(CACHE_VARIABLE)
    return Path(named) if named else Path(tempfile.gettempdir()) / f"tilewright-tune-{os.getuid()}"


@lru_cache(maxsize=8)
def _function(source: str, name: str) -> Any:
    """The jit function `name` of `source`; Triton reads a function's text from a file, so there has to be one."""
    from tilewright.triton_.worker import load

    folder = cache_folder() / "sources" / hashlib.sha256(source.encode()).hexdigest()[:16] / str(os.getpid())
    folder.mkdir(parents=True, exist_ok=True)
    return load(source, name, str(folder))


def triton_kernel(source: str, name: str, job: dict[str, Any]) -> Any:
    """The compiled kernel of `job` (`moe_call.compilation`): from Triton's cache, or compiled into it."""
    os.environ.setdefault("TRITON_CACHE_DIR", str(cache_folder() / "triton"))
    triton = import_module("triton")
    target = import_module("triton.backends.compiler").GPUTarget("cuda", job["sm"], 32)
    from tilewright.triton_.worker import constant

    function = _function(source, name)
    names: list[str] = function.arg_names
    signature = {item: job["signature"].get(item, "constexpr") for item in names}
    constants = {(names.index(item),): constant(value, triton) for item, value in job["constants"].items()}
    attrs = {(names.index(item),): [["tt.divisibility", 16]] for item in job["divisible"]}
    made = import_module("triton.compiler").ASTSource(
        fn=function, signature=signature, constexprs=constants, attrs=attrs
    )
    options = {"num_warps": job["num_warps"], "num_stages": job["num_stages"]}
    return triton.compile(made, target=target, options=options)


def use_cubin_cache() -> Any:
    """`tilewright.kernels.builds`, which keeps what it compiles in the run's folder."""
    builds_: Any = import_module("tilewright.kernels.builds")
    builds_.keep_in(cache_folder() / "cubins")
    return builds_


def grouped_defines(config: dict[str, int]) -> list[tuple[str, ...]]:
    """Compiler options of the two builds (gate-and-up with SiLU, weighted down) of one of our configs."""
    from tilewright.kernels.config import GroupedConfig
    from tilewright.kernels.launch import SILU, WEIGHTED

    return [GroupedConfig(**config).defines(mode) for mode in (SILU, WEIGHTED)]


def build(job: dict[str, Any]) -> dict[str, Any]:
    """Compile what `job` (from `builds`) names; what it takes as far as the compiler tells. Raises what it raises."""
    if job["kind"] == "cubin":
        arguments = (job["source"], job["target"], tuple(job["defines"]))
        compiled = use_cubin_cache()
        made = compiled.cubin(*arguments)
        return {"bytes": len(made), "cached": [f"cubins/{compiled.file_name(*arguments)}"]}
    compiled = triton_kernel(job["source"], job["name"], job["job"])
    folder = cache_folder().resolve()
    kept = {Path(path).resolve().parent for path in compiled.metadata_group.values()}
    return {
        "shared": compiled.metadata.shared,
        "cached": sorted(str(path.relative_to(folder)) for path in kept if path.is_relative_to(folder)),
    }


def builds(
    kernel: str, layer: Layer, tokens: int, config: dict[str, int], sm: int, source: Any = None
) -> list[dict[str, Any]]:
    """The compilations that a trial needs, each a dict that goes through JSON. `source`: the Triton kernel's text."""
    if kernel == "ours":
        from tilewright.kernels.launch import architecture

        target = architecture(sm // 10, sm % 10)
        return [
            {"kind": "cubin", "source": "nvfp4_grouped.cu", "target": target, "defines": list(defines)}
            for defines in grouped_defines(config)
        ]
    from tilewright.tune.moe_call import PARTS, compilation

    return [
        {
            "kind": "triton", "source": source.source, "name": source.name,
            "job": compilation(source, layer, tokens, part, config, sm),
        }
        for part in PARTS
    ]  # fmt: skip
