"""Which flags of an SGLang or vLLM server matter for a model, GPUs and a load, in the words of one version."""

from __future__ import annotations

from tilewright.serving.advice.advise import AdviceQuestion, advise
from tilewright.serving.advice.answer import Advice, Effect, Ground, Judged, Left, Rate, Suggestion

__all__ = ["Advice", "AdviceQuestion", "Effect", "Ground", "Judged", "Left", "Rate", "Suggestion", "advise"]
