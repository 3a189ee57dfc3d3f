"""The rehearsal server: one process that imports torch for all attempts of a module."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Rehearse = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def rehearse() -> Iterator[Rehearse]:
    """Run one attempt of the rehearsal; keyword arguments are its request."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).parent / "rehearsal.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )

    def attempt(**fields: Any) -> dict[str, Any]:
        assert server.stdin is not None and server.stdout is not None
        server.stdin.write(
            json.dumps({"kind": "ddp", "world_size": 1, "steps": 20, "every": 3} | fields, default=str) + "\n"
        )
        server.stdin.flush()
        answer: dict[str, Any] = json.loads(server.stdout.readline())
        return answer

    yield attempt
    server.terminate()
    server.wait()
