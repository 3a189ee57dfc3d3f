"""Historical features through Feast's API: our offline store, and Feast's own.

The same calls for all, with `filter_by_created_timestamp`, which makes Feast's stores look at the created time as ours
always does; every contestant runs in each round, in a process of its own; medians and peak memory. Feast's default
store joins on the keys first and filters afterwards (it takes more than 24 GiB at full size), so it is compared at a
tenth. `--tenfold` runs ours on ten times the rows as well. Feast's DuckDB store runs in an environment of its own.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

VIEWS, KEYS, COLUMNS = 3, 3_000, 4
STORES = {
    "ours": "gatehouse.components.features.offline_store.AsofOfflineStore",
    "Feast's DuckDB store": "duckdb",
    "Feast's default store": "dask",
}
TIMES_FASTER, PEAK_GB = 12, 1.0


def main() -> int:
    """Measure and print one line a contestant; fails below the speed or above the memory that is promised."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--entity-rows", type=int, default=300_000)
    parser.add_argument("--feature-rows", type=int, default=1_000_000, help="of each view")
    parser.add_argument("--tenfold", action="store_true", help="also run ours on ten times the rows")
    parser.add_argument("--one", nargs=2, metavar=("STORE", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.one:
        print(json.dumps(measured(options.one[0], Path(options.one[1]))))
        return 0
    entity_rows, feature_rows = options.entity_rows, options.feature_rows
    full = compare(["ours", "Feast's DuckDB store"], entity_rows, feature_rows, options.rounds)
    compare(list(STORES), entity_rows // 10, feature_rows // 10, options.rounds)
    if options.tenfold:
        compare(["ours"], entity_rows * 10, feature_rows * 10, 1)
    pairs = zip(full["Feast's DuckDB store"], full["ours"], strict=True)
    faster = statistics.median(theirs["wall"] / ours["wall"] for theirs, ours in pairs)
    peak = max(run["peak"] for run in full["ours"])
    print(f"\n{faster:.1f} times faster (at least {TIMES_FASTER}), peak {peak:.2f} GB (at most {PEAK_GB})")
    return 0 if faster >= TIMES_FASTER and peak <= PEAK_GB else 1


def compare(stores: list[str], entity_rows: int, feature_rows: int, rounds: int) -> dict[str, list[dict[str, float]]]:
    """Run each store in each round on the same data, and print its line."""
    from _peers import run_peer

    runs: dict[str, list[dict[str, float]]] = {name: [] for name in stores}
    with tempfile.TemporaryDirectory() as directory:
        make_data(Path(directory), entity_rows, feature_rows)
        for _ in range(rounds):
            for name in stores:
                if name == "Feast's DuckDB store":
                    runs[name].append(run_peer("feast_duckdb", STORES[name], directory))
                    continue
                command = [sys.executable, __file__, "--one", STORES[name], directory]
                ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
                runs[name].append(json.loads(ended.stdout.splitlines()[-1]))
    print(f"\n{entity_rows:,} entity rows, {VIEWS} views of {feature_rows:,} rows, {KEYS:,} keys")
    for name, each in runs.items():
        wall, cpu = (statistics.median(run[measure] for run in each) for measure in ("wall", "cpu"))
        ratio = statistics.median(run["wall"] / ours["wall"] for run, ours in zip(each, runs["ours"], strict=True))
        peak = max(run["peak"] for run in each)
        rows = each[0]["rows"]
        print(f"{name:<22} {wall:7.2f} s {cpu:7.2f} s CPU {peak:6.2f} GB {ratio:6.1f} x ours  {rows:>9,} rows")
    return runs


def make_data(folder: Path, entity_rows: int, feature_rows: int) -> None:
    """Three views with rows known up to an hour late, and entity rows, over a year."""
    generator = np.random.default_rng(7)
    start, year = 1_356_998_400, int(timedelta(days=365).total_seconds())

    def moments(count: int) -> Any:
        return (start + generator.integers(0, year, count)) * 1_000_000

    kind = pa.timestamp("us", "UTC")
    for view in range(VIEWS):
        events = moments(feature_rows)
        created = events + generator.integers(0, 3600, feature_rows) * 1_000_000
        table: dict[str, Any] = {"key": generator.integers(0, KEYS, feature_rows)}
        table |= {"event_timestamp": pa.array(events, kind), "created": pa.array(created, kind)}
        table |= {f"v{view}_{number}": generator.normal(size=feature_rows) for number in range(COLUMNS)}
        pq.write_table(pa.table(table), folder / f"view{view}.parquet")
    rows = {"key": generator.integers(0, KEYS, entity_rows), "event_timestamp": pa.array(moments(entity_rows), kind)}
    pq.write_table(pa.table(rows), folder / "rows.parquet")


def measured(store: str, folder: Path) -> dict[str, float]:
    """Seconds of one retrieval, from the call to the result, and the peak memory of this process."""
    frame = pq.read_table(folder / "rows.parquet").to_pandas()
    features = [f"view{view}:v{view}_{number}" for view in range(VIEWS) for number in range(COLUMNS)]
    with tempfile.TemporaryDirectory() as registry:
        feast = _feast(folder, Path(registry), store)
        wall, cpu = time.perf_counter(), time.process_time()
        found = feast.get_historical_features(frame, features, filter_by_created_timestamp=True).to_arrow()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"wall": wall, "cpu": cpu, "peak": peak, "rows": found.num_rows}


def _feast(folder: Path, registry: Path, store: str) -> Any:
    from feast import Entity, FeatureStore, FeatureView, Field, FileSource, RepoConfig
    from feast.types import Float64
    from feast.value_type import ValueType

    config = RepoConfig(
        project="benchmark",
        registry=str(registry / "registry.db"),
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
            schema=[Field(name=f"v{view}_{number}", dtype=Float64) for number in range(COLUMNS)],
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


if __name__ == "__main__":
    raise SystemExit(main())
