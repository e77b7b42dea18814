"""The mainloop of an SM100 config: which builder its operation class and schedule tag go to."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from tilewright.cutlass import (
    sm100_blockscaled,
    sm100_blockwise,
    sm100_dense,
    sm100_mixed_input,
    sm100_sparse,
    sm100_tags,
)
from tilewright.cutlass.caches import LAYOUTS
from tilewright.cutlass.sm100_collective import Mainloop, MainloopKey
from tilewright.cutlass.sm100_tags import Tag
from tilewright.cutlass.sm100_versions import Sm100Rules, sm100_rules_for
from tilewright.cutlass.verdict import Broken, no_collective

_BUILDERS: Final[dict[str, Callable[[MainloopKey, Tag, Sm100Rules], Mainloop | Broken]]] = {
    "tensor_op": sm100_dense.lay_out,
    "block_scaled": sm100_blockscaled.lay_out,
    "blockwise": sm100_blockwise.lay_out,
    "sparse": sm100_sparse.lay_out,
    "block_scaled_sparse": sm100_sparse.lay_out_scaled,
    "mixed_input": sm100_mixed_input.lay_out,
}
FAMILIES: Final = tuple(_BUILDERS)
"""Operation classes that SM100 has builders for here."""


@lru_cache(maxsize=LAYOUTS)
def mainloop(key: MainloopKey) -> Mainloop | Broken:
    """Lay out the mainloop of `key`, or the first rule that it breaks in the order in which the compiler meets them."""
    tag = sm100_tags.resolve(key.schedule, key.op_class, key.grouped, *key.formats)
    if tag is None:
        return no_collective(
            f"No SM100 builder for {key.op_class} takes the schedule {key.schedule}: use 1sm or 2sm.",
        )
    return _BUILDERS[key.op_class](key, tag, sm100_rules_for(key.version))
