"""Values of type expressions: what an alias, a condition or a constant comes to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tilewright.libraries.cpp_source.declare import Decl
from tilewright.libraries.cpp_source.tokens import Token

Value = "Type | int"


@dataclass(frozen=True)
class Type:
    """A type (or an enumerator) by its last name and template arguments; `::` qualification is kept aside.

    Types of the library carry their declaration and the environment that it was found in, so that members can be
    looked up; types of CUTLASS, CUDA and the standard library are names alone.
    """

    name: str
    args: tuple[Type | int, ...] = ()
    pointer: int = 0
    scope: tuple[str, ...] = field(default=(), compare=False)
    decl: Decl | None = field(default=None, compare=False, repr=False)
    env: Env | None = field(default=None, compare=False, repr=False)
    at: Token | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        args = f"<{', '.join(str(arg) for arg in self.args)}>" if self.args else ""
        return f"{self.name}{args}{'*' * self.pointer}"

    @property
    def where(self) -> str:
        """Where the expression that named it stands."""
        return f"{self.at.file}:{self.at.line}" if self.at else ""


@dataclass(eq=False)
class Pending:
    """A name whose tokens are evaluated when it is first used."""

    tokens: list[Token]
    env: Env


@dataclass(eq=False)
class Env:
    """Names visible at a place: template parameters, and the declarations of a struct or function body."""

    path: tuple[str, ...] = ()
    parent: Env | None = None
    names: dict[str, Type | int | Pending] = field(default_factory=dict[str, "Type | int | Pending"])
    decls: dict[str, list[Decl]] = field(default_factory=dict[str, list[Decl]])
    owner: Decl | None = None
    macro: dict[str, list[Token]] | None = None
    """Arguments of the macro whose body this scope is; they replace its parameters when an expression is evaluated."""

    def substituted(self, tokens: list[Token]) -> list[Token]:
        """`tokens` with the arguments of the enclosing macro in place of its parameters."""
        here: Env | None = self
        while here is not None:
            if here.macro is not None:
                args = here.macro
                if not any(token.text in args for token in tokens):
                    return tokens
                out: list[Token] = []
                for token in tokens:
                    given = args.get(token.text) if token.kind == "name" else None
                    if given is None:
                        out.append(token)
                    else:
                        out.extend(Token(piece.kind, piece.text, token.file, token.line) for piece in given)
                return out
            here = here.parent
        return tokens

    def add(self, decls: list[Decl]) -> None:
        for decl in decls:
            if decl.name and decl.kind in ("alias", "value", "struct", "enum", "function", "using"):
                self.decls.setdefault(decl.name, []).append(decl)


ELEMENT_BITS: Final[dict[str, int]] = {
    "float_e2m1_t": 4, "float_e2m3_t": 6, "float_e3m2_t": 6, "float_e4m3_t": 8, "float_e5m2_t": 8, "float_ue4m3_t": 8,
    "float_ue8m0_t": 8, "half_t": 16, "bfloat16_t": 16, "tfloat32_t": 32, "float": 32, "double": 64, "int4b_t": 4,
    "uint4b_t": 4, "int8_t": 8, "uint8_t": 8, "int32_t": 32, "int": 32, "half": 16, "__nv_bfloat16": 16,
    "__nv_fp8_e4m3": 8, "__nv_fp8_e5m2": 8, "__nv_fp4_e2m1": 4,
}  # fmt: skip
"""Bits of an element (`cutlass::sizeof_bits`, include/cutlass/{float8,float_subbyte,half,bfloat16,tfloat32}.h). CUDA's
type __nv_fp4_e2m1 is counted as the element it converts to."""

SAME_AS: Final[dict[str, str]] = {
    "nv_bfloat16": "__nv_bfloat16", "__half": "half", "nv_half": "half", "signed": "int", "unsigned": "uint32_t",
    "std::int32_t": "int32_t",
}  # fmt: skip
"""Names of CUDA and C++ for one type (cuda_bf16.h, cuda_fp16.h)."""

PLAIN: Final = frozenset({
    "half", "__nv_bfloat16", "__nv_fp8_e4m3", "__nv_fp8_e5m2", "__nv_fp4_e2m1", "__nv_fp8_e8m0", "float", "double",
    "void", "int", "bool", "char", "long", "short", "int8_t", "uint8_t", "int16_t", "uint16_t", "int32_t", "uint32_t",
    "int64_t", "uint64_t", "size_t", "auto", "cudaStream_t", "cudaError_t", "dim3",
})  # fmt: skip
"""Types that no header of the library declares."""

CUTE: Final = frozenset({
    "Shape", "Stride", "Layout", "Int", "C", "tuple", "UMMA", "Tile", "Step", "Underscore", "GMMA",
})  # fmt: skip
"""Names that `using namespace cute` brings."""

EXTERNAL: Final = frozenset({"std", "cutlass", "cute", "cuda", "nvinfer1", "thrust", "cub"})
"""Namespaces of others: what they hold is known by name."""
