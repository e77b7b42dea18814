"""Two flags that an engine refuses together."""

from __future__ import annotations

import pytest

from tilewright.libraries.engine_flags import check_launch, snapshot, snapshot_versions


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        ("--max-num-batched-tokens 64 --max-num-seqs 128", True),
        ("--max-num-seqs=1025 --max-num-batched-tokens=1000", True),
        ("--max-num-batched-tokens 128 --max-num-seqs 128", False),
        ("--max-num-batched-tokens 8k --max-num-seqs 128", False),
        ("--max-num-batched-tokens 64", False),
        ("--max-num-batched-tokens $T --max-num-seqs 128", False),
    ],
)
def test_a_step_has_a_token_for_each_request(words: str, refused: bool) -> None:
    for version in snapshot_versions("vllm"):
        made = check_launch(snapshot("vllm", version), f"vllm serve m {words}")
        told = [item.level for item in made.remarks if "is less than" in item.message]
        assert told == (["refused"] if refused else [])
