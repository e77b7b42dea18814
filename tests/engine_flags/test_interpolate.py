"""Variables in Compose and Kubernetes files, and in the shells that they start."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.libraries.engine_flags import check_launch, snapshot
from tilewright.libraries.engine_flags.command_line import MAX_COMMAND, take_apart
from tilewright.libraries.engine_flags.interpolate import MAX_FILLED, of_compose, of_shell
from tilewright.serving.advice import AdviceQuestion, advise

FILE = "services:\n  a:\n    image: vllm/vllm-openai\n"
FLAGS = snapshot("vllm", "0.34.0")


def notes(text: str) -> dict[str, str]:
    """Level and message of what is said of the file itself."""
    return {item.message: item.level for item in check_launch(FLAGS, text).remarks if item.place is None}


@pytest.mark.parametrize(
    ("text", "made", "defaults", "unknown", "wrong"),
    [
        ("a ${X:-8} b", "a 8 b", {"X": "8"}, [], 0),
        ("${X-8}${X-}", "8", {"X": ""}, [], 0),
        ("${X:-${Y:-z}}", "z", {"X": "z", "Y": "z"}, [], 0),
        ("${X:-${Y}/m}", "${Y}/m", {"X": "${Y}/m"}, ["Y"], 0),
        ("${X:?say it} ${Y?}", "${X} ${Y}", {}, ["X", "Y"], 0),
        ("${X:+--on ${Y:-1}} $Z", "${X} ${Z}", {}, ["X", "Z"], 0),
        ("$X1-${X_2}", "${X1}-${X_2}", {}, ["X1", "X_2"], 0),
        ("$$X $$$X $${X:-1}", "$X $${X} ${X:-1}", {}, ["X"], 0),
        ("{\"a\": '}'} }", "{\"a\": '}'} }", {}, [], 0),
        ("$5 ${} $(x) ${X!} $", "$5 ${} $(x) ${X!} $", {}, [], 5),
        ("a ${X:-b", "a ${X:-b", {}, [], 1),
        ("'${X:-8}'", "'8'", {"X": "8"}, [], 0),
    ],
)
def test_compose_fills_in_as_its_specification_says(
    text: str, made: str, defaults: dict[str, str], unknown: list[str], wrong: int
) -> None:
    found = of_compose(text)
    assert (found.text, found.defaults, found.unknown, len(found.wrong)) == (made, defaults, unknown, wrong)


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("--tp $TP -x ${TP}", "--tp 4 -x 4"),
        ("'$TP' \"it's $TP\" \\$TP", "'$TP' \"it's 4\" \\$TP"),
        ("${TP:-8} ${NO:-8} ${NO} ${TP:+x} ${EMPTY:-9}${EMPTY-7}", "4 8 ${NO} x 9"),
        ("$(nproc) $? $1 ${TP%x}", "$(nproc) $? $1 ${TP%x}"),
    ],
)
def test_a_shell_fills_in_from_the_container(text: str, made: str) -> None:
    assert of_shell(text, {"TP": "4", "EMPTY": ""}).text == made


def test_a_default_is_checked_and_said_to_be_one() -> None:
    text = f"{FILE}    command: --model m --max-num-seqs ${{SEQS:-0}}\n"
    made = check_launch(FLAGS, text)
    assert (made.parses, made.accepted, made.given["--max-num-seqs"]) == (True, False, "0")
    ((note, level),) = ((note, level) for note, level in notes(text).items() if "SEQS=0" in note)
    assert "may say otherwise" in note
    assert level == "note"


def test_what_has_no_default_is_said_to_be_unknown_and_judged_by_nothing() -> None:
    text = f"{FILE}    command: --model m --max-num-seqs ${{SEQS}} --port ${{PORT:?which}} $MORE\n"
    made = check_launch(FLAGS, text)
    assert (made.parses, made.accepted) == (True, True)
    assert list(notes(text).values()) == ["note"]
    assert "SEQS, PORT, MORE" in next(iter(notes(text)))


def test_a_services_environment_is_not_what_compose_looks_at() -> None:
    command = "sh -c 'vllm serve m --tensor-parallel-size {}'"
    text = f"{FILE}    environment:\n      TP: 0\n    command: {command}\n"
    direct = check_launch(FLAGS, text.format("${TP}"))
    assert direct.accepted
    assert any("write $$TP" in note and level == "warning" for note, level in notes(text.format("${TP}")).items())
    inside = check_launch(FLAGS, text.format("$$TP"))
    assert (inside.accepted, inside.given["--tensor-parallel-size"]) == (False, "0")


def test_what_compose_refuses_stops_the_server() -> None:
    text = f"{FILE}    command: --model m --port $(cat port)\n"
    assert check_launch(FLAGS, text).accepted is False
    assert any("write $$" in note for note in notes(text))


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("env_file: a.env", "env_file a.env: not read"),
        ("env_file: [a.env, b.env]", "env_file a.env, env_file b.env: not read"),
        ("env_file:\n      - path: a.env\n        required: false", "env_file a.env: not read"),
    ],
)
def test_files_of_variables_are_said_not_to_be_read(key: str, said: str) -> None:
    assert any(said in note for note in notes(f"{FILE}    {key}\n    command: --model m\n"))


def test_kubernetes_fills_in_from_the_container() -> None:
    text = (
        "kind: Pod\nspec:\n  containers:\n  - image: vllm/vllm-openai\n    env:\n    - name: SEQS\n      value: '0'\n"
        "    - name: KEY\n      valueFrom: {secretKeyRef: {name: s, key: k}}\n"
        "    envFrom: [{configMapRef: {name: c}}]\n"
        "    args: [--model, $$m, --max-num-seqs, $(SEQS), --api-key, $(KEY)]\n"
    )
    made = check_launch(FLAGS, text)
    assert made.given == {"--model": "$m", "--max-num-seqs": "0", "--api-key": "$(KEY)"}
    assert made.accepted is False
    assert any("envFrom: not read" in note for note in notes(text))


def test_a_secret_default_is_not_repeated() -> None:
    text = f"{FILE}    command: --model m --api-key ${{API:-s3cr3t-value}} --port ${{PORT:-1}}\n"
    assert "s3cr3t" not in " ".join(item.message for item in check_launch(FLAGS, text).remarks)


def test_advice_passes_on_what_the_file_leaves_open() -> None:
    text = f"{FILE}    env_file: a.env\n    command: --model m --tensor-parallel-size ${{TP:-8}}\n"
    made = advise(AdviceQuestion(model="GLM-5-NVFP4", gpu="rtx-pro-6000-server", gpus=8, launch=text), FLAGS)
    assert any("TP=8" in note for note in made.notes)
    assert any("a.env: not read" in note for note in made.notes)


@given(st.text(alphabet="${}:-?+AB '\"\\", max_size=60))
def test_any_text_is_filled(text: str) -> None:
    assert "$" in of_compose(text).text or "$" not in text.replace("$$", "") or of_compose(text).defaults
    of_shell(text, {"A": "1"})
    take_apart(f"{FILE}    command:\n      - {text!r}\n")


@pytest.mark.parametrize("piece", ["$A", "${A:-", "${A:-x}", "${", "$$", "}", "'", '"', "\\", "${A:-${B:-"])
def test_hostile_text_is_filled_in_no_time(piece: str) -> None:
    text = (piece * MAX_COMMAND)[:MAX_COMMAND]
    start = time.process_time()
    of_compose(text)
    made = of_shell(text, {"A": "x" * 50_000})
    assert time.process_time() - start < 2
    assert len(made.text) <= MAX_FILLED + 2 * MAX_COMMAND
