"""The result store: one SQLite file, append-only, in which every measurement of this machine (and of others) is kept.

`Result` is what is stored, `Store` the file; `compare` sets results of the same problem beside each other.
"""

from tilewright.store.compare import Comparison, compare
from tilewright.store.database import default_path
from tilewright.store.result import Result, Stored
from tilewright.store.store import Query, Store

__all__ = ["Comparison", "Query", "Result", "Store", "Stored", "compare", "default_path"]
