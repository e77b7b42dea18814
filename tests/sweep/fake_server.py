"""A small server with the API of an inference server, for the tests of the sweep: completions, /health, /metrics.

Each output token takes --step-ms; at most --slots requests are answered at once. --fault injects one of FAULTS.
Standard library only; runs as `python fake_server.py --port N`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys

FAULTS = (
    "none",
    "never_ready",
    "die_starting",
    "die_loaded",
    "hang",
    "errors",
    "cut",
    "wrong_metrics",
    "stubborn",
    "some_errors",
)


class Server:
    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.slots = asyncio.Semaphore(args.slots)
        self.generated = self.prompted = self.running = self.requests = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = (await reader.readline()).split()
            length = 0
            while (header := await reader.readline()) not in (b"\r\n", b""):
                name, _, value = header.partition(b":")
                if name.strip().lower() == b"content-length":
                    length = int(value)
            body = await reader.readexactly(length)
            await self.answer(line[0].decode(), line[1].decode(), body, writer)
        except (ConnectionError, asyncio.IncompleteReadError, IndexError):
            pass
        finally:
            writer.close()

    def plain(self, writer: asyncio.StreamWriter, status: int, body: bytes, kind: str = "application/json") -> None:
        writer.write(
            f"HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )

    async def answer(self, method: str, path: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        fault = self.args.fault
        if path == "/health":
            self.plain(writer, 503 if fault == "never_ready" else 200, b"")
        elif path == "/v1/models":
            self.plain(writer, 200, json.dumps({"data": [{"id": self.args.name}]}).encode())
        elif path == "/metrics" and not self.args.no_metrics:
            factor = 3 if fault == "wrong_metrics" else 1
            text = (
                f'vllm:generation_tokens_total{{model_name="m"}} {self.generated * factor}\n'
                f'vllm:prompt_tokens_total{{model_name="m"}} {self.prompted}\n'
                f'vllm:num_requests_running{{model_name="m"}} {self.running}\n'
                'vllm:num_preemptions_total{model_name="m"} 0\nvllm:kv_cache_usage_perc{model_name="m"} 0.25\n'
            )
            self.plain(writer, 200, text.encode(), "text/plain")
        elif path in ("/v1/completions", "/v1/chat/completions") and method == "POST":
            await self.complete(json.loads(body), writer, chat=path.endswith("chat/completions"))
        else:
            self.plain(writer, 404, b'{"error": {"message": "no such path"}}')
        await writer.drain()

    async def complete(self, ask: dict, writer: asyncio.StreamWriter, *, chat: bool) -> None:
        self.requests += 1
        fault, count = self.args.fault, self.requests
        measured = count > 1  # the first completion is what readiness is judged by
        if (fault == "errors" and measured) or (fault == "some_errors" and count % 2 == 0):
            self.plain(writer, 500, b'{"error": {"message": "engine is broken"}}')
            return
        if fault == "die_loaded" and count > 4:
            print("RuntimeError: CUDA error: an illegal memory access was encountered", flush=True)
            os._exit(7)
        if fault == "hang" and measured:
            await asyncio.sleep(600)
        prompt = ask.get("prompt") or ask.get("messages")
        size = len(prompt) if isinstance(prompt, list) and not chat else 10
        async with self.slots:
            self.running += 1
            writer.write(
                b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/event-stream\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n"
            )
            total = ask["max_tokens"]
            for index in range(total):
                await asyncio.sleep(self.args.step_ms / 1e3)
                if fault == "cut" and measured and index > 2:
                    self.running -= 1
                    return
                last = "length" if index == total - 1 else None
                piece = {"delta": {"content": "a "}} if chat else {"text": "a "}
                self.event(writer, {"choices": [{"index": 0, "finish_reason": last, **piece}]})
            self.running -= 1
        self.generated += total
        self.prompted += size
        usage = {"prompt_tokens": size, "completion_tokens": total}
        self.event(writer, {"choices": [], "usage": usage})
        self.chunk(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")

    def event(self, writer: asyncio.StreamWriter, value: dict) -> None:
        chat = any("delta" in choice for choice in value["choices"])
        head = {"id": "x", "object": "chat.completion.chunk" if chat else "text_completion", "model": self.args.name}
        self.chunk(writer, b"data: " + json.dumps({**head, **value}).encode() + b"\n\n")

    def chunk(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


async def serve(args: argparse.Namespace) -> None:
    server = Server(args)
    started = await asyncio.start_server(server.handle, "127.0.0.1", args.port)
    print("serving", flush=True)
    async with started:
        await started.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", nargs="*")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--slots", "--max-num-seqs", type=int, default=2)
    parser.add_argument("--step-ms", type=float, default=1.0)
    parser.add_argument("--block-size", type=int, default=16)
    parser.add_argument("--fault", default="none", choices=FAULTS)
    parser.add_argument("--name", default="fake")
    parser.add_argument("--no-metrics", action="store_true")
    parser.add_argument("--ready-after", type=float, default=0.0)
    parser.add_argument("--children", action="store_true", help="start children that outlive it unless they are ended")
    args = parser.parse_args()
    if args.children:
        # One in a session of its own that ignores every polite signal, with a child: what a careless engine leaves.
        script = "import os,signal,time;[signal.signal(s,signal.SIG_IGN) for s in (2,15,1)];os.fork();time.sleep(600)"
        subprocess.Popen([sys.executable, "-c", script, args.name], start_new_session=True)
    if args.block_size % 8:
        print(f"ValueError: No common block size for {args.block_size}.", flush=True)
        sys.exit(1)
    if args.fault == "die_starting":
        print("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.", flush=True)
        sys.exit(1)
    if args.fault == "stubborn":
        import signal

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
    asyncio.run(serve(args))


if __name__ == "__main__":
    main()
