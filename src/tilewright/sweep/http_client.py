"""A small HTTP/1.1 client on asyncio: one request a connection, answers read as they arrive. Standard library only."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from tilewright.errors import InputError, shown

__all__ = ["Endpoint", "HttpError", "answer_of", "parse_url", "post_stream", "run_within"]

T = TypeVar("T")

MAX_LINE: Final = 1 << 20
"""Longest line of a head or a stream, in bytes; one chunk of an answer is a few hundred."""
MAX_BODY: Final = 8 << 20
MAX_HEADERS: Final = 200


class HttpError(Exception):
    """The server did not answer as HTTP has it, or answered with an error; the text says which."""


@dataclass(frozen=True)
class Endpoint:
    """Where a server answers. `prefix` is what comes before `/v1`. `headers` may hold a secret: it is never shown."""

    host: str
    port: int
    prefix: str = ""
    tls: bool = False
    headers: dict[str, str] = field(default_factory=lambda: dict[str, str](), repr=False)

    @property
    def url(self) -> str:
        """The address, without what is secret."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}{self.prefix}"


def parse_url(url: str) -> Endpoint:
    """The endpoint that `--url` names; a `/v1` at its end is taken off.

    Raises:
        InputError: it is no http or https address, or has a user or password in it.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InputError("url", f"--url {shown(url)} is no address ({error}); write http://HOST:PORT.") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or any(c.isspace() or c < " " for c in url):
        raise InputError("url", f"--url {shown(url)} is no address of a server; write http://HOST:PORT.")
    if parts.username or parts.password:
        raise InputError("url", "--url holds a user or a password; use --api-key-env with the name of a variable.")
    if parts.query or parts.fragment:
        raise InputError("url", f"--url {shown(url)} has a ? or a # in it; write http://HOST:PORT.")
    tls = parts.scheme == "https"
    return Endpoint(
        parts.hostname, port or (443 if tls else 80), parts.path.rstrip("/").removesuffix("/v1").rstrip("/"), tls
    )


def run_within(work: Coroutine[Any, Any, T], seconds: float) -> T:
    """`work` to its end. An interruption of what it is made of is told once, by the exception, and not logged as well.

    Raises:
        TimeoutError: it took longer than `seconds`.
    """
    with asyncio.Runner() as runner:
        runner.get_loop().set_exception_handler(lambda _loop, _context: None)
        return runner.run(asyncio.wait_for(work, seconds))


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    line = await reader.readline()
    words = line.split(None, 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        raise HttpError("the connection closed before an answer" if not line else "the answer is no HTTP")
    headers: dict[str, str] = {}
    for _ in range(MAX_HEADERS):
        line = await reader.readline()
        if line in (b"\r\n", b"\n", b""):
            return int(words[1]), headers
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    raise HttpError(f"the answer has more than {MAX_HEADERS} headers")


async def _pieces(reader: asyncio.StreamReader, headers: dict[str, str]) -> AsyncIterator[bytes]:
    """The body, piece by piece as it comes."""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        while True:
            line = await reader.readline()
            try:
                size = int(line.split(b";")[0], 16)
            except ValueError:
                raise HttpError("the answer broke off") from None
            if size == 0:
                return
            yield await reader.readexactly(size)
            await reader.readexactly(2)
    left = int(headers["content-length"]) if headers.get("content-length", "").isdigit() else None
    while left is None or left > 0:
        some = await reader.read(1 << 16 if left is None else min(left, 1 << 16))
        if not some:
            if left:
                raise HttpError("the answer broke off")
            return
        left = None if left is None else left - len(some)
        yield some


@contextlib.asynccontextmanager
async def _opened(
    where: Endpoint, method: str, path: str, body: bytes | None
) -> AsyncGenerator[tuple[int, dict[str, str], asyncio.StreamReader]]:
    context = ssl.create_default_context() if where.tls else None
    try:
        reader, writer = await asyncio.open_connection(where.host, where.port, ssl=context, limit=MAX_LINE)
    except OSError as error:
        raise HttpError(f"no connection: {error.strerror or error}") from None
    try:
        head = [f"{method} {where.prefix}{path} HTTP/1.1", f"Host: {where.host}:{where.port}", "Connection: close"]
        head += [f"{name}: {value}" for name, value in where.headers.items()]
        if body is not None:
            head += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        writer.write("\r\n".join([*head, "", ""]).encode("latin-1") + (body or b""))
        await writer.drain()
        status, headers = await _head(reader)
        yield status, headers, reader
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
        raise HttpError(f"the answer broke off ({type(error).__name__})") from None
    finally:
        writer.close()
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await writer.wait_closed()


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    body = bytearray()
    async for piece in _pieces(reader, headers):
        body += piece
        if len(body) > MAX_BODY:
            raise HttpError(f"the answer is longer than {MAX_BODY >> 20} MiB")
    return bytes(body)


def _complaint(status: int, body: bytes) -> str:
    """What an error's body says, cut short."""
    text = " ".join(body[:2000].decode("utf-8", "replace").split())
    with contextlib.suppress(msgspec.DecodeError, AttributeError, TypeError):
        told = msgspec.json.decode(body)
        inner = told.get("error", told)
        text = str(inner.get("message", text) if isinstance(inner, dict) else inner)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    return f"HTTP {status}: {text[:300]}"


async def answer_of(where: Endpoint, method: str, path: str, body: bytes | None = None) -> bytes:
    """The body of a 200.

    Raises:
        HttpError: there is no answer, or it is another status.
    """
    async with _opened(where, method, path, body) as (status, headers, reader):
        answer = await _body(reader, headers)
    if status != 200:
        raise HttpError(_complaint(status, answer))
    return answer


async def post_stream(where: Endpoint, path: str, body: bytes) -> AsyncIterator[bytes]:
    """The `data:` fields of a stream of server-sent events, each when it comes.

    Raises:
        HttpError: there is no answer, it is no 200, or it breaks off.
    """
    async with _opened(where, "POST", path, body) as (status, headers, reader):
        if status != 200:
            raise HttpError(_complaint(status, await _body(reader, headers)))
        rest = b""
        async for piece in _pieces(reader, headers):
            *lines, rest = (rest + piece).split(b"\n")
            if len(rest) > MAX_LINE:
                raise HttpError("a line of the stream does not end")
            for line in lines:
                if line.startswith(b"data:"):
                    yield line[5:].strip()
        if rest.startswith(b"data:"):
            yield rest[5:].strip()
