"""Triton kernels of vLLM and SGLang: shared memory of a tile, by formula and by Triton's compiler."""

from __future__ import annotations
