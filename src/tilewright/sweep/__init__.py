"""Live sweeps: real servers started with different flags, loaded, measured and stopped, until the best ones are known.

`sweep(Question(...))` is `tilewright sweep`; `read_space` and `parse_goal` make what it needs. This is the only part
of Tilewright that starts servers.
"""

from __future__ import annotations

from tilewright.sweep.document import SweepDocument
from tilewright.sweep.goal import Goal, parse_goal
from tilewright.sweep.run import Question, sweep
from tilewright.sweep.space import Space
from tilewright.sweep.space_file import parse_space, read_space

__all__ = ["Goal", "Question", "Space", "SweepDocument", "parse_goal", "parse_space", "read_space", "sweep"]
