"""Compose and Kubernetes files as people write them, and the reader of YAML beneath."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.libraries.engine_flags import check_launch, snapshot
from tilewright.libraries.engine_flags.command_line import MAX_COMMAND, take_apart
from tilewright.libraries.engine_flags.yaml_text import documents

IMAGE = "services:\n  a:\n    image: vllm/vllm-openai\n"
WORDS = ["--model", "m", "--max-num-seqs", "8"]
SERVE = ["m", "--max-num-seqs", "8"]
JSON = '{"a": [1, 2], "b": "it\'s"}'

FILES: dict[str, tuple[str, list[str]]] = {
    "merge key": (
        "x-c: &c\n  image: vllm/vllm-openai\n  command: [-x]\n"
        "services:\n  a:\n    <<: *c\n    command: --model m --max-num-seqs 8\n",
        WORDS,
    ),
    "alias": ('x-c: &c ["--model", "m", "--max-num-seqs", "8"]\nservices:\n  a:\n    command: *c\n', WORDS),
    "anchor on a list": (
        IMAGE + "    command: &c\n      - --model\n      - m\n      - --max-num-seqs\n      - 8\n",
        WORDS,
    ),
    "anchor on a block": (IMAGE + "    command: &c >-\n      --model m\n      --max-num-seqs 8\n    tty: y\n", WORDS),
    "comment behind the block's head": (
        IMAGE + "    command: > # ours\n      --model m\n      --max-num-seqs 8\n",
        WORDS,
    ),
    "comments in a list": (
        IMAGE + "    command:\n      # model\n      - --model\n      - m  # small\n      # - --off\n"
        "      - --max-num-seqs\n\n      - '8'\n",
        WORDS,
    ),
    "plain over lines": (IMAGE + "    command: --model m\n      --max-num-seqs 8\n    ipc: host\n", WORDS),
    "quoted over lines": (IMAGE + '    command: "--model m\n      --max-num-seqs 8"\n    ipc: host\n', WORDS),
    "null entrypoint": (IMAGE + "    entrypoint: null\n    command: --model m --max-num-seqs 8\n", WORDS),
    "build args": (IMAGE + "    build:\n      args:\n        - A=1\n    command: --model m --max-num-seqs 8\n", WORDS),
    "labels": (IMAGE + "    labels:\n      command: no\n    command: --model m --max-num-seqs 8\n", WORDS),
    "brackets over lines": (
        IMAGE + '    command: [\n      "--model", m,\n      # few\n      \'--max-num-seqs\', 8,\n    ]\n',
        WORDS,
    ),
    "another service before": (
        "services:\n  r:\n    image: redis\n    command: redis-server --save ''\n  a:\n    image: vllm/vllm-openai\n"
        "    command: --model m --max-num-seqs 8\n",
        WORDS,
    ),
    "JSON in single quotes": (
        IMAGE + "    command: ['--model', 'm', '-cc', '{\"a\": [1, 2], \"b\": \"it''s\"}']\n",
        ["--model", "m", "-cc", JSON],
    ),
    "JSON in double quotes": (
        IMAGE + '    command: [--model, m, -cc, "{\\"a\\": [1, 2], \\"b\\": \\"it\'s\\"}"]\n',
        ["--model", "m", "-cc", JSON],
    ),
    "JSON in a block": (
        IMAGE + "    command:\n      - -cc\n      - >-\n        {\"a\": [1, 2],\n        \"b\": \"it's\"}\n"
        "      - --model\n      - m\n",
        ["-cc", JSON, "--model", "m"],
    ),
    "JSON in a line": (
        IMAGE + "    command: '--model m -cc ''{\"a\": 1}'''\n",
        ["--model", "m", "-cc", '{"a": 1}'],
    ),
    "a shell's script": (
        IMAGE + "    entrypoint: [/bin/bash, -c]\n    command:\n      - |\n        pip install x\n        export A=1\n"
        "        vllm serve m \\\n          --max-num-seqs 8\n",
        SERVE,
    ),
    "a shell's words": (
        IMAGE + '    command: >\n      bash -c "\n      pip install x;\n      vllm serve m --max-num-seqs 8\n      "\n',
        SERVE,
    ),
    "a shell as entry point": (
        IMAGE + '    entrypoint: /bin/bash\n    command: -c "vllm serve m --max-num-seqs 8"\n',
        SERVE,
    ),
    "Kubernetes": (
        "kind: Pod\nspec:\n  initContainers:\n  - name: i\n    command: [sh, -c, 'vllm serve no']\n  containers:\n"
        "  - name: v\n    image: vllm/vllm-openai\n    livenessProbe:\n      exec:\n        command: ['true']\n"
        "    args: [--model, m, --max-num-seqs, '8']\n",
        WORDS,
    ),
    "a template": (
        "kind: Pod\nspec:\n  containers:\n{{- if .Values.on }}\n  - image: {{ .Values.image }}\n    args:\n"
        "    {{- range .x }}\n    - --model\n    - m\n    - --max-num-seqs\n    - 8\n{{- end }}\n",
        WORDS,
    ),
    "a piece": ("    command:\n      - --model\n      - m\n      - --max-num-seqs\n      - 8\n", WORDS),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_the_words_are_those_that_the_server_gets(name: str) -> None:
    text, words = FILES[name]
    for form in (text, text.replace("\n", "\r\n")):
        made = take_apart(form)
        assert made.words == words
        assert made.server


@pytest.mark.parametrize(
    "given",
    ["\n      - A=1\n      - B=x y\n      - C\n", "\n      A: 1\n      B: 'x y'\n      C:\n", ' {A: 1, "B": x y}\n'],
)
def test_variables_with_a_value_are_read(given: str) -> None:
    text = f"{IMAGE}    environment:{given}    command: --model m --port $$P --max-num-seqs ${{N:-8}}\n"
    made = take_apart(text)
    assert made.environment == {"A": "1", "B": "x y"}
    assert made.words[2:] == ["--port", "$P", "--max-num-seqs", "8"]


def test_a_file_of_several_servers_says_so() -> None:
    one = "  {}:\n    image: vllm/vllm-openai\n    command: --model {} --max-num-seqs 8\n"
    flags = snapshot("vllm", "0.34.0")
    text = "services:\n" + one.format("a", "m") + "  r:\n    image: redis\n    command: redis-server\n"
    assert not check_launch(flags, text).remarks
    made = check_launch(flags, text + one.format("b", "n"))
    assert made.parses
    assert [(item.level, "one more server" in item.message) for item in made.remarks] == [("note", True)]
    assert made.given["--model"] == "m"


def test_one_item_with_a_flag_and_its_value_is_an_error() -> None:
    made = check_launch(snapshot("vllm", "0.34.0"), IMAGE + "    command:\n      - --model m\n")
    assert made.parses is False
    assert "two items" in made.remarks[0].message


def _plain(node: Any) -> Any:
    """What PyYAML read, in the form of `documents`: every scalar as text."""
    if isinstance(node, dict):
        return {str(key): _plain(value) for key, value in node.items()}
    return [_plain(item) for item in node] if isinstance(node, list) else node


@pytest.mark.parametrize("name", [name for name in FILES if name != "a template"])
def test_the_reader_agrees_with_a_strict_one(name: str) -> None:
    yaml = pytest.importorskip("yaml")

    class Text(yaml.SafeLoader):
        """Every plain scalar as text, but for null and merge keys."""

    Text.yaml_implicit_resolvers = {
        first: [item for item in found if item[0].rsplit(":", 1)[-1] in ("null", "merge")]
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    text = FILES[name][0]
    want = _plain(yaml.load(text, Loader=Text))
    assert _stripped(documents(text)) == [_stripped(want)]


def _stripped(node: Any) -> Any:
    """Newlines at the end of blocks left out: no word of a command has one."""
    if isinstance(node, dict):
        return {key: _stripped(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_stripped(item) for item in node]
    return node.strip("\n") if isinstance(node, str) else node


PARTS = (
    "a:", "  b: x", "- ", "  - - x", "&a ", "*a", "<<: *a", "[", "]", "{", "}", ",", '"', "'", ": ", "|", "  >-", "#",
    "\n", "\n", "\n  ", "\n    ", "command:", "args: [", "services:", "---", "\\", "{{ x }}", "\t", "!!str", "?",
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PARTS), max_size=30))
def test_any_text_is_read(parts: list[str]) -> None:
    documents("".join(parts))


@pytest.mark.parametrize(
    "piece",
    ["a: [", "- [a,\n", "a: '\n", '- "\n', "- - - - ", "a: b: ", "  " * 40 + "x:\n", "- &a [*a]\n", "<<: {a: 1}\n",
     "a: |\n", "[" * 60 + "\n", "{a: ", '- "x" y\n', "- [\n] z\n", " ", "a: &x *x\n", "a  #"],
)  # fmt: skip
def test_hostile_text_is_read_in_no_time(piece: str) -> None:
    text = "services:\n" + (piece * MAX_COMMAND)[:MAX_COMMAND]
    start = time.process_time()
    documents(text)
    assert time.process_time() - start < 2


def test_aliases_of_aliases_are_no_bomb() -> None:
    lines = ["services:", "  a0: &a0 {image: vllm, x: y}"]
    lines += [f"  a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 40)]
    start = time.process_time()
    made = take_apart("\n".join([*lines, "  s:", "    command: vllm serve m", ""]))
    assert made.words == ["m"]
    assert time.process_time() - start < 1
