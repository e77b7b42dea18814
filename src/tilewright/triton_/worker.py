"""Compiles Triton kernels and reports what each takes: a program of its own, run in a process of its own.

It imports nothing of Tilewright, so that any Python that has Triton can run it: `python worker.py`. The first line of
stdin is a JSON object `{"source", "kernel"}`: Python text that holds nothing but `@triton.jit` functions, and the name
of the one to compile. Each further line is one compilation,
`{"id", "sm": 120, "num_warps", "num_stages", "signature": {name: type}, "constants": {name: value},
"divisible": [names]}`, and gets one line of answer, `{"id", "shared", "tmem", "threads", "spills", "triton"}`
or `{"id", "error"}`. No GPU is used.
"""

# Runs in any Python that has Triton, which the checker's has not.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false
from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any


def load(source: str, kernel: str, folder: str) -> Any:
    """The function `kernel` of `source`; Triton reads a function's text from a file, so there has to be one."""
    path = Path(folder) / "extracted_kernel.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("extracted_kernel", path)
    if spec is None or spec.loader is None:
        raise RuntimeError("the extracted kernel cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules["extracted_kernel"] = module
    spec.loader.exec_module(module)
    return getattr(module, kernel)


def constant(value: Any, triton: Any) -> Any:
    """A constexpr of the kernel; `{"dtype": "bfloat16"}` stands for `tl.bfloat16`."""
    if isinstance(value, dict):
        return getattr(triton.language, value["dtype"])
    return value


def compile_one(function: Any, job: dict[str, Any], triton: Any) -> dict[str, Any]:
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = function.arg_names
    signature = {name: job["signature"].get(name, "constexpr") for name in names}
    constants = {name: constant(value, triton) for name, value in job["constants"].items()}
    keyed = {(names.index(name),): value for name, value in constants.items()}
    attrs = {(names.index(name),): [["tt.divisibility", 16]] for name in job["divisible"]}
    source = ASTSource(fn=function, signature=signature, constexprs=keyed, attrs=attrs)
    options = {"num_warps": job["num_warps"], "num_stages": job["num_stages"]}
    built = triton.compile(source, target=GPUTarget("cuda", job["sm"], 32), options=options)
    metadata = built.metadata
    answer = {
        "id": job["id"],
        "shared": metadata.shared,
        "tmem": getattr(metadata, "tmem_size", None),
        "warps": metadata.num_warps,
        "triton": triton.__version__,
    }
    if job.get("keep"):
        answer["ttgir"] = built.asm["ttgir"]
    return answer


def main() -> int:
    try:
        import triton
    except ImportError as error:
        print(json.dumps({"missing": str(error)}), flush=True)
        return 3
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("TRITON_CACHE_DIR", str(Path(folder) / "cache"))
        head = json.loads(sys.stdin.readline())
        function = load(head["source"], head["kernel"], folder)
        for line in sys.stdin:
            job = json.loads(line)
            try:
                answer = compile_one(function, job, triton)
            except Exception as error:  # whatever the compiler raises is this job's answer
                answer = {"id": job["id"], "error": f"{type(error).__name__}: {error}"[:2000]}
            print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
