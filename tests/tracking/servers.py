"""A real MLflow server, and a proxy before it that delays or drops requests."""

import http.client
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from tests.ports import free_port
from tests.stand_ins.http_server import Handler, listening

_PATIENCE = 180.0
_SETTINGS = {
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # its job runner needs packages that are not installed
    "MLFLOW_DISABLE_TELEMETRY": "true",
}


@contextmanager
def mlflow_server(folder: Path) -> Iterator[int]:
    """The port of an `mlflow server` on a database in `folder`; it takes 10 to 40 s to start."""
    port = free_port()
    command = [sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1", "--enable-workspaces"]
    command += [f"--backend-store-uri=sqlite:///{folder}/mlflow.db", f"--default-artifact-root={folder}/artifacts"]
    with open(folder / "server.log", "wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env=os.environ | _SETTINGS, cwd=folder, start_new_session=True
        )
    try:
        deadline = time.monotonic() + _PATIENCE
        while not _answers(port):
            assert process.poll() is None and time.monotonic() < deadline, (folder / "server.log").read_text()
            time.sleep(0.2)
        yield port
    finally:
        os.killpg(process.pid, 15)
        process.wait()


def _answers(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


class Proxy:
    """Passes requests on to a server: after `delay` seconds, or not at all while it is `down`.

    So many of the next answers are `lost`. `access` holds authorization and workspace of the requests, or nothing.
    """

    def __init__(self) -> None:
        self.delay, self.down, self.lost = 0.0, False, 0
        self.requests: list[str] = []
        self.access: set[tuple[str, str]] = set()
        self.url = ""

    def pass_on(self, handler: Handler, upstream: int) -> None:
        body = handler.sent()
        if self.down:
            handler.close_connection = True
            return
        time.sleep(self.delay)
        self.requests.append(handler.path)
        asks = handler.headers
        self.access.add((asks.get("Authorization", ""), asks.get("X-MLFLOW-WORKSPACE", "")))
        connection = http.client.HTTPConnection("127.0.0.1", upstream, timeout=120)
        try:
            headers = {name: value for name, value in handler.headers.items() if name.lower() != "host"}
            connection.request(handler.command, handler.path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if self.lost:
            self.lost -= 1
            handler.close_connection = True
            return
        handler.send_response(answer.status)
        handler.send_header("Content-Type", answer.getheader("Content-Type", "application/json"))
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)


@contextmanager
def proxied(upstream: int) -> Iterator[Proxy]:
    proxy = Proxy()

    class MlflowHandler(Handler):
        def do_GET(self) -> None:
            proxy.pass_on(self, upstream)

        do_POST = do_PATCH = do_DELETE = do_GET

    with listening(MlflowHandler) as port:
        proxy.url = f"http://127.0.0.1:{port}"
        yield proxy
