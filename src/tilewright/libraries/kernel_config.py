"""From the type of a CUTLASS kernel, as a library's sources spell it, to a kernel config (DESIGN 4.2).

The type is `GemmUniversal<ProblemShape, CollectiveMma, CollectiveEpilogue, Scheduler>` with both collectives still as
the `CollectiveBuilder<...>` arguments that the library passes (`cutlass/gemm/collective/collective_builder_decl.hpp`,
`cutlass/epilogue/collective/collective_builder.hpp`). Whatever a config cannot say exactly is refused with the
place where the library says it.
"""

from __future__ import annotations

import re
from typing import Any, Final

from tilewright.libraries.cpp_source.tokens import NotRead
from tilewright.libraries.cpp_source.types import Type

_ELEMENTS: Final[dict[str, str]] = {
    "float_e4m3_t": "e4m3", "float_e5m2_t": "e5m2", "float_e2m1_t": "e2m1", "float_e2m3_t": "e2m3",
    "float_e3m2_t": "e3m2", "half_t": "f16", "bfloat16_t": "bf16", "tfloat32_t": "tf32", "float": "f32",
    "int8_t": "int8", "uint8_t": "uint8", "int": "int32", "int32_t": "int32", "int4b_t": "int4", "uint4b_t": "uint4",
}  # fmt: skip
"""CUTLASS element types by the names that configs use (include/cutlass/{float8,float_subbyte,half,bfloat16}.h)."""

_WRAPPERS: Final[dict[tuple[str, str], str]] = {
    ("nv_float4_t", "float_e2m1_t"): "nvfp4",
    ("mx_float4_t", "float_e2m1_t"): "mxfp4",
    ("mx_float6_t", "float_e2m3_t"): "mxfp6_e2m3",
    ("mx_float6_t", "float_e3m2_t"): "mxfp6_e3m2",
    ("mx_float8_t", "float_e4m3_t"): "mxfp8_e4m3",
    ("mx_float8_t", "float_e5m2_t"): "mxfp8_e5m2",
}
"""Block-scaled operand types (include/cutlass/float_subbyte.h, float8.h)."""

_SCALED_TUPLES: Final[dict[tuple[str, str], str]] = {
    ("float_e2m1_t", "float_ue4m3_t"): "nvfp4",
    ("float_e2m1_t", "float_ue8m0_t"): "mxfp4",
    ("float_e2m3_t", "float_ue8m0_t"): "mxfp6_e2m3",
    ("float_e3m2_t", "float_ue8m0_t"): "mxfp6_e3m2",
    ("float_e4m3_t", "float_ue8m0_t"): "mxfp8_e4m3",
    ("float_e5m2_t", "float_ue8m0_t"): "mxfp8_e5m2",
}
"""The same operands as `cute::tuple<element, scale>`, which the SM1xx builders take too (builders/sm1xx_common.inl)."""

_OP_CLASSES: Final = {
    "OpClassTensorOp": "tensor_op",
    "OpClassBlockScaledTensorOp": "block_scaled",
    "OpClassSparseTensorOp": "sparse",
    "OpClassBlockScaledSparseTensorOp": "block_scaled_sparse",
}
_TRANSPOSED: Final = {"row": "col", "col": "row"}
_ACTIVATIONS: Final = {"SiLu": "silu", "GELU": "gelu", "ReLu": "relu", "ReLU": "relu"}
_DEFAULT_SCHEDULERS: Final = frozenset({"void", "PersistentScheduler", "GroupScheduler", "DynamicPersistentScheduler"})

_EPILOGUE_ARGS: Final = 14
"""Arguments of the epilogue's builder up to its schedule."""
_MAINLOOP_ARGS: Final = 13


class OtherArchitecture(NotRead):
    """The kernel is built for another architecture than the one that was asked for."""


class _Collective:
    """The builder arguments of one collective, by position."""

    def __init__(self, value: Type | int, what: str, least: int, kernel: Type) -> None:
        inner = value.args[0] if isinstance(value, Type) and value.name == "CollectiveOp" and value.args else None
        if not isinstance(inner, Type) or inner.name != "CollectiveBuilder" or len(inner.args) < least:
            shown = str(value)[:100]
            raise refuse(f"the {what} is {shown}, which is not what a CUTLASS builder makes", value, kernel)
        self.type, self.args, self.kernel, self.what = value, inner.args, kernel, what

    def arg(self, index: int) -> Type | int:
        return self.args[index]

    def type_at(self, index: int, meaning: str) -> Type:
        value = self.args[index]
        if isinstance(value, Type):
            return value
        raise refuse(f"the {self.what}'s {meaning} is {value}", value, self.kernel)

    def number_at(self, index: int, meaning: str) -> int:
        value = self.args[index]
        if isinstance(value, int):
            return value
        raise refuse(f"the {self.what}'s {meaning} is {value}", value, self.kernel)


def refuse(why: str, *places: Type | int) -> NotRead:
    """A NotRead placed where the first of `places` is spelled."""
    for place in places:
        if isinstance(place, Type) and place.at is not None:
            return NotRead(why, place.at.file, place.at.line)
    return NotRead(why)


def config_of(kernel: Type, swap_ab: bool, arch: str) -> dict[str, Any]:
    """The config of `kernel`; operands, alignments and layouts are those before the swap (as `truth/README.md` has it).

    Raises:
        NotRead: the kernel is not CUTLASS's, or uses something that a config cannot say.
    """
    if kernel.name != "GemmUniversal":
        raise refuse(f"its kernel is {kernel.name}, which is the library's own and not CUTLASS's", kernel)
    if len(kernel.args) < 3:
        raise refuse("its kernel is built without collectives", kernel)
    problem, main_type, epilogue_type = kernel.args[:3]
    grouped = isinstance(problem, Type) and problem.name == "GroupProblemShape"
    if not grouped and not (isinstance(problem, Type) and problem.name == "Shape"):
        raise refuse(f"its problem shape is {problem}", problem, kernel)
    main = _Collective(main_type, "mainloop", _MAINLOOP_ARGS, kernel)
    epilogue = _Collective(epilogue_type, "epilogue", _EPILOGUE_ARGS, kernel)

    config: dict[str, Any] = {"arch": _arch(main, arch), "kind": "grouped" if grouped else "dense"}
    layout_a, scale_a = _layout(main, 3, grouped)
    layout_b, _ = _layout(main, 6, grouped)
    op_class = _op_class(main, scale_a)
    a, b = _operand(main, 2, op_class), _operand(main, 5, op_class)
    align_a, align_b = main.number_at(4, "alignment of A"), main.number_at(7, "alignment of B")
    layout_c, layout_d = _plain_layout(epilogue, 8, grouped), _plain_layout(epilogue, 11, grouped)
    if swap_ab:
        a, b, align_a, align_b = b, a, align_b, align_a
        layout_a, layout_b = _TRANSPOSED[layout_b], _TRANSPOSED[layout_a]
        layout_c, layout_d = _TRANSPOSED[layout_c], _TRANSPOSED[layout_d]
    c, d = _output(epilogue, 7), _output(epilogue, 10)
    config |= {
        "op_class": op_class, "a": a, "b": b, "acc": _element(main.type_at(8, "accumulator"), kernel), "c": c, "d": d,
        "layout_a": layout_a, "layout_b": layout_b, "layout_c": layout_c, "layout_d": layout_d,
        "align_a": align_a, "align_b": align_b,
        "tile": _extents(main.type_at(9, "tile"), kernel), "cluster": _extents(main.type_at(10, "cluster"), kernel),
        "schedule": _schedule(main.type_at(12, "schedule"), grouped),
        "epilogue_schedule": _epilogue_schedule(epilogue.type_at(13, "schedule")),
        "swap_ab": swap_ab, "epilogue_tile": _epilogue_tile(epilogue, kernel), "stages": _stages(main, epilogue),
    }  # fmt: skip
    for key, index, element in (("align_c", 9, c), ("align_d", 12, d)):
        value = epilogue.number_at(index, f"alignment of {key[-1].upper()}")
        if value > 0:
            config[key] = value
        elif element != "void":
            raise refuse(f"the epilogue's alignment of {key[-1].upper()} is {value}", kernel)
    if _extents(epilogue.type_at(2, "tile"), kernel) != config["tile"]:
        raise refuse("the epilogue is built for another tile than the mainloop", epilogue.type_at(2, "tile"), kernel)
    config |= _fusion(epilogue, swap_ab)
    config |= _scheduler(kernel)
    if scale_a is not None:
        config |= _scales(scale_a, kernel)
    return config


def tile_of(kernel: Type) -> Type:
    """The tile shape of `kernel`'s mainloop, with the place where it is spelled."""
    if len(kernel.args) < 2:
        raise refuse("its kernel is built without collectives", kernel)
    return _Collective(kernel.args[1], "mainloop", _MAINLOOP_ARGS, kernel).type_at(9, "tile")


def _arch(main: _Collective, arch: str) -> str:
    """The architecture whose rules hold: the tag's, but for SM121, which has none of its own. SM103 runs SM100's."""
    tag = main.type_at(0, "architecture").name
    name = tag.lower()
    if name == arch or (name == "sm120" and arch == "sm121") or (name == "sm121" and arch == "sm120"):
        return arch
    if (name, arch) == ("sm100", "sm103"):
        return name
    raise OtherArchitecture(f"it is built for {tag}, not for {arch}")


def _op_class(main: _Collective, scale: Type | None) -> str:
    tag = main.type_at(1, "operator class")
    known = _OP_CLASSES.get(tag.name)
    if known is None:
        raise refuse(f"its operator class is {tag}", tag, main.kernel)
    return "blockwise" if known == "tensor_op" and scale is not None else known


def _operand(main: _Collective, index: int, op_class: str) -> str:
    value = main.type_at(index, "operand")
    if value.name in ("tuple", "nv_float4_t", "mx_float4_t", "mx_float6_t", "mx_float8_t"):
        names = tuple(arg.name if isinstance(arg, Type) else str(arg) for arg in value.args)
        if value.name == "tuple" and len(names) == 2:
            found = _SCALED_TUPLES.get((names[0], names[1]))
        else:
            found = _WRAPPERS.get((value.name, names[0])) if len(names) == 1 else None
        if found is not None and op_class.startswith("block_scaled"):
            return found
        raise refuse(f"an operand of type {value} under {op_class}", value, main.kernel)
    if value.name == "float" and op_class == "tensor_op":
        return "tf32"  # what the builders multiply floats in (ElementAMma of builders/sm90_gmma_builder.inl)
    return _element(value, main.kernel)


def _element(value: Type, kernel: Type) -> str:
    found = _ELEMENTS.get(value.name)
    if found is None or value.args or value.pointer:
        raise refuse(f"an element of type {value}", value, kernel)
    return found


def _output(epilogue: _Collective, index: int) -> str:
    value = epilogue.type_at(index, "output")
    return "void" if value.name == "void" else _element(value, epilogue.kernel)


def _plain_layout(epilogue: _Collective, index: int, grouped: bool) -> str:
    value = epilogue.type_at(index, "layout")
    if value.name == "void":  # no C: its layout is never looked at (sm120_builder.inl)
        return "row"
    return _layout_tag(value, grouped, epilogue.kernel)


def _layout(main: _Collective, index: int, grouped: bool) -> tuple[str, Type | None]:
    """The layout of an operand and, for software scales, the type of its scales' layout."""
    value = main.type_at(index, "layout")
    if value.name == "tuple" and len(value.args) == 2:
        plain, scales = value.args
        if isinstance(plain, Type) and isinstance(scales, Type):
            return _layout_tag(plain, grouped, main.kernel), scales
    return _layout_tag(value, grouped, main.kernel), None


def _layout_tag(value: Type, grouped: bool, kernel: Type) -> str:
    found = {"RowMajor": "row", "ColumnMajor": "col"}.get(value.name)
    if found is None or value.pointer != int(grouped):
        kind = "grouped" if grouped else "dense"
        raise refuse(f"a layout of type {value} in a {kind} kernel", value, kernel)
    return found


def _extents(value: Type, kernel: Type) -> list[int]:
    out: list[int] = []
    for arg in value.args:
        extent = arg.args[0] if isinstance(arg, Type) and arg.name == "Int" and arg.args else None
        if not isinstance(extent, int):
            raise refuse(f"a shape {value} that is not fixed when it is compiled", value, kernel)
        out.append(extent)
    if value.name != "Shape" or len(out) != 3:
        raise refuse(f"a shape of type {value}", value, kernel)
    return out


def _schedule(value: Type, grouped: bool) -> str:
    prefix = "KernelPtrArrayTmaWarpSpecialized" if grouped else "KernelTmaWarpSpecialized"
    short = {"KernelScheduleAuto": "auto", f"{prefix}Cooperative": "cooperative", f"{prefix}Pingpong": "pingpong"}
    return short.get(value.name, value.name)


def _epilogue_schedule(value: Type) -> str:
    if value.name == "EpilogueScheduleAuto":
        return "auto"
    name = re.sub(r"(?<=[a-z])(?=[12]Sm)|(?<=[a-z0-9])(?=[A-Z])(?<![12](?=Sm))", "_", value.name)
    return name.lower()


def _epilogue_tile(epilogue: _Collective, kernel: Type) -> Any:
    value = epilogue.type_at(4, "epilogue tile")
    if value.name == "EpilogueTileAuto":
        return "auto"
    extents = [arg.args[0] for arg in value.args if isinstance(arg, Type) and arg.name == "Int"]
    if value.name == "Shape" and len(extents) == len(value.args) == 2:
        return extents
    raise refuse(f"an epilogue tile of type {value}", value, kernel)


def _stages(main: _Collective, epilogue: _Collective) -> Any:
    value = main.type_at(11, "stage count")
    if value.name == "StageCount" and len(value.args) == 1 and isinstance(value.args[0], int):
        return value.args[0]
    if value.name == "StageCountAutoCarveout" and len(value.args) == 1:
        size = value.args[0]
        storage = size.args[0] if isinstance(size, Type) and size.name == "sizeof" and size.args else None
        if isinstance(storage, Type) and storage.name == "SharedStorage" and storage.args[0] == epilogue.type:
            return "auto"
        why = f"its stage count sets {str(value.args[0])[:80]} aside, which is not the size of its own epilogue"
        raise refuse(why, value, main.kernel)
    raise refuse(f"its stage count is {value}", value, main.kernel)


def _fusion(epilogue: _Collective, swap_ab: bool) -> dict[str, Any]:
    """Fusion keys from the builder's last argument; none means the builder's default, LinearCombination."""
    kernel = epilogue.kernel
    if len(epilogue.args) <= _EPILOGUE_ARGS:
        return {"fusion": "linear_combination"}
    op = epilogue.type_at(14, "fusion")
    c, d, compute = epilogue.type_at(7, "C"), epilogue.type_at(10, "D"), epilogue.type_at(6, "compute type")
    args = op.args
    if op.name == "LinearCombination" and args[:2] == (d, compute) and (len(args) < 3 or args[2] == c):
        return {"fusion": "linear_combination"}
    scatter = f"ScaledAccPer{'Row' if swap_ab else 'Col'}BiasPer{'Col' if swap_ab else 'Row'}ScaleScatter"
    if op.name == scatter and len(args) == 5 and d.name == "void":
        layout, final, inner_compute, bias, scale = args
        expected = epilogue.type_at(11, "layout of D")
        bare = Type(expected.name, expected.args)
        if layout == bare and bias == final and inner_compute == compute and scale == Type("float"):
            assert isinstance(final, Type)
            return {"fusion": "finalize", "final_output": _element(final, kernel)}
    if op.name == "LinCombEltAct" and len(args) >= 3 and args[1:3] == (d, compute) and isinstance(args[0], Type):
        activation = _ACTIVATIONS.get(args[0].name)
        if activation is not None and (len(args) < 4 or args[3] == c):
            return {"fusion": "activation", "activation": activation}
    raise refuse(f"its fusion is {op}", op, kernel)


def _scheduler(kernel: Type) -> dict[str, Any]:
    tag = kernel.args[3] if len(kernel.args) > 3 else Type("void")
    if isinstance(tag, Type) and tag.name in _DEFAULT_SCHEDULERS:
        return {}
    if isinstance(tag, Type) and tag.name == "StreamKScheduler":
        return {"tile_scheduler": "stream_k"}
    if isinstance(tag, Type) and tag.name == "StaticPersistentScheduler":
        return {"tile_scheduler": "static_persistent"}
    raise refuse(f"its tile scheduler is {tag}", tag, kernel)


def _scales(layout: Type, kernel: Type) -> dict[str, Any]:
    """Granularity and major of software scales, from `Sm1x0BlockwiseScaleConfig<M, N, K, majorA, majorB>`
    (include/cutlass/detail/blockwise_scale_layout.hpp)."""
    bare = layout.args[0] if layout.args else None
    if isinstance(bare, Type) and bare.name.endswith("BlockwiseScaleConfig") and len(bare.args) == 5:
        m, n, k, major_a, major_b = bare.args
        majors = {"K": "k", "MN": "mn"}
        if (
            isinstance(m, int)
            and isinstance(n, int)
            and isinstance(k, int)
            and isinstance(major_a, Type)
            and major_a == major_b
            and major_a.name in majors
        ):
            return {"scale_granularity": [m, n, k], "scale_major": majors[major_a.name]}
    raise refuse(f"scales laid out as {layout}", layout, kernel)
