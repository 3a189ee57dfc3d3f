"""The predictor with and without log, canary and shadow, beside KServe's own Python server; live outcomes; a stream.

One client asks the servers in turns, request by request, so that a busy moment meets all of them. Each request has one
row. KServe's server has a logistic regression in NumPy; ours transforms the row and asks a PyTorch model. Live outcomes
are compared with the join alone in hand-written SQL, and a topic with a consumer that parses its records with `json`.
"""

import argparse
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
from _peers import FOLDER, environment_of
from _race import kept, seconds_of

from gatehouse.data.sources.catalog import parse_source
from gatehouse.data.sources.kafka import KafkaReader, KafkaSource
from gatehouse.evaluation.spec import LiveRules
from gatehouse.metrics.catalogue import metrics_for
from gatehouse.metrics.tasks import TASKS
from gatehouse.monitoring.live import judge, with_outcomes
from gatehouse.registry.ledger import CANARY, CHAMPION
from gatehouse.store.store import ArtifactStore
from tests.kafka_broker import kafka_broker
from tests.ports import free_port
from tests.server.live import make_live, tensors
from tests.training.synthetic import table

LOG_P99, LIVE, STREAM, KSERVE = 1.05, 6.0, 4.0, 2.5
RECORDS = 40_000
"""Records of each of four partitions, which the broker of tests holds."""


def main() -> int:
    """Measure, print, and say whether the limits are kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--rows", type=int, default=1_000_000, help="Rows of the log.")
    parser.add_argument("--without-kserve", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        good = _servers(Path(folder), options.requests, not options.without_kserve)
    good &= _outcomes(options.rows)
    return 0 if good & _topic() else 1


def _servers(folder: Path, requests: int, with_kserve: bool) -> bool:
    variants: dict[str, tuple[Sequence[str], bool]] = {
        "alone": ((), False),
        "log": (("--log", "all"), False),
        "log and canary": (("--log", "all"), True),
    }
    body = json.dumps({"inputs": tensors(table(1), keys=True)}).encode()
    seconds: dict[str, list[float]] = {}
    with ExitStack() as stack:
        asked: dict[str, http.client.HTTPConnection] = {}
        for name, (arguments, canary) in variants.items():
            store = folder / name.replace(" ", "-")
            live = make_live(ArtifactStore.open(store))
            live.promote(1, CHAMPION)
            if canary:
                live.promote(2, CANARY, 0.5)
            port = free_port()
            command = [sys.executable, "-m", "gatehouse.cli.main", "predictor", "delays", "--store", str(store)]
            _start(stack, [*command, "--port", str(port), *arguments])
            asked[name] = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        if with_kserve:
            port = free_port()
            python = environment_of("kserve_server")
            _start(stack, [str(python), str(FOLDER / "kserve_server.py"), str(port)])
            asked["KServe"] = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        for connection in asked.values():
            _wait(connection, body)
        for connection in asked.values():
            connection.close()  # A server ends a connection that was idle for seconds; the next request opens one.
        for number in range(requests + 200):
            for name, connection in asked.items():
                began = time.perf_counter()
                status = _ask(connection, body)
                if number >= 200:
                    seconds.setdefault(name, []).append(time.perf_counter() - began)
                assert status == 200, f"{name} answered {status}"
    p50, p99 = ({name: float(np.percentile(taken, q)) for name, taken in seconds.items()} for q in (50, 99))
    for name in seconds:
        print(f"{name:<16} {1 / p50[name]:7.0f} requests/s, p50 {p50[name] * 1e3:.2f} ms, p99 {p99[name] * 1e3:.2f} ms")
    good = kept("p99 with the log, of that without", p99["log"] / p99["alone"], most=LOG_P99)
    if with_kserve:
        good &= kept("p50 alone, of KServe's server", p50["alone"] / p50["KServe"], most=KSERVE)
    return good


def _start(stack: ExitStack, command: list[str]) -> None:
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, env=os.environ, **quiet)
    stack.callback(process.wait)
    stack.callback(process.terminate)


def _ask(connection: http.client.HTTPConnection, body: bytes) -> int:
    connection.request("POST", "/v2/models/delays/infer", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    answer.read()
    return answer.status


def _wait(connection: http.client.HTTPConnection, body: bytes) -> None:
    for _ in range(600):
        try:
            if _ask(connection, body) == 200:
                return
        except OSError:
            connection.close()
        time.sleep(0.1)
    raise RuntimeError("a server did not start")


def _outcomes(rows: int) -> bool:
    """Join and judge a log, beside the join alone."""
    draw, begin = np.random.default_rng(0), datetime(2030, 1, 1, tzinfo=UTC)
    times = pa.array((np.arange(rows) * 1_000_000 + int(begin.timestamp() * 1e6)), pa.timestamp("us", "UTC"))
    inside, chance = draw.random(rows) < 0.3, draw.uniform(0.1, 0.9, rows)
    units = [f"k{number}" for number in draw.integers(0, rows // 3, rows)]
    log = pa.table(
        {
            "request_id": [f"r{number}" for number in range(rows)],
            "decision_time": times,
            "requested_at": times,
            "unit": units,
            "arm": np.where(inside, CANARY, CHAMPION),
            "share": np.full(rows, 0.3),
            "latency_ms": draw.exponential(5.0, rows),
            "error": pa.nulls(rows, pa.string()),
            "probability": chance,
        }
    )
    label = (draw.random(rows) < chance).astype(np.int64)
    outcomes = pa.table({"request_id": log["request_id"], "label": label}).take(draw.permutation(rows))
    rules = LiveRules(metrics={"log_loss": 0.01})

    def ours() -> None:
        joined, _ = with_outcomes(log, outcomes, ["request_id"], "", None)
        labels = joined["label"].to_numpy().astype(float)
        judge(
            joined,
            rules,
            labels,
            TASKS["binary"].read(joined["probability"].to_numpy(), None),
            metrics_for("binary", ()),
        )

    def by_hand() -> None:
        connection = duckdb.connect()
        connection.register("log", log)
        connection.register("outcomes", outcomes)
        connection.sql("SELECT * FROM log LEFT JOIN outcomes USING (request_id) ORDER BY requested_at").to_arrow_table()

    taken, alone = (min(seconds_of(work) for _ in range(3)) for work in (ours, by_hand))
    print(f"live outcomes {rows / taken:,.0f} rows/s")
    return kept("live outcomes, of the join alone", taken / alone, most=LIVE)


def _topic() -> bool:
    """Read a topic as a snapshot does, beside a consumer."""
    from confluent_kafka import Consumer, TopicPartition

    columns = {"id": "int64", "item": "string", "at": "timestamp"}
    with kafka_broker() as broker:
        bodies = [{"id": number, "item": "abc", "at": "2024-03-01T00:00:00Z"} for number in range(RECORDS)]
        for partition in range(4):
            broker.send("t", bodies, partition)
        tables = {"orders": {"topic": "t", "columns": columns}}
        spec = parse_source({"name": "s", "kind": "kafka", "servers": broker.address, "tables": tables})
        assert isinstance(spec, KafkaSource)

        def ours() -> None:
            with KafkaReader(spec) as reader:
                assert sum(part.read().table.num_rows for part in reader.parts("orders")) == 4 * RECORDS

        def by_hand() -> None:
            consumer, count = Consumer({"bootstrap.servers": broker.address, "group.id": "x"}), 0
            consumer.assign([TopicPartition("t", partition, 0) for partition in range(4)])
            while count < 4 * RECORDS:
                count += len([json.loads(record.value()) for record in consumer.consume(10_000, timeout=1)])
            consumer.close()

        taken, alone = (min(seconds_of(work) for _ in range(2)) for work in (ours, by_hand))
    print(f"a topic {4 * RECORDS / taken:,.0f} records/s")
    return kept("a topic, of a consumer with json", taken / alone, most=STREAM)


if __name__ == "__main__":
    sys.exit(main())
