"""A Ray cluster on this machine, of one node with four processors."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.ports import free_port


@contextmanager
def ray_cluster(token: str = "", dashboard: bool = False) -> Iterator[str]:
    """Start a cluster, which demands `token` if there is one; gives its address, or that of its dashboard."""
    if find_spec("ray") is None or (dashboard and find_spec("aiohttp_cors") is None):
        pytest.skip("needs the package ray")
    ray = str(Path(sys.executable).with_name("ray"))
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as folder:  # Paths of its sockets must be short.
        variables = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, sys.path)]),
            "RAY_TMPDIR": folder,
            "RAY_worker_niceness": "0",
        }
        variables |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token} if token else {}
        options = [f"--ray-client-server-port={free_port()}", f"--dashboard-agent-listen-port={free_port()}"]
        options += ["--min-worker-port=0", "--max-worker-port=0"]  # Its own choice may be the port above.
        options += [
            "--num-cpus=4",
            "--memory=4000000000",
            "--object-store-memory=100000000",
            f"--include-dashboard={str(dashboard).lower()}",
            f"--dashboard-port={(pages := free_port())}",
        ]
        command = [ray, "start", "--head", f"--port={port}", f"--temp-dir={folder}", "--block", *options]
        with open(Path(folder) / "head.log", "w") as log:
            head = subprocess.Popen(
                [*command, "--disable-usage-stats"], env=variables, stdout=log, stderr=log, start_new_session=True
            )
        try:
            _wait_for(head, Path(folder) / "head.log")
            yield f"http://127.0.0.1:{pages}" if dashboard else f"127.0.0.1:{port}"
        finally:
            _disconnect()
            os.killpg(head.pid, signal.SIGKILL)  # Asked to end, it would let pieces end first.
            head.wait(60)


def _wait_for(head: "subprocess.Popen[bytes]", log: Path) -> None:
    while "Ray runtime started" not in log.read_text():
        if head.poll() is not None:
            raise RuntimeError(f"Ray did not start: {log.read_text()}")
        time.sleep(0.1)


def _disconnect() -> None:
    if "ray" in sys.modules:
        sys.modules["ray"].shutdown()
