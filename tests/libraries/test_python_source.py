"""The bounded Python evaluator: what it follows, what it refuses, and that garbage costs little."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.libraries.python_source.limits import CannotFollow, Meter, OutOfBudget
from tilewright.libraries.python_source.modules import TreeInterpreter
from tilewright.libraries.python_source.values import Raised, Unknown


def evaluate(source: str, name: str = "result", files: dict[str, str] | None = None, steps: int = 300_000) -> Any:
    """The value of `name` after the module `source`, of a tree that has `files` too."""
    tree = {"pkg/main.py": source, **(files or {})}
    interp = TreeInterpreter(
        lambda path: tree[path].encode() if path in tree else None, Meter(steps, 4_000_000), lambda path: True
    )
    module = interp.load("pkg/main.py")
    return interp.lookup(name, module)


FOLLOWED = {
    "comprehension": ("result = [a * b for a in (1, 2) if a > 1 for b in [3, 4]]", [6, 8]),
    "product keeps order": ("from itertools import product\nresult = list(product([1, 2], 'ab'))",
                            [(1, "a"), (1, "b"), (2, "a"), (2, "b")]),
    "enum by auto": ("import enum\nclass E(enum.Enum):\n  a = enum.auto()\n  b = enum.auto()\n"
                     "result = [(m.name, m.value) for m in E]", [("a", 1), ("b", 2)]),
    "enum as a key": ("import enum\nclass E(enum.Enum):\n  a = 1\nd = {E.a: 'x'}\nresult = d[E.a] + d[E(1)]", "xx"),
    "class and repr": ("class P:\n  def __init__(self, m, n=2):\n    self.m, self.n = m, n\n"
                       "  def __repr__(self):\n    return f'{self.m}x{self.n}'\n"
                       "result = f'{P(1)} {P(3, n=4)}'", "1x2 3x4"),
    "dataclass": ("from dataclasses import dataclass\n@dataclass\nclass P:\n  m: int\n  n: int = 5\n"
                  "result = (P(1).n, P(1, 2).n)", (5, 2)),
    "inheritance": ("class A:\n  def f(self): return 1\nclass B(A):\n  pass\nresult = B().f()", 1),
    "closure and default": ("def make(n):\n  def add(x, k=n):\n    return x + k + n\n  return add\n"
                            "result = make(2)(1)", 5),
    "star arguments": ("def f(a, *rest, k=1, **more):\n  return a, rest, k, more\n"
                       "result = f(*[1, 2, 3], k=4, z=5)", (1, (2, 3), 4, {"z": 5})),
    "generator function": ("def g():\n  for i in range(3):\n    yield i * i\nresult = list(g())", [0, 1, 4]),
    "try and except": ("def f(d):\n  try:\n    return d['x']\n  except KeyError:\n    return 'none'\n"
                       "result = f({}) + f({'x': '!'})", "none!"),
    "while and break": ("n = 0\nwhile True:\n  n += 1\n  if n > 4: break\nresult = n", 5),
    "unpacking": ("a, *b = [1, 2, 3]\n(c, d), e = (4, 5), 6\nresult = (a, b, c, d, e)", (1, [2, 3], 4, 5, 6)),
    "list += is in place": ("a = [1]\nb = a\nb += [2]\nresult = a", [1, 2]),
    "format": ("result = '{}_{}x{n:>4}'.format('a', 2, n=3) + '%s-%d' % ('b', 4) + f'{5:02d}{\"q\"!r}'",
               "a_2x   3b-405'q'"),
    "slices": ("result = ([1, 2, 3][1:], 'abc'[::-1], (1, 2)[-1])", ([2, 3], "cba", 2)),
    "walrus and ternary": ("result = (n if (n := 3) > 2 else 0)", 3),
    "lambda and sorted": ("result = sorted([3, 1, 2], key=lambda v: -v)", [3, 2, 1]),
    "bits": ("result = (128 * 8 // 4, 7 & 3, 1 << 4, 2 ** 10, -7 // 2)", (256, 3, 16, 1024, -4)),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLLOWED)
def test_what_generators_do_is_followed(name: str) -> None:
    source, expected = FOLLOWED[name]
    assert evaluate(source) == expected


def test_names_are_imported_from_modules_of_the_tree() -> None:
    files = {
        "pkg/data.py": "TABLE = {'a': 1}\n",
        "pkg/sub/__init__.py": "",
        "pkg/sub/more.py": "from ..data import TABLE\n",
    }
    assert evaluate(
        "from .sub.more import TABLE as t\nfrom . import data\nresult = (t['a'], data.TABLE)", files=files
    ) == (
        1,
        {"a": 1},
    )


def test_a_cycle_of_imports_ends() -> None:
    files = {"pkg/a.py": "from .b import x\ny = 1\n", "pkg/b.py": "from .a import y\nx = 2\n"}
    assert evaluate("from .a import x\nresult = x", files=files) == 2


def test_symbols_of_other_packages_are_keys_but_decide_nothing() -> None:
    assert evaluate("import torch\nd = {torch.float16: 'half'}\nresult = d[torch.float16]") == "half"
    value = evaluate("import torch\nresult = 1 if torch.cuda.is_available() else 2")
    assert isinstance(value, Unknown)
    assert "torch.cuda.is_available" in str(value.refuse())


def test_a_list_joined_with_something_unknown_keeps_what_is_known() -> None:
    value = evaluate("import torch\nresult = ['-DA'] + torch.flags() + ['-DB']")
    assert [item for item in value if isinstance(item, str)] == ["-DA", "-DB"]


def test_a_statement_that_cannot_be_followed_leaves_its_names_unknown() -> None:
    source = "import torch\nbad = {}\nbad[torch.f()] = 1\nasync def f(): pass\nresult = 3"
    assert evaluate(source) == 3


ESCAPES = [
    "result = ().__class__.__bases__[0].__subclasses__()",
    "result = __import__('os').system('true')",
    "result = eval('1')",
    "result = exec('1')",
    "result = open('/etc/passwd').read()",
    "result = getattr('', '__class__')",
    "result = '{0.__class__}'.format(1)",
    "result = (lambda: 0).__globals__",
    "import os\nresult = os.environ['HOME']",
    "import subprocess\nresult = subprocess.run(['true']) == 0",
    "class A:\n  pass\nresult = A.__init__.__globals__",
]


@pytest.mark.parametrize("source", ESCAPES)
def test_nothing_reaches_the_host(source: str) -> None:
    """A way out is an unknown value or a refusal, never something of the host."""
    try:
        value = evaluate(source)
    except (CannotFollow, Raised):
        return
    assert isinstance(value, Unknown)


BOMBS = [
    "result = 10 ** 10 ** 10",
    "result = 1 << (1 << 40)",
    "result = 'a' * 10 ** 9",
    "result = [0] * 10 ** 9",
    "s = 'a'\nfor i in range(64):\n  s += s\nresult = s",
    "l = [1]\nfor i in range(64):\n  l += l\nresult = l",
    "t = ()\nfor i in range(64):\n  t = (t, t)\nresult = {t: 1}",
    "a = []\na.append(a)\nb = []\nb.append(b)\nresult = a == b",
    "d = e = {}\nfor i in range(64):\n  d, e = {'a': d, 'b': d}, {'a': e, 'b': e}\nresult = d == e",
    "while True:\n  pass\nresult = 1",
    "def f(n):\n  return f(n + 1)\nresult = f(0)",
    "from itertools import product\nresult = list(product(range(1000), repeat=5))",
    "result = '{:>1000000000}'.format(1)",
    "result = '%1000000000d' % 1",
    "result = ','.join(['a' * 1000] * 100000)",
    "result = ('a' * 10000).replace('a', 'b' * 10000)",
    "result = int('9' * 100000)",
    "result = list(range(10 ** 12))",
    "result = [[[x for x in range(1000)] for y in range(1000)] for z in range(1000)]",
    "result = 'x'.zfill(10 ** 9)",
]


@pytest.mark.parametrize("source", BOMBS)
def test_a_bomb_costs_little(source: str) -> None:
    start = time.monotonic()
    try:
        value = evaluate(source)
        assert isinstance(value, Unknown) or sys.getsizeof(value) < 10_000_000
    except (CannotFollow, Raised):
        pass
    assert time.monotonic() - start < 5


def test_the_budget_stops_an_evaluation_even_at_module_level() -> None:
    with pytest.raises(OutOfBudget):
        evaluate("while True:\n  pass\nresult = 1")


def test_a_refusal_names_the_line() -> None:
    value = evaluate("def f():\n  x = [1]\n  return x - 1\nresult = f()")
    assert isinstance(value, Unknown)
    assert "pkg/main.py:3" in value.what
    with pytest.raises(CannotFollow) as stop:
        evaluate("x = 1\nresult = (\n  1 +\n")
    assert stop.value.where.startswith("pkg/main.py:")
    assert "does not parse" in stop.value.why


_TOKENS = st.sampled_from(
    ["(", ")", "[", "]", "{", "}", ":", ",", ".", "=", "+", "*", "**", "-", "if", "else", "for", "in", "def", "class",
     "return", "lambda", "import", "from", "not", "and", "or", "while", "try", "except", "with", "as", "f'{x}'", "x",
     "y", "1", "99999999", "'s'", "\n", "\n  ", "\n    ", "@", "yield", "*x", "**y", "is", "None", "print", "range",
     "str", "list", "del", "global", "raise", "assert", "==", "<", "%", "//", "<<", "async", "await", "match", "x.y",
     "\0", "é"]
)  # fmt: skip


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(_TOKENS, max_size=60).map(" ".join))
def test_garbage_never_crashes(source: str) -> None:
    """Whatever the source is, evaluating it ends in values, a refusal, or an exception of the evaluated program."""
    with contextlib.suppress(CannotFollow, Raised):
        evaluate(source, "x", steps=20_000)


_STATEMENTS = st.sampled_from(
    ["x = 1", "x = [1, 2]", "y = x", "x += [x]", "x = (x, x)", "x = {1: x}", "x = x * 3", "x = f'{x}'", "x = str(x)",
     "for i in range(9): x = [x, i]", "x = sorted([x, 1])", "x = x[0]", "x = x == y", "x = {x}", "x = [*x]",
     "def x(*a, **k): return x", "x = x()", "class x: y = 1", "x = x.y", "x = '%s' % x", "x = '{}'.format(x)",
     "x = max(x)", "x = list(map(str, x))", "x = dict(x)", "x = set(x)", "del x", "x = x.items()", "x.append(x)",
     "x = lambda: x", "x = isinstance(x, (int, str))", "x = sum(x)", "x = len(x)", "x = x or y", "x, y = y, x",
     "x = [i for i in x]", "x = zip(x, y)", "x = x ** 9", "x = -x", "x = x in y", "x = x < y", "x = ','.join(x)"]
)  # fmt: skip


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(_STATEMENTS, min_size=1, max_size=25).map("\n".join))
def test_statements_of_any_kind_never_crash(source: str) -> None:
    with contextlib.suppress(CannotFollow, Raised):
        evaluate("y = [1]\n" + source, "x", steps=20_000)
