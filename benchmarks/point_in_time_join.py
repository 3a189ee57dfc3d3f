"""The point-in-time join alone: ours, what one would write by hand in DuckDB, and polars in an environment of its own.

Three data sets: no ties and nothing late, ties, delays up to three days. A plain ASOF join answers the easier question
(event time only), and is the limit where nothing is late; where rows are late the limit is bitemporal SQL. Polars
answers the easier question as well and may not be faster at full size. Every contestant runs in each round, in its own
process; medians, as ratios to the limit, and peak memory.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from _join_data import COLUMNS, DATA, KEYS, VIEWS, make_data
from _peers import run_peer

from gatehouse.features.database import connect
from gatehouse.features.point_in_time.asof_join import Joined, asof_join

LIMIT = 1.3


def main() -> int:
    """Measure and print one line a contestant; fails above the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--entity-rows", type=int, default=300_000)
    parser.add_argument("--feature-rows", type=int, default=1_000_000, help="of each view")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    parser.add_argument("--one", nargs=2, metavar=("CONTESTANT", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(_measured(*options.one)))
        return 0
    if options.quick:
        options.entity_rows, options.feature_rows = options.entity_rows // 10, options.feature_rows // 10
    size = options.entity_rows, options.feature_rows
    print(f"{size[0]:,} entity rows, {VIEWS} views of {size[1]:,} rows, {KEYS:,} keys")
    kept = True
    contestants = [*CONTESTANTS, "polars"]
    for data, (step, delay) in DATA.items():
        with tempfile.TemporaryDirectory() as directory:
            make_data(Path(directory), size, step, delay, event="event", time="time")
            runs: dict[str, list[dict[str, float]]] = {name: [] for name in contestants}
            for _ in range(options.rounds):
                for name in contestants:
                    if name == "polars":
                        runs[name].append(run_peer("polars_join", directory))
                        continue
                    command = [sys.executable, __file__, "--one", name, directory]
                    ended = subprocess.run(command, capture_output=True, text=True, check=True)
                    runs[name].append(json.loads(ended.stdout))
        limit = "bitemporal SQL" if delay else "plain ASOF"
        print(f"\n{data}; the limit is {limit}")
        for name in contestants:
            pairs = zip(runs[name], runs[limit], strict=True)
            ratio = statistics.median(run["cpu"] / other["cpu"] for run, other in pairs)
            wall, cpu, peak = (statistics.median(run[key] for run in runs[name]) for key in ("wall", "cpu", "peak"))
            print(f"{name:<16} {wall:6.2f} s  {cpu:6.2f} s CPU  {peak:5.2f} GB  {ratio:5.2f} x the limit's CPU")
            kept &= name != "ours" or (ratio <= LIMIT and peak < 1.0)
        pairs = zip(runs["ours"], runs["polars"], strict=True)
        against = statistics.median(run["cpu"] / other["cpu"] for run, other in pairs)
        print(f"ours to polars   {against:5.2f} x its CPU (at most 1)")
        kept &= options.quick or against <= 1.0
    return 0 if kept else 1


def _measured(name: str, folder: str) -> dict[str, float]:
    rows = pq.read_table(Path(folder) / "rows.parquet")
    wall, cpu = time.perf_counter(), time.process_time()
    joined = CONTESTANTS[name](Path(folder), rows)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    assert joined.num_rows == rows.num_rows
    return {"wall": wall, "cpu": cpu, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}


def _names(view: int) -> list[str]:
    return [f"v{view}_{number}" for number in range(COLUMNS)]


def _gatehouse(folder: Path, rows: pa.Table) -> pa.Table:
    views = [
        Joined(
            table=f"read_parquet('{folder}/view{view}.parquet')",
            keys={"key": "key"},
            event="event",
            features={name: name for name in _names(view)},
            created="created",
        )
        for view in range(VIEWS)
    ]
    with connect() as connection:
        return asof_join(connection, rows, "time", views)


def _plain(folder: Path, rows: pa.Table) -> pa.Table:
    joins = " ".join(
        f"ASOF LEFT JOIN read_parquet('{folder}/view{view}.parquet') v{view} "
        f"ON frame.key = v{view}.key AND frame.time >= v{view}.event"
        for view in range(VIEWS)
    )
    names = ", ".join(f"v{view}.{name}" for view in range(VIEWS) for name in _names(view))
    with duckdb.connect() as connection:
        connection.register("frame", rows)
        return connection.sql(f"SELECT frame.*, {names} FROM frame {joins}").to_arrow_table()


def _bitemporal(folder: Path, rows: pa.Table) -> pa.Table:
    """A running maximum of an integer rank along the known time, an ASOF join on it, and a gather by rank."""
    result = rows
    with duckdb.connect() as connection:
        connection.register("frame", rows.append_column("row", pa.array(np.arange(rows.num_rows))))
        for view in range(VIEWS):
            names = ", ".join(f"versions.{name}" for name in _names(view))
            joined = connection.sql(
                f"""
                WITH versions AS MATERIALIZED (
                    SELECT *, greatest(event, created) AS known, row_number() OVER (ORDER BY event, created) AS rank
                    FROM read_parquet('{folder}/view{view}.parquet')
                ),
                best AS (SELECT key, known, max(rank) OVER (PARTITION BY key ORDER BY known) AS rank FROM versions),
                matched AS (
                    SELECT frame.row, best.rank
                    FROM frame ASOF LEFT JOIN best ON frame.key = best.key AND frame.time >= best.known
                )
                SELECT {names} FROM matched LEFT JOIN versions USING (rank) ORDER BY matched.row
                """
            ).to_arrow_table()
            for name in _names(view):
                result = result.append_column(name, joined[name])
    return result


CONTESTANTS = {"ours": _gatehouse, "plain ASOF": _plain, "bitemporal SQL": _bitemporal}


if __name__ == "__main__":
    raise SystemExit(main())
