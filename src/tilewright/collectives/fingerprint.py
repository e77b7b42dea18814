"""The fingerprint of a CUTLASS tree: a hash of the headers that decide what a kernel is and needs.

The version that a tree reports does not identify it (FlashInfer 0.7.2's bundle reports 4.5.0 and differs from the tag),
so its behaviour is keyed by content. What counts: every header that takes part in choosing a collective, its stages,
its shared memory, or in asserting that a config is illegal:

- `cutlass/gemm/collective/**`, `cutlass/gemm/kernel/*.hpp|inl` (the 3.x kernels; the `.h` beside them are CUTLASS 2),
- `cutlass/epilogue/{collective,fusion}/**`, both `dispatch_policy.hpp`, `cutlass/gemm/group_array_problem_shape.hpp`,
- `cutlass/pipeline/**`, `cutlass/detail/**`, `cutlass/arch/arch.h` (capacities), `cutlass/arch/barrier.h`.

What does not count: `version.h`, line ends, time stamps, where the tree lies, and the text of the licence comment at a
file's start (4.3.5 changed the year in all of them); its number of lines does count, so that equal fingerprints mean
equal line numbers.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tilewright.collectives.tree import SourceTree

__all__ = ["COUNTED", "COUNTED_FILES", "counted_files", "file_hashes", "fingerprint_of"]

COUNTED: Final[dict[str, tuple[str, ...]]] = {
    "cutlass/gemm/collective": (".hpp", ".inl", ".h"),
    "cutlass/gemm/kernel": (".hpp", ".inl"),
    "cutlass/epilogue/collective": (".hpp", ".inl", ".h"),
    "cutlass/epilogue/fusion": (".hpp", ".inl", ".h"),
    "cutlass/pipeline": (".hpp", ".inl", ".h"),
    "cutlass/detail": (".hpp", ".inl", ".h"),
}
"""Folders whose headers count, with the suffixes that do."""

COUNTED_FILES: Final = (
    "cutlass/arch/arch.h",
    "cutlass/arch/barrier.h",
    "cutlass/epilogue/dispatch_policy.hpp",
    "cutlass/gemm/dispatch_policy.hpp",
    "cutlass/gemm/group_array_problem_shape.hpp",
)


def counted_files(tree: SourceTree, include: str) -> list[str]:
    """Files of the CUTLASS at `include` that count, relative to the include folder, sorted."""
    prefix = f"{include}/" if include else ""
    found: list[str] = []
    for folder, suffixes in COUNTED.items():
        found += [path[len(prefix) :] for path in tree.files(suffixes, prefix + folder)]
    found += [path for path in COUNTED_FILES if tree.exists(prefix + path)]
    return sorted(found)


def content_hash(data: bytes) -> bytes:
    """SHA-256 of one header as it counts: `\\n` line ends, the leading licence comment reduced to its line count."""
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    lines = 0
    if data.startswith(b"/*"):
        end = data.find(b"*/")
        if end > 0:
            lines = data.count(b"\n", 0, end)
            data = data[end + 2 :]
    return hashlib.sha256(b"%d\0" % lines + data).digest()


def file_hashes(tree: SourceTree, include: str) -> dict[str, bytes]:
    """`{file relative to the include folder: content_hash}` of every file that counts."""
    prefix = f"{include}/" if include else ""
    return {path: content_hash(tree.read(prefix + path)) for path in counted_files(tree, include)}


def fingerprint_of(hashes: dict[str, bytes]) -> str:
    """The fingerprint from the hashes of the files that count: 64 hex digits."""
    digest = hashlib.sha256()
    for path in sorted(hashes):
        digest.update(path.encode("utf-8", "surrogateescape") + b"\0" + hashes[path] + b"\n")
    return digest.hexdigest()
