"""The translation unit of a batch of configs, and how its numbers are read back from the PTX.

For each config one struct holds the three types; an array of ints holds their sizeof, offsetof and constexpr members,
an array of addresses their names (as mangled symbols). Nothing is run: nvcc writes both arrays into the PTX as
initialised data. A member that a type does not have is told apart by SFINAE and answered as `ABSENT`.

Every statement stands at a line of a file of its own name (`#line`), so that a diagnostic can be traced to the config
in whose instantiation chain it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tilewright.errors import ToolError
from tilewright.probe.cpp import KernelTypes

__all__ = ["ABSENT", "FIELD_PATHS", "SCALARS", "Reading", "config_text", "preamble", "read_ptx", "unit_file"]

ABSENT: Final = -(2**31) + 1
"""What stands for "the type has no such member"."""

# key of the result -> (which type, what to read). `T::X` is a static member, `sizeof T::X` a nested type's size.
_E, _M, _K = "E", "M", "K"
SCALARS: Final[tuple[tuple[str, str], ...]] = (
    ("smem_bytes", "tw_v_SharedStorageSize<K>::value"),
    ("threads", "tw_v_MaxThreadsPerBlock<K>::value"),
    ("min_blocks", "tw_v_MinBlocksPerMultiprocessor<K>::value"),
    ("load_registers", "tw_v_LoadRegisterRequirement<K>::value"),
    ("mma_registers", "tw_v_MmaRegisterRequirement<K>::value"),
    ("mainloop_bytes", "tw_s_SharedStorage<M>::value"),
    ("mainloop_tensor_bytes", "tw_s_TensorStorage<M>::value"),
    ("mainloop_pipeline_bytes", "tw_s_PipelineStorage<M>::value"),
    ("mainloop_tensormap_bytes", "tw_s_TensorMapStorage<M>::value"),
    ("epilogue_bytes", "tw_s_SharedStorage<E>::value"),
    ("epilogue_tensor_bytes", "tw_s_TensorStorage<E>::value"),
    ("epilogue_pipeline_bytes", "tw_s_PipelineStorage<E>::value"),
    ("epilogue_tensormap_bytes", "tw_s_TensorMapStorage<E>::value"),
    ("epilogue_tile_m", "tw_tile<E, 0>::value"),
    ("epilogue_tile_n", "tw_tile<E, 1>::value"),
    ("stages_c", "tw_v_StagesC<EP>::value"),
    ("stages_d", "tw_v_StagesD<EP>::value"),
    ("reuse_smem_c", "tw_v_ReuseSmemC<EP>::value"),
    ("delay_tma_store", "tw_v_DelayTmaStore<EP>::value"),
    ("fragment_size", "tw_v_FragmentSize<EP>::value"),
    ("epilogue_warp_groups", "tw_v_NumEpilogueWarpGroups<EP>::value"),
    ("stages", "tw_v_Stages<MP>::value"),
    ("stages_a", "tw_v_StagesA<MP>::value"),
    ("stages_b", "tw_v_StagesB<MP>::value"),
    ("stages_e", "tw_v_StagesE<MP>::value"),
    ("load_ab_stages", "tw_v_LoadABPipelineStageCount<MP>::value"),
    ("load_sf_stages", "tw_v_LoadSFPipelineStageCount<MP>::value"),
    ("scheduler_stages", "tw_v_SchedulerPipelineStageCount<MS>::value"),
    ("accumulator_stages", "tw_v_AccumulatorPipelineStageCount<MS>::value"),
    # SM100 grouped kernels from 4.3.0 on keep an array of tensor-map storages: where in the first the mainloop's are
    (
        "mainloop_maps_at",
        "tw_m_mainloop<std::remove_all_extents_t<tw_t_tensormaps<tw_SharedStorage<K>>>>::offset",
    ),
)
"""Single numbers of a kernel. E, M, K: epilogue, mainloop, kernel; EP, MP: dispatch policies; MS: the schedule."""

_STATIC_MEMBERS: Final = tuple(re.findall(r"tw_v_(\w+)", " ".join(text for _, text in SCALARS)))
_NESTED_TYPES: Final = ("SharedStorage", "TensorStorage", "PipelineStorage", "TensorMapStorage")

_KS = "tw_SharedStorage<K>"
_TENSORS, _MAPS, _PIPES = (f"tw_t_{name}<{_KS}>" for name in ("tensors", "tensormaps", "pipelines"))
_MT, _MM, _ET = "tw_TensorStorage<M>", "tw_block_maps<tw_TensorMapStorage<M>>", "tw_TensorStorage<E>"
_PARENTS: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (
    (
        "kernel",
        _KS,
        (
            "tensors", "tensormaps", "pipelines", "scheduler", "scheduler_response", "clc_response", "tmem_base_ptr",
        ),
    ),
    ("kernel.tensors", _TENSORS, ("mainloop", "epilogue")),
    ("kernel.tensormaps", _MAPS, ("mainloop", "epilogue")),
    (
        "kernel.pipelines",
        _PIPES,
        (
            "mainloop", "mainloop_mk", "mainloop_nk", "epi_load", "load_order", "math_wg_order", "scheduler", "clc",
            "accumulator", "clc_throttle", "epilogue_throttle", "tmem_dealloc",
        ),
    ),
    (
        "mainloop.tensors",
        _MT,
        (
            "smem_A", "smem_B", "smem_E", "smem_SFA", "smem_SFB", "smem_scale", "smem_zero", "smem_scale_A",
            "smem_scale_B",
        ),
    ),
    (
        "mainloop.tensormaps",
        _MM,
        ("smem_tensormap_A", "smem_tensormap_B", "smem_tensormap_SFA", "smem_tensormap_SFB"),
    ),
    ("epilogue.tensors", _ET, ("collective", "thread")),
    ("epilogue.tensors.collective", f"tw_t_collective<{_ET}>", ("smem_C", "smem_D")),
)  # fmt: skip
"""Members that are looked for: (path of the parent, the parent's type, members). Offsets are inside the parent."""

FIELD_PATHS: Final[tuple[str, ...]] = tuple(f"{parent}.{name}" for parent, _, names in _PARENTS for name in names)
_MEMBERS: Final = tuple(dict.fromkeys(name for _, _, names in _PARENTS for name in names))

_INCLUDES: Final = (
    "cute/tensor.hpp",
    "cutlass/cutlass.h",
    "cutlass/numeric_types.h",
    "cutlass/gemm/dispatch_policy.hpp",
    "cutlass/epilogue/dispatch_policy.hpp",
    "cutlass/epilogue/thread/activation.h",
    "cutlass/epilogue/fusion/operations.hpp",
    "cutlass/epilogue/collective/default_epilogue.hpp",
    "cutlass/epilogue/collective/collective_builder.hpp",
    "cutlass/gemm/collective/collective_builder.hpp",
    "cutlass/gemm/group_array_problem_shape.hpp",
    "cutlass/gemm/kernel/gemm_universal.hpp",
    "cutlass/gemm/kernel/tile_scheduler.hpp",
    "cutlass/detail/blockwise_scale_layout.hpp",
)
SCATTER_HEADER: Final = "cutlass_extensions/epilogue/fusion/sm90_visitor_scatter.hpp"

LINE_E, LINE_M, LINE_K, LINE_VALUES = 1, 2, 3, 4
"""Lines of a config's own file: its epilogue, mainloop, kernel, and the arrays."""


def preamble(scatter: bool, headers: Sequence[str]) -> str:
    """Includes and detectors. `headers`: those of the tree (older versions lack some of `_INCLUDES`)."""
    known = set(headers)
    lines = ["#include <cstdint>", "#include <type_traits>", "#include <utility>"]
    lines += [f'#include "{name}"' for name in _INCLUDES if name in known]
    if scatter:
        lines.append(f'#include "{SCATTER_HEADER}"')
    lines += [
        "struct tw_none {};",
        "template <class T> __device__ int tw_name = 0;",
        f"constexpr int tw_absent = {ABSENT};",
    ]
    for name in dict.fromkeys(_STATIC_MEMBERS):
        lines += [
            f"template <class T, class = void> struct tw_v_{name} {{ static constexpr int value = tw_absent; }};",
            f"template <class T> struct tw_v_{name}<T, std::void_t<decltype(T::{name})>> "
            f"{{ static constexpr int value = static_cast<int>(T::{name}); }};",
        ]
    for name in _NESTED_TYPES:
        lines += [
            f"template <class T, class = void> struct tw_s_{name} "
            "{ static constexpr int value = tw_absent; using type = tw_none; };",
            f"template <class T> struct tw_s_{name}<T, std::void_t<typename T::{name}>> "
            f"{{ using type = typename T::{name}; static constexpr int value = static_cast<int>(sizeof(type)); }};",
            f"template <class T> using tw_{name} = typename tw_s_{name}<T>::type;",
        ]
    for name in _MEMBERS:
        lines += [
            f"template <class T, class = void> struct tw_m_{name} "
            "{ using type = tw_none; static constexpr int offset = tw_absent, bytes = tw_absent, align = tw_absent; };",
            f"template <class T> struct tw_m_{name}<T, std::void_t<decltype(std::declval<T&>().{name})>> "
            f"{{ using type = std::remove_cv_t<std::remove_reference_t<decltype(std::declval<T&>().{name})>>; "
            f"static constexpr int offset = static_cast<int>(__builtin_offsetof(T, {name})), "
            "bytes = static_cast<int>(sizeof(type)), align = static_cast<int>(alignof(type)); };",
            f"template <class T> using tw_t_{name} = typename tw_m_{name}<T>::type;",
        ]
    for alias, name in (("tw_policy", "DispatchPolicy"), ("tw_schedule", "Schedule")):
        lines += [
            f"template <class T, class = void> struct {alias}_of {{ using type = tw_none; }};",
            f"template <class T> struct {alias}_of<T, std::void_t<typename T::{name}>> "
            f"{{ using type = typename T::{name}; }};",
            f"template <class T> using {alias} = typename {alias}_of<T>::type;",
        ]
    lines += [
        # As the truth rows do: a struct that also has maps of a mixed-input scale is given as a whole, not by member.
        "template <class T, class = void> struct tw_block_maps_of { using type = T; };",
        "template <class T> struct tw_block_maps_of<T, std::void_t<decltype(std::declval<T&>().smem_tensormap_scale)>> "
        "{ using type = tw_none; };",
        "template <class T> using tw_block_maps = typename tw_block_maps_of<T>::type;",
        "template <class T, int I, class = void> struct tw_tile { static constexpr int value = tw_absent; };",
        "template <class T, int I> struct tw_tile<T, I, std::void_t<typename T::EpilogueTile>> "
        "{ static constexpr int value = static_cast<int>(cute::size(cute::get<I>(typename T::EpilogueTile{}))); };",
    ]
    return "\n".join(lines) + "\n"


def unit_file(index: int) -> str:
    """Name of the file that the lines of config `index` claim to stand in."""
    return f"twcfg{index}"


def config_text(index: int, types: KernelTypes) -> str:
    """The part of the translation unit that belongs to one config."""
    name = unit_file(index)
    values = ["tw_absent", *(expression for _, expression in SCALARS)]
    for _, parent, members in _PARENTS:
        for member in members:
            detector = f"tw_m_{member}<{parent}>"
            values += [f"{detector}::offset", f"{detector}::bytes", f"{detector}::align"]
    return f"""struct S_{name} {{
#line {LINE_E} "{name}"
using E = {types.epilogue}; static constexpr int e = static_cast<int>(sizeof(typename E::SharedStorage));
#line {LINE_M} "{name}"
using M = {types.mainloop}; static constexpr int m = static_cast<int>(sizeof(M));
#line {LINE_K} "{name}"
using K = {types.kernel}; static constexpr int k = static_cast<int>(sizeof(K));
#line {LINE_VALUES} "{name}"
using EP = tw_policy<E>;
using MP = tw_policy<M>;
using MS = tw_schedule<MP>;
static constexpr int values[] = {{{", ".join(values)}}};
}};
extern "C" __device__ int tw_values_{index}[] = {{{", ".join(f"S_{name}::values[{i}]" for i in range(len(values)))}}};
extern "C" __device__ const void* tw_names_{index}[] = {{&tw_name<S_{name}::MP>, &tw_name<S_{name}::EP>, """ + (
        f"&tw_name<S_{name}::MS>}};\n"
    )


@dataclass(frozen=True)
class Reading:
    """What the compiler says about one config. An absent member has no key."""

    scalars: dict[str, int]
    fields: dict[str, tuple[int, int, int]]
    """path -> (offset in the parent, bytes, alignof the type)."""
    names: tuple[str, str, str]
    """Mangled: mainloop policy, epilogue policy, kernel schedule."""


_ARRAY: Final = re.compile(
    r"\.global\s+\.align\s+\d+\s+\.(?P<type>b8|u8|b32|u32|s32)\s+tw_values_(?P<index>\d+)\[(?P<count>\d+)\]"
    r"\s*(?:=\s*\{(?P<data>[^}]*)\})?"
)
_NAMES: Final = re.compile(r"\.u64\s+tw_names_(?P<index>\d+)\[\d+\]\s*=\s*\{(?P<data>[^}]*)\}")
_SYMBOL: Final = re.compile(r"_Z\w+")


def _integers(kind: str, count: int, data: str | None) -> list[int]:
    numbers = [int(item) for item in data.split(",")] if data and data.strip() else []
    if kind.endswith("8"):
        numbers += [0] * (count - len(numbers))  # PTX leaves out trailing zeros
        raw = bytes(number & 0xFF for number in numbers)
        return [int.from_bytes(raw[at : at + 4], "little", signed=True) for at in range(0, len(raw), 4)]
    numbers += [0] * (count - len(numbers))
    return [number - 2**32 if number >= 2**31 else number for number in numbers]


def _reading(values: list[int], names: tuple[str, str, str]) -> Reading:
    values = values[1:]  # the first is always ABSENT: it keeps the array from being empty or all zero
    scalars = {key: value for (key, _), value in zip(SCALARS, values, strict=False) if value != ABSENT}
    fields: dict[str, tuple[int, int, int]] = {}
    at = len(SCALARS)
    for path in FIELD_PATHS:
        offset, size, align = values[at : at + 3]
        if offset != ABSENT:
            fields[path] = (offset, size, align)
        at += 3
    return Reading(scalars, fields, names)


def read_ptx(ptx: str) -> dict[int, Reading]:
    """{index of the config: what the compiler says about it} from the PTX of a unit.

    Raises:
        ToolError: an array has another length than was written: the compiler's output has a form we do not know.
    """
    expected = 1 + len(SCALARS) + 3 * len(FIELD_PATHS)
    names = {int(found["index"]): _SYMBOL.findall(found["data"]) for found in _NAMES.finditer(ptx)}
    readings: dict[int, Reading] = {}
    for found in _ARRAY.finditer(ptx):
        index = int(found["index"])
        values = _integers(found["type"], int(found["count"]), found["data"])
        symbols = names.get(index, [])
        if len(values) != expected or len(symbols) != 3:
            raise ToolError(
                "The compiler's PTX has a form that this version does not read; please report nvcc's version."
            )
        readings[index] = _reading(values, (symbols[0], symbols[1], symbols[2]))
    return readings
