"""Write src/tilewright/kernels/nvfp4_wgmma.cuh: one overload of the warpgroup MMA for each width that the kernel uses.

PTX wants every accumulator register named, so the text is made rather than typed.
"""

from __future__ import annotations

from pathlib import Path

WIDTHS = tuple(range(8, 161, 8))
"""Columns (routed rows): multiples of 8 up to the widest tile of nvfp4_prefill.cu."""
TARGET = Path(__file__).parents[1] / "src" / "tilewright" / "kernels" / "nvfp4_wgmma.cuh"
HEAD = """// Made by tools/build_wgmma.py: wgmma.mma_async with the weights (operand A, 64 rows) in registers and the
// tokens (operand B, K-major) behind a shared-memory descriptor. `keep` 0 starts from zero.
#pragma once

template <int N> struct Wgmma;
"""


def overload(width: int) -> str:
    count = width // 2
    names = ", ".join(f"%{i}" for i in range(count))
    a, desc, keep = [f"%{count + i}" for i in range(4)], f"%{count + 4}", f"%{count + 5}"
    outputs = ", ".join(f'"+f"(d[{i}])' for i in range(count))
    lines = [
        f"template <> struct Wgmma<{width}> {{",
        "  template <int M>",
        "  static __device__ __forceinline__ void run(float (&d)[M], const u32 (&a)[4], u64 b, int keep) {",
        f'    static_assert(M >= {count}, "accumulators");',
        '    asm volatile("{ .reg .pred p; setp.ne.b32 p, ' + keep + ', 0;\\n"',
        f'                 "wgmma.mma_async.sync.aligned.m64n{width}k16.f32.bf16.bf16 {{{names}}}, "',
        f'                 "{{{", ".join(a)}}}, {desc}, p, 1, 1, 0; }}"',
        f"                 : {outputs}",
        '                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep));',
        "  }",
        "};",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    TARGET.write_text(HEAD + "\n" + "\n".join(overload(width) for width in WIDTHS) + "\n")
