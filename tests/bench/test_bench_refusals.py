"""What an installed package cannot do here is a refusal with its reason, and nothing else is."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from tilewright.bench.backends.base import UnsupportedError
from tilewright.bench.job import Job
from tilewright.bench.problem import MoeProblem, as_dict

LAYER = {"tokens": 7, "hidden": 64, "inter": 32, "experts": 4, "topk": 2}


def test_flashinfers_own_refusal_is_a_refusal_here(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.bench.backends import flashinfer

    def raising(name: str) -> Any:
        def call() -> None:
            raise type(name, (Exception,), {})("No suitable auto backends found for mm_bf16")

        return call

    monkeypatch.setattr(flashinfer, "entry", lambda *_: lambda _: nullcontext())
    with pytest.raises(UnsupportedError, match="No suitable auto backends found for mm_bf16"):
        flashinfer.tuned(raising("BackendSupportedError"))
    with pytest.raises(Exception, match="No suitable") as caught:
        flashinfer.tuned(raising("OtherError"))
    assert not isinstance(caught.value, UnsupportedError)


def test_deep_gemm_says_where_it_has_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.bench.backends import deep_gemm

    def nowhere(*_: Any) -> None:
        raise RuntimeError("Assertion error (csrc/apis/gemm.hpp:120): Unsupported architecture or scaling factor types")

    def broken(*_: Any) -> None:
        raise RuntimeError("CUDA error")

    with pytest.raises(UnsupportedError, match="no kernel for this GPU"):
        deep_gemm._told(nowhere)()
    with pytest.raises(RuntimeError, match="CUDA error"):
        deep_gemm._told(broken)()


def test_a_release_without_the_call_is_refused_and_the_process_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.bench import work

    def unsupported(*_: Any) -> None:
        raise UnsupportedError("vllm 0.1 has no fused_experts")

    monkeypatch.setattr(work, "measure", unsupported)
    monkeypatch.setattr(work, "versions", lambda *_: {"torch": "2.11.0"})
    problem = MoeProblem(**LAYER, dtype="bf16")
    outcome = work.attempt(Job(backend="vllm", kind="moe", problem=as_dict(problem)), SimpleNamespace())
    assert outcome.status == "refused"
    assert outcome.note == "vllm 0.1 has no fused_experts"
    assert not outcome.fatal
