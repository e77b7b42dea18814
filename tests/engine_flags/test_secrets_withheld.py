"""No secret of a launch line is repeated, whatever prints the line."""

from __future__ import annotations

from io import BytesIO

import pytest

from tilewright.diagnose.explain import explain
from tilewright.libraries.engine_flags import snapshot
from tilewright.libraries.engine_flags.document import flags_document
from tilewright.libraries.engine_flags.withhold import kept_words, shown_line
from tilewright.report.output import json_bytes
from tilewright.sweep.result import kept, kept_server
from tilewright.sweep.space import Server
from tilewright.withheld import holds_secret, masked, names_secret

SECRET = "pa55-of-mine"
JWT = "eyJhbGciOiJIUzI1NiJ9x"


@pytest.mark.parametrize(
    ("engine", "line"),
    [
        ("vllm", f"vllm serve m --api-key {SECRET}"),
        ("vllm", f"vllm serve m --api-key={SECRET}"),
        ("vllm", f"vllm serve m --api-key a1 {SECRET} --port 1"),
        ("vllm", f"vllm serve m --api_key {SECRET}"),
        ("vllm", f"vllm serve m --ssl-keyfile-password '{SECRET}'"),
        ("vllm", f"vllm serve m --hf-token {SECRET}"),
        ("vllm", f"HF_TOKEN={SECRET} vllm serve m"),
        ("vllm", f"docker run -e HF_TOKEN={SECRET} --env OPENAI_API_KEY={SECRET} vllm/vllm-openai --model m"),
        ("vllm", f"bash -c 'AWS_SECRET_ACCESS_KEY={SECRET} vllm serve m --api-key {SECRET}'"),
        ("vllm", f'vllm serve m --kv-transfer-config \'{{"api_key": "{SECRET}"}}\''),
        ("vllm", f"vllm serve m --api-key \u201c{SECRET}\u201d"),
        ("vllm", f"vllm serve m --no-such-key {SECRET} --api-key {SECRET}"),
        ("vllm", f"vllm serve m stray {JWT}"),
        ("vllm", f"vllm serve https://me:{SECRET}@host/m"),
        ("vllm", f"services:\n  a:\n    image: i\n    environment:\n      - HF_TOKEN={SECRET}\n    command: --model m"),
        ("sglang", f"python -m sglang.launch_server --model-path m --admin-api-key {SECRET}"),
        ("sglang", f"SGLANG_NO_SUCH_KEY={SECRET} python -m sglang.launch_server --model-path m"),
    ],
)
def test_the_answer_holds_no_secret(engine: str, line: str) -> None:
    text = json_bytes(flags_document(engine, None, ["port"], launch=line)).decode()
    assert SECRET not in text
    assert JWT not in text


def test_what_is_no_secret_stays() -> None:
    line = "A=1 vllm serve org/m --max-num-batched-tokens 8192 --tokenizer t --ssl-keyfile /k.pem --api-key x1y2"
    made = flags_document("vllm", None, ["port"], launch=line).launch
    assert made is not None
    assert made.command == line.replace("x1y2", "$API_KEY")
    assert made.given["--api-key"] == "$API_KEY"
    assert made.environment == {"A": "1"}


def test_a_sweep_keeps_no_secret() -> None:
    settings = {"hf-token": SECRET, "HF_TOKEN": SECRET, "max-num-seqs": 8, "enforce-eager": True, "model": "m"}
    assert kept(settings) == {**settings, "hf-token": "[withheld]", "HF_TOKEN": "[withheld]"}
    command = ("docker", "run", "-e", f"HF_TOKEN={SECRET}", "img", "--api-key", SECRET, "--port", "{port}")
    assert SECRET not in str(kept_server(Server(command=command)))
    assert shown_line(command) == "docker run -e HF_TOKEN=$HF_TOKEN img --api-key $API_KEY --port {port}"
    assert kept_words(["vllm", "serve", "m", "--seed", "-1"]) == ["vllm", "serve", "m", "--seed", "-1"]


def test_names_of_flags_that_hold_a_secret() -> None:
    found = {
        name
        for engine in ("sglang", "vllm")
        for flag in snapshot(engine).flags
        if flag.kind not in ("switch", "bool")
        for name in flag.names
        if names_secret(name)
    }
    assert found == {"--api-key", "--admin-api-key", "--hf-token", "--ssl-keyfile-password"}


@pytest.mark.parametrize(
    "text", ["task-with-a-long-name", "hf_quant_config_of_mine", "/models/disk-cache-of-the-host", '{"tokens": "8"}']
)
def test_words_that_only_look_like_one(text: str) -> None:
    assert not holds_secret(text)


@pytest.mark.parametrize(
    "text",
    [
        f"server_args=ServerArgs(model_path='m', api_key='{SECRET}', tp_size=8)",
        f"non-default args: {{'model': 'm', 'api_key': ['{SECRET}'], 'seed': 4}}",
        f"started with --hf-token {SECRET} --port 1",
        f"GET http://me:{SECRET}@host/v1",
        f"Authorization: Bearer {SECRET}",
        f"token {JWT} of the request",
    ],
)
def test_a_line_of_a_log_is_quoted_without_its_secret(text: str) -> None:
    for error in ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. ", "ValueError: "):
        report = json_bytes(explain(BytesIO((error + text).encode()), "x")).decode()
        assert SECRET not in report
        assert JWT not in report
        assert error.strip() in report


def test_kernels_of_a_log_are_no_secrets() -> None:
    text = "RuntimeError: _ZN7cutlass13device_kernelINS_4gemm6kernel13GemmUniversalIN4cute5tupleIJiiiiEEENS1_ failed"
    assert masked(text) == text
