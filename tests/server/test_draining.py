"""A predictor under load drops no request: not while the ledger moves, and not when it must end."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import requests

from gatehouse.registry.ledger import CHAMPION
from gatehouse.store.store import ArtifactStore
from tests.ports import free_port
from tests.server.live import make_live, tensors
from tests.training.synthetic import table

CLIENTS = 4
DRAIN = 3.0


@pytest.mark.parametrize("keeps", [True, False], ids=["connections that are kept", "a connection for each request"])
def test_no_request_is_dropped_as_versions_are_exchanged_and_as_the_process_ends(tmp_path: Path, keeps: bool) -> None:
    live = make_live(ArtifactStore.open(tmp_path / "store"))
    live.promote(1, CHAMPION)
    port = free_port()
    address, body = f"http://127.0.0.1:{port}/v2", {"inputs": tensors(table(20), keys=True)}
    command = [Path(sys.executable).with_name("gatehouse"), "predictor", "delays", "--store", tmp_path / "store"]
    process = subprocess.Popen(
        [*command, "--port", str(port), "--follow", "0.1", "--drain", str(DRAIN)], env=os.environ
    )
    answers, failures, leave = list[tuple[str, str]](), list[object](), threading.Event()

    def ask() -> None:
        with requests.Session() as session:
            while not leave.is_set():
                post = session.post if keeps else requests.post
                try:
                    answer = post(f"{address}/models/delays/infer", json=body, timeout=30)
                    answer.raise_for_status()
                    answers.append((answer.json()["model_version"], answer.headers.get("connection", "")))
                except requests.RequestException as error:
                    failures.append(error)
                    return

    def ready() -> tuple[int, str]:
        answer = requests.get(f"{address}/models/delays/ready", timeout=30)
        return answer.status_code, answer.json().get("version", "")

    threads = [threading.Thread(target=ask) for _ in range(CLIENTS)]
    try:
        _wait_for(lambda: ready() == (200, "1"))
        for thread in threads:
            thread.start()
        for version in (2, 1, 2):
            live.promote(version, CHAMPION)
            _wait_for(lambda version=version: bool(answers) and answers[-1][0] == str(version))
            assert ready() == (200, str(version))
        process.send_signal(signal.SIGTERM)
        _wait_for(lambda: ready()[0] == 503)
        time.sleep(1.0)  # Others learn late that it ends.
        assert process.poll() is None
        leave.set()
        for thread in threads:
            thread.join(60)
        assert process.wait(60) == -signal.SIGTERM
    finally:
        leave.set()
        process.kill()
        process.wait()
    assert failures == []
    assert {version for version, _ in answers} == {"1", "2"}
    assert len(answers) > 4 * CLIENTS and answers[-1][1] == "close"


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    make_live(ArtifactStore.open(tmp_path / "store")).promote(1, CHAMPION)
    port = free_port()
    command = [Path(sys.executable).with_name("gatehouse"), "predictor", "delays", "--store", tmp_path / "store"]
    process = subprocess.Popen([*command, "--port", str(port), "--drain", "600"])
    try:
        _wait_for(lambda: requests.get(f"http://127.0.0.1:{port}/v2/health/live", timeout=30).ok)
        process.send_signal(signal.SIGTERM)
        _wait_for(lambda: requests.get(f"http://127.0.0.1:{port}/v2/health/ready", timeout=30).status_code == 503)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == -signal.SIGTERM
    finally:
        process.kill()
        process.wait()


def _wait_for(seen: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            if seen():
                return
        except requests.ConnectionError:
            pass
        time.sleep(0.02)
    raise AssertionError("it did not happen within a minute")
