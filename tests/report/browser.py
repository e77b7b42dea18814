"""A real headless Chromium, spoken to over its debugging pipe: no driver, no package, nothing but the browser."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "chrome-headless-shell")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)  # fmt: skip
ANSWER_S = 60.0


def find() -> str | None:
    """The browser: $TILEWRIGHT_CHROMIUM, or one on PATH."""
    given = os.environ.get("TILEWRIGHT_CHROMIUM")
    return given or next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """One page of a browser, and what happened on it."""

    def __init__(self, process: subprocess.Popen[bytes], write: int, read: int) -> None:
        self._process, self._write, self._read = process, write, read
        self._buffer, self._number, self._session = b"", 0, ""
        self.requests: list[str] = []
        self.problems: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def _next(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, until - time.monotonic()))
            chunk = os.read(self._read, 1 << 16) if ready else b""
            if not chunk:
                raise TimeoutError("the browser does not answer")
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        self._note(message)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        method, params = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.problems.append(str(params["exceptionDetails"].get("text")))
        elif method == "Runtime.consoleAPICalled":
            self.problems.append(f"console.{params['type']}")
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.problems.append(params["entry"]["text"])

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command and its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + ANSWER_S
        while True:
            answer = self._next(until)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def open(self, path: Path, width: int, scheme: str, media: str = "screen") -> None:
        """Load the file and wait until it is drawn."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)
        self.call("Page.navigate", url=path.as_uri())
        until = time.monotonic() + ANSWER_S
        while self.value("document.readyState + document.URL") != "complete" + path.as_uri():
            assert time.monotonic() < until
            time.sleep(0.02)

    def value(self, expression: str) -> Any:
        """What a JavaScript expression gives (debugger's own, so the page's policy does not forbid it)."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def screenshot(self, path: Path, clip: dict[str, float] | None = None) -> None:
        """The whole page, or the part `clip`, as PNG."""
        params: dict[str, Any] = {"format": "png", "captureBeyondViewport": True}
        if clip is None:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"]}
        params["clip"] = {**clip, "scale": 1}
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", **params)["data"]))


@contextlib.contextmanager
def page() -> Iterator[Page]:
    """A page of a browser of its own, which ends with the block."""
    binary = find()
    assert binary is not None
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:

        def pipes() -> None:
            # The browser reads commands from descriptor 3 and answers on 4 (--remote-debugging-pipe).
            one, two = os.dup(to_read), os.dup(from_write)
            os.dup2(one, 3)
            os.dup2(two, 4)

        process = subprocess.Popen(
            [binary, *FLAGS, f"--user-data-dir={profile}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=pipes,
            pass_fds=(3, 4),
            close_fds=True,
        )
        os.close(to_read)
        os.close(from_write)
        try:
            yield Page(process, to_write, from_read)
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            os.close(to_write)
            os.close(from_read)
