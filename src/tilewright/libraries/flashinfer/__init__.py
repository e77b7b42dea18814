"""FlashInfer as installed: which kernels it compiles, and where in its sources that is decided."""

from __future__ import annotations
