"""Historical features through Feast's API: our offline store, Feast's default one, and plain DuckDB as the limit.

The same entity rows and feature views for all; medians of several rounds, as ratios to the limit. Feast's default store
joins on the keys first and filters afterwards, so its size is kept small here.
"""

import argparse
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
from feast import Entity, FeatureStore, FeatureView, Field, FileSource, RepoConfig
from feast.types import Float64
from feast.value_type import ValueType

OURS = "gatehouse.components.features.offline_store.AsofOfflineStore"
VIEWS, KEYS = 3, 3_000


def main() -> None:
    """Measure and print one line a contestant."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--entity-rows", type=int, default=30_000)
    parser.add_argument("--feature-rows", type=int, default=100_000, help="of each view")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        frame = _make_data(folder, options.entity_rows, options.feature_rows)
        contestants: dict[str, Callable[[], object]] = {
            "DuckDB ASOF join alone (the limit)": lambda: _plain(folder, frame),
            "Feast with AsofOfflineStore": _joined(_feast(folder, "ours", OURS), frame),
            "Feast with its default store": _joined(_feast(folder, "default", "dask"), frame),
        }
        seconds: dict[str, list[float]] = {name: [] for name in contestants}
        for _ in range(options.rounds):
            for name, contestant in contestants.items():
                began = time.perf_counter()
                contestant()
                seconds[name].append(time.perf_counter() - began)
    limit = statistics.median(next(iter(seconds.values())))
    print(f"{options.entity_rows:,} entity rows, {VIEWS} views of {options.feature_rows:,} rows, {KEYS:,} keys")
    for name, taken in seconds.items():
        median = statistics.median(taken)
        print(f"{name:<36} {median:7.3f} s  {median / limit:6.1f} x the limit")


def _make_data(folder: Path, entity_rows: int, feature_rows: int) -> pd.DataFrame:
    generator = np.random.default_rng(7)
    year = int(timedelta(days=365).total_seconds())

    def moments(count: int) -> pd.DatetimeIndex:
        seconds = pd.to_timedelta(generator.integers(0, year, count), unit="s")
        return (pd.Timestamp("2013-01-01", tz="UTC") + seconds).as_unit("us")

    for view in range(VIEWS):
        times = moments(feature_rows)
        delays = pd.to_timedelta(generator.integers(0, 3600, feature_rows), unit="s")
        columns = {f"v{view}_{n}": generator.normal(size=feature_rows) for n in range(4)}
        keys = generator.integers(0, KEYS, feature_rows)
        table = pd.DataFrame(
            {"key": keys, "event_timestamp": times, "created": (times + delays).as_unit("us"), **columns}
        )
        table.to_parquet(folder / f"view{view}.parquet")
    return pd.DataFrame({"key": generator.integers(0, KEYS, entity_rows), "event_timestamp": moments(entity_rows)})


def _feast(folder: Path, name: str, store: str) -> FeatureStore:
    config = RepoConfig(
        project=name,
        registry=str(folder / f"{name}.db"),
        provider="local",
        offline_store={"type": store},
        online_store=None,
        entity_key_serialization_version=3,
    )
    feast = FeatureStore(config=config)
    key = Entity(name="key", join_keys=["key"], value_type=ValueType.INT64)
    views = [
        FeatureView(
            name=f"view{view}",
            entities=[key],
            ttl=timedelta(days=60),
            schema=[Field(name=f"v{view}_{n}", dtype=Float64) for n in range(4)],
            source=FileSource(
                path=str(folder / f"view{view}.parquet"),
                timestamp_field="event_timestamp",
                created_timestamp_column="created",
            ),
        )
        for view in range(VIEWS)
    ]
    feast.apply([key, *views])
    return feast


def _joined(feast: FeatureStore, frame: pd.DataFrame) -> Callable[[], object]:
    features = [f"view{view}:v{view}_{n}" for view in range(VIEWS) for n in range(4)]
    return lambda: feast.get_historical_features(entity_df=frame, features=features).to_arrow()


def _plain(folder: Path, frame: pd.DataFrame) -> object:
    """One ASOF join a view, by event time alone: what no correct answer can be faster than."""
    joins = " ".join(
        f"ASOF LEFT JOIN read_parquet('{folder}/view{view}.parquet') v{view} "
        f"ON frame.key = v{view}.key AND frame.event_timestamp >= v{view}.event_timestamp"
        for view in range(VIEWS)
    )
    names = ", ".join(f"v{view}.v{view}_{n}" for view in range(VIEWS) for n in range(4))
    return duckdb.sql(f"SELECT frame.*, {names} FROM frame {joins}").to_arrow_table()


if __name__ == "__main__":
    main()
