"""A budget as segments: they follow each other, add up to the kernel's bytes, and name the member that lies there."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import truth_rows
from tilewright.cutlass.budget import Budget, Field
from tilewright.cutlass.config import parse_config
from tilewright.cutlass.fit import fit
from tilewright.cutlass.segments import PADDING, segments

DRIVING = {
    "cutlass": "4.2.1", "arch": "sm120", "kind": "grouped", "a": "nvfp4", "b": "nvfp4", "tile": [128, 256, 128],
    "fusion": "finalize",
}  # fmt: skip


def _sums(budget: Budget) -> dict[str, int]:
    out: dict[str, int] = {}
    for one in segments(budget):
        out[one.field] = out.get(one.field, 0) + one.bytes
    return out


def test_the_driving_tile_lies_as_its_types_say() -> None:
    found = _sums(fit(parse_config(DRIVING)))
    assert found["mainloop.tensors.smem_B"] == 49_152
    assert found["epilogue.tensors.collective.smem_C"] == 8_192
    assert found["kernel.tensormaps.epilogue"] == 384
    # 512 after the bias, 32 before the descriptors, 768 at the end: what the members do not cover.
    assert found[PADDING] == 102_400 - (82_944 + 16_384 + 512 + 224 + 128 + 896) == 1_312


def test_an_empty_member_does_not_take_a_byte_of_another() -> None:
    found = _sums(fit(parse_config({**DRIVING, "c": "void"})))
    assert found["epilogue.tensors.collective.smem_D"] == 8_192
    assert "epilogue.tensors.collective.smem_C" not in found


@pytest.mark.parametrize("name", ["sm120", "sm90", "sm100"])
def test_segments_add_up_for_kernels_of_every_architecture(name: str) -> None:
    seen = 0
    for row in truth_rows(name)[::23]:
        budget = fit(parse_config(row["config"]))
        parts = segments(budget)
        if budget.smem_bytes is None:
            assert parts == []
            continue
        seen += 1
        assert sum(one.bytes for one in parts) == budget.smem_bytes
        assert [one.offset for one in parts] == [sum(p.bytes for p in parts[:i]) for i in range(len(parts))]
    assert seen > 10


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-1, 300), st.integers(0, 200)), max_size=12),
    st.integers(0, 400),
)
def test_whatever_the_fields_are_each_byte_is_in_one_segment(spans: list[tuple[int, int]], total: int) -> None:
    fields = [Field(f"f{i}", offset, offset, size, 1, "") for i, (offset, size) in enumerate(spans)]
    parts = segments(Budget(status="fits", smem_bytes=total, fields=fields))
    assert sum(one.bytes for one in parts) == total
    place = 0
    for one in parts:
        assert one.offset == place
        assert one.bytes > 0
        place += one.bytes
