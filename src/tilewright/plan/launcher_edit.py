"""The edit that makes FlashInfer's overflowing tactics fit, as commands, and how to make it take effect.

One implementation serves `plan` and `tilewright fix`: the patch, what the model makes of it and the names of what has
to be built again come from `tilewright.libraries.flashinfer`.
"""

from __future__ import annotations

from tilewright.errors import TreeError
from tilewright.libraries.flashinfer.fix_blocklist import VARIABLE as BLOCKLIST
from tilewright.libraries.flashinfer.fix_blocklist import reads_blocklist as reads
from tilewright.libraries.flashinfer.fix_effect import FIND, cached_module
from tilewright.libraries.flashinfer.fix_patch import make_patch
from tilewright.libraries.flashinfer.layout import find_layout
from tilewright.plan.library import LibraryView
from tilewright.plan.target import Target

__all__ = ["BLOCKLIST", "blocklist_commands", "edit_commands", "patch", "reads_blocklist", "undo_edit"]


def reads_blocklist(library: LibraryView) -> bool:
    """Whether this version's autotuner reads the blocklist variable."""
    return reads(find_layout(library.tree))


def patch(library: LibraryView) -> str | None:
    """The unified diff of `tilewright fix`; None for a launcher that is not known."""
    try:
        return make_patch(find_layout(library.tree)).diff
    except TreeError:
        return None


def edit_commands(library: LibraryView) -> list[str]:
    """The patch applied (the original is kept as .orig), and the JIT module dropped so that it is built again."""
    return [
        FIND,
        'tilewright fix flashinfer --root "$SITE" --write patch --out fix.patch',
        'patch -p1 -b -d "$SITE" < fix.patch',
        f"rm -rf {cached_module(find_layout(library.tree))}",
        "pip show -q flashinfer-jit-cache && echo 'its prebuilt module comes first: uninstall it to use the edit'",
    ]


def undo_edit(library: LibraryView) -> str:
    """Taking the patch back, in one line."""
    folder = cached_module(find_layout(library.tree))
    return f'`patch -p1 -R -d "$SITE" < fix.patch`, then `rm -rf {folder}`'


def blocklist_commands(target: Target) -> list[str]:
    """Have the autotuner skip what cannot run. Computed, or found out by this GPU with the model's own shapes."""
    moe = target.model.moe
    assert moe is not None
    shape = (
        f"--num-experts {moe.experts // target.parallel.ep} --hidden-size {target.model.hidden} "
        f"--intermediate-size {moe.inter // target.parallel.expert_tp} --top-k {moe.topk}"
    )
    return [
        f"python3 -m flashinfer generate-tactics-blocklist --quant-modes NVFP4-CUTLASS {shape} -o blocklist.json",
        f"export {BLOCKLIST}=$PWD/blocklist.json",
    ]
