"""A CUTLASS in miniature: the shapes of declarations that the real one uses, small enough to be read at a glance."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

VERSION = """\
#define CUTLASS_MAJOR {0}
#define CUTLASS_MINOR {1}
#define CUTLASS_PATCH {2}
"""

ARCH = "namespace cutlass { namespace arch {\nstruct Sm90 {};\nstruct Sm120 {};\n} }\n"

POLICIES = """\
/* A licence.
 */
namespace cutlass::gemm {
struct KernelTmaWarpSpecializedCooperative { static constexpr int SchedulerPipelineStageCount = 0; };
struct KernelTmaWarpSpecializedPingpong { };
struct KernelPtrArrayTmaWarpSpecializedCooperative { };
struct KernelTmaWarpSpecializedCooperativeFP8FastAccum : KernelTmaWarpSpecializedCooperative { };
struct KernelScheduleSm120 {};
struct KernelScheduleSm120Blockwise : KernelScheduleSm120 {};
struct KernelTmaWarpSpecializedBlockwiseCooperativeSm120 final
  : KernelScheduleSm120Blockwise, KernelTmaWarpSpecializedCooperative { };
struct KernelTmaWarpSpecializedLonelySm120 { };
template <int Stages_>
struct KernelTmaWarpSpecializedCooperativeSm120 : KernelTmaWarpSpecializedCooperative { };
using KernelOtherNameSm120 = KernelTmaWarpSpecializedLonelySm120;
template <int Stages_, class ClusterShape_, class KernelSchedule_>
struct MainloopSm120TmaWarpSpecialized {
  constexpr static int Stages = Stages_;
  using Schedule = KernelTmaWarpSpecializedCooperativeSm120<2>;
};
template <int Stages_, class ClusterShape_, class KernelSchedule_>
struct MainloopSm120TmaWarpSpecializedBlockwiseScaling { };
template <int Stages_, class ClusterShape_, class KernelSchedule_>
struct MainloopSm120ArrayTmaWarpSpecializedBlockwiseScaling { };
template <int Stages_>
struct MainloopSm120TmaWarpSpecializedNobody { };
}
"""

BUILDER_DECL = """\
namespace cutlass::gemm::collective {
struct KernelScheduleAuto final {};
template <class ArchTag, class OpClass, class ElementA, class GmemLayoutA, int AlignmentA, class ElementB,
          class GmemLayoutB, int AlignmentB, class ElementAccumulator, class TileShape_MNK, class ClusterShape_MNK,
          class StageCountType, class KernelScheduleType, class Enable = void>
struct CollectiveBuilder { static_assert(sizeof(ElementA) == 0, "Could not build a collective."); };
}
"""

HEAD = """\
template <class ElementA, class LayoutA, int AlignmentA, class ElementB, class LayoutB, int AlignmentB, class Acc,
          class TileShape_MNK, class ClusterShape_MNK, class StageCountType, class BuilderScheduleTag>
"""

DENSE_BUILDER = (
    """\
namespace cutlass::gemm::collective {
"""
    + HEAD
    + """\
struct CollectiveBuilder<
    arch::Sm120, arch::OpClassTensorOp, ElementA, LayoutA, AlignmentA, ElementB, LayoutB, AlignmentB, Acc,
    TileShape_MNK, ClusterShape_MNK, StageCountType, BuilderScheduleTag,
    cute::enable_if_t<
      // a comment with > and && in it
      (cute::is_base_of_v<KernelTmaWarpSpecializedCooperative, BuilderScheduleTag> ||
       cute::is_base_of_v<KernelPtrArrayTmaWarpSpecializedCooperative, BuilderScheduleTag> ||
       cute::is_same_v<KernelScheduleAuto, BuilderScheduleTag>) &&
      not cute::is_tuple_v<LayoutA> && detail::is_aligned<ElementA, AlignmentA>()>>
{
  static_assert(cute::size(ClusterShape_MNK{}) == Int<1>{}, "no programmatic multicast on this arch");
  static constexpr bool IsPtrArray =
      cute::is_base_of_v<KernelPtrArrayTmaWarpSpecializedCooperative, BuilderScheduleTag>;
  static_assert(!IsPtrArray, "PtrArray kernel is not supported for this collective builder.");
  static_assert(detail::is_sm10x_f8f6f4_element<ElementA>() && detail::is_sm10x_f8f6f4_element<ElementB>(), "F8F6F4");
  using DispatchPolicy = MainloopSm120TmaWarpSpecialized<2, ClusterShape_MNK, BuilderScheduleTag>;
  using CollectiveOp = CollectiveMma<DispatchPolicy, TileShape_MNK, ElementA, LayoutA>;
};
}
"""
)

BLOCKWISE_BUILDER = (
    """\
namespace cutlass::gemm::collective {
"""
    + HEAD
    + """\
struct CollectiveBuilder<
    arch::Sm120, arch::OpClassTensorOp, ElementA, LayoutA, AlignmentA, ElementB, LayoutB, AlignmentB, Acc,
    TileShape_MNK, ClusterShape_MNK, StageCountType, BuilderScheduleTag,
    cute::enable_if_t<cute::is_tuple_v<LayoutA> &&
      cute::is_base_of_v<KernelScheduleSm120Blockwise, BuilderScheduleTag>>>
{
  static constexpr bool IsGrouped = !cute::is_same_v<cute::remove_pointer_t<LayoutA>, LayoutA>;
  using DispatchPolicy = cute::conditional_t<IsGrouped,
      MainloopSm120ArrayTmaWarpSpecializedBlockwiseScaling<2, ClusterShape_MNK, BuilderScheduleTag>,
      MainloopSm120TmaWarpSpecializedBlockwiseScaling<2, ClusterShape_MNK, BuilderScheduleTag>>;
  using CollectiveOp = CollectiveMma<DispatchPolicy, TileShape_MNK, ElementA, LayoutA>;
};
}
"""
)


def collective(policy: str, stages: int = 2) -> str:
    """A header with one `CollectiveMma` specialised for `policy`; the specialisation starts on line 4."""
    return f"""\
#pragma once
namespace cutlass::gemm::collective {{
template <int Stages, class ClusterShape, class Schedule, class TileShape_, class ElementA_, class StrideA_>
struct CollectiveMma<
    {policy}<Stages, ClusterShape, Schedule>, TileShape_, ElementA_, StrideA_> {{
  struct Inner {{ static_assert(true, "not about the class"); }};
  static_assert(DispatchPolicy::Stages >= {stages}, "Specialization requires Stages set to value {stages} or more.");
}};
}}
"""


FILES = {
    "cute/tensor.hpp": "#pragma once\n",
    "cutlass/version.h": VERSION.format(9, 8, 7),
    "cutlass/arch/arch.h": ARCH,
    "cutlass/gemm/dispatch_policy.hpp": POLICIES,
    "cutlass/gemm/collective/collective_builder_decl.hpp": BUILDER_DECL,
    "cutlass/gemm/collective/builders/sm120_mma_builder.inl": DENSE_BUILDER,
    "cutlass/gemm/collective/builders/sm120_blockwise_mma_builder.inl": BLOCKWISE_BUILDER,
    "cutlass/gemm/collective/sm120_mma_tma.hpp": collective("MainloopSm120TmaWarpSpecialized"),
    "cutlass/gemm/collective/sm120_mma_tma_blockwise_scaling.hpp": collective(
        "MainloopSm120TmaWarpSpecializedBlockwiseScaling"
    ),
    "cutlass/gemm/collective/sm120_mma_array_tma_blockwise_scaling.hpp": collective(
        "MainloopSm120ArrayTmaWarpSpecializedBlockwiseScaling"
    ),
}


def write_cutlass(include: Path, files: dict[str, str] | None = None, newline: str = "\n") -> Path:
    """Write a CUTLASS in miniature to `include`, with `files` changed or added."""
    for name, text in {**FILES, **(files or {})}.items():
        path = include / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.replace("\n", newline).encode())
    return include


def write_wheel(path: Path, include: str, files: dict[str, str] | None = None) -> Path:
    """Write a wheel of a library `thing` 1.2 that bundles the miniature at `include`."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in {**FILES, **(files or {})}.items():
            archive.writestr(f"{include}/{name}", text)
        archive.writestr("thing-1.2.dist-info/METADATA", "Metadata-Version: 2.1\nName: thing\nVersion: 1.2\n\nText\n")
    return path


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own for every test of a module that imports this."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(folder))
    return folder


@pytest.fixture(name="cutlass")
def cutlass_fixture(tmp_path: Path) -> Callable[..., Path]:
    """`cutlass("a/include", files)` writes a miniature below the test's folder."""

    def write(place: str = "include", files: dict[str, str] | None = None, newline: str = "\n") -> Path:
        return write_cutlass(tmp_path / place, files, newline)

    return write
