"""Tuned Triton tiles of vLLM and SGLang: the JSON files that they carry, and which of them a given layer reads."""

from __future__ import annotations
