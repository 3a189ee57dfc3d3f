"""`gatehouse features stream`: micro-batches from a topic into the online store give what one batch gives."""

import os
import random
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from gatehouse.api.features import Batch, Features
from gatehouse.errors import ContractBreachError
from gatehouse.store.store import ArtifactStore
from tests.cli.feature_place import DEFINITIONS, LABEL, NOON, TIPPED, write_features
from tests.kafka_broker import Broker

FARES = """SELECT driver, ended AS event_timestamp, fare,
    sum(fare) OVER (PARTITION BY driver ORDER BY ended RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW) AS hour
FROM raw.trips"""


@pytest.fixture
def project(broker: Broker, tmp_path: Path) -> Path:
    """A project whose rides come from a topic."""
    folder = tmp_path / "project"
    definitions = DEFINITIONS.replace('"town": "categorical"', '"hour": "numeric"')
    definitions = definitions.replace("ttl=timedelta(hours=2)", "ttl=timedelta(hours=200), window=timedelta(hours=1)")
    files = {"definitions.py": definitions, "views/trips.sql": FARES, "labels/paid.sql": LABEL.replace("fare", "fare")}
    write_features(folder, files | {"on_demand/tipped.sql": TIPPED})
    columns = {"driver": "string", "ended": "timestamp", "fare": "double", "kafka_offset": "int64"}
    rides = {"topic": "rides", "columns": columns, "event_time": "ended", "availability_lag": "PT5M"}
    rides["guards"] = {"row_count": "accept", "duplicate_part": "accept", "rewrite": "accept"}
    source = {"name": "rides", "kind": "kafka", "servers": broker.address, "rows_per_part": 64}
    body = yaml.safe_load((folder / "project.yaml").read_text())
    body["source"] = source | {"tables": {"trips": rides}}
    (folder / "project.yaml").write_text(yaml.safe_dump(body))
    contract = {"version": 1, "tables": {"trips": {"columns": {"fare": {"type": "double", "min": 0}}}}}
    (folder / "contract.yaml").write_text(yaml.safe_dump(contract))
    return folder


def rides(start: int, stop: int, fare: float = 1.5) -> list[dict[str, Any]]:
    """A ride each minute, of one of seven drivers; each tenth comes an hour late."""
    moments = [NOON + timedelta(minutes=number - 60 * (number % 10 == 9)) for number in range(start, stop)]
    return [
        {"driver": f"d{number % 7}", "ended": moment.isoformat(), "fare": fare + number % 3}
        for number, moment in zip(range(start, stop), moments, strict=True)
    ]


def stream(project: Path, store: Path, batches: int, service: str = "pay") -> list[Batch]:
    features = Features.of(project, str(ArtifactStore.open(store).address), needed=True)
    generator = features.stream(service, timedelta(seconds=0.1))
    return [next(generator) for _ in range(batches)]


def served(project: Path, store: Path, to: Path) -> list[dict[str, Any]]:
    """The features of all drivers, as the online store has them."""
    rows = to.with_suffix(".csv")
    rows.write_text("driver\n" + "".join(f"d{number}\n" for number in range(7)))
    features = Features.of(project, str(store), needed=True)
    features.retrieve(rows, to, "pay", at=(NOON + timedelta(hours=20)).isoformat())
    rows_of_all: list[dict[str, Any]] = pq.read_table(to).to_pylist()
    return rows_of_all


def test_batches_bring_new_rows_online_and_say_what_is_behind(project: Path, broker: Broker, tmp_path: Path) -> None:
    broker.send("rides", rides(0, 100))
    features = Features.of(project, str(ArtifactStore.open(tmp_path / "store").address), needed=True)
    batches = features.stream("pay", timedelta(seconds=0.1))
    first = next(batches)
    assert (first.rows, first.new, first.behind, first.verdict) == (100, 100, 0, "pass") and first.written == 7
    broker.send("rides", rides(100, 130), partition=1)
    second = next(batches)
    assert (second.rows, second.new, second.verdict) == (130, 30, "pass") and 0 < second.written <= 7
    assert any("late" in warning for warning in second.warnings)
    assert second.rows_a_second == pytest.approx(30 / second.seconds)


def test_a_stream_killed_at_any_moment_serves_what_one_batch_serves(
    project: Path, broker: Broker, tmp_path: Path
) -> None:
    chance, store = random.Random(8), tmp_path / "store"
    ArtifactStore.open(store)
    command = [sys.executable, "-m", "gatehouse.cli.main", "features", "stream", "--service", "pay", "--every", "0"]
    command += ["--project", str(project), "--store", str(store)]
    for number in range(4):
        broker.send("rides", rides(number * 80, number * 80 + 80), partition=number % 2)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ)
        time.sleep(chance.uniform(1.5, 6))
        process.send_signal(signal.SIGKILL)
        process.wait()
    stream(project, store, 1)
    stream(project, tmp_path / "whole", 1)
    assert served(project, store, tmp_path / "a.parquet") == served(project, tmp_path / "whole", tmp_path / "b.parquet")


def test_rows_that_break_the_contract_are_not_served(project: Path, broker: Broker, tmp_path: Path) -> None:
    broker.send("rides", rides(0, 100))
    store = tmp_path / "store"
    stream(project, store, 1)
    before = served(project, store, tmp_path / "a.parquet")
    broker.send("rides", rides(100, 110, fare=-50))
    with pytest.raises(ContractBreachError):
        stream(project, store, 1)
    assert served(project, store, tmp_path / "b.parquet") == before
