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


class Load:
    """Callers that resolve the champion again and again, and count answers by phase."""

    def __init__(self, ports: list[int], secret: str) -> None:
        here, there = (f"http://127.0.0.1:{port}/v1/resolve/{NAME}@champion" for port in ports)
        self.addresses = itertools.cycle([(here, there), (there, here)])
        self.headers = {"Authorization": f"Bearer {secret}"}
        self.phase, self.ends = "all there", threading.Event()
        self.counted: Counter[tuple[str, str]] = Counter()
        self.slowest: dict[str, float] = {}

    def call(self) -> None:
        with requests.Session() as session:
            session.headers.update(self.headers)
            while not self.ends.is_set():
                phase, began = self.phase, time.perf_counter()
                answered = any(self._answered(session, address) for address in next(self.addresses))
                self.counted[phase, "answered" if answered else "failed"] += 1
                self.slowest[phase] = max(self.slowest.get(phase, 0.0), time.perf_counter() - began)

    def _answered(self, session: requests.Session, address: str) -> bool:
        try:
            answer = session.get(address, timeout=5)
        except requests.RequestException:
            return False
        return answer.status_code == 200 and answer.json()["version"] == 1


def main() -> int:
    """Run the phases; 0 where the share keeps its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=15, help="of each phase")
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as folder, s3_server() as proxy:
        os.environ |= proxy.environment | {FOLDER: f"{folder}/cache"}
        store = ArtifactStore.open(f"s3://{BUCKET}/store")
        gate = make_gate(store)
        gate.run(gate.model(1))
        os.environ["MLFLOW_TRACKING_URI"] = "http://127.0.0.1:9"
        ports = [free_port(), free_port()]
        load = Load(ports, create_token(store, "load", ["read"], 1))
        servers = [_started(store.address, port) for port in ports]
        callers = [threading.Thread(target=load.call) for _ in range(CALLERS)]
        try:
            for thread in callers:
                thread.start()
            time.sleep(seconds)
            load.phase = "store away"
            proxy.faults.extend(Fault("reset", method, times=10**9) for method in ("GET", "HEAD", "PUT"))
            time.sleep(seconds)
            proxy.faults.clear()
            for number in range(2):
                load.phase = f"server {number + 1} killed"
                servers[number].kill()
                servers[number].wait()
                time.sleep(seconds)
                servers[number] = _started(store.address, ports[number])
        finally:
            load.ends.set()
            for caller in callers:
                caller.join()
            for server in servers:
                server.terminate()
                server.wait()
    return _report(load)


def _report(load: Load) -> int:
    for phase in dict.fromkeys(phase for phase, _ in load.counted):
        answered, failed = load.counted[phase, "answered"], load.counted[phase, "failed"]
        print(f"{phase}: {answered:,} answered, {failed:,} failed, slowest {load.slowest[phase]:.2f} s")
    failed = sum(count for (_, what), count in load.counted.items() if what == "failed")
    share = 1 - failed / load.counted.total()
    print(f"{share:.4%} of {load.counted.total():,} answered; expected {LIMIT:.1%}")
    return 0 if share >= LIMIT else 1


def _started(address: str, port: int) -> "subprocess.Popen[bytes]":
    options = ["--store", address, "--port", str(port), "--rate", "100000"]
    quiet = subprocess.DEVNULL
    server = subprocess.Popen(
        [sys.executable, "-m", "gatehouse.cli.main", "serve", *options], stdout=quiet, stderr=quiet
    )
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
