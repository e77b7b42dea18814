"""`triton_/worker.py` stopped at the pass that sets `metadata.shared`: no ptxas, which takes most of the time.

Run by `tools/build_triton_rows.py --fast`, in a Python that has Triton; the protocol is the worker's.
"""

# Runs in any Python that has Triton, which the checker's has not.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false
from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src" / "tilewright" / "triton_"))
import worker

PASSES = ("ttir", "ttgir", "llir")


def lower(function: Any, job: dict[str, Any], triton: Any) -> dict[str, Any]:
    """As `worker.compile_one`, up to LLVM's IR."""
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.compiler.compiler import make_backend

    names = function.arg_names
    source = ASTSource(
        fn=function,
        signature={name: job["signature"].get(name, "constexpr") for name in names},
        constexprs={(names.index(name),): worker.constant(value, triton) for name, value in job["constants"].items()},
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in job["divisible"]},
    )
    target = GPUTarget("cuda", job["sm"], 32)
    backend = make_backend(target)
    options = backend.parse_options({"num_warps": job["num_warps"], "num_stages": job["num_stages"]})
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    metadata: dict[str, Any] = {"hash": "", "target": target, **options.__dict__}
    stages: dict[str, Any] = {}
    backend.add_stages(stages, options, source.language)
    module = source.make_ir(
        target, options, backend.get_codegen_implementation(options), backend.get_module_map(), context
    )
    answer: dict[str, Any] = {"id": job["id"], "triton": triton.__version__}
    for name in PASSES:
        module = stages[name](module, metadata)
        if name == "ttgir" and job.get("keep"):
            answer["ttgir"] = str(module)
    return {**answer, "shared": metadata["shared"], "tmem": metadata.get("tmem_size"), "warps": metadata["num_warps"]}


worker.compile_one = lower

if __name__ == "__main__":
    sys.exit(worker.main())
