"""Replays rows of the past as live traffic: a predictor in a process of its own, clients, and outcomes as they come."""

import math
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import requests

from gatehouse.api.models import roll_out
from gatehouse.evaluation.spec import GatePolicy
from gatehouse.registry.ledger import Ledger
from gatehouse.registry.rollout_stage import StepResult
from gatehouse.server.prediction_log import PredictionLog
from gatehouse.store.store import ArtifactStore
from tests.ports import free_port

BATCH, CLIENTS, PATIENCE = 100, 2, 300.0
SPOOLED = 1.5
"""Seconds after which the rows of an answer are in the spool, where a kill does not reach them."""


class Client:
    """Asks a predictor of a model at an address."""

    def __init__(self, store: ArtifactStore, name: str, address: str) -> None:
        self.store, self.name, self.address = store, name, address

    def described(self) -> dict[str, Any]:
        body: dict[str, Any] = requests.get(f"{self.address}/v2/models/{self.name}", timeout=60).json()
        return body

    def follows(self) -> None:
        """Wait until it serves what the ledger says."""
        state, until = Ledger(self.store, self.name).state(), time.monotonic() + PATIENCE
        while (parameters := self.described()["parameters"])["share"] != state.canary_share or parameters[
            "aliases"
        ].get("champion") != state.champion:
            assert time.monotonic() < until, parameters
            time.sleep(0.1)

    def send(self, rows: pa.Table) -> int:
        """Let clients ask for rows, with their keys and times; the number of answered rows."""
        described = self.described()
        tensors = [*described["inputs"], *described["parameters"]["identity"]]
        session = requests.Session()

        def ask(batch: pa.Table) -> int:
            inputs = [
                {
                    "name": tensor["name"],
                    "datatype": tensor["datatype"],
                    "shape": [batch.num_rows],
                    "data": [_plain(value) for value in batch[tensor["name"]].to_pylist()],
                }
                for tensor in tensors
                if tensor["name"] in batch.column_names
            ]
            answer = session.post(
                f"{self.address}/v2/models/{self.name}/infer", json={"inputs": inputs}, timeout=PATIENCE
            )
            answer.raise_for_status()
            return batch.num_rows

        with ThreadPoolExecutor(CLIENTS) as clients:
            return sum(clients.map(ask, [rows.slice(at, BATCH) for at in range(0, rows.num_rows, BATCH)]))


class Predictor(Client):
    """A predictor of a model that follows the ledger and logs; it can be killed, and another one started."""

    def __init__(self, store: ArtifactStore, name: str) -> None:
        super().__init__(store, name, f"http://127.0.0.1:{free_port()}")
        options = ["--port", self.address.rpartition(":")[2], "--follow", "0.3", "--log", "none"]
        command = [sys.executable, "-m", "gatehouse.cli.main", "predictor", name, "--store", store.address, *options]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        until = time.monotonic() + PATIENCE
        while not self._ready():
            if self.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the predictor of {name} did not start: {self.process.poll()}")
            time.sleep(0.2)

    def _ready(self) -> bool:
        try:
            return requests.get(f"{self.address}/v2/health/ready", timeout=5).ok
        except requests.ConnectionError:
            return False

    def kill(self) -> None:
        """Kill it as a lost node does, once its rows are spooled; the next one sends them."""
        time.sleep(SPOOLED)
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return None if isinstance(value, float) and math.isnan(value) else value


def write_outcomes(rows: pa.Table, keys: list[str], label: str, path: Path) -> None:
    """What came of rows: their label, known a day after the decision if they have a time, else now."""
    outcomes = rows.select([*keys, label])
    if "decision_time" in rows.column_names:
        known = [time + timedelta(days=1) for time in rows["decision_time"].to_pylist()]
        outcomes = outcomes.append_column("decision_time", rows["decision_time"])
        outcomes = outcomes.append_column("known", pa.array(known, pa.timestamp("us", "UTC")))
    pq.write_table(outcomes, path)


def replay(
    store: ArtifactStore,
    name: str,
    policy: GatePolicy,
    rows: pa.Table,
    keys: list[str],
    label: str,
    each: int,
    outcomes: Path,
) -> list[StepResult]:
    """Serve rows in parts of `each`, and take a step after each part, until no canary is left; the steps.

    The predictor is killed after every part.
    """
    sent, begun = 0, Ledger(store, name).state().canary
    steps = [] if begun else [roll_out(store, name, policy, "", {})[0]]
    timed = {"label_time": "known"} if "decision_time" in rows.column_names else {}
    while Ledger(store, name).state().canary and sent < rows.num_rows:
        predictor = Predictor(store, name)
        predictor.follows()
        sent += predictor.send(rows.slice(sent, each))
        predictor.kill()
        PredictionLog(store, name).send()  # What the dead one left, as the next predictor does.
        write_outcomes(rows.slice(0, sent), keys, label, outcomes)
        steps.append(roll_out(store, name, policy, str(outcomes), {"label": label, **timed})[0])
    return steps
