"""SGLang as installed."""

from __future__ import annotations
