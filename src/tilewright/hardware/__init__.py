"""GPUs: the catalogue (data with sources) and live queries, which agree on one record."""

from __future__ import annotations

from tilewright.hardware.catalogue import catalogue
from tilewright.hardware.gpu import Gpu
from tilewright.hardware.names import resolve_gpu

__all__ = ["Gpu", "catalogue", "resolve_gpu"]
