"""What a run needs of the GPU's memory, refused before anything starts."""

from __future__ import annotations

import pytest

from tilewright.bench.device import Device
from tilewright.bench.timing import COLD_BYTES
from tilewright.errors import InputError
from tilewright.hardware.names import resolve_gpu
from tilewright.tune.layer import Layer
from tilewright.tune.memory import (
    case_bytes,
    check_memory,
    copies_of,
    most_tokens,
    needed_bytes,
    turns_of,
    weight_bytes,
)
from tilewright.tune.tuner import shared

LAYER = Layer(hidden=6144, inter=256, experts=256, topk=8)
MIXTRAL = Layer(hidden=4096, inter=14336, experts=8, topk=2)


def h200(free: int | None, index: int = 0) -> Device:
    return Device(index, "NVIDIA H200", resolve_gpu("h200-sxm"), (9, 0), free, "580", 2)


def test_weights_are_those_that_are_allocated() -> None:
    """BF16 two bytes a value; our layout pads to 256 rows and 128 columns of 4.5 bits."""
    assert weight_bytes(LAYER) == 256 * 3 * 6144 * 256 * 2
    odd = Layer(hidden=160, inter=16, experts=3, topk=1, dtype="nvfp4")
    up, down = 256 * 256 * 9 // 16, 256 * 128 * 9 // 16
    assert weight_bytes(odd) == 3 * (up + down)


def test_operands_are_at_least_what_must_be_there() -> None:
    """Inputs and outputs of both GEMMs in bf16, and the right answer in float32 while it is made."""
    tokens, rows = 1000, 8000
    least = 2 * (tokens * 6144 + rows * 512 + rows * 256 + rows * 6144) + 4 * rows * 6144
    assert least < case_bytes(LAYER, tokens) < 3 * least


def test_what_does_not_fit_is_refused_with_what_does() -> None:
    """The largest number of tokens that is named does fit, one more does not; every GPU is asked."""
    free = 20_000_000_000
    check_memory(LAYER, [1, 4096], [h200(free)])
    with pytest.raises(InputError, match=r"up to [0-9,]+ tokens fit") as caught:
        check_memory(LAYER, [1, 1 << 18], [h200(140_000_000_000), h200(free, 1)])
    assert caught.value.field == "tokens"
    assert "GPU 1" in caught.value.msg
    fits = most_tokens(LAYER, free)
    assert f"up to {fits:,} tokens" in caught.value.msg
    assert needed_bytes(LAYER, [fits], free) <= free < needed_bytes(LAYER, [fits + 1], free)
    check_memory(LAYER, [fits], [h200(free)])
    check_memory(LAYER, [1 << 18], [h200(None)])


def test_weights_that_do_not_fit_are_refused_with_how_many_experts_do() -> None:
    with pytest.raises(InputError, match=r"about [0-9]+ experts fit") as caught:
        check_memory(MIXTRAL, [1], [h200(2_000_000_000)])
    assert caught.value.field == "experts"
    with pytest.raises(InputError, match="more rows than one call takes"):
        check_memory(Layer(hidden=64, inter=64, experts=1 << 15, topk=1 << 15), [1 << 18], [])


def test_calls_read_more_between_two_uses_than_l2_holds() -> None:
    """One token of a model of small experts touches a few MB: as many other routings as one graph has calls."""
    small = Layer(hidden=2048, inter=96, experts=128, topk=8)
    assert turns_of(small, 1) == 32
    touched = 8 * 2 * 2048 * 96  # the second GEMM
    assert turns_of(small, 1) * touched > 100_000_000 > 8 * touched
    assert turns_of(LAYER, 1) * 8 * 2 * 6144 * 256 >= COLD_BYTES
    assert turns_of(LAYER, 4096) == 2
    tiny = Layer(hidden=2048, inter=96, experts=8, topk=2)
    assert copies_of(tiny, 10**11) * weight_bytes(tiny) >= COLD_BYTES


def test_a_gpu_that_others_compute_on_is_named() -> None:
    busy = Device(1, "NVIDIA H200", None, (9, 0), None, None, 2, 3)
    (note,) = shared([h200(None), busy])
    assert "GPU 1 is shared with 3 other processes" in note
