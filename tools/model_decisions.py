"""What `build_data.py` decides about models and measurements, each decision with its reason."""

from __future__ import annotations

MEASUREMENT_WARNINGS: dict[str, str] = {}
