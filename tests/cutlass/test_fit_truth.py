"""The model against compiled truth: every row of every architecture, byte for byte and field by field."""

from __future__ import annotations

from typing import Any

import pytest

from conftest import truth_rows
from tilewright.cutlass.config import config_to_dict, parse_config
from tilewright.cutlass.fit import fit

FIGURES = (
    "stages", "smem_bytes", "mainloop_bytes", "mainloop_tensor_bytes", "mainloop_pipeline_bytes",
    "mainloop_tensormap_bytes", "epilogue_bytes", "epilogue_tensor_bytes", "epilogue_pipeline_bytes",
    "epilogue_tensormap_bytes", "epilogue_fusion_bytes", "limit_bytes", "excess_bytes", "slack_bytes", "epilogue_tile",
    "stages_c", "stages_d", "reuse_smem_c", "delay_tma_store", "fragment_size", "epilogue_warp_groups", "threads",
    "min_blocks", "load_registers", "mma_registers", "scheduler_stages", "accumulator_stages", "load_ab_stages",
    "load_sf_stages", "stages_a", "stages_b", "stages_e", "sf_short", "mainloop_policy", "epilogue_policy",
    "kernel_schedule",
)  # fmt: skip

ROWS = {"sm90": 668, "sm100": 396, "sm103": 184, "sm120": 2100, "sm121": 9}
"""Architectures, and how many rows of each were compiled at least."""


def differences(row: dict[str, Any]) -> list[str]:
    """What the model says otherwise than the compiler did for `row`."""
    truth = row["truth"]
    budget = fit(parse_config(row["config"]))
    if budget.type_status != truth["status"]:
        return [f"type_status {budget.type_status} != {truth['status']} ({truth['error']}) {budget.rules}"]
    if truth["status"] == "illegal":
        return [] if budget.rules and budget.cause else ["illegal without a rule or a cause"]
    out = []
    for key in FIGURES:
        got, want = getattr(budget, key), truth.get(key)
        if isinstance(got, tuple):
            got = list(got)
        if got != want:
            out.append(f"{key} {got} != {want}")
    want_fields = {f["path"]: (f["offset"], f["bytes"], f["type_align"]) for f in truth["fields"]}
    got_fields = {f.path: (f.offset, f.bytes, f.type_align) for f in budget.fields}
    if got_fields != want_fields:
        out.append(f"fields {set(got_fields.items()) ^ set(want_fields.items())}")
    return out


@pytest.mark.parametrize("name", list(ROWS))
def test_every_compiled_row_is_reproduced(name: str) -> None:
    rows = truth_rows(name)
    wrong = {row["config"]["id"]: diff for row in rows if (diff := differences(row))}
    assert not wrong
    assert len(rows) >= ROWS[name]


def test_whole_kernels_that_were_compiled_get_the_status_that_they_had() -> None:
    """kernel_check.jsonl: where the types compile and the kernel does not, status is illegal and bytes stay."""
    rows = {row["config"]["id"]: row for name in ROWS for row in truth_rows(name)}
    checked = 0
    for check in truth_rows("kernel_check"):
        row = rows.get(check["id"])
        if row is None:
            continue
        budget = fit(parse_config(row["config"]), brief=True)
        want = row["truth"]["status"] if check["compiles"] else "illegal"
        assert budget.status == want, check
        assert budget.smem_bytes == row["truth"]["smem_bytes"]
        checked += 1
    assert checked >= 40


@pytest.mark.parametrize("name", ["sm90", "sm100", "sm103", "sm120"])
def test_absolute_offsets_lie_inside_the_kernel_and_children_inside_their_parents(name: str) -> None:
    for row in truth_rows(name)[::40]:
        budget = fit(parse_config(row["config"]))
        by_path = {field.path: field for field in budget.fields}
        for field in budget.fields:
            assert budget.smem_bytes is not None
            assert field.abs_offset >= 0
            assert field.abs_offset + field.bytes <= budget.smem_bytes
            parent = by_path.get(field.path.rpartition(".")[0])
            if parent is not None:
                assert field.abs_offset == parent.abs_offset + field.offset
                assert field.offset + field.bytes <= parent.bytes


def test_defaults_of_omitted_keys_are_those_of_the_explicit_rows() -> None:
    """A config reduced to what its defaults do not say is the same config (DESIGN 4.2)."""
    for row in truth_rows("sm120")[::7]:
        full = parse_config(row["config"])
        explicit = config_to_dict(full)
        for key in ("align_a", "align_b", "align_c", "align_d", "layout_a", "layout_b", "cluster", "acc", "id"):
            reduced = {name: value for name, value in explicit.items() if name != key}
            assert isinstance(fit(parse_config(reduced), brief=True).status, str)
        assert parse_config(explicit) == full
