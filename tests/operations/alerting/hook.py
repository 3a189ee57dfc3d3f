"""A webhook for tests: a real HTTP server in a thread that answers as it is told and keeps what it got."""

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.stand_ins.http_server import Handler, listening

PATH = "/services/T00/B00/s3cr3t-t0ken"


@dataclass
class Hook:
    """The server.

    Attributes:
        answers: Status and headers of each answer in turn, the last one for all that follow. A status of 0 hangs up
            without an answer, -1 says nothing and holds the connection, -2 sends a byte of a header now and then.
        posts: Headers and parsed body of what came.
        paths: The paths that were asked for.
    """

    answers: list[tuple[int, dict[str, str]]] = field(default_factory=lambda: [(200, {})])
    posts: list[tuple[dict[str, str], Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    port: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{PATH}"


@contextmanager
def hooked(*answers: int | tuple[int, dict[str, str]], tls: ssl.SSLContext | None = None) -> Iterator[Hook]:
    """A webhook that gives these answers in turn, over TLS if told."""
    hook = Hook()
    if answers:
        hook.answers = [answer if isinstance(answer, tuple) else (answer, {}) for answer in answers]

    class Asked(Handler):
        protocol_version = "HTTP/1.0"

        def do_POST(self) -> None:
            body = self.sent()
            hook.paths.append(self.path)
            hook.posts.append((dict(self.headers), json.loads(body)))
            status, headers = hook.answers[min(len(hook.posts), len(hook.answers)) - 1]
            if status == 0:
                self.close_connection = True
                return
            if status == -1:
                hook.ended.wait(20)
                return
            if status == -2:
                self._dribble()
                return
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self) -> None:
            hook.paths.append(f"GET {self.path}")
            self.send_response(200)
            self.end_headers()

        def _dribble(self) -> None:
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            while not hook.ended.wait(0.02):
                try:
                    self.wfile.write(b"x")
                except OSError:
                    return

    with listening(Asked, tls) as hook.port:
        try:
            yield hook
        finally:
            hook.ended.set()
