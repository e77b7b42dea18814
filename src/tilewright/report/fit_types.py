"""The answers of `fit`, in one place for the schema: to a CUTLASS config, to a Triton tile, to a line it refuses."""

from __future__ import annotations

from tilewright.cutlass.budget import Budget, ErrorLine
from tilewright.triton_.model import TritonVerdict

__all__ = ["Budget", "ErrorLine", "TritonVerdict"]
