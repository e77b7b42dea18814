"""How sure a ratio of two predictions of the serving model is."""

from __future__ import annotations

from typing import Final

RATIO_ERROR: Final = 0.15
"""Relative error of a ratio of two predictions for one model on one GPU: the mean error of the serving model on
published tables that took no part in its fit (`tilewright validate`, held out). What the model gets wrong in one
prediction it mostly gets wrong in the other, so this is an upper estimate."""
