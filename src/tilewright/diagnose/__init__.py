"""What a log says: known lines counted and explained, unknown errors shown as unknown.

`scan` reads a stream, `explain` turns what it found into a report.
"""

from tilewright.diagnose.explain import Explanation, explain
from tilewright.diagnose.scan import Scan, scan

__all__ = ["Explanation", "Scan", "explain", "scan"]
