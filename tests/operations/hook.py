"""A webhook for tests: a real HTTP server in a thread with given answers, which keeps the posts."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.stand_ins.http_server import Handler, listening

PATH = "/services/T0TEAM/B0HOOK/s3cr3t-t0ken"


@dataclass
class Hook:
    """The server. A status of 0 in `answers` hangs up without an answer, -1 says nothing and holds the connection."""

    answers: list[tuple[int, dict[str, str]]]
    posts: list[tuple[dict[str, str], Any]] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{PATH}"

    @property
    def bodies(self) -> list[Any]:
        return [body for _, body in self.posts]


@contextmanager
def hooked(*answers: int | tuple[int, dict[str, str]]) -> Iterator[Hook]:
    hook = Hook([answer if isinstance(answer, tuple) else (answer, {}) for answer in answers or (200,)])
    ended = threading.Event()

    class HookHandler(Handler):
        protocol_version = "HTTP/1.0"

        def do_POST(self) -> None:
            hook.paths.append(self.path)
            hook.raw.append(self.sent())
            hook.posts.append((dict(self.headers), json.loads(hook.raw[-1])))
            status, headers = hook.answers[min(len(hook.posts), len(hook.answers)) - 1]
            if status == -1:
                ended.wait(20)
            if status <= 0:
                self.close_connection = True
                return
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self) -> None:
            hook.paths.append(f"GET {self.path}")
            self.answer(200, {})

    with listening(HookHandler) as hook.port:
        try:
            yield hook
        finally:
            ended.set()
