"""Serving whole models: time of decode and prefill, memory and layouts, and how well the model holds against
published tables.

`layout` and `validate` are functions of the modules of these names; they are not repeated here, so that a question
about one step loads neither.
"""

from __future__ import annotations

from tilewright.serving.decode import predict_decode
from tilewright.serving.prefill import predict_prefill
from tilewright.serving.questions import (
    CheckpointSpec,
    DecodeQuestion,
    PrefillQuestion,
    ServingQuestion,
    parse_serving_question,
)

__all__ = [
    "CheckpointSpec",
    "DecodeQuestion",
    "PrefillQuestion",
    "ServingQuestion",
    "parse_serving_question",
    "predict_decode",
    "predict_prefill",
]
