"""Headless Chromium over its DevTools protocol, through a pipe: no port, and nothing to install besides the browser."""

import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_OPTIONS = (
    "--headless",
    "--no-sandbox",  # which does not start for root, as in most containers
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--remote-debugging-pipe",
)
_PATIENCE = 60.0


def chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def launched(folder: Path) -> "Browser":
    """A browser with its profile in `folder`; a test session without Chromium skips, which CI does not allow."""
    program = chromium()
    if program is None:
        pytest.skip("chromium is not installed (looked for chromium, chromium-browser and google-chrome)")
    return Browser(program, folder)


class Browser:
    def __init__(self, program: str, folder: Path) -> None:
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        # The protocol's pipe is file descriptor 3 for commands and 4 for answers.
        script = f'exec "$0" "$@" 3<&{to_read} 4>&{to_write}'
        command = ["bash", "-c", script, program, *_OPTIONS, f"--user-data-dir={folder}", "about:blank"]
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(command, pass_fds=(to_read, to_write), stdout=quiet, stderr=quiet)
        os.close(to_read)
        os.close(to_write)
        self._pending = b""
        self._number = 0
        self._listeners: list[Callable[[dict[str, Any]], None]] = []

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the browser: asked first, so that it ends its own processes."""
        if self._process.poll() is None:
            self.call("Browser.close")
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        os.close(self._write)
        os.close(self._read)

    def call(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; events that come meanwhile go to the listeners."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next(time.monotonic() + _PATIENCE)
            if answer.get("id") == message["id"]:
                assert "error" not in answer, f"{method}: {answer.get('error')}"
                result: dict[str, Any] = answer["result"]
                return result

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._pending:
            ready, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            data = os.read(self._read, 1 << 20) if ready else b""
            assert data, f"Chromium gave no answer within {_PATIENCE:.0f} s, or ended ({self._process.poll()})"
            self._pending += data
        text, _, self._pending = self._pending.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        for listener in self._listeners:
            listener(message)
        return message

    def page(self, width: int = 1280, height: int = 900, *, phone: bool = False) -> "Page":
        return Page(self, width, height, phone)


class Page:
    """One tab: opens a file, evaluates scripts, presses keys, and remembers requests and console messages."""

    def __init__(self, browser: Browser, width: int, height: int, phone: bool) -> None:
        self._browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.requests: list[str] = []
        self.console: list[str] = []
        self._loaded = False
        browser._listeners.append(self._listen)
        for domain in ("Page", "Network", "Runtime", "Log"):
            self._call(f"{domain}.enable")
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **parameters)

    def _listen(self, message: dict[str, Any]) -> None:
        if message.get("sessionId") != self._session:
            return
        method, body = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(body["request"]["url"])
        elif method == "Runtime.consoleAPICalled":
            self.console.append(f"{body['type']}: {[argument.get('value') for argument in body['args']]}")
        elif method == "Runtime.exceptionThrown":
            self.console.append(f"exception: {body['exceptionDetails'].get('exception', body['exceptionDetails'])}")
        elif method == "Log.entryAdded":
            self.console.append(f"{body['entry']['level']}: {body['entry']['text']}")
        elif method == "Page.loadEventFired":
            self._loaded = True

    def open(self, path: Path) -> "Page":
        return self.visit(path.as_uri())

    def visit(self, address: str) -> "Page":
        self._loaded = False
        self._call("Page.navigate", url=address)
        return self.loaded()

    def loaded(self) -> "Page":
        deadline = time.monotonic() + _PATIENCE
        while not self._loaded:
            self._browser._next(deadline)
        return self

    def click(self, selector: str) -> "Page":
        """Click an element that leads to another page, and wait until that is there."""
        self._loaded = False
        self.js(f"document.querySelector({json.dumps(selector)}).click()")
        return self.loaded()

    def js(self, expression: str) -> Any:
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")
