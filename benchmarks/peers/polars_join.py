"""Joins by polars, on event time only; prints wall and CPU seconds, peak GB and rows as JSON."""

import json
import resource
import sys
import time
from pathlib import Path

import polars


def main() -> None:
    """Argument: the folder that point_in_time_join.py made."""
    folder = Path(sys.argv[1])
    rows = polars.read_parquet(folder / "rows.parquet")
    wall, cpu = time.perf_counter(), time.process_time()
    frame = rows.with_row_index("row").sort("time")
    for path in sorted(folder.glob("view*.parquet")):
        features = polars.read_parquet(path).sort("event").drop("created")
        frame = frame.join_asof(features, left_on="time", right_on="event", by="key").drop("event")
    joined = frame.sort("row").to_arrow()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"wall": wall, "cpu": cpu, "peak": peak, "rows": joined.num_rows}))


if __name__ == "__main__":
    main()
