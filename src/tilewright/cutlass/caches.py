"""How many laid-out types the model keeps while it works through many configs."""

from __future__ import annotations

from typing import Final

LAYOUTS: Final = 2048
"""Results that each layout cache keeps. What repeats is near: the stages of one config and the neighbours that its
fixes try. Over 20,000 varied configs, 65,536 took 398 MB instead of 48 and were no faster (measured)."""
