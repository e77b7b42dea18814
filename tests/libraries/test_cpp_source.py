"""Reading C++ far enough: preprocessing, declarations, alias chains, and garbage."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.libraries.cpp_source.kernels import KernelFinder
from tilewright.libraries.cpp_source.preprocess import Preprocessor
from tilewright.libraries.cpp_source.resolve import Resolver
from tilewright.libraries.cpp_source.tokens import NotRead, tokenize
from tilewright.libraries.cpp_source.types import Env, Type
from tilewright.libraries.cpp_source.unit import Headers

HEADER = """
namespace lib {
template <typename T> struct Adapter { using type = T; };
template <> struct Adapter<half> { using type = cutlass::half_t; };
template <typename T> struct Adapter<cutlass::nv_float4_t<T>> { using type = T; };
template <typename T> using adapted_t = typename Adapter<T>::type;
enum class Mode { NONE, FUSED };
struct Input {
  template <class Tag>
  using Other = std::conditional_t<std::is_same_v<Tag, cutlass::layout::RowMajor>, cutlass::layout::ColumnMajor,
                                   cutlass::layout::RowMajor>;
  using Layout = cutlass::layout::RowMajor;
  using Layout_T = Other<Layout>;
  constexpr static int vector = 16;
#ifdef ENABLE_X
  static constexpr bool x = true;
#else
  static constexpr bool x = false;
#endif
};
struct Derived : public Input { using Own = Layout_T; };
template <typename Shape> constexpr bool supported() {
  using namespace cute;
  if constexpr (cute::size<0>(Shape{}) != 128) { return false; }
  constexpr auto n = size<1>(Shape{});
  return n == 128 || (n == 256 && Input::x);
}
template <int N = 4, typename T = half> struct Defaulted { static constexpr int value = N * 2; using type = T; };
}
"""


def resolver(defines: dict[str, str] | None = None, header: str = HEADER) -> Resolver:
    headers = Headers(lambda path: None, (), defines or {})
    headers.add(header, "lib.h")
    return Resolver(headers)


def value(text: str, defines: dict[str, str] | None = None) -> Type | int:
    return resolver(defines).evaluate([token for token in tokenize(text, "x.h") if token.kind != "line"], Env())


EXPRESSIONS = {
    "lib::Adapter<half>::type": "half_t",
    "lib::Adapter<float>::type": "float",
    "lib::adapted_t<cutlass::nv_float4_t<cutlass::float_e2m1_t>>": "float_e2m1_t",
    "typename lib::Input::Layout_T*": "ColumnMajor*",
    "lib::Derived::Own": "ColumnMajor",
    "lib::Derived::Layout": "RowMajor",
    "128 / cutlass::sizeof_bits<lib::adapted_t<half>>::value": "8",
    "lib::Input::vector * 2 + (1 < 2 ? 3 : 4)": "35",
    "lib::supported<cute::Shape<cute::Int<128>, _256, _1>>()": "0",
    "lib::Mode::FUSED == lib::Mode::NONE": "0",
    "lib::Mode::FUSED != lib::Mode::NONE || undefined_thing": "1",
    "lib::Defaulted<>::value": "8",
    "lib::Defaulted<3>::type": "half",
    "std::conditional<true, float, double>::type": "float",
    "cutlass::platform::is_same<nv_bfloat16, __nv_bfloat16>::value": "1",
    "cutlass::arch::Sm120::kMinComputeCapability >= 100 && cutlass::arch::Sm120::kMinComputeCapability < 120": "0",
    "cute::Shape<cute::Int<128*(true ? 2 : 1)>, _2>": "Shape<Int<256>, Int<2>>",
    "cutlass ::gemm ::collective::KernelScheduleAuto": "KernelScheduleAuto",
    "static_cast<int>(sizeof(typename cutlass::X<int>::SharedStorage))": "sizeof<SharedStorage<X<int>>>",
    "-7 / 2": "-3",
}


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_expressions_come_to_what_a_compiler_makes_of_them(text: str) -> None:
    assert str(value(text)) == EXPRESSIONS[text]


def test_conditions_follow_the_defines() -> None:
    text = "lib::supported<cute::Shape<cute::Int<128>, _256, _1>>()"
    assert value(text, {"ENABLE_X": "1"}) == 1


@pytest.mark.parametrize(
    "text",
    ["lib::Missing<half>::type", "Fp4Type", "lib::Input::vector / 0", "(1 +", "lib::supported<int>()", "a ? b : c", "",
     "std::conditional_t<lib::Input::Layout, int, float>", "lib::adapted_t<>"],
)  # fmt: skip
def test_what_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(NotRead):
        value(text)


def test_an_alias_that_needs_itself_is_refused() -> None:
    loop = resolver(
        header="struct A { using x = y; using y = x; }; template <int N> struct B { using t = typename B<N + 1>::t; };"
    )
    for text in ("A::x", "B<0>::t"):
        with pytest.raises(NotRead):
            loop.evaluate(tokenize(text, "x.h"), Env())


def test_the_preprocessor_judges_conditions_and_keeps_macros() -> None:
    source = """
#define ONE 1
#if defined(A) && VERSION >= 12080
int a;
#elif ONE
int b;
#else
int c;
#endif
#ifndef A
int d;  // comment \\
  still comment
#endif
/* int e; */
#define F(x, y) x##_##y(int) \\
   { return y; }
"""
    without = Preprocessor({})
    assert [token.text for token in without.process(source, "x.h") if token.kind == "name"] == ["int", "b", "int", "d"]
    assert without.macros["F"].params == ("x", "y")
    with_a = Preprocessor({"A": "1", "VERSION": "13000"})
    assert [token.text for token in with_a.process(source, "x.h") if token.kind == "name"] == ["int", "a"]


def test_includes_are_found_beside_the_asker_and_in_the_folders_once() -> None:
    files = {"inc/a.h": '#include "b.h"\n#define SEEN 1\n', "inc/b.h": '#include "a.h"\nstruct B {};\n'}
    headers = Headers(files.get, ("inc",), {})
    headers.add('#include <a.h>\n#include "a.h"\n#include "missing.h"\n#ifdef SEEN\nstruct C {};\n#endif\n', "main.cu")
    assert [path for path, _ in headers.files] == ["inc/b.h", "inc/a.h", "main.cu"]
    assert headers.skipped == ["missing.h"]
    assert headers.declarations("B")
    assert headers.declarations("C")


KERNELS = """
#define MAKE(T, M_, SWAP_)                                        \\
  struct Gemm_##T##_##M_ {                                        \\
    using Tile = cute::Shape<cute::Int<M_>, _128, _128>;          \\
    template <typename Base> struct Guard : Base {};              \\
    using Plain = cutlass::gemm::kernel::GemmUniversal<Tile, T>;  \\
    using Kernel = Guard<Plain>;                                  \\
    using Other = cutlass::gemm::kernel::GemmUniversal<Tile, void>; \\
  };
template <int M, typename T> int launch(int n) {
  if constexpr (M == 64) {
    using Small = cutlass::gemm::kernel::GemmUniversal<int, T>;
  } else if constexpr (M > 64) {
    using Large = cutlass::gemm::kernel::GemmUniversal<float, T>;
  }
}
"""


def test_kernels_of_macros_and_of_template_instantiations_are_found() -> None:
    headers = Headers(lambda path: None, (), {})
    headers.add(KERNELS, "k.h")
    tokens = headers.add(
        "MAKE(half, 256, true)\ntemplate int launch<64, float>(int);\ntemplate int launch<128, half>(int);", "u.cu"
    )
    finder = KernelFinder(Resolver(headers))
    roots = finder.roots(tokens)
    assert [root.label for root in roots] == ["Gemm_half_256", "launch<64, float>", "launch<128, half>"]
    found = [finder.kernels(root) for root in roots]
    assert [[(kernel.alias, str(kernel.type)) for kernel in each.kernels] for each in found] == [
        [
            ("Plain", "GemmUniversal<Shape<Int<256>, Int<128>, Int<128>>, half>"),
            ("Other", "GemmUniversal<Shape<Int<256>, Int<128>, Int<128>>, void>"),
        ],
        [("Small", "GemmUniversal<int, float>")],
        [("Large", "GemmUniversal<float, half>")],
    ]
    assert roots[0].names == {"T": "half", "M_": "256", "SWAP_": "true"}


_PIECES = st.sampled_from(
    ["#if", "#define M(x)", "#define N", "#else", "#endif", "#include <a>", "\n", "template", "<", ">", "typename", "T",
     "struct", "{", "}", ";", ",", "(", ")", "::", "using", "=", "namespace", "if", "constexpr", "return", "x", "1",
     "*", "?", ":", "&&", "||", "sizeof", "decltype", "static_cast", "std::conditional_t<", "GemmUniversal", "##", "//",
     "/*", "'", '"', "\\", "\\\n", "enum", "class", "M(", "const", "operator", "[", "]", "...", "0x", "9" * 40]
)  # fmt: skip


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(_PIECES, max_size=80).map(" ".join))
def test_garbage_is_refused_or_read_but_never_crashes(source: str) -> None:
    headers = Headers(lambda path: None, (), {})
    resolver_ = Resolver(headers)
    try:
        tokens = headers.add(source, "g.h")
        headers.declarations("x")
        finder = KernelFinder(resolver_)
        for root in finder.roots(tokens):
            finder.kernels(root)
        resolver_.evaluate([token for token in tokens if token.kind != "line"], Env())
    except NotRead:
        pass


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=400))
def test_any_text_is_tokenised(source: str) -> None:
    assert sum(len(token.text) for token in tokenize(source, "t")) <= len(source)
