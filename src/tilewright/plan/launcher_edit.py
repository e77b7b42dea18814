"""The edit that makes FlashInfer's overflowing tactics fit, as commands and as a patch, and how to make it take effect.

One line of the MoE launcher passes the carveout to CUTLASS. The edit adds the reserve that `find_reserve` verified. The
rebuilt module is `fused_moe_120` under the JIT folder (`flashinfer/jit/env.py`, `flashinfer/jit/core.py`); an installed
`flashinfer-jit-cache` package holds a prebuilt one that comes before it.
"""

from __future__ import annotations

import difflib

from tilewright.plan.library import LibraryView
from tilewright.plan.reserve import Reserve
from tilewright.plan.target import Target

CARVEOUT = "sizeof(typename CollectiveEpilogue::SharedStorage))>"
"""The end of StageCountAutoCarveout's argument in moe_gemm_tma_ws_launcher.inl; once in every version read (0.6.2 to
0.7.4)."""
BLOCKLIST = "FLASHINFER_TACTICS_BLOCKLIST"
_FIND = "FI=$(python3 -c 'import os, flashinfer; print(os.path.dirname(flashinfer.__file__))')"
_MODULE = "fused_moe_120"


def reads_blocklist(library: LibraryView) -> bool:
    """Whether this version's autotuner reads the blocklist variable."""
    files = ("autotuner/autotuner.py", "autotuner.py")
    return any(library.find(library.inside(file), BLOCKLIST) for file in files)


def _edited(reserve: Reserve) -> str:
    return CARVEOUT.replace("SharedStorage))>", f"SharedStorage) + {reserve.extra})>")


def patch(library: LibraryView, launcher: str, reserve: Reserve) -> str | None:
    """A unified diff of the launcher, paths relative to the tree; None where the line is not there exactly once."""
    text = library.tree.read_text(launcher)
    if text.count(CARVEOUT) != 1:
        return None
    before, after = text.splitlines(keepends=True), text.replace(CARVEOUT, _edited(reserve)).splitlines(keepends=True)
    return "".join(difflib.unified_diff(before, after, f"a/{launcher}", f"b/{launcher}", n=3))


def edit_commands(library: LibraryView, launcher: str, reserve: Reserve) -> list[str]:
    """The edit in place (the original is kept as .orig), and the JIT module dropped so that it is built again."""
    inside = launcher.removeprefix(f"{library.package}/") if library.package else launcher
    return [
        _FIND,
        f'sed -i.orig "s/{CARVEOUT}/{_edited(reserve)}/" "$FI/{inside}"',
        f"rm -rf ~/.cache/flashinfer/{library.version}/*/cached_ops/{_MODULE}",
        "pip show -q flashinfer-jit-cache && echo 'its prebuilt module comes first: uninstall it to use the edit'",
    ]


def undo_edit(library: LibraryView, launcher: str) -> str:
    inside = launcher.removeprefix(f"{library.package}/") if library.package else launcher
    return (
        f'`mv "$FI/{inside}.orig" "$FI/{inside}"`, then '
        f"`rm -rf ~/.cache/flashinfer/{library.version}/*/cached_ops/{_MODULE}`"
    )


def blocklist_commands(target: Target) -> list[str]:
    """Let this GPU find out what cannot run, with the model's own shapes, and have the autotuner skip it."""
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
