"""`tilewright mcp` as a client meets it: the SDK's own client over stdio, and what a hostile one sends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.errors import InputError
from tilewright.mcp_.access import Access
from tilewright.mcp_.tools import TOOLS, inputs_of
from tilewright.mcp_.worker import Call, answer
from tilewright.report.schema import checker

OVERFLOWING = {
    "cutlass": "4.2.1", "arch": "sm120", "kind": "grouped", "a": "nvfp4", "tile": [128, 256, 128], "fusion": "finalize",
}  # fmt: skip
INTERNAL = "Failed to initialize cutlass TMA WS grouped gemm. Error: Error Internal\n"
SERVER = [sys.executable, "-m", "tilewright", "mcp"]


def talk(arguments: list[str], calls: list[tuple[str, dict[str, Any]]], mode: str = "auto") -> tuple[Any, list[Any]]:
    """(tools, results) of one session: the server started with `arguments`, then `calls` in order."""
    anyio = pytest.importorskip("anyio")
    pytest.importorskip("mcp")
    from mcp.client.client import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    async def session() -> tuple[Any, list[Any]]:
        started = StdioServerParameters(command=SERVER[0], args=[*SERVER[1:], *arguments], env=dict(os.environ))
        with Path(os.devnull).open("w") as nothing:
            async with Client(stdio_client(started, errlog=nothing), mode=mode) as client:
                tools = (await client.list_tools()).tools
                return tools, [await client.call_tool(name, given) for name, given in calls]

    return anyio.run(session)


def said(result: Any) -> str:
    """The text of a tool error."""
    assert result.is_error, result
    text: str = result.content[0].text
    assert "Traceback" not in text
    assert "\n" not in text
    return text


def test_tools_have_schemas_that_clients_take() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    tools, _ = talk([], [])
    names = {tool.name for tool in tools}
    assert {"fit", "tactics", "collectives", "predict", "layout", "explain", "plan"} <= names
    for tool in tools:
        for schema in (tool.input_schema, tool.output_schema):
            jsonschema.Draft202012Validator.check_schema(schema)
            assert schema["type"] == "object"
        assert "$ref" not in tool.input_schema
        assert not {"anyOf", "oneOf", "allOf"} & set(tool.input_schema)
        assert tool.annotations.read_only_hint is True
    plan = next(tool for tool in tools if tool.name == "plan")
    assert "out" not in plan.input_schema["properties"]
    assert plan.input_schema["required"] == ["model", "gpu"]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_tool_answers_with_the_document_of_the_command(cli: Any, mode: str) -> None:
    flags = "--cutlass 4.2.1 --arch sm120 --kind grouped --a nvfp4 --tile 128x256x128 --fusion finalize"
    gemm = {"op": "gemm", "gpu": "rtx-pro-6000-server", "dtype": "nvfp4", "m": 16, "n": 4096, "k": 6144}
    layout = {"model": "GLM-5-NVFP4", "gpu": "rtx-pro-6000-server", "gpus": 8, "every": True}
    calls: list[tuple[str, dict[str, Any]]] = [
        ("fit", OVERFLOWING),
        ("predict", gemm),
        ("gpus", {"name": "h200"}),
        ("models", {"name": "GLM-5-NVFP4", "gpu_name": "h200", "tp": 8}),
        ("layout", layout),
        ("flags", {"engine": "sglang", "names": ["tp"]}),
        ("advise", {"engine": "sglang", "model": "GLM-5-NVFP4", "gpu": "rtx-pro-6000-server", "gpus": 8}),
    ]
    commands = [
        ["fit", *flags.split()],
        [
            "predict",
            "gemm",
            "--gpu",
            "rtx-pro-6000-server",
            "--dtype",
            "nvfp4",
            "--m",
            "16",
            "--n",
            "4096",
            "--k",
            "6144",
        ],
        ["gpus", "h200"],
        ["models", "GLM-5-NVFP4", "--gpu", "h200", "--tp", "8"],
        ["layout", "--model", "GLM-5-NVFP4", "--gpu", "rtx-pro-6000-server", "--gpus", "8"],
        ["flags", "sglang", "tp"],
        ["flags", "sglang", "--advise", "--model", "GLM-5-NVFP4", "--gpu", "rtx-pro-6000-server", "--gpus", "8"],
    ]
    _, results = talk([], calls, mode)
    for (name, _), command, result in zip(calls, commands, results, strict=True):
        assert not result.is_error, result.content
        assert result.structured_content == json.loads(result.content[0].text)
        assert result.structured_content == cli(*command, "--json", "--quiet").json, name
        checker(result.structured_content["schema"].split("/")[1])(result.structured_content)


def test_a_log_is_explained_from_a_file_or_as_text(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text(INTERNAL)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("explain", {"file": "server.log"}),
        ("explain", {"file": str(tmp_path / "server.log")}),
        ("explain", {"text": INTERNAL}),
        ("explain", {}),
        ("explain", {"file": "server.log", "text": INTERNAL}),
    ]
    _, results = talk(["--root", str(tmp_path)], calls)
    for result in results[:3]:
        assert [item["id"] for item in result.structured_content["findings"]]
    assert results[0].structured_content == results[1].structured_content
    assert "one of them" in said(results[3])
    assert "one of them" in said(results[4])


@pytest.mark.tree
def test_a_wheel_under_a_root_is_read(cli: Any, flashinfer_062: Path) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("tactics", {"library": "flashinfer", "root": flashinfer_062.name, "with_fields": True}),
        ("tactics", {"library": "flashinfer", "root": str(flashinfer_062), "never_runs": True}),
        ("collectives", {"root": flashinfer_062.name, "arch": "sm120", "scaling": "blockwise"}),
        ("plan", {"model": "GLM-5-NVFP4", "gpu": "rtx-pro-6000-server", "gpus": 8, "library": flashinfer_062.name}),
    ]
    _, results = talk(["--root", str(flashinfer_062.parent)], calls)
    root = ("--root", str(flashinfer_062), "--json", "--quiet")
    assert results[0].structured_content == cli("tactics", "flashinfer", *root).json
    failing = results[1].structured_content
    assert len(failing["tactics"]) == failing["summary"]["overflow"] == 4
    assert results[2].structured_content == cli("collectives", *root, "--arch", "sm120", "--scaling", "blockwise").json
    assert (
        any(item["id"] == "tactics_never_run" for item in results[3].structured_content["findings"])
        or results[3].structured_content["findings"]
    )


def hostile_tree(folder: Path) -> tuple[Path, Path]:
    """(root, a folder outside of it): links lead from the one to the other."""
    root, outside = folder / "root", folder / "outside"
    headers = outside / "include" / "cutlass" / "gemm" / "collective"
    headers.mkdir(parents=True)
    (outside / "include" / "cute").mkdir()
    (outside / "include" / "cutlass" / "version.h").write_text("#define CUTLASS_MAJOR 4\n")
    (headers / "secret.hpp").write_text("struct CollectiveSecret {};\n")
    (outside / "secret.log").write_text(INTERNAL)
    (outside / "config.json").write_text('{"model_type": "secret"}')
    root.mkdir()
    (root / "out").symlink_to(outside)
    (root / "link.log").symlink_to(outside / "secret.log")
    (root / "round").symlink_to(root / "round")
    (root / "library").mkdir()
    (root / "library" / "include").symlink_to(outside / "include")
    os.mkfifo(root / "pipe")
    return root, outside


def test_no_argument_leads_out_of_the_roots(tmp_path: Path) -> None:
    root, outside = hostile_tree(tmp_path)
    paths = [
        "../outside/secret.log", str(outside / "secret.log"), "link.log", "out/secret.log", "/etc/passwd", "..",
        "~/x", "~nobody-of-that-name/x",
        "round", "pipe", "a\0b", "", "x" * 5000, "nothing-here", "/proc/self/environ",
        "library/../../outside/secret.log",
    ]  # fmt: skip
    calls: list[tuple[str, dict[str, Any]]] = [("explain", {"file": path}) for path in paths]
    calls += [("collectives", {"root": path}) for path in ("out", "..", "/", "library")]
    calls += [("tactics", {"library": "flashinfer", "root": "out"}), ("inspect", {"path": "out"})]
    calls += [
        (tool, {"model": model, "gpu": "h200"})
        for tool in ("layout", "plan")
        for model in ("out", "../outside", str(outside), "out/config.json")
    ]
    calls += [("plan", {"model": "GLM-5", "gpu": "h200", "log_file": "link.log"})]
    calls += [("plan", {"model": "GLM-5", "gpu": "h200", "observe": str(outside / "config.json")})]
    calls += [("models", {"name": str(outside)}), ("flags", {"engine": "vllm", "root": "/usr"})]
    calls += [("predict", {"op": "decode", "gpu": "h200", "model": "out", "gpus": 8})]
    _, results = talk(["--root", str(root)], calls)
    for (name, arguments), result in zip(calls, results, strict=True):
        text = said(result)
        assert "Secret" not in text, (name, arguments)
        assert len(text) < 1000
    assert str(root) in said(results[0])
    # A link inside of a folder that was named: its target is as far away as if it had been named itself.
    assert said(results[len(paths) + 3]).startswith("No CUTLASS under")


def test_without_roots_no_file_is_read() -> None:
    _, results = talk([], [("explain", {"file": __file__}), ("collectives", {"root": "."}), ("gpus", {"name": "h200"})])
    assert "without --root" in said(results[0])
    assert "without --root" in said(results[1])
    assert not results[2].is_error


def test_wrong_arguments_are_named() -> None:
    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("fit", {}, "arch"),
        ("fit", {**OVERFLOWING, "tile": "big"}, "tile"),
        ("fit", {**OVERFLOWING, "tile": [1 << 70, 1, 1]}, "tile"),
        ("fit", {**OVERFLOWING, "brief": "yes"}, "brief"),
        ("fit", {**OVERFLOWING, "smem": 1}, "smem"),
        ("fit_triton", {"kernel": "nope"}, "kernel"),
        ("layout", {"model": "GLM-5", "gpu": "h200", "gpus": "8"}, "gpus"),
        ("layout", {"model": "GLM-5", "gpu": "h200", "gpus": 8.5}, "gpus"),
        ("layout", {"model": ["GLM-5"], "gpu": "h200"}, "model"),
        ("layout", {"gpu": "h200"}, "model"),
        ("layout", {"model": "GLM-5", "gpu": "h200", "goal": "both"}, "goal"),
        ("layout", {"model": "GLM-5", "gpu": "h200", "cheese": 1}, "cheese"),
        ("predict", {"op": "dance"}, "op"),
        ("predict", {"op": "gemm", "gpu": "h200", "dtype": "fp8", "m": -1, "n": 1, "k": 1}, "m"),
        ("plan", {"model": "GLM-5", "gpu": "h200", "gpus": 0}, "gpus"),
        ("plan", {"model": "GLM-5", "gpu": "h200", "out": "plan"}, "out"),
        ("gpus", {"name": "h2000"}, "h2000"),
        ("tactics", {"library": "flashinfer"}, "root"),
        ("flags", {"engine": "llama", "names": []}, "engine"),
        ("nothing", {}, "nothing"),
    ]
    _, results = talk([], [(name, arguments) for name, arguments, _ in wrong])
    for (name, arguments, word), result in zip(wrong, results, strict=True):
        assert word in said(result), (name, arguments)


def test_a_long_answer_is_refused_with_what_to_do() -> None:
    _, results = talk(["--max-answer-bytes", "4096"], [("gpus", {}), ("fit", {**OVERFLOWING, "brief": True})])
    assert "narrow it" in said(results[0])
    assert not results[1].is_error


def test_a_call_that_takes_too_long_is_stopped() -> None:
    _, results = talk(["--max-seconds", "0.01"], [("gpus", {"name": "h200"}), ("gpus", {"name": "h200"})])
    assert all("--max-seconds" in said(result) for result in results)


def test_a_plan_is_written_only_where_it_may(tmp_path: Path) -> None:
    written, root = tmp_path / "plans", tmp_path / "root"
    written.mkdir()
    root.mkdir()
    (written / "away").symlink_to(root)
    plan = {"model": "GLM-5-NVFP4", "gpu": "rtx-pro-6000-server", "gpus": 8}
    calls: list[tuple[str, dict[str, Any]]] = [
        ("plan", {**plan, "out": "one"}),
        ("plan", {**plan, "out": str(root)}),
        ("plan", {**plan, "out": "away"}),
        ("plan", {**plan, "out": "../root"}),
    ]
    tools, results = talk(["--root", str(root), "--allow-write", str(written)], calls)
    assert next(tool for tool in tools if tool.name == "plan").annotations.read_only_hint is False
    assert not results[0].is_error, results[0].content
    assert json.loads((written / "one" / "plan.json").read_bytes()) == results[0].structured_content
    assert (written / "one" / "plan.md").read_text().startswith("#")
    for result in results[1:]:
        assert "outside" in said(result)
    assert list(root.iterdir()) == []


def lines_of(requests: list[bytes], wanted: set[int]) -> tuple[list[dict[str, Any]], int]:
    """(what a server prints, decoded line by line; its exit status) when `requests` come on its stdin, which is closed
    once the requests `wanted` are answered."""
    pytest.importorskip("mcp")
    with subprocess.Popen(SERVER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        guard = threading.Timer(60, server.kill)
        guard.start()
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(b"".join(requests))
        server.stdin.flush()
        answers: list[dict[str, Any]] = []
        while not wanted <= {item.get("id") for item in answers} and (line := server.stdout.readline()):
            answers.append(json.loads(line))
        server.stdin.close()
        answers += [json.loads(line) for line in server.stdout.read().splitlines()]
        code = server.wait()
        guard.cancel()
    return answers, code


def request(ident: int, method: str, params: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": ident, "method": method, "params": params}).encode() + b"\n"


def test_stdout_carries_the_protocol_only_whatever_comes() -> None:
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    huge = b'{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": "' + b"x" * (5 << 20) + b'"}\n'
    deep = b'{"jsonrpc": "2.0", "id": 8, "method": "tools/call", "params": ' + b"[" * 100_000 + b"\n"
    call = {"name": "gpus", "arguments": {"name": "h200"}}
    answers, code = lines_of(
        [
            request(1, "initialize", hello),
            b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n',
            b"no JSON at all\n",
            b"\xff\xfe\x00\n",
            deep,
            huge,
            request(2, "tools/list", {}),
            request(3, "tools/call", call),
        ],
        {1, 2, 3, 7, 8},
    )
    assert code == 0
    assert all(item["jsonrpc"] == "2.0" for item in answers)
    by_id = {item["id"]: item for item in answers if "id" in item}
    assert by_id[1]["result"]["serverInfo"]["name"] == "tilewright"
    assert by_id[2]["result"]["tools"]
    assert by_id[3]["result"]["structuredContent"]["gpus"]
    assert by_id[7]["error"]["message"].startswith("The request has 5,")
    assert by_id[8]["error"]["code"] == -32700
    assert [item["error"]["code"] for item in answers if item.get("id", 0) is None] == [-32700, -32700]


def test_what_is_json_and_no_request_is_answered() -> None:
    """JSON-RPC 2.0, section 5.1: -32600 for what is no request, -32700 for what is no JSON; with the id, if any."""
    ping = {"jsonrpc": "2.0", "method": "ping"}
    lines: list[tuple[Any, Any, int]] = [
        (5, None, -32600),
        ("tools/list", None, -32600),
        (None, None, -32600),
        ([], None, -32600),
        ([{**ping, "id": 1}], None, -32600),
        ({}, None, -32600),
        ({"id": 3}, 3, -32600),
        ({"jsonrpc": "2.0", "id": "four"}, "four", -32600),
        ({**ping, "id": 5, "jsonrpc": "1.0"}, 5, -32600),
        ({**ping, "id": 6, "method": 6}, 6, -32600),
        ({**ping, "id": 7, "params": [1]}, 7, -32600),
        ({**ping, "id": None}, None, -32600),
        ({**ping, "id": {"a": 1}}, None, -32600),
        ({**ping, "id": True}, None, -32600),
        ({**ping, "id": 8.5}, None, -32600),
        (float("nan"), None, -32700),
        ({**ping, "id": 9, "params": {"x": float("inf")}}, 9, -32700),
    ]
    sent = [json.dumps(item).encode() + b"\n" for item, _, _ in lines]
    notification = b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 77}}\n'
    response = b'{"jsonrpc": "2.0", "id": 78, "result": {}}\n'
    answers, code = lines_of([*sent, notification, response, request(99, "ping", {})], {99})
    assert code == 0
    assert answers.pop() == {"jsonrpc": "2.0", "id": 99, "result": {}}
    assert [(item["id"], item["error"]["code"]) for item in answers] == [(ident, code) for _, ident, code in lines]
    assert all(item["error"]["message"].endswith(".") for item in answers)


def test_a_missing_sdk_says_which_extra_brings_it(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [item for item in sys.modules if item.partition(".")[0] == "mcp"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.delitem(sys.modules, "tilewright.mcp_.server", raising=False)
    result = cli("mcp")
    assert result.code == 3
    assert "tilewright[mcp]" in result.err


def test_an_sdk_of_another_major_release_is_refused(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.cli.mcp.version", lambda name: "1.30.0")
    result = cli("mcp")
    assert result.code == 3
    assert "1.30.0" in result.err
    assert "tilewright[mcp]" in result.err


@pytest.mark.parametrize("arguments", [("--root", "/nowhere-at-all"), ("--root", __file__), ("--allow-write", "/no")])
def test_a_root_that_is_no_folder_is_refused_at_start(cli: Any, arguments: tuple[str, ...]) -> None:
    result = cli("mcp", *arguments)
    assert result.code == 2
    assert arguments[0] in result.err


def test_the_list_of_tools_is_a_document(cli: Any, tmp_path: Path) -> None:
    document = cli("mcp", "--list", "--json", "--root", str(tmp_path)).json
    checker("mcp")(document)
    assert document["roots"] == [str(tmp_path.resolve())]
    assert "explain" in cli("mcp", "--list").out


PIECES = st.lists(st.sampled_from(["..", ".", "a", "b", "link", "up", "", "/", "~", "\0", "…"]), max_size=8)


@pytest.fixture(scope="module")
def small_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("access") / "root"
    (root / "a" / "b").mkdir(parents=True)
    (root / "link").symlink_to(root.parent)
    (root / "a" / "up").symlink_to("..")
    return root.resolve()


@settings(max_examples=200, deadline=None)
@given(pieces=PIECES, absolute=st.booleans())
def test_a_path_is_inside_or_refused(small_tree: Path, pieces: list[str], absolute: bool) -> None:
    text = ("/" if absolute else "") + "/".join(pieces)
    try:
        got = Path(Access((small_tree,)).reading(text, "path"))
    except InputError as error:
        assert "path" in error.msg
        return
    assert got == got.resolve()
    assert got.is_relative_to(small_tree)


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=20),
    st.sampled_from(["sm120", "nvfp4", "h200", "GLM-5", "sglang", "gemm", "moe", "decode", "auto", "1x1x1", "a/b"]),
    st.lists(st.integers(), max_size=4), st.dictionaries(st.text(max_size=5), st.integers(), max_size=2),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_no_arguments_whatever_their_types_are_a_defect(small_tree: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(TOOLS)))
    schema = inputs_of(name, False).schema
    names = st.sets(st.sampled_from(sorted(schema["properties"])), max_size=5)
    chosen = data.draw(names) | (set(schema.get("required", ())) if data.draw(st.booleans()) else set())
    arguments = {key: data.draw(VALUES) for key in sorted(chosen)}
    made = answer(Call(name, arguments), Access((small_tree,)), 1 << 20)
    assert made.error is None or ("defect" not in made.error and "\n" not in made.error)


def test_a_value_that_is_none_of_few_is_told_the_legal_ones_and_not_repeated() -> None:
    calls = [("flags", {"engine": "x" * 5000}), ("layout", {"model": "GLM-5", "gpu": "h200", "goal": "speed"})]
    _, (engine, goal) = talk([], calls)
    assert said(engine).endswith("legal are sglang, vllm.")
    assert len(said(engine)) < 300
    assert said(goal) == "goal: 'speed' is not taken; legal are throughput, latency."
