"""A kernel config as the C++ types that CUTLASS builds from it.

Everything that reaches the compiler comes from here, and is one of three things: a value of a dict in this file looked
up by an enumerated key, an integer, or the name of a schedule tag that was found in that header tree itself
(`tags.py`). No string of a config is ever pasted.

The mapping is that of `tests/data/truth/README.md`; it follows the CUTLASS examples (79, 87, 92) and, for `swap_ab`
and `finalize`, TensorRT-LLM's `moe_gemm_tma_ws_launcher.inl` as vendored in FlashInfer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tilewright.cutlass.config import DEFAULT_GRANULARITY, KernelConfig, config_to_dict, parse_config
from tilewright.formats.elements import ELEMENTS
from tilewright.probe.schedules import Unsupported, epilogue_schedule, kernel_schedule
from tilewright.probe.tags import TagIndex

__all__ = ["NVCC_ARCH", "KernelTypes", "Unsupported", "kernel_types"]


@dataclass(frozen=True)
class KernelTypes:
    """C++ text of the three types of one kernel. `mainloop` refers to the epilogue as `E`, `kernel` to `E` and `M`."""

    arch: str
    """nvcc's -arch."""
    epilogue: str
    mainloop: str
    kernel: str
    needs_scatter: bool
    """Whether the text uses TensorRT-LLM's `sm90_visitor_scatter.hpp`."""


NVCC_ARCH: Final[dict[str, str]] = {
    "sm90": "sm_90a",
    "sm100": "sm_100a",
    "sm103": "sm_103a",
    "sm120": "sm_120a",
    "sm121": "sm_121a",
}
"""nvcc's -arch of a config's arch: the `a` targets, the only ones that have the tensor-core instructions in full."""

# sm121 kernels are Sm120 kernels compiled for sm_121a: CUTLASS has no arch::Sm121 collectives.
_ARCH_TAG: Final = {"sm90": "Sm90", "sm100": "Sm100", "sm103": "Sm103", "sm120": "Sm120", "sm121": "Sm120"}

_PLAIN: Final[dict[str, str]] = {
    "e2m1": "cutlass::float_e2m1_t",
    "e2m3": "cutlass::float_e2m3_t",
    "e3m2": "cutlass::float_e3m2_t",
    "e4m3": "cutlass::float_e4m3_t",
    "e5m2": "cutlass::float_e5m2_t",
    "ue4m3": "cutlass::float_ue4m3_t",
    "ue8m0": "cutlass::float_ue8m0_t",
    "bf16": "cutlass::bfloat16_t",
    "f16": "cutlass::half_t",
    "tf32": "cutlass::tfloat32_t",
    "f32": "float",
    "int4": "cutlass::int4b_t",
    "uint4": "cutlass::uint4b_t",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "int32": "int32_t",
    "void": "void",
}

_WRAPPER: Final = {"nvfp4": "nv_float4_t", "mxfp4": "mx_float4_t", "mxfp6": "mx_float6_t", "mxfp8": "mx_float8_t"}
"""Class template of a block-scaled operand by family (`cutlass/float_subbyte.h`, `float8.h`)."""

_LAYOUT: Final = {"row": "cutlass::layout::RowMajor", "col": "cutlass::layout::ColumnMajor"}
_TRANSPOSED: Final = {"row": "col", "col": "row"}

_OP_CLASS: Final = {
    "tensor_op": "OpClassTensorOp",
    "mixed_input": "OpClassTensorOp",
    "blockwise": "OpClassTensorOp",
    "block_scaled": "OpClassBlockScaledTensorOp",
    "sparse": "OpClassSparseTensorOp",
    "block_scaled_sparse": "OpClassBlockScaledSparseTensorOp",
}

_ACTIVATION: Final = {
    "silu": "cutlass::epilogue::thread::SiLu",
    "gelu": "cutlass::epilogue::thread::GELU",
    "relu": "cutlass::epilogue::thread::ReLu",
}

_SCHEDULER: Final = {
    None: "void",
    "static_persistent": "cutlass::gemm::StaticPersistentScheduler",
    "stream_k": "cutlass::gemm::StreamKScheduler",
}
_MAJOR: Final = {"mn": "MN", "k": "K"}
_SCALE_CONFIG: Final = {
    "sm90": "Sm90BlockwiseScaleConfig",
    "sm100": "Sm100BlockwiseScaleConfig",
    "sm120": "Sm120BlockwiseScaleConfig",
    "sm121": "Sm120BlockwiseScaleConfig",
}


def _operand(config: KernelConfig, name: str, narrow: bool) -> str:
    """Element type of an A or B operand as the mainloop builder takes it."""
    fmt = ELEMENTS[name]
    if fmt.scale is not None:
        plain = _PLAIN[fmt.plain]
        if config.arch == "sm103":  # what its builder asks for: a pair of element and scale
            return f"cute::tuple<{plain}, {_PLAIN[fmt.scale]}>"
        return f"cutlass::{_WRAPPER[name.split('_')[0]]}<{plain}>"
    if narrow and config.scale is not None:
        parts = [_PLAIN[name], _PLAIN[config.scale], *([_PLAIN[config.zero]] if config.zero else [])]
        return f"cute::tuple<{', '.join(parts)}>"
    return _PLAIN[name]


def _output(name: str) -> str:
    """Element type of C or D: the plain format of a block-scaled one."""
    return _PLAIN[ELEMENTS[name].plain if name in ELEMENTS else name]


def _shape(extents: tuple[int, ...]) -> str:
    return f"cute::Shape<{', '.join(f'cute::Int<{int(extent)}>' for extent in extents)}>"


def _fusion(config: KernelConfig, c: str, d: str, compute: str, layout_d: str, swap: bool) -> str | None:
    """The fusion operation, or None where the builder's default is meant."""
    space = "cutlass::epilogue::fusion::"
    kind = config.fusion
    if kind == "linear_combination":
        return None
    if kind == "finalize":
        if config.final_output is None:
            raise Unsupported("Fusion finalize needs final_output, the type that it scatters.")
        out = _PLAIN[config.final_output]
        name = "ScaledAccPerRowBiasPerColScaleScatter" if swap else "ScaledAccPerColBiasPerRowScaleScatter"
        return f"{space}{name}<{layout_d}, {out}, {compute}, {out}, float>"
    if kind == "activation":
        return f"{space}LinCombEltAct<{_ACTIVATION[config.activation or 'silu']}, {d}, {compute}, {c}, {compute}>"
    if kind == "per_row_bias":
        return f"{space}LinCombPerRowBias<{d}, {compute}, {d}, {c}, {compute}>"
    if kind == "per_col_bias":
        return f"{space}LinCombPerColBias<{d}, {compute}, {d}, {c}, {compute}>"
    if kind == "per_row_bias_activation_aux":
        activation = _ACTIVATION[config.activation or "relu"]
        return f"{space}LinCombPerRowBiasEltActAux<{layout_d}, {activation}, {d}, {compute}, {d}, {d}, {c}, {compute}>"
    fmt = ELEMENTS.get(config.d)
    if fmt is None or fmt.scale is None:
        raise Unsupported(
            f"Fusion block_scale_out needs a block-scaled d (nvfp4, mxfp4, mxfp8_e4m3, ...), not {config.d}."
        )
    sfd = config.layout_sfd
    layout_sfd = layout_d if sfd is None else _LAYOUT[_TRANSPOSED[sfd] if swap else sfd]
    arguments = f"{fmt.scale_vector}, {d}, {compute}, {_PLAIN[fmt.scale]}, {layout_sfd}, {c}, {compute}"
    if config.activation is not None:
        # ActivationFn comes first but for the vector (`epilogue/fusion/operations.hpp`).
        return f"{space}LinCombEltActBlockScaleFactor<{_ACTIVATION[config.activation]}, {arguments}>"
    return f"{space}LinCombBlockScaleFactor<{arguments}>"


def kernel_types(config: KernelConfig, tags: TagIndex) -> KernelTypes:
    """The three types of `config` as C++ for the header tree that `tags` belongs to.

    Raises:
        ConfigError: a KernelConfig that was made by hand holds what `parse_config` would have refused.
        Unsupported: there is no C++ for it: a schedule without a tag, a tag that the tree does not have, ...
    """
    config = parse_config(config_to_dict(config))
    arch = f"cutlass::arch::{_ARCH_TAG[config.arch]}"
    op = f"cutlass::arch::{_OP_CLASS[config.op_class]}"
    grouped = config.kind == "grouped"
    star = "*" if grouped else ""
    swap = config.swap_ab

    a = _operand(config, config.a, config.narrow == "a")
    b = _operand(config, config.b, config.narrow == "b")
    layout_a, layout_b = _LAYOUT[config.layout_a], _LAYOUT[config.layout_b]
    align_a, align_b = config.align_a, config.align_b
    layout_c, layout_d = _LAYOUT[config.layout_c], _LAYOUT[config.layout_d]
    if swap:
        # As TensorRT-LLM: A' = B^T, B' = A^T, so row/col stays row/col; C and D come out transposed.
        a, b, align_a, align_b = b, a, align_b, align_a
        layout_a, layout_b = _LAYOUT[_TRANSPOSED[config.layout_b]], _LAYOUT[_TRANSPOSED[config.layout_a]]
        layout_c, layout_d = _LAYOUT[_TRANSPOSED[config.layout_c]], _LAYOUT[_TRANSPOSED[config.layout_d]]
    pair_a, pair_b = f"{layout_a}{star}", f"{layout_b}{star}"
    if config.op_class == "blockwise":
        pair_a, pair_b = _blockwise_layouts(config, pair_a, pair_b, star)

    elif config.op_class == "mixed_input" and config.arch == "sm100":
        pair_a, pair_b = _mixed_layouts(config, pair_a, pair_b, swap)

    accumulator = _PLAIN[config.acc]
    compute = "float" if config.acc == "int32" else accumulator
    c, d = _output(config.c), _output(config.d)
    tile, cluster = _shape(config.tile), _shape(config.cluster)
    epilogue_tile = (
        "cutlass::epilogue::collective::EpilogueTileAuto"
        if config.epilogue_tile == "auto"
        else _shape(config.epilogue_tile)
    )
    fusion = _fusion(config, c, d, compute, layout_d, swap)
    tail = f", {fusion}" if fusion else ""
    epilogue = (
        f"typename cutlass::epilogue::collective::CollectiveBuilder<{arch}, {op}, {tile}, {cluster}, {epilogue_tile}, "
        f"{accumulator}, {compute}, {c}, {layout_c}{star}, {config.align_c}, {d}, {layout_d}{star}, {config.align_d}, "
        f"{epilogue_schedule(config, tags)}{tail}>::CollectiveOp"
    )
    stages = (
        "cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename E::SharedStorage))>"
        if config.stages == "auto"
        else f"cutlass::gemm::collective::StageCount<{int(config.stages)}>"
    )
    schedule = kernel_schedule(config, tags)
    mainloop = (
        f"typename cutlass::gemm::collective::CollectiveBuilder<{arch}, {op}, {a}, {pair_a}, {align_a}, "
        f"{b}, {pair_b}, {align_b}, {accumulator}, {tile}, {cluster}, {stages}, {schedule}>::CollectiveOp"
    )
    problem = (
        "cutlass::gemm::GroupProblemShape<cute::Shape<int64_t, int64_t, int64_t>>"
        if grouped
        else "cute::Shape<int, int, int, int>"
    )
    kernel = f"cutlass::gemm::kernel::GemmUniversal<{problem}, M, E, {_SCHEDULER[config.tile_scheduler]}>"
    return KernelTypes(NVCC_ARCH[config.arch], epilogue, mainloop, kernel, config.fusion == "finalize")


def _mixed_layouts(config: KernelConfig, layout_a: str, layout_b: str, swap: bool) -> tuple[str, str]:
    """The layout of the narrow operand paired with that of its scales, where SM100 is told one
    (`detail/sm100_mixed_dtype_blockwise_layout.hpp`); granularity along its rows, then along K."""
    if config.narrow is None or config.scale is None or config.scale_granularity is None:
        return layout_a, layout_b
    rows, columns, depth = (int(extent) for extent in config.scale_granularity)
    narrow_a = (config.narrow == "a") != swap
    major = _MAJOR[config.scale_major or "mn"]
    scale = (
        f"decltype(cutlass::detail::Sm100MixedInputBlockwiseScaleConfig<{rows if narrow_a else columns}, {depth}, "
        f"cute::UMMA::Major::{major}>::deduce_layout_scale())"
    )
    if narrow_a:
        return f"cute::tuple<{layout_a}, {scale}>", layout_b
    return layout_a, f"cute::tuple<{layout_b}, {scale}>"


def _blockwise_layouts(config: KernelConfig, layout_a: str, layout_b: str, star: str) -> tuple[str, str]:
    """Layouts of A and B paired with those of their scale factors."""
    if config.arch not in _SCALE_CONFIG:
        raise Unsupported(f"CUTLASS has no blockwise scaling for {config.arch}.")
    granularity = ", ".join(str(int(extent)) for extent in config.scale_granularity or DEFAULT_GRANULARITY)
    space = "GMMA" if config.arch == "sm90" else "UMMA"  # `detail/blockwise_scale_layout.hpp`
    major = f"cute::{space}::Major::{_MAJOR[config.scale_major or 'mn']}"
    # MN is the default, and in 3.9 the only one: there SM90's has no parameter for it
    majors = "" if config.arch == "sm90" and config.scale_major != "k" else f", {major}, {major}"
    scale = f"cutlass::detail::{_SCALE_CONFIG[config.arch]}<{granularity}{majors}>"
    sfa = f"decltype({scale}::deduce_layoutSFA()){star}"
    sfb = f"decltype({scale}::deduce_layoutSFB()){star}"
    return f"cute::tuple<{layout_a}, {sfa}>", f"cute::tuple<{layout_b}, {sfb}>"
