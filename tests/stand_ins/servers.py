"""Object store servers for tests: GCS and S3, each behind a proxy that counts requests and injects faults."""

import contextlib
import http.client
import json
import logging
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from urllib.parse import parse_qs, quote, unquote, urlsplit

from tests.stand_ins.http_server import Handler, listening

BUCKET = "bucket"
_TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_DESCRIPTION = 10_000  # Bytes. Shorter bodies describe a request: a bit of them would make another request.
_OBJECT = re.compile(r"/o/(?P<name>[^/?]+)(?:/rewriteTo/b/[^/]+/o/(?P<target>[^/?]+))?$")
_NAME = re.compile(rb'"name":\s*"([^"]+)"')


@dataclass
class Fault:
    """What goes wrong with the next `times` requests of a method whose URL or header block has `part` in it.

    `kind`: `busy` (503), `forbidden` (403), `reset` (cut off within the request), `lost` (done, but the answer never
    arrives), `cut` (cut off within the answer), `truncated` (half the answer, said to be whole), `flipped` (a bit of
    the answer), `damaged` (a bit of the content sent).
    """

    kind: str
    method: str
    part: str = ""
    times: int = 1


@dataclass(frozen=True)
class Exchange:
    """One request that reached the proxy."""

    method: str
    url: str
    sent: int
    received: int
    status: int


@dataclass
class Proxy:
    """A server before the server at the port `upstream`.

    Its clock is off by `offset` seconds, a listing has at most `page` items in one answer, and every request is on its
    way for `delay` seconds, as to a store that is far away.
    """

    upstream: int
    faults: list[Fault] = field(default_factory=list)
    exchanges: list[Exchange] = field(default_factory=list)
    offset: float = 0.0
    page: int = 1000
    lock: threading.RLock = field(default_factory=threading.RLock)
    creating: threading.Lock = field(default_factory=threading.Lock)
    uploads: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    port: int = 0
    delay: float = 0.0

    @property
    def url(self) -> str:
        """Where clients find it."""
        return f"http://127.0.0.1:{self.port}"

    def reset(self) -> None:
        """Forget faults and counts."""
        self.faults.clear()
        self.exchanges.clear()
        self.offset, self.page = 0.0, 1000

    def count(self, *methods: str, part: str = "") -> int:
        """How many requests of these methods (all where none is named) had `part` in their URL."""
        return sum(
            1 for exchange in self.exchanges if part in exchange.url and (not methods or exchange.method in methods)
        )

    def fault_for(self, method: str, url: str) -> str:
        """The kind of the fault that this request meets, taken off its count; empty for none."""
        with self.lock:
            for fault in self.faults:
                if fault.times and fault.method == method and fault.part in unquote(url):
                    fault.times -= 1
                    return fault.kind
        return ""

    def ask(self, method: str, url: str, body: bytes, headers: Mapping[str, str]) -> "Answer":
        """Pass a request on; conditional writes one by one, as the S3 server behind checks and writes apart."""
        conditional = any(name.lower() == "if-none-match" for name in headers)
        with self.creating if conditional else contextlib.nullcontext():
            return self._ask(method, url, body, headers)

    def _ask(self, method: str, url: str, body: bytes, headers: Mapping[str, str]) -> "Answer":
        connection = http.client.HTTPConnection("127.0.0.1", self.upstream, timeout=60)
        try:
            connection.request(method, url, body or None, dict(headers))
            response = connection.getresponse()
            kept = [(name, value) for name, value in response.getheaders() if name.lower() not in _HOP]
            if method == "HEAD":
                kept.append(("x-length", response.getheader("Content-Length", "0")))
            return Answer(response.status, kept, response.read())
        finally:
            connection.close()

    def handle(self, method: str, url: str, body: bytes, headers: Mapping[str, str]) -> "Answer":
        """The answer to a request, faults aside."""
        return self.ask(method, url, body, headers)


@dataclass
class Answer:
    """What a server says."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


_HOP = ("connection", "transfer-encoding", "keep-alive", "content-length")


class GcsProxy(Proxy):
    """Adds to the emulator what it ignores: preconditions on generations, and pages of listings."""

    def handle(self, method: str, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Check the preconditions and pass the request on, both under one lock."""
        split = urlsplit(url)
        query = {name: values[0] for name, values in parse_qs(split.query).items()}
        if method == "GET":
            answer = self.ask(method, url, body, headers)
            return self._paged(answer, query) if split.path.endswith("/o") else answer
        with self.lock:
            name, conditions = self._aim(method, split.path, query, body)
            if query.get("uploadType") == "resumable" and "upload_id" not in query:
                answer = self.ask(method, url, body, headers)
                location = dict(answer.headers).get("Location", "")
                upload = parse_qs(urlsplit(location).query).get("upload_id", [""])[0]
                self.uploads[upload] = (name, conditions)
                return answer
            if name and not self._holds(split.path, name, conditions):
                text = json.dumps({"error": {"code": 412, "message": "conditionNotMet"}})
                return Answer(412, [("Content-Type", "application/json")], text.encode())
            return self.ask(method, url, body, headers)

    def _aim(self, method: str, path: str, query: dict[str, str], body: bytes) -> tuple[str, dict[str, str]]:
        if "upload_id" in query:
            return self.uploads[query["upload_id"]]
        conditions = {
            key: value for key, value in query.items() if key in ("ifGenerationMatch", "ifGenerationNotMatch")
        }
        if path.startswith("/upload/"):
            result = _NAME.search(body)
            return query.get("name") or (json.loads(b'"' + result[1] + b'"') if result else ""), conditions
        match = _OBJECT.search(path)
        return (unquote(match["target"] or match["name"]) if match else ""), conditions

    def _holds(self, path: str, name: str, conditions: dict[str, str]) -> bool:
        bucket = path.split("/b/", 1)[1].split("/", 1)[0]
        result = self.ask("GET", f"/storage/v1/b/{bucket}/o/{quote(name, safe='')}", b"", {})
        generation = str(json.loads(result.body)["generation"]) if result.status == 200 else "0"
        expected, unwanted = conditions.get("ifGenerationMatch"), conditions.get("ifGenerationNotMatch")
        return (expected is None or expected == generation) and (unwanted is None or unwanted != generation)

    def _paged(self, answer: Answer, query: dict[str, str]) -> Answer:
        if answer.status != 200:
            return answer
        result = json.loads(answer.body)
        items = result.get("items", [])
        start, size = int(query.get("pageToken", 0)), min(int(query.get("maxResults", self.page)), self.page)
        result["items"] = items[start : start + size]
        result.pop("nextPageToken", None)
        if start:
            result["prefixes"] = []
        if start + size < len(items):
            result["nextPageToken"] = str(start + size)
        answer.body = json.dumps(result).encode()
        return answer


class _Handler(Handler):
    disable_nagle_algorithm = True
    proxy: Proxy

    def _any(self) -> None:
        proxy, fault = self.proxy, self.proxy.fault_for(self.command, self.path)
        time.sleep(proxy.delay)
        if fault == "reset":
            self.rfile.read(int(self.headers.get("Content-Length") or 0) // 2)
            self.reset()
            self._note(0, 0, 0)
            return
        body = self._body()
        if fault == "damaged" and len(body) > _DESCRIPTION:
            body = _flip(body)
        if fault in ("busy", "forbidden"):
            status, code = (503, "SlowDown") if fault == "busy" else (403, "AccessDenied")
            answer = Answer(status, [("Content-Type", "application/xml")], _refusal(code))
        else:
            headers = {name: value for name, value in self.headers.items() if name.lower() not in (*_HOP, "expect")}
            answer = _shifted(proxy.handle(self.command, self.path, body, headers), proxy.offset)
        self._note(len(body), len(answer.body), answer.status)
        if fault == "lost":
            self.reset()
        else:
            self._pass_back(answer, fault)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_PATCH = _any

    def _note(self, sent: int, received: int, status: int) -> None:
        self.proxy.exchanges.append(Exchange(self.command, unquote(self.path), sent, received, status))

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.sent()

    def _pass_back(self, answer: Answer, fault: str) -> None:
        body = answer.body
        if fault == "truncated":
            body = body[: len(body) // 2]
        if fault == "flipped":
            body = _flip(body)
        length = str(len(body))
        if self.command == "HEAD":
            length = next((value for name, value in answer.headers if name.lower() == "x-length"), "0")
        self.send_response_only(answer.status)
        for name, value in answer.headers:
            if name.lower() != "x-length":
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        if fault == "cut":
            self.wfile.write(body[: len(body) // 2])
            self.reset()
        elif self.command != "HEAD":
            self.wfile.write(body)


def _flip(body: bytes) -> bytes:
    middle = len(body) // 2
    return body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :] if body else body


def _refusal(code: str) -> bytes:
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()


def _shifted(answer: Answer, offset: float) -> Answer:
    """The answer as a server gives it whose clock is off."""
    if not offset:
        return answer
    by = timedelta(seconds=offset)
    for index, (name, value) in enumerate(answer.headers):
        if name in ("Last-Modified", "Date"):
            answer.headers[index] = (name, format_datetime(parsedate_to_datetime(value) + by, usegmt=True))

    def shift(match: re.Match[bytes]) -> bytes:
        return (datetime.fromisoformat(match[0].decode()) + by).strftime("%Y-%m-%dT%H:%M:%S.%fZ").encode()

    kind = dict(answer.headers).get("Content-Type", "")
    if "json" in kind or "xml" in kind:
        answer.body = _TIME.sub(shift, answer.body)
    return answer


@contextmanager
def _listening(proxy: Proxy) -> Iterator[Proxy]:
    with listening(_Handler, proxy=proxy) as proxy.port:
        yield proxy


@contextmanager
def gcs_server() -> Iterator[Proxy]:
    """A GCS server with the bucket `BUCKET`."""
    from gcp_storage_emulator.server import RequestHandler, create_server

    # Else every answer waits 40 ms for the acknowledgement of its head.
    RequestHandler.disable_nagle_algorithm = True
    logging.getLogger("gcp_storage_emulator").setLevel(logging.CRITICAL)
    server = create_server("127.0.0.1", 0, in_memory=True)
    server.start()
    try:
        with _listening(GcsProxy(server._api._httpd.server_port)) as proxy:
            proxy.environment["STORAGE_EMULATOR_HOST"] = proxy.url
            body = json.dumps({"name": BUCKET}).encode()
            made = proxy.ask("POST", "/storage/v1/b?project=p", body, {"Content-Type": "application/json"})
            assert made.status == 200, made
            yield proxy
    finally:
        server.stop()


@contextmanager
def s3_server() -> Iterator[Proxy]:
    """An S3 server with the bucket `BUCKET`."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    from moto.moto_server.werkzeug_app import MotoRequestHandler
    from moto.server import ThreadedMotoServer

    MotoRequestHandler.disable_nagle_algorithm = True
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        with _listening(Proxy(server.get_host_and_port()[1])) as proxy:
            proxy.environment.update(
                AWS_ENDPOINT_URL=proxy.url,
                AWS_ACCESS_KEY_ID="key",
                AWS_SECRET_ACCESS_KEY="secret",
                AWS_REGION="us-east-1",
            )
            scope = "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request"
            made = proxy.ask("PUT", f"/{BUCKET}", b"", {"Authorization": scope})
            assert made.status == 200, made
            yield proxy
    finally:
        server.stop()
