"""A stand-in for nvcc that behaves badly on purpose: what the probe must survive has to be made to happen.

It is written out as an executable script with a behaviour baked in. It reads the unit it is given, so that what it
prints is attributed to real configs. What it cannot do is tell sizes: tests of figures use the real compiler.
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

_COMMON = """
    import os, re, subprocess, sys, time
    args = sys.argv[1:]
    if "--version" in args:
        print("Cuda compilation tools, release 13.0, V13.0.88")
        sys.exit(0)
    source = open(args[-1]).read()
    configs = sorted({int(n) for n in re.findall(r'#line 1 "twcfg(\\d+)"', source)})
    output = args[args.index("-o") + 1]
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "log"), "a") as log:
        log.write(" ".join(map(str, configs)) + "\\n")

    def succeed():
        count = int(re.search(r"tw_values_\\d+\\[\\] = \\{(.*)\\};", source)[1].count("S_")) if configs else 0
        with open(output, "w") as ptx:
            for n in configs:
                values = [1000 + n if i == 1 else -(2**31) + 1 for i in range(count)]
                data = ", ".join(str(b) for v in values for b in (v & 0xFFFFFFFF).to_bytes(4, "little"))
                ptx.write(f".global .align 4 .b8 tw_values_{n}[{4 * count}] = {{{data}}};\\n")
                symbols = ", ".join(["generic(_Z7tw_nameI7tw_noneE)"] * 3)
                ptx.write(f".global .align 8 .u64 tw_names_{n}[3] = {{{symbols}}};\\n")
        sys.exit(0)

    def refuse(n, text="static assertion failed with \\"no\\"", line=2):
        print(f"/x/include/cutlass/gemm/collective/a.hpp(7): error: {text}")
        print("    static_assert(false);")
        print("    ^")
        print("          detected during:")
        print(f'            instantiation of class "A" at line {line} of twcfg{n}')
        print()
"""


def write_nvcc(folder: Path, behaviour: str) -> Path:
    """An executable `nvcc` in `folder` that runs `behaviour` (Python; `configs`, `refuse`, `succeed` are there)."""
    script = folder / "nvcc"
    script.write_text(f"#!{sys.executable}\n{textwrap.dedent(_COMMON)}\n{textwrap.dedent(behaviour)}\n", "utf-8")
    script.chmod(0o755)
    return script


def runs(folder: Path) -> list[list[int]]:
    """The configs of every compile so far, in order."""
    log = folder / "log"
    return [[int(n) for n in line.split()] for line in log.read_text().splitlines()] if log.exists() else []
