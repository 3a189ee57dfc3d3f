"""Historical features through Feast's API: our offline store, and Feast's own.

Three data sets: nothing late and no ties, ties, delays up to three days. The same calls for all, with
`filter_by_created_timestamp`, which makes Feast's stores look at the created time as ours always does; every contestant
runs in each round, in a process of its own, which is killed after a time; medians and peak memory. Feast's default
store joins on the keys first and filters afterwards (it takes more than 24 GiB at full size), so it is compared at a
tenth. Ours runs on ten times the rows as well: its time may grow no faster than n log n, and its memory not above what
is set. Feast's DuckDB store runs in an environment of its own. `--quick` takes a tenth of the rows everywhere.
"""

import argparse
import json
import math
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

import pyarrow.parquet as pq
from _join_data import COLUMNS, DATA, KEYS, VIEWS, make_data

STORES = {
    "ours": "gatehouse.features.point_in_time.offline_store.AsofOfflineStore",
    "Feast's DuckDB store": "duckdb",
    "Feast's default store": "dask",
}
TIMES_FASTER, PEAK_GB, TIMEOUT = 12, 1.0, 1200.0
MEMORY_GB = 2.0  # What a retrieval takes at most.


def main() -> int:
    """Measure and print one line a contestant; fails below the speed or above the memory that is promised."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--entity-rows", type=int, default=300_000)
    parser.add_argument("--feature-rows", type=int, default=1_000_000, help="of each view")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    parser.add_argument("--one", nargs=2, metavar=("STORE", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.one:
        print(json.dumps(measured(options.one[0], Path(options.one[1]))))
        return 0
    scale = 10 if options.quick else 1
    rows = options.entity_rows // scale, options.feature_rows // scale
    missed = []
    for data in DATA:
        full = compare(data, ["ours", "Feast's DuckDB store"], rows, options.rounds)
        faster, peak = ratio(full, "Feast's DuckDB store", "wall"), max(run["peak"] for run in full["ours"])
        print(
            f"{faster:.1f} times faster (at least {TIMES_FASTER}), peak {peak:.2f} GB (at most {PEAK_GB})", flush=True
        )
        missed += [data] if not options.quick and (faster < TIMES_FASTER or peak > PEAK_GB) else []
    late = list(DATA)[-1]
    compare(late, list(STORES), (rows[0] // 10, rows[1] // 10), options.rounds)
    tenfold = compare(late, ["ours"], (rows[0] * 10, rows[1] * 10), 1)["ours"][0]
    # 10 n log(10 n) over n log n, of the rows that are sorted.
    allowed = 10 * math.log(10 * rows[1]) / math.log(rows[1])
    grew = tenfold["cpu"] / statistics.median(run["cpu"] for run in full["ours"])
    memory = f"peak {tenfold['peak']:.2f} GB (at most {MEMORY_GB})"
    print(f"ten times the rows: {grew:.1f} x the CPU time (at most {allowed:.1f}), {memory}")
    missed += ["ten times the rows"] if grew > allowed or tenfold["peak"] > MEMORY_GB else []
    print(f"MISSED: {', '.join(missed)}" if missed else "All limits are kept.")
    return 1 if missed else 0


def ratio(runs: dict[str, list[dict[str, float]]], name: str, measure: str) -> float:
    """The median over the rounds of what a contestant took for each of ours."""
    return statistics.median(run[measure] / own[measure] for run, own in zip(runs[name], runs["ours"], strict=True))


def compare(data: str, stores: list[str], size: tuple[int, int], rounds: int) -> dict[str, list[dict[str, float]]]:
    """Run each store in each round on the same data, and print its line."""
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in stores}
    with tempfile.TemporaryDirectory() as directory:
        make_data(Path(directory), size, *DATA[data])
        for _ in range(rounds):
            for name in stores:
                runs[name].append(run_store(name, directory))
    print(f"\n{data}: {size[0]:,} entity rows, {VIEWS} views of {size[1]:,} rows, {KEYS:,} keys")
    for name, measured in runs.items():
        wall, cpu = (statistics.median(run[measure] for run in measured) for measure in ("wall", "cpu"))
        times, peak, rows = ratio(runs, name, "wall"), max(run["peak"] for run in measured), measured[0]["rows"]
        print(
            f"{name:<22} {wall:7.2f} s {cpu:7.2f} s CPU {peak:6.2f} GB {times:6.1f} x ours  {rows:>9,} rows",
            flush=True,
        )
    return runs


def run_store(name: str, directory: str) -> dict[str, float]:
    """One retrieval in a process of its own. Who is killed took the time that it had, at least."""
    from _peers import run_peer

    try:
        if name == "Feast's DuckDB store":
            return dict(run_peer("feast_duckdb", STORES[name], directory, timeout=TIMEOUT))
        command = [sys.executable, __file__, "--one", STORES[name], directory]
        ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=TIMEOUT)
        return dict(json.loads(ended.stdout.splitlines()[-1]))
    except subprocess.TimeoutExpired:
        return {"wall": TIMEOUT, "cpu": math.nan, "peak": math.nan, "rows": 0}


def measured(store: str, folder: Path) -> dict[str, float]:
    """Seconds of one retrieval, from the call to the result, and the peak memory of this process."""
    frame = pq.read_table(folder / "rows.parquet").to_pandas()
    features = [f"view{view}:v{view}_{number}" for view in range(VIEWS) for number in range(COLUMNS)]
    with tempfile.TemporaryDirectory() as registry:
        feast = _feast(folder, Path(registry), store)
        wall, cpu = time.perf_counter(), time.process_time()
        joined = feast.get_historical_features(frame, features, filter_by_created_timestamp=True).to_arrow()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"wall": wall, "cpu": cpu, "peak": peak, "rows": joined.num_rows}


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
