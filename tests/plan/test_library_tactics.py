"""The kernels that a plan may ask a library for: each operation and architecture apart, read once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.plan.library import open_library


@pytest.mark.tree
def test_reports_of_operations_and_architectures_are_kept_apart(
    flashinfer_062: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for _ in range(2):  # the second time from what the first one kept
        view = open_library(flashinfer_062)
        moe, gemm, hopper = view.moe, view.tactics("gemm", "sm120"), view.tactics("moe", "sm90")
        assert moe is not None
        assert gemm is not None
        assert hopper is not None
        assert (moe.op, moe.arch, moe.summary.total, moe.summary.overflow) == ("moe", "sm120", 40, 4)
        assert (gemm.op, gemm.arch, gemm.summary.total) == ("gemm", "sm120", 34)
        assert (hopper.arch, hopper.summary.total > 100) == ("sm90", True)
        assert view.tactics("moe", "sm90") is hopper
