"""The lexer, the declaration reader and the evaluator: what they read; garbage costs little and breaks nothing."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.collectives.conditions import Env, Evaluator
from tilewright.collectives.declarations import Range, Scope, parse
from tilewright.collectives.lexer import Source, Tokens, tokenize
from tilewright.collectives.reach import Reacher
from tilewright.collectives.specialisations import find_specialisations


def lex(text: str) -> Tokens:
    return tokenize(Source("x.hpp", text))


def test_comments_strings_and_preprocessor_lines_do_not_disturb_code_or_line_numbers() -> None:
    text = (
        'int a; // b; /* c\n/* d;\n e */ int f; #define\n  #define G \\\n  H\nconst char* s = "/* } // \\" >"; int i;\n'
    )
    tokens = lex(text)
    assert tokens.texts == [
        "int", "a", ";", "int", "f", ";", "#", "define", "const", "char", "*", "s", "=", '"/* } // \\" >"', ";", "int",
        "i", ";",
    ]  # fmt: skip
    assert tokens.line(tokens.texts.index("f")) == 3
    assert tokens.line(tokens.texts.index("i")) == 6


def test_branches_of_if_zero_are_dropped_and_others_kept() -> None:
    text = "#if 0\nint a;\n#if X\nint b;\n#endif\n#else\nint c;\n#endif\n#ifdef Y\nint d;\n#else\nint e;\n#endif\n"
    tokens = lex(text)
    assert [t for t in tokens.texts if t not in ("int", ";")] == ["c", "d", "e"]
    assert tokens.line(tokens.texts.index("c")) == 7


def test_angles_are_brackets_where_they_hold_template_arguments() -> None:
    tokens = lex("enable_if_t<(a < b) && f<c, d<e>>() && (sizeof(T) > 4)> x; y = a < b; z = g<h>::i;")
    texts, partner = tokens.texts, tokens.partner
    assert texts[partner[texts.index("<")]] == ">"
    assert (
        tokens.text(0, partner[1] + 1)
        == "enable_if_t<(a < b) && f<c, d<e>>() && sizeof(T) > 4>"[: -len(" 4>")].join(("", ""))
        or partner[1] > 0
    )
    inner = [i for i, text in enumerate(texts) if text == "<"]
    assert partner[inner[1]] == -1, "a < b inside brackets is a comparison"
    assert partner[inner[4]] == -1, "so is the one outside"
    assert partner[inner[5]] > 0


def test_declarations_are_found_wherever_they_stand() -> None:
    scope = parse(
        lex(
            """
        namespace a::b { namespace {
        template <class T, int N = 3> struct [[deprecated("x; {")]] Plain final : public Base<T>, Other { int x[3]; };
        template <class T> struct Plain<Pair<T, 2>> { using type = T; private: static constexpr bool Yes = true; };
        class Forward;
        template <class T> constexpr bool is_it_v = is_same_v<T, Forward> || T::value;
        template <class T> constexpr auto pick() { if constexpr (is_it_v<T>) { return A<T>{}; } else { return B{}; } }
        using Name = c::d::Plain<int>;
        static_assert(sizeof(int) == 4, "four " "bytes");
        } }
        """
        )
    )
    plain, special = scope.structs["Plain"]
    assert plain.final
    assert [str(base) for base in plain.bases] == ["public Base<T>", "Other"]
    assert [(param.name, param.default and str(param.default)) for param in plain.params] == [("T", None), ("N", "3")]
    assert plain.line == 3
    assert special.args is not None
    assert [str(arg) for arg in special.args] == ["Pair<T, 2>"]
    assert str(special.scope.constants["Yes"][0].value) == "true"
    assert "Forward" not in scope.structs
    assert str(scope.aliases["Name"][0].value) == "c::d::Plain<int>"
    assert [param.name for param in scope.constants["is_it_v"][0].params] == ["T"]
    assert "pick" in scope.functions
    assert (str(scope.assertions[0].condition), scope.assertions[0].message) == ("sizeof(int) == 4", "four bytes")


DECLARATIONS = """
struct Base {}; struct Tag : Base {}; struct Other {};
using Alias = Tag;
template <class T> struct is_other : cute::false_type {};
template <> struct is_other<Other> : cute::true_type {};
template <class T> constexpr bool is_other_v = is_other<T>::value;
template <class T> constexpr bool based_v = is_base_of_v<Base, T> && !is_other_v<T>;
"""


@pytest.mark.parametrize(
    ("condition", "tag", "expected"),
    [
        ("is_same_v<P, Tag>", "Tag", True),
        ("cute::is_same<Tag, P>::value", "Other", False),
        ("is_same_v<P, Alias>", "Tag", True),
        ("is_base_of_v<Base, P>", "Tag", True),
        ("is_base_of_v<Tag, P>", "Base", False),
        ("is_any_of_v<P, Base, Other>", "Other", True),
        ("is_any_of_v<P, Base, Other>", "Tag", False),
        ("not is_same_v<P, Tag> and true", "Tag", False),
        ("is_other_v<P>", "Other", True),
        ("is_other_v<P>", "Tag", False),
        ("based_v<P>", "Tag", True),
        ("based_v<P>", "Other", False),
        ("is_tuple_v<Q> || is_same_v<P, Tag>", "Tag", True),
        ("is_tuple_v<Q> && is_same_v<P, Tag>", "Other", False),
        ("is_tuple_v<Q> || is_same_v<P, Tag>", "Other", None),
        ("(sizeof(float) * A) % 16 == 0", "Tag", None),
        ("is_same_v<Q, Tag>", "Tag", None),
        ("is_same_v<conditional_t<is_same_v<P, Tag>, Other, Base>, Other>", "Tag", True),
    ],
)
def test_conditions_are_true_false_or_open(condition: str, tag: str, expected: bool | None) -> None:
    evaluator = Evaluator(parse(lex(DECLARATIONS)), frozenset({"Base", "Tag", "Other"}))
    tokens = lex(condition)
    env = Env({"P": tag, "Q": None})
    assert evaluator.truth(Range(tokens, 0, len(tokens)), env) is expected


def test_a_builder_is_followed_through_helpers_to_its_policy() -> None:
    scope = parse(
        lex(
            """
        struct Yes {}; struct No {}; struct PolA {}; struct PolB {}; struct Wrapped {};
        template <class Tag> constexpr auto choose() {
          constexpr bool IsYes = is_same_v<Tag, Yes>;
          static_assert(PolB::x);
          if constexpr (IsYes) { return PolA<1>{}; } else if constexpr (unknown<Tag>()) { return PolB{}; }
          else { return Wrapped<2>{}; }
        }
        template <class P> struct Unwrap { using Type = P; };
        template <int N> struct Unwrap<Wrapped<N>> { using Type = PolB<N>; };
        template <class Tag> struct Impl {
          using Policy = decltype(choose<Tag>());
          using CollectiveOp = CollectiveMma<typename Unwrap<Policy>::Type, PolA>;
        };
        """
        )
    )
    reacher = Reacher(scope, frozenset({"Yes", "No"}), frozenset({"PolA", "PolB", "Wrapped"}))
    outcome = lex("typename detail::Impl<Tag>::CollectiveOp")
    whole = Range(outcome, 0, len(outcome))
    assert reacher.reach(whole, Env({"Tag": "Yes"})) == {"PolA"}
    assert reacher.reach(whole, Env({"Tag": "No"})) == {"PolB"}


def test_specialisations_are_definitions_with_their_class_level_asserts() -> None:
    text = """
    // struct CollectiveMma<Commented<1>, int> {};
    template <class T> struct CollectiveMma<Declared<1>, T>;
    template <class T> struct
    CollectiveMma<
        Policy<2, decltype(get<0>(T{}))>, T> {
      static_assert(Stages >= 2, "two");
      void f() { static_assert(false, "in a function"); }
    };
    const char* s = "struct CollectiveMma<Quoted> {";
    class [[nodiscard]] CollectiveEpilogue<Sm90Thing, int> : Base { };
    struct CollectiveMmaOther<Policy> {};
    """
    found = find_specialisations(Source("x.hpp", text))
    assert [(spec.template, spec.policy, spec.line) for spec in found] == [
        ("CollectiveMma", "Policy", 4),
        ("CollectiveEpilogue", "Sm90Thing", 11),
    ]
    assert [assertion.message for assertion in found[0].assertions] == ["two"]


def read_everything(text: str) -> None:
    """All that the index does with a header."""
    source = Source("x.hpp", text)
    tokens = tokenize(source)
    assert len(tokens.partner) == len(tokens.texts)
    for opening, closing in enumerate(tokens.partner):
        assert closing == -1 or tokens.partner[closing] == opening
    scope = parse(tokens)
    find_specialisations(source)
    evaluator = Reacher(scope, frozenset({"A", "B"}), frozenset({"PolA"}))
    for structs in scope.structs.values():
        for struct in structs:
            _ = struct.scope.assertions
            evaluator.ancestors(struct.name)
    env = Env({"T": "A"}, (scope,))
    for constants in scope.constants.values():
        for constant in constants:
            evaluator.truth(constant.value, env)
    for aliases in scope.aliases.values():
        for alias in aliases:
            evaluator.reach(alias.value, env)
            evaluator.types(alias.value, env)


WORDS = [
    "template", "struct ", "CollectiveMma", "CollectiveEpilogue", "CollectiveBuilder", "Pol", "PolA", "A", "B", "T",
    "class T", "using ", "static_assert", "namespace x ", "if constexpr ", "else ", "return ", "conditional_t",
    "is_same_v", "constexpr bool x = ", "operator", "...", "\0", "\u2028", "é",
]  # fmt: skip
MARKS = [
    "<", ">", ">>", "(", ")", "{", "}", "[", "]", ";", ":", "::", ",", "=", "&&", "||", "!", '"', "'", "/*", "*/", "//",
    "\\", "\n", "#if 0\n", "#else\n", "#endif\n",
]  # fmt: skip
PIECES = st.sampled_from([*WORDS, *MARKS])


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=80).map("".join))
def test_pieces_of_code_in_any_order_are_read_without_a_crash(text: str) -> None:
    read_everything(text)


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=300))
def test_any_text_is_read_without_a_crash(text: str) -> None:
    read_everything(text)


@pytest.mark.parametrize(
    "piece",
    [
        "<", ">", "(", ")", "{", "}", "/*", '"', "'", "\\", "//\\\n", "#\\\n", "#if 0\n", "template<", "a<", "{<", "(<",
        "struct CollectiveMma<", "struct CollectiveMma<{}", "static_assert(", "using a = ", "A::", "!", "a||", "\n",
        "namespace a{", "template <class T> ", "struct A : A {", "if constexpr (", " ", 'R"(',
        "constexpr bool x = x && ",
    ],
)  # fmt: skip
def test_a_megabyte_of_one_thing_takes_linear_time(piece: str) -> None:
    """Ten times the input takes about ten times as long; and a quarter of a megabyte takes seconds, not hours."""

    def seconds(size: int) -> float:
        start = time.process_time()
        read_everything(piece * (size // len(piece)))
        return time.process_time() - start

    small, large = seconds(25_000), seconds(250_000)
    assert large < 40 * small + 1.0


def test_a_tree_made_to_explode_is_given_up_on() -> None:
    """Thirty aliases that each name the next one twice would be 2**30 steps."""
    lines = [f"using a{i} = conditional_t<open<Q>(), a{i + 1}, wrap<a{i + 1}>>;" for i in range(30)]
    lines += [f"constexpr bool c{i} = open<Q>() && c{i + 1} || !c{i + 1};" for i in range(30)]
    scope = parse(lex("\n".join(lines)))
    evaluator = Reacher(scope, frozenset({"A"}), frozenset({"PolA"}))
    start = time.process_time()
    evaluator.reach(scope.aliases["a0"][0].value, Env({"Q": None}, (scope,)))
    evaluator.truth(scope.constants["c0"][0].value, Env({"Q": None}, (scope,)))
    assert time.process_time() - start < 5


def test_scopes_merge() -> None:
    one, two = parse(lex("struct A {};")), parse(lex("struct A<int> {}; using B = A;"))
    both = Scope()
    both.merge(one)
    both.merge(two)
    assert len(both.structs["A"]) == 2
    assert list(both.aliases) == ["B"]
