"""What was compiled of the patch, as packaged data (`data/fix_proof.json`, made by `tools/prove_fix.py`).

An entry holds for exactly the launcher, the patched launcher and the CUTLASS headers that it was compiled from: each is
known by its digest, and no other tree is answered from it.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from tilewright.libraries.flashinfer.fix_patch import Patch
from tilewright.libraries.flashinfer.layout import Layout, join

PREFIX: Final = "tma_warp_specialized_generic_moe_gemm_kernelLauncher_"
"""What every instantiation's name begins with; left out in the data."""


_OWN_HEADERS: Final = (
    "nv_internal/tensorrt_llm/cutlass_extensions",
    "nv_internal/tensorrt_llm/kernels/cutlass_kernels",
)
"""TensorRT-LLM's folders that spell types of the kernels, relative to `csrc`."""


class KernelFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One whole kernel as ptxas built it; bytes a thread for spills and stack, seconds for the compile."""

    registers: int
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int
    code_bytes: int
    seconds: float


class CompiledTactic(msgspec.Struct, frozen=True, kw_only=True):
    """One tactic of the launcher, compiled before and after the patch; kernels where they were built whole."""

    name: str
    bytes_before: int
    stages_before: int
    bytes_after: int
    stages_after: int
    kernel_before: KernelFigures | None = None
    kernel_after: KernelFigures | None = None


class Compiled(msgspec.Struct, frozen=True, kw_only=True):
    """The launcher's real types, compiled before and after the patch. Nothing of it was run."""

    kind: str
    nvcc: str
    target: str
    date: str
    source: str
    tactics: list[CompiledTactic]


class _Entry(msgspec.Struct, frozen=True):
    launcher: str
    patched: str
    headers: str
    tree: str
    nvcc: str
    target: str
    library: list[str]
    cutlass: str
    date: str
    types: dict[str, tuple[int, int, int, int]]
    kernels: dict[str, tuple[KernelFigures, KernelFigures]]


class _File(msgspec.Struct, frozen=True):
    proofs: list[_Entry]


def digest_of(text: str) -> str:
    """The digest by which a launcher is known."""
    return hashlib.sha256(text.encode()).hexdigest()


def key_of(layout: Layout, patch: Patch) -> dict[str, str]:
    """What a compiled answer depends on in the tree: both launchers, the headers beside them, CUTLASS's."""
    hashed = hashlib.sha256()
    for folder in _OWN_HEADERS:
        under = join(layout.csrc, folder)
        for path in layout.tree.files((".h", ".hpp", ".inl", ".cuh"), under):
            if not patch.file.endswith(path):
                data = layout.tree.read(path)
                hashed.update(f"{path[len(under) :]}\0{len(data)}\0".encode("utf-8", "surrogateescape") + data)
    return {
        "launcher": digest_of(patch.before),
        "patched": digest_of(patch.after),
        "headers": hashed.hexdigest(),
        "tree": layout.cutlass().fingerprint,
    }


def recorded(layout: Layout, patch: Patch) -> Compiled | None:
    """What was compiled of exactly this patch on exactly these headers; None where nothing was."""
    from importlib.resources import files

    data = files("tilewright.data").joinpath("fix_proof.json").read_bytes()
    entries = [item for item in msgspec.json.decode(data, type=_File).proofs if item.types]
    if all(item.launcher != digest_of(patch.before) for item in entries):
        return None
    key = key_of(layout, patch)
    for entry in entries:
        if all(getattr(entry, name) == value for name, value in key.items()):
            return Compiled(
                kind="exact (compiled)",
                nvcc=entry.nvcc,
                target=entry.target,
                date=entry.date,
                source="tools/prove_fix.py",
                tactics=[_tactic(name, row, entry) for name, row in entry.types.items()],
            )
    return None


def _tactic(name: str, row: tuple[int, int, int, int], entry: _Entry) -> CompiledTactic:
    before, after = entry.kernels.get(name, (None, None))
    return CompiledTactic(
        name=PREFIX + name,
        bytes_before=row[0],
        stages_before=row[1],
        bytes_after=row[2],
        stages_after=row[3],
        kernel_before=before,
        kernel_after=after,
    )


class BuiltTile(msgspec.Struct, frozen=True, kw_only=True):
    """A tile whose whole kernel was built on one CUTLASS tree: NVFP4, grouped, fused finalize to bf16."""

    tree: str
    tile: tuple[int, int, int]
    swap_ab: bool
    smem_bytes: int
    stages: int
    registers: int
    spill_store_bytes: int
    spill_load_bytes: int
    nvcc: str
    date: str


class _Tiles(msgspec.Struct, frozen=True):
    tiles: list[BuiltTile]


def built_tiles(fingerprint: str) -> list[BuiltTile]:
    """The tiles that were built whole on the CUTLASS tree of that fingerprint (`tools/prove_tiles.py`)."""
    from importlib.resources import files

    data = files("tilewright.data").joinpath("fix_tiles.json").read_bytes()
    return [item for item in msgspec.json.decode(data, type=_Tiles).tiles if item.tree == fingerprint]
