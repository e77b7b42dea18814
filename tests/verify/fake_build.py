"""A stand-in for nvcc whose programs behave as a GPU can make them: run, refuse, hang, die, talk nonsense.

Only the process boundary is replaced: what is built here is a script that prints the lines of `runner.inc` and ends as
told. Which one a config gets is told by its stage count, which is in the text of its types.
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "probe"))  # the header tree in miniature is the probe's
from probe_trees import make_tree

__all__ = ["make_tree", "write_nvcc"]

_NVCC = """
    import os, re, sys
    args = sys.argv[1:]
    if "--version" in args:
        print("Cuda compilation tools, release 13.0, V13.0.88")
        sys.exit(0)
    source = open(args[-1]).read()
    stages = re.search(r"StageCount<(\\d+)>", source)
    body = BEHAVIOURS[stages[1] if stages else "auto"]
    if body.startswith("refuse:"):
        print("/x/include/cutlass/gemm/collective/a.hpp(7): error: " + body[7:])
        sys.exit(2)
    output = args[args.index("-o") + 1]
    with open(output, "w") as program:
        program.write("#!" + sys.executable + "\\n" + PROGRAM + body)
    os.chmod(output, 0o755)
"""

_PROGRAM = """
import os, signal, sys, time

def say(text):
    print("@tw {" + text + "}", flush=True)

def call(step, code=0, name="cudaSuccess"):
    say('"step":"%s","code":%d,"name":"%s"' % (step, code, name))

def sizes(smem, threads=384):
    say('"step":"sizes","smem_bytes":%d,"threads":%d' % (smem, threads))
    if sys.argv[1] == "sizes":
        sys.exit(0)
    say('"step":"device","limit_bytes":232448')
    call("cudaSetDevice")
    call("cudaFuncGetAttributes")
    say('"step":"function","registers":168,"local_bytes":0')

def launched():
    call("cudaFuncSetAttribute")
    call("can_implement", 0, "Success")
    call("initialize", 0, "Success")
    call("run", 0, "Success")

"""


def write_nvcc(folder: Path, behaviours: dict[str, str]) -> Path:
    """An executable `nvcc`; {"auto" or stage count: the program's Python, or "refuse:message"}."""
    script = folder / "nvcc"
    dedented = {stages: textwrap.dedent(body) for stages, body in behaviours.items()}
    script.write_text(
        f"#!{sys.executable}\nBEHAVIOURS = {dedented!r}\nPROGRAM = {_PROGRAM!r}\n{textwrap.dedent(_NVCC)}\n", "utf-8"
    )
    script.chmod(0o755)
    return script
