"""Share of answered `resolve` calls while the object store, MLflow, and each of two servers in turn are away.

Two `gatehouse serve` of one S3 store stand behind a client that does what a load balancer does: it takes them in turn,
and asks the other one where it gets no answer, or one of the server's fault. MLflow is away all the time. Fails below
99.9 %.
"""

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import requests

sys.path.insert(0, str(Path(__file__).parents[1]))

from gatehouse.server.access import create_token
from gatehouse.store.objects.remote import FOLDER
from gatehouse.store.store import ArtifactStore
from tests.ports import free_port
from tests.registry.gate import NAME, make_gate
from tests.stand_ins.servers import BUCKET, Fault, s3_server

LIMIT = 0.999
CALLERS = 4


def main() -> int:
    """Run the phases; 0 where the share keeps its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=15, help="of each phase")
    seconds = parser.parse_args().seconds
    phase, ends, counted = "all there", threading.Event(), Counter[tuple[str, bool]]()
    slowest: dict[str, float] = {}
    ports = [free_port(), free_port()]
    here, there = (f"http://127.0.0.1:{port}/v1/resolve/{NAME}@champion" for port in ports)
    orders = itertools.cycle([(here, there), (there, here)])

    def call(session: requests.Session) -> None:
        while not ends.is_set():
            asked, began = phase, time.perf_counter()
            counted[asked, any(_answers(session, address) for address in next(orders))] += 1
            slowest[asked] = max(slowest.get(asked, 0.0), time.perf_counter() - began)

    with tempfile.TemporaryDirectory() as folder, s3_server() as proxy:
        os.environ |= proxy.environment | {FOLDER: f"{folder}/cache", "MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}
        store = ArtifactStore.open(f"s3://{BUCKET}/store")
        gate = make_gate(store)
        gate.run(gate.model(1))
        headers = {"Authorization": f"Bearer {create_token(store, 'load', ['read'], 1)}"}
        servers = [_started(store.address, port) for port in ports]
        sessions = [requests.Session() for _ in range(CALLERS)]
        for session in sessions:
            session.headers.update(headers)
        callers = [threading.Thread(target=call, args=(session,)) for session in sessions]
        try:
            for thread in callers:
                thread.start()
            time.sleep(seconds)
            phase = "store away"
            proxy.faults.extend(Fault("reset", method, times=10**9) for method in ("GET", "HEAD", "PUT"))
            time.sleep(seconds)
            proxy.faults.clear()
            for number in range(2):
                phase = f"server {number + 1} killed"
                servers[number].kill()
                servers[number].wait()
                time.sleep(seconds)
                servers[number] = _started(store.address, ports[number])
        finally:
            ends.set()
            for caller in callers:
                caller.join()
            for server in servers:
                server.terminate()
                server.wait()
    for phase in slowest:
        answered, failed = counted[phase, True], counted[phase, False]
        print(f"{phase}: {answered:,} answered, {failed:,} failed, slowest {slowest[phase]:.2f} s")
    share = sum(number for (_, answered), number in counted.items() if answered) / counted.total()
    print(f"{share:.4%} of {counted.total():,} answered; expected {LIMIT:.1%}")
    return 0 if share >= LIMIT else 1


def _answers(session: requests.Session, address: str) -> bool:
    try:
        answer = session.get(address, timeout=5)
    except requests.RequestException:
        return False
    return bool(answer.status_code == 200 and answer.json()["version"] == 1)


def _started(address: str, port: int) -> "subprocess.Popen[bytes]":
    options = ["--store", address, "--port", str(port), "--rate", "100000"]
    quiet = subprocess.DEVNULL
    command = [sys.executable, "-m", "gatehouse.cli.main", "serve", *options]
    server = subprocess.Popen(command, stdout=quiet, stderr=quiet)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            if requests.get(f"http://127.0.0.1:{port}/health/ready", timeout=5).ok:
                return server
        except requests.RequestException:
            time.sleep(0.2)
    server.kill()
    raise SystemExit(f"the server at port {port} was not ready within 120 s")


if __name__ == "__main__":
    sys.exit(main())
