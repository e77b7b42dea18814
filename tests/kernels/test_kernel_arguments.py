"""What a caller passes to the layers: each mistake named, on the host, before a kernel is given an address."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.errors import InputError
from tilewright.kernels.arguments import activations_of, check_pair, experts_of, router_of
from tilewright.kernels.checkpoint import COMPRESSED_TENSORS, MODELOPT, pack_experts
from tilewright.kernels.layout import PackedWeights, check_weights, pack

torch: Any = pytest.importorskip("torch")


def weights(rows: int, k: int, *, gated: bool = False, experts: int = 2) -> PackedWeights:
    generator = torch.Generator().manual_seed(rows + k)
    codes = torch.randint(0, 256, (experts, rows, k // 2), dtype=torch.uint8, generator=generator)
    scales = torch.randint(40, 80, (experts, rows, k // 16), dtype=torch.uint8, generator=generator)
    return pack(codes, scales, torch.ones(experts), gated=gated)


def elsewhere(held: PackedWeights) -> PackedWeights:
    return PackedWeights(held.data.to("meta"), held.global_scale.to("meta"), held.rows, held.k, held.gated)


X = torch.zeros(3, 128, dtype=torch.bfloat16)
IDS = torch.zeros(3, 2, dtype=torch.int32)


def test_everything_has_to_be_on_one_device() -> None:
    held = weights(64, 128)
    with pytest.raises(InputError, match="weights is on meta and x on cpu"):
        activations_of(X, elsewhere(held))
    with pytest.raises(InputError, match="topk_ids is on meta"):
        experts_of(IDS.to("meta"), X, 2, 1024)
    with pytest.raises(InputError, match="topk_weights is on meta"):
        router_of(torch.zeros(3, 2, device="meta"), IDS)
    with pytest.raises(InputError, match="w2 is on meta"):
        check_pair(weights(256, 128, gated=True), elsewhere(weights(128, 128)))
    with pytest.raises(InputError, match="weight_scale is on meta"):
        check_weights(
            torch.zeros(1, 8, 8, dtype=torch.uint8), torch.zeros(1, 8, 1, dtype=torch.uint8, device="meta"),
            torch.ones(1), gated=False,
        )  # fmt: skip


def test_the_two_matrices_are_those_of_one_layer() -> None:
    w13 = weights(256, 128, gated=True)
    check_pair(w13, weights(128, 128))
    for wrong in (weights(64, 128), weights(128, 64), weights(128, 128, experts=3), weights(256, 128, gated=True)):
        with pytest.raises(InputError, match="its rows w13's K"):
            check_pair(w13, wrong)


def test_experts_past_int32_stay_outside() -> None:
    """2^32 would become expert 0."""
    ids = torch.tensor([[2**32, 1], [-(2**32), 0], [2**40 + 1, -1]])
    assert experts_of(ids, X, 2, 1024).tolist() == [[2, 1], [-1, 0], [2, -1]]


def test_a_scale_that_is_nan_may_have_either_sign() -> None:
    """0 / 0 in float8_e4m3fn gives 0xFF on some machines; -0 (0x80) is 0, and 0x81 the least negative number."""
    codes, factor = torch.full((1, 8, 8), 0x22, dtype=torch.uint8), torch.ones(1)
    for byte in (0x7F, 0xFF, 0x80, 0x00):
        pack(codes, torch.full((1, 8, 1), byte, dtype=torch.uint8), factor)
    for byte in (0x81, 0xFE):
        with pytest.raises(InputError, match="negative"):
            pack(codes, torch.full((1, 8, 1), byte, dtype=torch.uint8), factor)


@pytest.mark.parametrize(
    ("names", "value", "legal"),
    [
        (COMPRESSED_TENSORS, 0.0, False), (COMPRESSED_TENSORS, float("inf"), False),
        (COMPRESSED_TENSORS, -2.0, False), (COMPRESSED_TENSORS, 4.0, True),
        (MODELOPT, float("nan"), False), (MODELOPT, -1.0, False), (MODELOPT, 0.0, True), (MODELOPT, 0.25, True),
    ],
)  # fmt: skip
def test_global_scales_of_a_checkpoint_are_numbers(names: tuple[str, ...], value: float, legal: bool) -> None:
    """compressed-tensors keeps a factor's reciprocal: 0 there would make every weight infinite."""
    tensors = {
        f"e.0.{part}.{name}": tensor
        for part in ("gate_proj", "up_proj", "down_proj")
        for name, tensor in zip(
            names,
            (
                torch.zeros(16, 8, dtype=torch.uint8), torch.full((16, 1), 0x38, dtype=torch.uint8),
                torch.tensor(value),
            ),
            strict=True,
        )
    }  # fmt: skip
    if legal:
        w13, _ = pack_experts(tensors, "e", [0])
        assert float(w13.global_scale[0, 0]) == (1 / value if names is COMPRESSED_TENSORS else value)
    else:
        with pytest.raises(InputError, match="is a number"):
            pack_experts(tensors, "e", [0])


def test_the_build_is_chosen_for_the_rows_that_fall_here() -> None:
    from tilewright.kernels.moe import _rows_here  # pyright: ignore[reportPrivateUsage]

    assert _rows_here(8 * 4096, 32, 256) == 4096
    assert _rows_here(8, 32, 256) == 1
    assert _rows_here(100, 32, None) == 100
    with pytest.raises(InputError, match="16 are fewer than the 32 experts of the weights"):
        _rows_here(100, 32, 16)
