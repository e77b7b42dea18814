"""The model against further compiled rows: kinds of SM120 config on which it was once wrong, or might be.

`truth_extra.jsonl.gz` has one row of each kind that a random search over the legal space (and over what lies just
outside it) came across: odd tiles and epilogue tiles, outputs of four and six bits, tags by name, clusters, sparse
kernels with symmetric and asymmetric stages. `kernel_extra.jsonl.gz` has whole kernels. Same form as `truth/`.
"""

from __future__ import annotations

import gzip
import json
from typing import Any

from test_fit_truth import differences

from conftest import DATA, truth_rows
from tilewright.cutlass.config import parse_config
from tilewright.cutlass.fit import fit
from tilewright.data.figures import read_packaged


def rows(name: str) -> list[dict[str, Any]]:
    with gzip.open(DATA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


def test_every_kind_that_a_random_search_found_is_reproduced() -> None:
    compiled = rows("truth_extra")
    wrong = {row["config"]["id"]: diff for row in compiled if (diff := differences(row))}
    assert not wrong
    assert len(compiled) >= 250
    assert {row["config"]["op_class"] for row in compiled} == {
        "block_scaled", "tensor_op", "blockwise", "sparse", "block_scaled_sparse",
    }  # fmt: skip


def test_the_model_covers_every_one_of_them() -> None:
    assert all(fit(parse_config(row["config"]), brief=True).status != "unsupported" for row in rows("truth_extra"))


def test_whole_kernels_get_the_status_that_compiling_them_gave_and_the_rule_that_broke() -> None:
    for row in rows("kernel_extra"):
        budget = fit(parse_config(row["config"]), brief=True)
        if row["compiles"]:
            assert budget.status == budget.type_status, row["config"]
            continue
        assert budget.status == "illegal", row["config"]
        assert any(rule.partition(" (")[0] in row["errors"][0] for rule in budget.rules), (budget.rules, row["errors"])


def test_pinned_stages_that_overfill_tensor_memory_are_no_use() -> None:
    """SM100 mixed input: accumulators and converted A share 512 columns, and nothing asserts that they fit."""
    raw = {
        "arch": "sm100", "op_class": "mixed_input", "a": "int4", "b": "bf16", "narrow": "a", "tile": [128, 32, 128],
        "schedule": "1sm", "epilogue_schedule": "tma_warp_specialized_1sm",
    }  # fmt: skip
    causes = {stages: fit(parse_config(raw | {"stages": stages})).cause or "" for stages in (5, 6)}
    assert "computes nonsense" not in causes[5]
    assert "6 accumulators of 32 columns and 6 converted stages of 64 take 576 of the 512 columns" in causes[6]
    auto = fit(parse_config(raw))
    assert (auto.status, auto.type_status, auto.status_basis) == ("illegal", "fits", "compiled")
    assert auto.fixes is not None
    assert (auto.fixes[0].change, auto.fixes[0].note) == (
        {"stages": 5},
        "pin StageCount<5>; the tile and the fusion stay",
    )


def test_what_is_called_compiled_has_a_compiled_kernel_behind_it() -> None:
    """Every release that data/cutlass_kernels.json names for a kind of kernel is one of a kernel that did not build."""
    configs = {row["config"]["id"]: row["config"] for name in ("sm120", "sm121") for row in truth_rows(name)}
    refused = [configs[row["id"]] for row in truth_rows("kernel_check") if not row["compiles"] and row["id"] in configs]
    refused += [row["config"] for row in rows("kernel_extra") if not row["compiles"]]
    seen = {(f"{config['op_class']}/{config.get('kind', 'dense')}", config["cutlass"]) for config in refused}
    named = read_packaged("cutlass_kernels.json")["rules"]
    for kernels in named.values():
        assert {(kernel, release) for kernel, releases in kernels.items() for release in releases} <= seen
    assert len(named["scale_factors_short"]["block_scaled/grouped"]) >= 13
