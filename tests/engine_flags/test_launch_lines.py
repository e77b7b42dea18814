"""Launch commands as people paste them, and values as each version's parser reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.errors import InputError
from tilewright.libraries.engine_flags import Flag, check_launch, snapshot
from tilewright.libraries.engine_flags.command_line import take_apart
from tilewright.libraries.engine_flags.reading import number, refusal


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("docker run --gpus all -p 8000:8000 vllm/vllm-openai:v0.33.0 --model x -tp 8", ["--model", "x", "-tp", "8"]),
        ("sudo docker run -itd --rm --shm-size=32g img serve x --port 1", ["x", "--port", "1"]),
        ("docker run -v/a:/b -e A=1 --env B=2 img python3 -m sglang.launch_server --tp 8", ["--tp", "8"]),
        ("podman run --rm -itp 80:80 img vllm serve x", ["x"]),
        ("docker container run img vllm serve x", ["x"]),
        ("export A=1 && cd /srv && B=2 vllm serve x --port 1 > log 2>&1 &", ["x", "--port", "1"]),
        ("nohup vllm serve x 2>&1 | tee log", ["x"]),
        ('bash -c "vllm serve x --port 1"', ["x", "--port", "1"]),
        ("numactl -N 0 python -m sglang.launch_server --tp 8", ["--tp", "8"]),
        ("uv run vllm serve x", ["x"]),
    ],
)
def test_the_parser_s_words_are_found(command: str, words: list[str]) -> None:
    assert take_apart(command).words == words


def test_variables_of_a_command_and_of_a_container() -> None:
    command = "A=1 docker run -e B=2 --env=C=3 -e PASSED_ON img env D=4 vllm serve x"
    assert take_apart(command).environment == {"A": "1", "B": "2", "C": "3", "D": "4"}


@given(st.text(alphabet="abdocker run-=&;|>'\" \\\n", max_size=80))
def test_any_text_is_taken_apart_or_refused(command: str) -> None:
    try:
        parts = take_apart(command)
    except InputError as error:
        assert error.msg.endswith((";", "."))
    else:
        assert all(isinstance(word, str) for word in parts.words)


@pytest.mark.parametrize(
    ("engine", "reads", "text", "value"),
    [
        ("vllm", "human_int", "8k", 8000),
        ("vllm", "human_int", "8K", 8192),
        ("vllm", "human_int", "1.5k", 1500),
        ("vllm", "human_int", "1.5K", None),
        ("vllm", "human_int", "8Ki", None),
        ("vllm", "human_int", "auto", None),
        ("vllm", "human_int_or_auto", "auto", -1),
        ("sglang", "human_int", "8k", 8000),
        ("sglang", "human_int", "8K", None),
        ("sglang", "human_int", "8Ki", 8192),
        ("vllm", "int", "8k", None),
        ("vllm", "int", "0x10", None),
        ("vllm", "float", "0.9", 0.9),
        ("vllm", "int", "9" * 5000, None),
    ],
)
def test_numbers_as_the_engines_read_them(engine: str, reads: str, text: str, value: float | None) -> None:
    flag = Flag(names=("--x",), dest="x", file="f.py", line=1, kind="value", reads=reads)
    assert number(flag, engine, text) == value
    assert (refusal(flag, engine, text) is None) == (value is not None)


@pytest.mark.parametrize(
    ("engine", "version", "words", "parses"),
    [
        ("vllm", "0.33.0", "--max-model-len 8k --max-num-batched-tokens 16K", True),
        ("vllm", "0.33.0", "--max-model-len auto", True),
        ("vllm", "0.11.2", "--max-model-len auto", False),
        ("vllm", "0.33.0", "--max-num-seqs 8k", False),
        ("vllm", "0.33.0", "--max-num-seqs auto", False),
        ("vllm", "0.33.0", "--attention-backend flashinfer", True),
        ("vllm", "0.33.0", "--attention-backend auto", True),
        ("vllm", "0.17.0", "--attention-backend auto", False),
        ("vllm", "0.33.0", "--attention-backend FLASHINVER", False),
        ("vllm", "0.33.0", "--seed None", False),
        ("vllm", "0.33.0", '--speculative-config \'{"method": "mtp"}\'', True),
        ("vllm", "0.33.0", "--kernel-config 3", False),
        ("vllm", "0.33.0", "-O3", True),
        ("vllm", "0.33.0", "-O 3", True),
        ("vllm", "0.33.0", "--compilation-config.mode 3", True),
        ("vllm", "0.33.0", "--compilation-config.mode=3", True),
        ("sglang", "0.5.23", "--context-length 8Ki", True),
        ("sglang", "0.5.9", "--context-length 8Ki", False),
        ("sglang", "0.5.23", "--max-total-tokens 8k", True),
        ("sglang", "0.5.23", "--tp-size 1k", False),
    ],
)
def test_suffixes_and_names_follow_the_version(engine: str, version: str, words: str, parses: bool) -> None:
    start = "vllm serve x" if engine == "vllm" else "python -m sglang.launch_server --model-path x"
    judged = check_launch(snapshot(engine, version), f"{start} {words}")
    assert judged.parses is parses, judged.remarks


def test_what_does_nothing_is_said() -> None:
    command = "SGLANG_NO_SUCH=1 python -m sglang.launch_server --model-path x --num-continuous-decode-steps 4"
    judged = check_launch(snapshot("sglang", "0.5.23"), command)
    assert judged.parses is True
    assert [(item.level, item.word) for item in judged.remarks] == [
        ("warning", "SGLANG_NO_SUCH"),
        ("warning", "--num-continuous-decode-steps"),
    ]
