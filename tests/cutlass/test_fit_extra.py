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

from conftest import DATA
from tilewright.cutlass.config import parse_config
from tilewright.cutlass.fit import fit


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
