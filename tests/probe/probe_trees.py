"""A header tree with nothing in it but what the probe reads itself."""

from __future__ import annotations

from pathlib import Path

FILES = {
    "cutlass/version.h": "#define CUTLASS_MAJOR 4\n#define CUTLASS_MINOR 2\n#define CUTLASS_PATCH 1\n",
    "cutlass/gemm/dispatch_policy.hpp": """
        namespace cutlass::gemm {
        struct KernelTmaWarpSpecializedCooperative {};
        struct KernelTmaWarpSpecializedPingpong { static constexpr int N = 2; };
        struct KernelPtrArrayTmaWarpSpecializedCooperative { };
        struct KernelPtrArrayTmaWarpSpecializedPingpong { };
        struct KernelTmaWarpSpecialized1SmSm100 final : KernelSchedule1Sm { };
        // struct KernelInAComment {};
        template <int Stages, class C = Shape<_1,_1,_1>> struct KernelATemplate {};
        struct NotASchedule {};
        using KernelAnotherName = KernelTmaWarpSpecialized1SmSm100;
        using KernelOfNothing = ElementA_;
        }""",
    "cutlass/epilogue/dispatch_policy.hpp": """
        namespace cutlass::epilogue {
        struct TmaWarpSpecialized {};
        struct NoSmemWarpSpecialized1Sm {};
        struct SparseTmaWarpSpecializedCooperativeSm120 {};
        template <int A> struct Sm90TmaWarpSpecialized {};
        }""",
    "cutlass/gemm/collective/collective_builder.hpp": "",
    "cute/tensor.hpp": "",
}

SCATTER = "cutlass_extensions/epilogue/fusion/sm90_visitor_scatter.hpp"


def make_tree(folder: Path, scatter: bool = False) -> Path:
    """A folder that passes for a CUTLASS 4.2.1, with TensorRT-LLM's scatter header beside it if asked."""
    files = {f"include/{name}": text for name, text in FILES.items()}
    if scatter:
        files[f"ext/{SCATTER}"] = "// scatter\n"
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder
