"""The tiles that FlashInfer's MoE heuristic offers its autotuner, in order, by following that one C++ function.

`get_candidate_configs_sm120` (cutlass_heuristic.cpp) builds a vector of configs from flags: with branches on flags,
`push_back`, loops over a constant array, and a predicate that removes some. Exactly those statements are followed;
any other ends the reading.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from tilewright.libraries.cpp_source.tokens import NotRead, Token, match_bracket, shown, split_commas

_TILE: Final = re.compile(r"CtaShape(\d+)x(\d+)x(\d+)B")
_FLAG_OWNER: Final = "CutlassGemmConfig"
_FIELD: Final = "tile_config_sm120"


@dataclass(frozen=True)
class Candidate:
    """One tile of the list, by its enumerator, with the line that lists it. K counts bytes."""

    name: str
    m: int
    n: int
    k_bytes: int
    file: str
    line: int


@dataclass
class _State:
    flags: frozenset[str]
    values: dict[str, int] = field(default_factory=dict[str, int])
    lists: dict[str, list[Token]] = field(default_factory=dict[str, list[Token]])
    rules: dict[str, tuple[list[tuple[set[str], list[Token]]], list[Token]]] = field(
        default_factory=dict[str, tuple[list[tuple[set[str], list[Token]]], list[Token]]]
    )
    """Predicates: cases (enumerators, returned expression) and the default's expression."""


class _Done(Exception):  # noqa: N818
    """A return was reached."""

    def __init__(self, tiles: list[Token]) -> None:
        super().__init__()
        self.tiles = tiles


def candidates(body: list[Token], flags: frozenset[str]) -> list[Candidate]:
    """The list that a function with this `body` returns when exactly `flags` are set in its parameter.

    Raises:
        NotRead: it does something else than what this module follows.
    """
    state = _State(flags)
    try:
        _run(body, 0, len(body), state, {})
    except _Done as done:
        return [_candidate(token) for token in done.tiles]
    place = body[0] if body else None
    raise NotRead("it returns nothing", place.file if place else "", place.line if place else 0)


def _candidate(token: Token) -> Candidate:
    match = _TILE.fullmatch(token.text)
    if match is None:
        raise NotRead(f"{token.text} is no tile", token.file, token.line)
    m, n, k = (int(part) for part in match.groups())
    return Candidate(token.text, m, n, k, token.file, token.line)


def _stop(token: Token, why: str) -> NotRead:
    return NotRead(why, token.file, token.line)


def _end(body: list[Token], at: int, end: int) -> int:
    """Index of the `;` that ends the statement at `at`."""
    while at < end and body[at].text != ";":
        at = match_bracket(body, at, end) if body[at].text in ("(", "[", "{") else at
        at += 1
    return at


def _run(body: list[Token], at: int, end: int, state: _State, loop: dict[str, Token]) -> None:
    while at < end:
        token = body[at]
        if token.text == ";":
            at += 1
        elif token.text == "{":
            close = match_bracket(body, at, end)
            _run(body, at + 1, close, state, loop)
            at = close + 1
        elif token.text == "if":
            at = _if(body, at, end, state, loop)
        elif token.text == "for":
            at = _for(body, at, end, state, loop)
        else:
            stop = _end(body, at, end)
            _simple(body[at:stop], state, loop)
            at = stop + 1


def _block(body: list[Token], at: int, end: int) -> tuple[int, int, int]:
    """The statement or block at `at`: its range, and the index behind it."""
    if at < end and body[at].text == "{":
        close = match_bracket(body, at, end)
        return at + 1, close, close + 1
    stop = _end(body, at, end) + 1
    return at, stop, stop


def _if(body: list[Token], at: int, end: int, state: _State, loop: dict[str, Token]) -> int:
    opening = at + 1
    close = match_bracket(body, opening, end)
    taken = bool(_value(body[opening + 1 : close], state))
    start, stop, after = _block(body, close + 1, end)
    if taken:
        _run(body, start, stop, state, loop)
    if after < end and body[after].text == "else":
        if body[after + 1].text == "if":
            if not taken:
                return _if(body, after + 1, end, state, loop)
            return _skip_if(body, after + 1, end)
        start, stop, after = _block(body, after + 1, end)
        if not taken:
            _run(body, start, stop, state, loop)
    return after


def _skip_if(body: list[Token], at: int, end: int) -> int:
    close = match_bracket(body, at + 1, end)
    _, _, after = _block(body, close + 1, end)
    if after < end and body[after].text == "else":
        return _skip_if(body, after + 1, end) if body[after + 1].text == "if" else _block(body, after + 1, end)[2]
    return after


def _for(body: list[Token], at: int, end: int, state: _State, loop: dict[str, Token]) -> int:
    """`for (auto [const&] name : list) ...`."""
    close = match_bracket(body, at + 1, end)
    head = body[at + 2 : close]
    colon = next((i for i, token in enumerate(head) if token.text == ":"), None)
    items = state.lists.get(head[-1].text) if colon is not None and len(head) == colon + 2 else None
    if colon is None or items is None:
        raise _stop(body[at], f"a loop over {shown(head)}")
    start, stop, after = _block(body, close + 1, end)
    for item in list(items):
        _run(body, start, stop, state, {**loop, head[colon - 1].text: item})
    return after


def _simple(line: list[Token], state: _State, loop: dict[str, Token]) -> None:
    """One statement that ends in a semicolon."""
    texts = [token.text for token in line]
    if not line:
        return
    if texts[0] == "return":
        raise _Done(_tiles_of(line[1:], state, loop))
    if texts[0] == "TLLM_THROW":
        raise _stop(line[0], "the library refuses these flags")
    if "push_back" in texts or "emplace_back" in texts:
        owner = state.lists.setdefault(texts[0], [])
        owner.extend(_tiles_of(line[texts.index("(") + 1 : -1], state, loop)[:1])
    elif "erase" in texts and "remove_if" in texts:
        _erase(line, state)
    elif "=" in texts and "[" in texts[texts.index("=") :][1:2]:
        state.rules[texts[texts.index("=") - 1]] = _predicate(line)
    elif "=" in texts or "{" in texts:
        _define(line, texts, state, loop)
    elif not (texts[:2] == ["std", "::"] and line[-1].kind == "name"):
        raise _stop(line[0], f"the statement {shown(line)}")
    else:
        state.lists[texts[-1]] = []


def _define(line: list[Token], texts: list[str], state: _State, loop: dict[str, Token]) -> None:
    equals = texts.index("=") if "=" in texts else texts.index("{")
    names = [token for token in line[:equals] if token.kind == "name"]
    if not names:
        raise _stop(line[0], f"the statement {shown(line)}")
    rest = line[equals + 1 :] if texts[equals] == "=" else line[equals:]
    if "vector" in texts[:equals] or "]" in texts[:equals] or names[-1].text in state.lists:
        state.lists[names[-1].text] = _tiles_of(rest, state, loop)
    else:
        state.values[names[-1].text] = _value(rest, state)


def _tiles_of(line: list[Token], state: _State, loop: dict[str, Token]) -> list[Token]:
    """The tiles that an expression names: one for each config in it, in order."""
    if len(line) == 1 and line[0].text in state.lists:
        return list(state.lists[line[0].text])
    out: list[Token] = []
    for token in line:
        if token.kind != "name":
            continue
        if _TILE.fullmatch(token.text):
            out.append(token)
        elif token.text in loop and _TILE.fullmatch(loop[token.text].text):
            out.append(loop[token.text])
    return out


def _predicate(line: list[Token]) -> tuple[list[tuple[set[str], list[Token]]], list[Token]]:
    """A lambda that switches on the tile: its cases and its default."""
    texts = [token.text for token in line]
    if "switch" not in texts or _FIELD not in texts:
        raise _stop(line[0], "a predicate that is no switch over the tile")
    opening = texts.index("{", texts.index(_FIELD))
    close = match_bracket(line, opening)
    cases: list[tuple[set[str], list[Token]]] = []
    default: list[Token] | None = None
    names: set[str] = set()
    index = opening + 1
    is_default = False
    while index < close:
        text = line[index].text
        if text == "case":
            colon = next(i for i in range(index, close) if line[i].text == ":")
            names.add(line[colon - 1].text)
            index = colon
        elif text == "default":
            is_default = True
            index += 1
        elif text == "return":
            stop = _end(line, index, close)
            if is_default:
                default = line[index + 1 : stop]
            else:
                cases.append((names, line[index + 1 : stop]))
            names = set()
            index = stop
        else:
            raise _stop(line[index], f"a predicate with {text}")
        index += 1
    if default is None:
        raise _stop(line[0], "a predicate without a default")
    return cases, default


def _erase(line: list[Token], state: _State) -> None:
    """`list.erase(std::remove_if(list.begin(), list.end(), rule), list.end())`."""
    texts = [token.text for token in line]
    inner = texts.index("remove_if") + 1
    close = match_bracket(line, inner)
    start, end = split_commas(line, inner + 1, close)[-1]
    name = shown(line[start:end])
    rule, items = state.rules.get(name), state.lists.get(texts[0])
    if rule is None or items is None:
        raise _stop(line[0], f"the statement {shown(line)}")
    cases, default = rule

    def removed(tile: Token) -> bool:
        chosen = next((result for names, result in cases if tile.text in names), default)
        return bool(_value(chosen, state))

    state.lists[texts[0]] = [tile for tile in items if not removed(tile)]


def _value(line: list[Token], state: _State) -> int:
    """A condition over the flags: `config & Owner::FLAG`, compared with 0, negated, or combined."""
    texts = [token.text for token in line]
    if not line:
        raise NotRead("an empty condition")
    while texts[0] == "(" and match_bracket(line, 0) == len(line) - 1:
        line, texts = line[1:-1], texts[1:-1]
    for joint in ("||", "&&"):
        parts = _split(line, joint)
        if len(parts) > 1:
            values = [bool(_value(part, state)) for part in parts]
            return int(any(values) if joint == "||" else all(values))
    for comparison in ("!=", "=="):
        parts = _split(line, comparison)
        if len(parts) == 2 and [token.text for token in parts[1]] == ["0"]:
            return int(bool(_value(parts[0], state)) is (comparison == "!="))
    if texts[0] == "!":
        return int(not _value(line[1:], state))
    if len(line) == 1:
        if texts[0] in ("true", "false"):
            return int(texts[0] == "true")
        if texts[0] in state.values:
            return state.values[texts[0]]
    if len(texts) == 5 and texts[1] == "&" and texts[2] == _FLAG_OWNER and texts[3] == "::":
        return int(texts[4] in state.flags)
    raise _stop(line[0], f"the condition {shown(line)}")


def _split(line: list[Token], joint: str) -> list[list[Token]]:
    parts: list[list[Token]] = [[]]
    index = 0
    while index < len(line):
        if line[index].text == "(":
            close = match_bracket(line, index)
            parts[-1].extend(line[index : close + 1])
            index = close + 1
            continue
        if line[index].text == joint:
            parts.append([])
        else:
            parts[-1].append(line[index])
        index += 1
    return parts
