"""Epilogue tiles and stages of SM100 sparse kernels, which CUTLASS tunes by format, tile and 1sm or 2sm.

Mirrors namespace `sparse` of `epilogue/collective/builders/sm100_builder.inl`, in it
`sm100_sparse_compute_tile_shape_or_override` (a budget in KiB divided by stages gives the columns of the epilogue
tile) and `sm100_sparse_get_tma_dispatch_policy` (the stages). The conditions are the header's own; they are the same
in every release that was read. The family is that of the epilogue tag (Nvf4, Mxf4, Mxf8f6f4), "sp" for a tag without
one, whatever the operands are.
"""

from __future__ import annotations

from typing import Final

KIB_BITS: Final = 1024 * 8

Budget = tuple[int, int]
"""(KiB, stages): what `compute_epi_tile_n` divides."""

_FALLBACK_D: Final = (16, 2)
_FALLBACK_C: Final = (32, 4)

# (1sm or 2sm, N of the CTA tile) -> budget. Where the header asks for K too, `_by_k` below decides first.
_SP_32: Final = {
    (1, 64): (32, 2), (1, 128): (32, 2), (1, 192): (48, 3), (1, 256): (48, 3),
    (2, 64): (32, 2), (2, 128): (32, 2), (2, 192): (48, 3), (2, 256): (32, 2),
}  # fmt: skip
_SP_16: Final = {
    (1, 64): (16, 2), (1, 128): (32, 2), (1, 192): (48, 3), (1, 256): (48, 3),
    (2, 64): (16, 2), (2, 128): (32, 2), (2, 192): (48, 3), (2, 256): (16, 2),
}  # fmt: skip
_SP_8: Final = {
    (1, 64): (8, 2), (1, 128): (16, 2), (1, 192): (16, 2), (1, 256): (16, 2),
    (2, 64): (8, 2), (2, 128): (16, 2), (2, 192): (24, 3), (2, 256): (16, 2),
}  # fmt: skip
_MX8_32: Final = {
    (1, 128): (64, 4), (1, 192): (16, 2), (1, 256): (48, 3),
    (2, 128): (32, 2), (2, 192): (32, 2), (2, 256): (64, 4),
}  # fmt: skip
_MX8_16: Final = {
    (1, 128): (32, 2), (1, 192): (16, 2), (1, 256): (48, 3),
    (2, 128): (32, 2), (2, 192): (32, 2), (2, 256): (64, 4),
}  # fmt: skip
_MX8_8: Final = {
    (1, 128): (12, 3), (1, 192): (16, 2), (1, 256): (32, 4),
    (2, 128): (16, 2), (2, 192): (24, 3), (2, 256): (8, 2),
}  # fmt: skip
_NV_32: Final = {
    (1, 128): (48, 3), (1, 192): (32, 2), (1, 256): (32, 2),
    (2, 128): (32, 2), (2, 192): (48, 3), (2, 256): (48, 3),
}  # fmt: skip
_NV_16: Final = {
    (1, 128): (32, 2), (1, 192): (32, 2), (1, 256): (32, 2),
    (2, 128): (32, 2), (2, 192): (48, 3), (2, 256): (48, 3),
}  # fmt: skip
_NV_4: Final = {
    (1, 128): (8, 2), (1, 192): (12, 3), (1, 256): (16, 4),
    (2, 128): (8, 2), (2, 192): (12, 3), (2, 256): (16, 4),
}  # fmt: skip
_WITHOUT_C: Final[dict[tuple[str, int], dict[tuple[int, int], Budget]]] = {
    ("sp", 32): _SP_32, ("sp", 16): _SP_16, ("sp", 8): _SP_8,
    ("mxf8f6f4", 32): _MX8_32, ("mxf8f6f4", 16): _MX8_16, ("mxf8f6f4", 8): _MX8_8,
    ("nvf4", 32): _NV_32, ("nvf4", 16): _NV_16, ("nvf4", 4): _NV_4,
    ("mxf4", 32): {(1, 256): (32, 2), (2, 256): (32, 2)},
}  # fmt: skip
"""C void: by (family, bits of D)."""

_SP_C16: Final = {
    (1, 64): (16, 4), (1, 128): (32, 4), (1, 192): (48, 3), (1, 256): (48, 3),
    (2, 64): (16, 4), (2, 128): (32, 4), (2, 192): (48, 3), (2, 256): (64, 4),
}  # fmt: skip
_WITH_C: Final[dict[tuple[str, int, int], dict[tuple[int, int], Budget]]] = {
    ("sp", 32, 32): {
        (1, 64): (32, 4), (1, 128): (64, 4), (1, 192): (48, 3), (1, 256): (48, 3),
        (2, 64): (32, 4), (2, 128): (64, 4), (2, 192): (48, 3), (2, 256): (64, 4),
    },
    ("sp", 16, 16): _SP_C16,
    ("sp", 16, 8): _SP_C16,
    ("sp", 8, 8): {
        (1, 64): (8, 2), (1, 128): (16, 2), (1, 192): (24, 3), (1, 256): (32, 4),
        (2, 64): (8, 2), (2, 128): (16, 2), (2, 192): (24, 3), (2, 256): (16, 2),
    },
    ("mxf8f6f4", 32, 32): {
        (1, 128): (64, 4), (1, 192): (64, 4), (1, 256): (48, 3),
        (2, 128): (32, 4), (2, 192): (32, 4), (2, 256): (64, 4),
    },
    ("mxf8f6f4", 16, 16): {
        (1, 128): (32, 4), (1, 192): (48, 3), (1, 256): (48, 3),
        (2, 128): (32, 4), (2, 192): (32, 4), (2, 256): (64, 4),
    },
    ("mxf8f6f4", 16, 8): {
        (1, 128): (32, 2), (1, 192): (48, 3), (1, 256): (48, 3),
        (2, 128): (32, 2), (2, 192): (32, 4), (2, 256): (64, 4),
    },
    ("nvf4", 32, 32): {
        (1, 128): (48, 3), (1, 192): (64, 4), (1, 256): (64, 4),
        (2, 128): (64, 4), (2, 192): (48, 3), (2, 256): (48, 3),
    },
    ("nvf4", 16, 16): {
        (1, 128): (32, 4), (1, 192): (48, 3), (1, 256): (32, 4),
        (2, 128): (32, 4), (2, 192): (48, 3), (2, 256): (48, 3),
    },
    ("nvf4", 16, 4): {
        (1, 128): (32, 2), (1, 192): (32, 2), (1, 256): (32, 2),
        (2, 128): (32, 2), (2, 192): (48, 3), (2, 256): (48, 3),
    },
    ("mxf4", 32, 32): {(1, 256): (64, 4), (2, 256): (64, 4)},
}  # fmt: skip
"""C given: by (family, bits of C, bits of D)."""


def _by_k(family: str, sm: int, n: int, k: int, c_bits: int, d_bits: int) -> Budget | None:
    """Budgets that hang on the K of the tile as well (`Is4KBlock`, `IsHmma2KBlock`, `IsTfmma2KBlock`)."""
    four_blocks = k in (64, 256)
    if family == "sp":
        if c_bits == 0:
            if d_bits == 32 and sm == 2 and n in (128, 256) and four_blocks:
                return 16, 2
            if d_bits == 16 and sm == 2 and n == 128 and k == 256:
                return 16, 2
            if d_bits == 16 and sm == 2 and n == 256 and k == 64:
                return 32, 2
        elif (c_bits, d_bits) == (32, 32) and sm == 2:
            if (n == 128 and four_blocks) or (n == 256 and k == 32):
                return 32, 4
        elif (c_bits, d_bits) == (8, 8) and sm == 2 and n == 256 and k == 256:
            return 32, 4
    if family == "nvf4" and n == 256 and k == 512:
        if d_bits == 32 and c_bits in (0, 32):
            return 64, 2
        if (c_bits, d_bits) == (16, 16) and sm == 1:
            return 64, 4
    return None


def columns(family: str, sm: int, cta: tuple[int, int, int], c_bits: int, d_bits: int) -> int:
    """Columns of EpilogueTileAuto (its rows are those of the CTA tile). `c_bits` is 0 where C is void; `cta` is the
    CTA tile in elements."""
    m, n, k = cta
    budget = _by_k(family, sm, n, k, c_bits, d_bits)
    if budget is None:
        at = (sm, n)
        if c_bits == 0:
            budget = _WITHOUT_C.get((family, d_bits), {}).get(at, _FALLBACK_D)
        else:
            budget = _WITH_C.get((family, c_bits, d_bits), {}).get(at, _FALLBACK_C)
    kib, stages = budget
    return kib * KIB_BITS // stages // m // (c_bits or d_bits)


def expected_stages(family: str, sm: int, n: int, k: int, c_bits: int, d_bits: int) -> tuple[int, int]:
    """(stages of C, stages of D) before the number of epilogue tiles limits them. `c_bits` is 0 where C is void."""
    if c_bits == 0:
        return 4, _stages_d(family, sm, n, k, d_bits)
    return _stages_c(family, sm, n, k, c_bits, d_bits), 2


def _stages_d(family: str, sm: int, n: int, k: int, bits: int) -> int:
    at = (sm, n)
    if family == "sp":
        wide = bits in (16, 32) and at in ((1, 192), (1, 256), (2, 192))
        return 3 if wide or (bits == 8 and at == (2, 192)) else 2
    if family == "mxf8f6f4":
        if (bits in (16, 32) and at == (1, 256)) or (bits == 8 and at in ((1, 128), (2, 192))):
            return 3
        four = {32: ((1, 128), (2, 256)), 16: ((2, 256),), 8: ((1, 256),)}
        return 4 if at in four.get(bits, ()) else 2
    if family == "nvf4":
        if bits == 32 and (at in ((1, 128), (2, 192)) or (at == (2, 256) and k == 256)):
            return 3
        if (bits == 16 and at in ((2, 192), (2, 256))) or (bits == 4 and n == 192):
            return 3
        return 4 if bits == 4 and n == 256 else 2
    return 2


def _stages_c(family: str, sm: int, n: int, k: int, c_bits: int, d_bits: int) -> int:
    at, pair = (sm, n), (c_bits, d_bits)
    if family == "sp":
        if pair in ((32, 32), (16, 16), (16, 8)) and at in ((1, 192), (1, 256), (2, 192)):
            return 3
        if pair == (8, 8):
            if at in ((1, 192), (2, 192)):
                return 3
            if n in (64, 128) or (at == (2, 256) and k == 128):
                return 2
        return 4
    if family == "mxf8f6f4":
        three = {(32, 32): ((1, 256),), (16, 16): ((1, 192), (1, 256)), (16, 8): ((1, 128), (1, 256), (2, 128))}
        return 3 if at in three.get(pair, ()) else 4
    if family == "nvf4":
        three = {
            (32, 32): ((1, 128), (2, 192), (2, 256)),
            (16, 16): ((1, 192), (2, 192), (2, 256)),
            (16, 4): ((2, 192), (2, 256)),
        }
        if at in three.get(pair, ()):
            return 3
        if pair == (32, 32) and n == 256 and k == 512:
            return 2
        return 2 if pair == (16, 4) and at in ((1, 128), (1, 192), (1, 256), (2, 128)) else 4
    return 4
