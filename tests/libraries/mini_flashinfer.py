"""A small FlashInfer: the same parts in the same places, each a few lines, for tests that change them."""

from __future__ import annotations

from pathlib import Path

ENTRY = """
from typing import List
from . import env as jit_env
from .core import JitSpec, gen_jit_spec, current_compilation_context
from .gemm.cutlass.generate_kernels import generate_gemm_operations


def gen_cutlass_fused_moe_sm120_module(use_fast_build: bool = False) -> JitSpec:
    nvcc_flags = ["-DENABLE_BF16", "-DENABLE_FP8", "-DENABLE_FP4"]
    nvcc_flags += current_compilation_context.get_nvcc_flags_list(supported_major_versions=[12])
    return gen_cutlass_fused_moe_module(nvcc_flags, "120", use_fast_build)


def gen_cutlass_fused_moe_module(nvcc_flags: List[str], device_arch: str, use_fast_build: bool = False):
    output_dir = jit_env.FLASHINFER_CSRC_DIR / f"instantiations/{device_arch}"
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
        generate_gemm_operations(output_dir, f"{device_arch};{device_arch}-real")
    except Exception as e:
        raise RuntimeError(f"Failed to generate: {e}") from e
    return gen_jit_spec(
        f"fused_moe_{device_arch}",
        [*(output_dir / kernel for kernel in output_dir.rglob("*.generated.cu"))],
        extra_cuda_cflags=nvcc_flags,
        extra_include_paths=[jit_env.FLASHINFER_CSRC_DIR / "moe"],
    )
"""

GENERATOR = '''
import enum
import os
from itertools import product

import torch


class Fusion(enum.Enum):
    none = enum.auto()
    finalize = enum.auto()


FusionNames = {Fusion.none: "NONE", Fusion.finalize: "FINALIZE"}


class Launcher:
    def __init__(self, arch, output, cta_shape, fusion, swap_ab=False):
        self.arch, self.output, self.cta_shape = arch, output, cta_shape
        self.fusion = fusion
        self.swap_ab = swap_ab


def instantiate_operation(op):
    swap = str(op.swap_ab).lower()
    m, n, k = op.cta_shape
    return f"""
    INSTANTIATE_MOE(Sm{op.arch}, __nv_fp4_e2m1, {op.output}, {FusionNames[op.fusion]}, {m}, {n}, {k}, {swap});"""


def generate_sm120_operations(enabled):
    if not enabled:
        return []
    operations = []
    cta_shapes_mnk = [
        [128, 128, 128],
        [128, 256, 128],
    ]
    for fusion, cta_shape, swap_ab in product(Fusion, cta_shapes_mnk, [True, False]):
        for output in ["half", "__nv_bfloat16"]:
            operations.append(Launcher(120, output, cta_shape, fusion, swap_ab=swap_ab))
    return operations


def generate_gemm_operations(output_dir, architectures):
    arches = architectures.split(";")

    def has_arch(sm):
        return f"{sm}" in arches or f"{sm}-real" in arches

    operations = []
    operations += generate_sm120_operations(has_arch(120) or has_arch(121))
    text = "\\n".join(instantiate_operation(op) for op in operations)
    out_file = os.path.join(output_dir, "gemm_sm120.generated.cu")
    try:
        with open(out_file, mode="r") as f:
            if f.read() == text:
                return
    except FileNotFoundError:
        pass
    with open(out_file, mode="w") as f:
        f.write('#include "launcher.inl"\\nnamespace tllm {\\n' + text + "\\n}\\n")
'''

LAUNCHER = r"""
#pragma once
#include "adapters.h"
#include "cutlass/cutlass.h"
namespace tllm {
enum class Fusing { NONE, FINALIZE };
#define INSTANTIATE_MOE(ArchTag_, Type_, Output_, FUSION_, M_, N_, K_, SWAP_AB_)                  \
  static void launch_##ArchTag_##_##Output_##_##FUSION_##_##M_##_##N_##_##K_##_##SWAP_AB_(int n) {  \
    using Arch = cutlass::arch::ArchTag_;                                                          \
    constexpr static bool SwapAB = SWAP_AB_;                                                       \
    constexpr bool IsSM120 = Arch::kMinComputeCapability == 120 || Arch::kMinComputeCapability == 121; \
    if constexpr (IsSM120) {                                                                       \
      using Element = typename Adapter<Type_>::type;                                               \
      using Out = typename Adapter<Output_>::type;                                                 \
      constexpr static bool IsFinalize = Fusing::FUSION_ == Fusing::FINALIZE;                      \
      constexpr static int Align = 128 / cutlass::sizeof_bits<Element>::value;                     \
      constexpr static int AlignOut = 128 / cutlass::sizeof_bits<Out>::value;                      \
      using Tile = cute::Shape<cute::Int<M_>, cute::Int<N_>, cute::Int<K_>>;                       \
      using Cluster = cute::Shape<_1, _1, _1>;                                                     \
      using LayoutD = std::conditional_t<SwapAB, cutlass::layout::ColumnMajor, cutlass::layout::RowMajor>; \
      using Default = typename cutlass::epilogue::collective::CollectiveBuilder<                   \
          Arch, cutlass::arch::OpClassBlockScaledTensorOp, Tile, Cluster,                          \
          cutlass::epilogue::collective::EpilogueTileAuto, float, float, Out, LayoutD*, AlignOut,  \
          Out, LayoutD*, AlignOut, cutlass::epilogue::TmaWarpSpecialized>::CollectiveOp;           \
      using Scatter = std::conditional_t<SwapAB,                                                   \
          cutlass::epilogue::fusion::ScaledAccPerRowBiasPerColScaleScatter<LayoutD, Out, float, Out, float>, \
          cutlass::epilogue::fusion::ScaledAccPerColBiasPerRowScaleScatter<LayoutD, Out, float, Out, float>>; \
      using Finalize = typename cutlass::epilogue::collective::CollectiveBuilder<                  \
          Arch, cutlass::arch::OpClassBlockScaledTensorOp, Tile, Cluster,                          \
          cutlass::epilogue::collective::EpilogueTileAuto, float, float, Out, LayoutD*, AlignOut,  \
          void, LayoutD*, AlignOut, cutlass::epilogue::TmaWarpSpecialized, Scatter>::CollectiveOp; \
      using Epilogue = std::conditional_t<IsFinalize, Finalize, Default>;                          \
      using Stages = cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(           \
          sizeof(typename Epilogue::SharedStorage))>;                                              \
      using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<                      \
          Arch, cutlass::arch::OpClassBlockScaledTensorOp, cutlass::nv_float4_t<Element>,          \
          cutlass::layout::RowMajor*, Align, cutlass::nv_float4_t<Element>,                        \
          cutlass::layout::ColumnMajor*, Align, float, Tile, Cluster, Stages,                      \
          cutlass::gemm::collective::KernelScheduleAuto>::CollectiveOp;                            \
      using Kernel = cutlass::gemm::kernel::GemmUniversal<                                         \
          cutlass::gemm::GroupProblemShape<cute::Shape<int64_t, int64_t, int64_t>>, Mainloop,      \
          Epilogue, void, void>;                                                                   \
    }                                                                                              \
  }
}
"""

ADAPTERS = """
#pragma once
namespace tllm {
template <typename T> struct Adapter { using type = T; };
template <> struct Adapter<half> { using type = cutlass::half_t; };
#if defined(ENABLE_BF16)
template <> struct Adapter<__nv_bfloat16> { using type = cutlass::bfloat16_t; };
#endif
#if defined(ENABLE_FP4) && CUDA_VERSION >= 12080
template <> struct Adapter<__nv_fp4_e2m1> { using type = cutlass::float_e2m1_t; };
#endif
}
"""

GEMM_CORE = """
import os
import jinja2
from .. import env as jit_env
from ..core import gen_jit_spec


def gen_gemm_sm120_module_toy():
    with open(jit_env.FLASHINFER_CSRC_DIR / "toy_sm120.jinja") as f:
        template = jinja2.Template(f.read())
    for cta_m, cta_n, cta_k in [
        (128, 128, 128),
        (128, 256, 128),
    ]:
        path = jit_env.FLASHINFER_GEN_SRC_DIR / f"toy_{cta_m}_{cta_n}.cu"
        with open(path, "w") as f:
            f.write(template.render(cta_m=cta_m, cta_n=cta_n, cta_k=cta_k))
    return gen_jit_spec("toy", [], extra_cuda_cflags=["-DENABLE_FP4", "-DENABLE_BF16"],
                        extra_include_paths=[jit_env.FLASHINFER_CSRC_DIR / "moe"])
"""

TOY_TEMPLATE = """#include "launcher.inl"
namespace tllm {
{% for swap in ["true", "false"] %}
INSTANTIATE_MOE(Sm120, __nv_fp4_e2m1, half, NONE, {{ cta_m }}, {{ cta_n }}, {{ cta_k }}, {{ swap }});
{% endfor %}
}
"""

VERSION_H = "#define CUTLASS_MAJOR 4\n#define CUTLASS_MINOR 2\n#define CUTLASS_PATCH 1\n"

FILES = {
    "flashinfer/__init__.py": "",
    "flashinfer/_build_meta.py": '__version__ = "0.0.1"\n',
    "flashinfer/jit/__init__.py": "from . import env as env\n",
    "flashinfer/jit/fused_moe.py": ENTRY,
    "flashinfer/jit/gemm/__init__.py": "",
    "flashinfer/jit/gemm/core.py": GEMM_CORE,
    "flashinfer/jit/gemm/cutlass/__init__.py": "",
    "flashinfer/jit/gemm/cutlass/generate_kernels.py": GENERATOR,
    "flashinfer/data/csrc/moe/launcher.inl": LAUNCHER,
    "flashinfer/data/csrc/moe/adapters.h": ADAPTERS,
    "flashinfer/data/csrc/toy_sm120.jinja": TOY_TEMPLATE,
    "flashinfer/data/include/flashinfer/nothing.h": "",
    "flashinfer/data/cutlass/include/cutlass/version.h": VERSION_H,
    "flashinfer/data/cutlass/include/cute/layout.hpp": "",
}
"""Every file of the small tree, by path."""


def write_tree(root: Path, changes: dict[str, str | bytes | None] | None = None) -> Path:
    """Write the small tree to `root`; `changes` replaces files, or leaves them out (None)."""
    for path, content in {**FILES, **(changes or {})}.items():
        if content is None:
            continue
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    return root
