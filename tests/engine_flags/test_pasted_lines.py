"""Launch commands as people keep and paste them: scripts, Compose and Kubernetes files, typographic characters."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.errors import InputError
from tilewright.libraries.engine_flags import check_launch, snapshot
from tilewright.libraries.engine_flags.command_line import MAX_COMMAND, take_apart

WORDS = ["--model", "m x", "--tensor-parallel-size", "8", "--max-num-seqs", "32"]
SERVICE = """services:
  vllm:
    image: vllm/vllm-openai:v0.17.0   # pinned
    environment:
      {environment}
    command: {command}
    ports:
      - "8000:8000"
"""


def compose(command: str, environment: str = "- VLLM_LOGGING_LEVEL=DEBUG") -> str:
    return SERVICE.format(command=command, environment=environment)


@pytest.mark.parametrize(
    "text",
    [
        compose(">\n      --model 'm x' --tensor-parallel-size 8\n      --max-num-seqs 32"),
        compose("|\n      --model 'm x' \\\n      --tensor-parallel-size 8 --max-num-seqs 32"),
        compose("--model 'm x' --tensor-parallel-size 8 --max-num-seqs 32   # ours"),
        compose('["--model", "m x", "--tensor-parallel-size", "8",\n      "--max-num-seqs", "32"]'),
        compose(
            "\n      - --model\n      - 'm x'\n      - --tensor-parallel-size\n      - \"8\"\n"
            "      - --max-num-seqs\n      - 32",
            "VLLM_LOGGING_LEVEL: DEBUG",
        ),
        "spec:\n  containers:\n  - name: c\n    image: i\n    env:\n    - name: VLLM_LOGGING_LEVEL\n"
        "      value: DEBUG\n    command: [vllm, serve]\n\n    args:\n"
        "    - --model\n    - m x\n    - --tensor-parallel-size\n    - '8'\n    - --max-num-seqs\n    - '32'\n",
        "spec:\n  containers:\n  - image: i\n    env:\n    - name: VLLM_LOGGING_LEVEL\n      value: DEBUG\n"
        "    command:\n    - bash\n    - -c\n    - |\n      vllm serve --model 'm x' \\\n"
        "        --tensor-parallel-size 8 --max-num-seqs 32\n",
    ],
    ids=["folded", "literal", "plain", "flow", "list", "kubernetes", "shell"],
)
def test_files_that_keep_a_command(text: str) -> None:
    made = take_apart(text)
    assert made.words == WORDS
    assert made.environment == {"VLLM_LOGGING_LEVEL": "DEBUG"}
    assert check_launch(snapshot("vllm", "0.17.0"), text).parses


@pytest.mark.parametrize(
    "text",
    [
        "#!/bin/bash\nexport A=1\ncd /x\n# it's ours\nvllm serve m \\\n  --max-num-seqs 8 # few\necho done\n",
        "vllm serve m\n  --max-num-seqs 8\n",
        "A=1\r\nvllm serve m --max-num-seqs 8\r\n",
        "vllm serve m --max-num-seqs 8; echo done",
    ],
)
def test_scripts(text: str) -> None:
    assert take_apart(text).words == ["m", "--max-num-seqs", "8"]


def test_a_newline_inside_quotes_stays() -> None:
    text = 'vllm serve m --speculative-config \'{"method": "mtp",\n"num_speculative_tokens": 2} # no\' --port 1'
    made = take_apart(text)
    assert made.words[2].endswith('"num_speculative_tokens": 2} # no')
    assert made.words[3:] == ["--port", "1"]


def test_what_a_word_processor_did_is_said() -> None:
    made = check_launch(snapshot("vllm", "0.33.0"), "vllm serve m \u2014tensor-parallel-size 8 --port \u201c80\u201d")
    texts = " ".join(item.message for item in made.remarks)
    assert "typographic dash" in texts
    assert "typographic quotes" in texts


@pytest.mark.parametrize(
    ("engine", "line", "says"),
    [
        ("vllm", "", "empty"),
        ("vllm", "  \n# nothing\n", "empty"),
        ("vllm", "python3 -m sglang.launch_server --model-path m", "starts SGLang"),
        ("sglang", "/opt/bin/vllm serve m", "starts vLLM"),
        ("sglang", "docker run --gpus all i python -m vllm.entrypoints.openai.api_server --model m", "starts vLLM"),
    ],
)
def test_no_command_and_another_engine_s(engine: str, line: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        check_launch(snapshot(engine), line)


def test_an_image_of_another_name_is_no_engine() -> None:
    line = "docker run --gpus all vllm/vllm-openai python3 -m sglang.launch_server --model-path m --tp-size 8"
    assert check_launch(snapshot("sglang"), line).parses


def test_short_flags_with_their_value() -> None:
    """argparse takes `-qfp8` for `-q fp8`, and no `-tp8` for `-tp 8`."""
    flags = snapshot("vllm", "0.33.0")
    made = check_launch(flags, "vllm serve m -qfp8 -tp=8")
    assert made.parses
    assert made.given["--quantization"] == "fp8"
    assert made.given["--tensor-parallel-size"] == "8"
    assert check_launch(flags, "vllm serve m -tp8").parses is False


@pytest.mark.parametrize("text", ["--x\n", " \n", "command: [\n", "image:\nenv:\n", "- ", "\\\n", "'\n", "# \n"])
def test_hostile_text_takes_no_time(text: str) -> None:
    start = time.process_time()
    body = (text * MAX_COMMAND)[: MAX_COMMAND - 30]
    for line in (body, "services:\n" + body, "vllm serve m " + body):
        try:
            take_apart(line)
        except InputError as error:
            assert error.msg.endswith(".")
    assert time.process_time() - start < 5


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["services:", "command:", "  command: >", "    - |", "args: [", '"a",', "]", "env:", "- name: A",
             "value: 1", "vllm serve m", "--tp 4", "\\", "'", '"', "#", "\t", "image: x", "environment:",
             "- A=1", ";", "$("]
        ), max_size=12,
    ),
    st.sampled_from(["\n", " ", "\n  "]),
)  # fmt: skip
def test_any_text_is_taken_apart_or_refused(parts: list[Any], between: str) -> None:
    try:
        made = take_apart(between.join(parts))
    except InputError:
        return
    assert all(isinstance(word, str) for word in made.words)


def test_a_release_that_is_not_packaged_is_named(cli: Any) -> None:
    asked = ("flags", "vllm", "max-num-seqs", "--engine-version")
    got = cli(*asked, "0.20.5")
    assert "0.20.5 is not packaged: this is 0.17.0" in got.out + got.err
    assert "not packaged" not in cli(*asked, "0.17.0").out


def test_an_empty_line_is_said_to_be_empty(cli: Any) -> None:
    result = cli("flags", "vllm", "--check-launch", "")
    assert (result.code, result.out) == (2, "")
    assert result.err == "tilewright: --check-launch is empty; give a file or a line.\n"
