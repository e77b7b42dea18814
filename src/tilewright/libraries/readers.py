"""Which libraries' tactics can be read, and how: one entry a library, for every command that asks."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from tilewright.libraries.flashinfer.model import Report
from tilewright.libraries.tuned.model import TunedReport

__all__ = ["READERS", "Reader", "Report", "TunedReport", "reader_of"]


class Reader(NamedTuple):
    """How the tactics of one library are read."""

    label: str
    kind: Literal["compiled", "tuned"]
    """`compiled`: kernels instantiated from C++; `tuned`: Triton tiles from JSON files and built-in defaults."""


READERS: Final[dict[str, Reader]] = {
    "flashinfer": Reader("FlashInfer", "compiled"),
    "vllm": Reader("vLLM", "tuned"),
    "sglang": Reader("SGLang", "tuned"),
}


def reader_of(library: str) -> tuple[str, Reader]:
    """The key and reader of the library that a user names.

    Raises:
        InputError: its tactics cannot be read.
    """
    from tilewright.errors import InputError, shown

    key = library.strip().lower()
    if key not in READERS:
        msg = (
            f"The tactics of {shown(library)} cannot be read; legal are: {', '.join(READERS)}. `tilewright "
            "collectives` reads the CUTLASS of any library."
        )
        raise InputError("library", msg)
    return key, READERS[key]
