"""The protocol: the official SDK's server on stdin and stdout, and the worker that answers behind it.

stdout carries the protocol only. A request is read up to a limit; a call that takes too long ends with its worker,
and the next call starts another.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import AsyncIterator
from typing import Any, BinaryIO, Final, cast

import anyio
import mcp.types as types
import msgspec
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from pydantic_core import from_json

from tilewright._version import __version__
from tilewright.mcp_.access import Access
from tilewright.mcp_.tools import tools_document
from tilewright.mcp_.worker import Answer, Call, Settings

__all__ = ["serve"]

MAX_REQUEST_BYTES: Final = 4 << 20
"""Longest request that is read, in bytes: a log given as text may have 1 MiB, and JSON may double it."""

_SKIP_BYTES: Final = 1 << 16
_ID: Final = re.compile(rb'"id"\s*:\s*(\d{1,15}|"[^"\\\x00-\x1f]{1,100}")')
_INVALID_REQUEST: Final = -32600
_PARSE_ERROR: Final = -32700
"""Error codes of JSON-RPC 2.0, section 5.1."""

INSTRUCTIONS: Final = (
    "Tilewright says which GEMM tile a GPU can run, how fast, and what to change first. Every figure is exact (derived "
    "from how the types are laid out, or compiled), measured, published or modelled, and says which: repeat that with "
    "the figure. Start with `explain` for a log, `fit` for a tile, `plan` for a whole server. Nothing is executed and "
    "nothing is sent anywhere."
)


class _Worker:
    """The process that answers, started when it is needed."""

    def __init__(self, settings: Settings, limit_s: float) -> None:
        self.argument = msgspec.json.encode(settings).decode()
        self.limit_s = limit_s
        self.answer_bytes = settings.answer_bytes
        self.lock = anyio.Lock()
        self.process: Process | None = None
        self.answers: BufferedByteReceiveStream | None = None

    async def call(self, tool: str, arguments: dict[str, Any]) -> Answer:
        """The answer to one call; calls wait for one another."""
        async with self.lock:
            done = False
            try:
                with anyio.move_on_after(self.limit_s):
                    made = await self._ask(msgspec.json.encode(Call(tool, arguments)) + b"\n")
                    done = True
                    return made
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.IncompleteRead, OSError):
                return Answer(error="The call ended its worker (out of memory?); ask for less at a time.")
            finally:
                if not done:  # too late, cancelled or dead: what it may still say belongs to no later call
                    with anyio.CancelScope(shield=True):
                        await self.stop()
            return Answer(
                error=f"The call took longer than {self.limit_s:g} s and was stopped (--max-seconds); ask for less."
            )

    async def _ask(self, line: bytes) -> Answer:
        if self.process is None:
            command = [sys.executable, "-P", "-m", "tilewright.mcp_.worker", self.argument]
            self.process = await anyio.open_process(command, stderr=None)
            assert self.process.stdout is not None
            self.answers = BufferedByteReceiveStream(self.process.stdout)
        assert self.process.stdin is not None
        assert self.answers is not None
        await self.process.stdin.send(line)
        raw = await self.answers.receive_until(b"\n", self.answer_bytes + (1 << 20))
        return msgspec.json.decode(raw, type=Answer)

    async def stop(self) -> None:
        """Kill the worker, where there is one."""
        process, self.process, self.answers = self.process, None, None
        if process is not None:
            if process.returncode is None:
                process.kill()
            await process.aclose()


def _id_of(message: Any) -> int | str | None:
    """The id of a request, None where it has none that one may have (MCP 2025-06-18, basic: a string or an integer)."""
    found: Any = cast("dict[str, Any]", message).get("id") if isinstance(message, dict) else None
    return found if isinstance(found, int | str) and not isinstance(found, bool) else None


def _unusual(message: Any) -> str | None:
    """Why a decoded line is no message of JSON-RPC 2.0 that MCP knows; None for one."""
    if isinstance(message, list):
        return "A batch is not taken (MCP has none since 2025-06-18); send each message as a line of its own."
    if not isinstance(message, dict):
        return 'A message is a JSON object such as {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}.'
    given = cast("dict[str, Any]", message)
    if "id" in given and "method" in given and _id_of(given) is None:
        return "The id of a request is a string or a whole number."
    try:
        types.jsonrpc_message_adapter.validate_python(given, by_name=False)
    except ValueError:
        return (
            'A request has "jsonrpc": "2.0", "id", "method" (a string) and, where it takes any, "params" (an object).'
        )
    return None


class _Requests:
    """stdin, a line at a time, none longer than the limit: what the SDK reads as a text file."""

    def __init__(self, stream: BinaryIO, replies: _Replies) -> None:
        self.stream, self.replies = stream, replies

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        while True:
            line, skipped = await anyio.to_thread.run_sync(self._line, abandon_on_cancel=True)
            if not line:
                raise StopAsyncIteration
            if skipped:
                why = (
                    f"The request has {skipped:,} bytes; at most {MAX_REQUEST_BYTES:,} are read. Give a path, or less."
                )
                await self.replies.refuse(line, _INVALID_REQUEST, why)
                continue
            if line.isspace():
                continue
            # The SDK drops what it cannot read (mcp 2.3 shared/jsonrpc_dispatcher.py), and its sender would wait.
            try:
                message = from_json(line, allow_inf_nan=False)
            except ValueError as error:
                why = f"The request is no JSON that can be read: {error}."
                await self.replies.refuse(line[:1024] + line[-1024:], _PARSE_ERROR, why)
                continue
            if (why := _unusual(message)) is not None:
                await self.replies.error(_id_of(message), _INVALID_REQUEST, why)
                continue
            return line.decode("utf-8", "replace")

    def _line(self) -> tuple[bytes, int]:
        """The next line; of one that is too long, its start and end, and how many bytes it had."""
        line = self.stream.readline(MAX_REQUEST_BYTES + 1)
        if len(line) <= MAX_REQUEST_BYTES or line.endswith(b"\n"):
            return line, 0
        size, last = len(line), b""
        while piece := self.stream.readline(_SKIP_BYTES):
            size, last = size + len(piece), (last + piece)[-1024:]
            if piece.endswith(b"\n"):
                break
        return line[:1024] + last, size


class _Replies:
    """stdout: what the SDK writes, and the refusals of requests that never reach it, whole lines each."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        self.lock = anyio.Lock()

    async def write(self, text: str) -> int:
        async with self.lock:
            await anyio.to_thread.run_sync(self._write, text.encode("utf-8", "replace"))
        return len(text)

    def _write(self, data: bytes) -> None:
        self.stream.write(data)
        self.stream.flush()

    async def flush(self) -> None:
        """Every write is flushed."""

    async def refuse(self, line: bytes, code: int, message: str) -> None:
        """Answer a request that cannot be read; `line` holds its start and end, where its id is looked for."""
        found = _ID.search(line)
        await self.error(json.loads(found[1]) if found else None, code, message)

    async def error(self, ident: int | str | None, code: int, message: str) -> None:
        """Answer with an error."""
        reply = {"jsonrpc": "2.0", "id": ident, "error": {"code": code, "message": message}}
        await self.write(json.dumps(reply) + "\n")


def _tool_list(access: Access) -> list[types.Tool]:
    return [
        types.Tool(
            name=tool.name,
            description=tool.description,
            input_schema=tool.input_schema,
            output_schema=tool.output_schema,
            annotations=types.ToolAnnotations(
                read_only_hint=tool.read_only, destructive_hint=False, idempotent_hint=True, open_world_hint=False
            ),
        )
        for tool in tools_document(access).tools
    ]


def _result(answer: Answer) -> types.CallToolResult:
    if answer.error is not None:
        return types.CallToolResult(content=[types.TextContent(type="text", text=answer.error)], is_error=True)
    raw = bytes(answer.document)
    content = types.TextContent(type="text", text=raw.decode())
    return types.CallToolResult(content=[content], structured_content=msgspec.json.decode(raw))


async def _serve(access: Access, settings: Settings, limit_s: float, stdin: BinaryIO, stdout: BinaryIO) -> None:
    worker = _Worker(settings, limit_s)
    tools = _tool_list(access)

    async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    async def call_tool(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        return _result(await worker.call(params.name, params.arguments or {}))

    server: Server[Any] = Server(
        "tilewright",
        version=__version__,
        instructions=f"{INSTRUCTIONS} Files may be read under: {access.said}.",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    replies = _Replies(stdout)
    requests: Any = _Requests(stdin, replies)
    lines: Any = replies
    try:
        async with stdio_server(requests, lines) as (received, sent):
            await server.run(received, sent, server.create_initialization_options())
    finally:
        with anyio.CancelScope(shield=True):
            await worker.stop()


def serve(access: Access, *, limit_s: float, answer_bytes: int) -> None:
    """Serve the tools on stdin and stdout until the client closes stdin."""
    settings = Settings(
        roots=[str(root) for root in access.roots],
        write=str(access.write) if access.write else None,
        answer_bytes=answer_bytes,
    )
    # The protocol keeps the two pipes for itself: what anything else prints goes to stderr, and reads nothing.
    stdin, stdout = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    anyio.run(_serve, access, settings, limit_s, stdin, stdout)
