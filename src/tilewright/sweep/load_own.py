"""The light load generator: asyncio and the standard library, for where no other one is installed, and for warm-up."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from tilewright.sweep.http_client import Endpoint, HttpError, post_stream, run_within
from tilewright.sweep.load import LoadTimeoutError, Target
from tilewright.sweep.metrics import RequestRecord
from tilewright.sweep.prompts import DatasetPrompt, prompt_of, request_body
from tilewright.sweep.space import Load

__all__ = ["OwnClient", "one_request"]


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None


_CHUNK = msgspec.json.Decoder(_Chunk)


async def one_request(where: Endpoint, path: str, body: bytes) -> RequestRecord:
    """Send one request and read its answer to the end; a failure is a record with an error."""
    start = time.perf_counter()
    first: float | None = None
    chunks, finished = 0, False
    usage: _Usage | None = None
    error: str | None = None
    try:
        async for data in post_stream(where, path, body):
            if data == b"[DONE]":
                finished = True
                break
            chunk = _CHUNK.decode(data)
            if chunk.error is not None:
                error = f"the stream says: {str(chunk.error)[:200]}"
                break
            usage = chunk.usage or usage
            for choice in chunk.choices:
                delta = choice.delta
                text = choice.text or (delta and (delta.content or delta.reasoning_content or delta.reasoning))
                chunks += 1
                finished = finished or choice.finish_reason is not None
                # As other generators count it: the first chunk that shows text.
                if text and first is None:
                    first = time.perf_counter() - start
    except HttpError as problem:
        error = str(problem)
    except (msgspec.DecodeError, UnicodeDecodeError):
        error = "the stream holds what is no chunk of a completion"
    if error is None and not finished:
        error = "the answer was cut short"
    end = time.perf_counter()
    return RequestRecord(
        start_s=start,
        end_s=end,
        ttft_s=first,
        input_tokens=usage.prompt_tokens if usage else 0,
        output_tokens=usage.completion_tokens if usage else chunks,
        error=error,
    )


class OwnClient:
    """Sends the load itself. One connection a request; the server's own count of tokens where it sends one."""

    name = "own"
    version = None

    def measure(self, target: Target, load: Load, dataset: Sequence[DatasetPrompt], seed: int) -> list[RequestRecord]:
        """One measurement.

        Raises:
            LoadTimeoutError: it took longer than `load.timeout_s`.
        """
        try:
            return run_within(self._measure(target, load, dataset, seed), load.timeout_s)
        except TimeoutError:
            raise LoadTimeoutError(load.timeout_s) from None

    async def _measure(
        self, target: Target, load: Load, dataset: Sequence[DatasetPrompt], seed: int
    ) -> list[RequestRecord]:
        end = time.perf_counter() + load.duration_s if load.duration_s is not None else None
        numbers = itertools.count() if load.requests is None else iter(range(load.requests))
        records: list[RequestRecord] = []

        async def send(number: int) -> None:
            prompt, output = prompt_of(load, dataset, number, seed, target.ids)
            body = request_body(load, target.model, prompt, output, target.extra)
            records.append(await one_request(target.endpoint, target.path, body))

        def over() -> bool:
            return end is not None and time.perf_counter() >= end

        async def worker() -> None:
            for number in numbers:
                if over():
                    return
                await send(number)

        if load.request_rate is None:
            async with asyncio.TaskGroup() as group:
                for _ in range(load.in_flight or 1):
                    group.create_task(worker())
            return records
        draw = random.Random(seed)
        limit = asyncio.Semaphore(load.in_flight) if load.in_flight else None
        due = time.perf_counter()

        async def one(number: int) -> None:
            try:
                await send(number)
            finally:
                if limit is not None:
                    limit.release()

        async with asyncio.TaskGroup() as group:
            for number in numbers:
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                if limit is not None:
                    await limit.acquire()
                if over():
                    break
                group.create_task(one(number))
                gap = 1 / load.request_rate
                due += draw.expovariate(load.request_rate) if load.arrival == "poisson" else gap
        return records
