"""How a fix takes effect: what is in its way, what has to be built again, how to see that it worked, how to undo it.

Names come from the library's own sources: the module from its build function (`jit/fused_moe.py`), folders and
variables from `jit/env.py`, the target from `compilation_context.py`.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from tilewright.libraries.flashinfer.decisions import AUTOTUNER
from tilewright.libraries.flashinfer.fix_blocklist import VARIABLE
from tilewright.libraries.flashinfer.fix_stages import Restaged
from tilewright.libraries.flashinfer.layout import Layout

FIND: Final = (
    "SITE=$(python3 -c 'from importlib.util import find_spec; "
    'print(find_spec("flashinfer").origin.rsplit("/", 2)[0])\')'
)
"""Where the package is installed, without importing it (an import creates folders)."""
KERNEL_SECONDS: Final = (30, 90)
"""CPU seconds for one whole SM120 MoE kernel with nvcc 13.0, measured: 30 to 75 on an idle core
(`tilewright probe --ptxas`), 92 on a busy one with the launcher's own host code (`tools/prove_fix.py`)."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to know or do, in order. `basis` where a figure is in it."""

    what: str
    text: str
    commands: list[str] = []
    basis: str | None = None


def _text(layout: Layout, path: str) -> str:
    data = layout.read(layout.inside(path))
    return "" if data is None else data.decode("utf-8", "replace")


def module_of(layout: Layout) -> str | None:
    """Name of the JIT module that holds the SM120 MoE kernels, as the build function makes it; None if unread."""
    text = _text(layout, "jit/fused_moe.py")
    body = text.partition("def gen_cutlass_fused_moe_sm120_module")[2].partition("\ndef ")[0]
    arch = re.search(r"gen_cutlass_fused_moe_module\(\s*nvcc_flags,\s*\"(\w+)\"", body)
    name = re.search(r"f\"(\w*)\{device_arch\}\"", text)
    return f"{name[1]}{arch[1]}" if arch and name else None


def target_of(layout: Layout) -> str:
    """The folder and compile target of an SM120 device: 120f where the version prefers the family, else 120a."""
    return "120f" if re.search(r"return \(major, \"0f\"\)", _text(layout, "compilation_context.py")) else "120a"


def _cached(layout: Layout, module: str) -> str:
    return f'"${{FLASHINFER_WORKSPACE_BASE:-$HOME}}"/.cache/flashinfer/{layout.version}/*/cached_ops/{module}'


def cached_module(layout: Layout) -> str:
    """The folders of the module as it was built by the JIT, for a shell."""
    return _cached(layout, module_of(layout) or "fused_moe_120")


def patch_steps(layout: Layout, tactics: list[Restaged], out: str) -> list[Step]:
    """Applying the patch, in order."""
    module = module_of(layout) or "fused_moe_120"
    target = target_of(layout)
    folder = _cached(layout, module)
    healed = [item for item in tactics if item.outcome == "healed"]
    steps = [
        Step(
            what="apply",
            text="In the folder that holds the package (a checkout: its root). git apply takes the file too.",
            commands=[FIND, f'patch -p1 -b -d "$SITE" < {out}'],
        ),
        _prebuilt(layout, module),
        Step(
            what="elsewhere",
            text="vLLM and SGLang import this package and carry no copy of it, so one patch serves both; their images "
            "often install flashinfer-jit-cache too (look there first). flashinfer-cubin holds other kernels "
            "(TensorRT-LLM's, DeepGEMM's) and may stay. vLLM's own CUTLASS MoE (--moe-backend cutlass, in vllm/_C) and "
            "sgl-kernel's are built from other sources: this patch does not reach them.",
        ),
        Step(
            what="cached",
            text=f"{module} under cached_ops (…/{layout.version}/{target}/cached_ops/{module}) was built from the old "
            "source. ninja builds again by itself what is older than the launcher; dropping it makes sure (a cache "
            "copied into an image can look newer).",
            commands=[f"rm -rf {folder}"],
        ),
        _rebuild(target, len(tactics)),
        _autotuner(layout),
        _confirm(healed, folder, module),
        Step(
            what="undo",
            text="Take the patch back and drop the module; the next start builds the old one.",
            commands=[FIND, f'patch -p1 -R -d "$SITE" < {out}', f"rm -rf {folder}"],
        ),
    ]
    return [step for step in steps if step.text]


def _prebuilt(layout: Layout, module: str) -> Step:
    text = "An installed flashinfer-jit-cache"
    if "FLASHINFER_AOT_PROVIDERS" in _text(layout, "jit/env.py"):
        text += " (and the provider packages that it finds)"
    text += (
        f", or flashinfer/data/aot/{module}/{module}.so in the package itself, is loaded before anything is built: the "
        "patched source would have no effect. Uninstall the first, move the second away. FLASHINFER_DISABLE_JIT must "
        "not be set."
    )
    return Step(
        what="prebuilt",
        text=text,
        commands=[
            "pip list 2>/dev/null | grep -i flashinfer",
            "pip uninstall flashinfer-jit-cache",
            f'ls "$SITE"/flashinfer/data/aot/{module}/{module}.so',
        ],
    )


def _rebuild(target: str, kernels: int) -> Step:
    low, high = (kernels * seconds / 60 for seconds in KERNEL_SECONDS)
    builder = "gen_cutlass_fused_moe_sm120_module"
    arch = f"12.{target[2:]}"
    others = "12.1a for a GB10" if target == "120f" else "with CUDA 12.9 and newer 12.0f too; 12.1a for a GB10"
    return Step(
        what="rebuild",
        text=f"The first start does it, for {target}, which this version picks for SM120; or ahead of it, with nvcc in "
        f"PATH ({arch}; {others}). {kernels} kernels at {KERNEL_SECONDS[0]} to {KERNEL_SECONDS[1]} CPU seconds, and "
        f"the rest of the module: {low:.0f} to {high:.0f} CPU minutes and more, divided by MAX_JOBS (fewer jobs where "
        "there is little memory).",
        commands=[
            f"FLASHINFER_CUDA_ARCH_LIST={arch} MAX_JOBS=8 python3 -c "
            f"'from flashinfer.jit.fused_moe import {builder} as module; module().build_and_load()'"
        ],
        basis="modelled: kernels x measured seconds a kernel; the whole module was not built here",
    )


def _autotuner(layout: Layout) -> Step:
    if not any("def load_configs" in _text(layout, file) for file in AUTOTUNER):
        return Step(
            what="autotuner",
            text="This version keeps the autotuner's choice in memory: a new start tunes again.",
        )
    version = layout.version
    return Step(
        what="autotuner",
        text="A saved choice never tries the new kernels: drop the engine's autotuner cache, so that it tunes again "
        "(files given to autotune(cache=...) are yours to drop).",
        commands=[
            f'rm -rf "${{VLLM_CACHE_ROOT:-$HOME/.cache/vllm}}"/flashinfer_autotune_cache/{version}',
            f'rm -rf "${{SGLANG_CACHE_DIR:-$HOME/.cache/sglang}}"/flashinfer/autotune/{version}',
        ],
    )


def _confirm(healed: list[Restaged], folder: str, module: str) -> Step:
    if not healed:
        return Step(what="confirm", text="")
    first = healed[0]
    mainloop = "MainloopSm120ArrayTmaWarpSpecializedBlockScaled"
    policy = f"{mainloop}ILi{first.stages_after}E"
    tiles = " and ".join(dict.fromkeys("x".join(map(str, item.tile)) for item in healed))
    return Step(
        what="confirm",
        text=f"The kernels of {tiles} (finalize) are named with {first.stages_after} stages instead of "
        f"{first.stages_before}: {mainloop}<{first.stages_after}, ...>, in a profiler and in "
        f"{module}.so; `Failed to initialize cutlass TMA WS grouped gemm` is gone from the start-up log.",
        commands=[f"tilewright inspect {folder}/{module}.so --json | grep -o '{policy}[A-Za-z0-9_]*' | sort | uniq -c"],
    )


def blocklist_steps(out: str) -> list[Step]:
    """Using the blocklist, in order."""
    return [
        Step(what="apply", text="For the engine's process; nothing is built.", commands=[f"export {VARIABLE}={out}"]),
        Step(what="autotuner", text="Nothing to drop: a saved choice never names a tactic that failed."),
        Step(
            what="confirm",
            text="FLASHINFER_LOGGING_LEVEL=info prints `[TacticsBlocklist]: Loaded ... invalid tactic(s)`; a line that "
            "ends in `Skipping.` means that its metadata does not match. Speed does not change: what fails is skipped "
            "today, after it was tried.",
        ),
        Step(what="undo", text="Unset the variable.", commands=[f"unset {VARIABLE}"]),
    ]
