"""What a shell gets where a command answers a yes/no question (0: yes; errors have their own, see errors.py)."""

from __future__ import annotations

from typing import Final

EXIT_NO: Final = 1
"""`--check` was asked and the answer is no."""
