"""A call that a GPU cannot hold is refused before it allocates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tilewright.errors import InputError
from tilewright.kernels.room import ASKED_FROM, MOST_ROWS, check_room, gemm_bytes, layer_bytes


@dataclass
class Cuda:
    """What torch.cuda answers on a GPU with `free` bytes, of which torch holds `unused` more."""

    free: int
    unused: int = 0
    capturing: bool = False

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    def memory_reserved(self, device: Any) -> int:
        return 10**6 + self.unused

    def memory_allocated(self, device: Any) -> int:
        return 10**6

    def mem_get_info(self, device: Any) -> tuple[int, int]:
        return self.free, 10**12


@dataclass
class Torch:
    cuda: Cuda


def test_the_layers_bytes_are_its_tensors() -> None:
    """GLM-5's layer at 4,096 tokens, TP8: the middle is 16.8 MB, the parts are the 403 MB that w2 writes."""
    rows = 4096 * 8
    middle, parts, out = rows * 256 * 2, rows * 6144 * 2, 4096 * 6144 * 2
    assert layer_bytes(rows, 4096, 6144, 256, row_by_row=False) == middle + parts + out + 16 * rows
    assert layer_bytes(8, 1, 6144, 256, row_by_row=True) == 8 * 256 * 2 + 6144 * 2 + 16 * 8
    # Put into another order, K of both GEMMs is padded to whole steps of 128; here only a middle of 192 is.
    assert layer_bytes(rows, 4096, 6144, 256, row_by_row=False, arranged=True) == middle + parts + 2 * out + 16 * rows
    assert (
        layer_bytes(64, 8, 4096, 192, row_by_row=False, arranged=True)
        == 2 * (64 * 256 + 64 * 4096 + 2 * 8 * 4096) + 16 * 64
    )
    assert gemm_bytes(rows, 512) == rows * 512 * 2 + 16 * rows


@pytest.mark.parametrize(
    ("free", "unused", "needed", "fits"),
    [(10**10, 0, 10**10, True), (10**10, 0, 10**10 + 1, False), (10**10, 5 * 10**9, 12 * 10**9, True),
     (0, 0, ASKED_FROM - 1, True), (0, 0, ASKED_FROM, False)],
)  # fmt: skip
def test_what_is_free_decides(free: int, unused: int, needed: int, fits: bool) -> None:
    torch = Torch(Cuda(free, unused))
    if fits:
        check_room(torch, "cuda:0", 1000, needed)
        return
    with pytest.raises(InputError, match=r"1,000 routed rows need .* GB are free on cuda:0"):
        check_room(torch, "cuda:0", 1000, needed)


def test_nothing_is_asked_during_a_capture_and_rows_are_bounded() -> None:
    check_room(Torch(Cuda(0, capturing=True)), "cuda:0", MOST_ROWS, 10**12)
    with pytest.raises(InputError, match="2,147,483,648 routed rows"):
        check_room(Torch(Cuda(10**15)), "cuda:0", MOST_ROWS + 1, 0)
