"""Judges the 12 checks of contract_rules.py with pandera; prints CPU and wall seconds of each round as JSON."""

import json
import sys
import time

import pandas as pd

COLUMNS = ["year", "carrier", "dest", "month", "distance", "hour", "origin", "tailnum", "dep_time", "sched_dep_time"]


def main() -> None:
    # This file has the name of the package, so the folder is taken off the path first.
    sys.path.pop(0)
    import pandera.pandas as pa

    schema = pa.DataFrameSchema(
        {
            "year": pa.Column(nullable=False),
            "carrier": pa.Column(nullable=False),
            "dest": pa.Column(checks=pa.Check.str_length(3, 3), nullable=False),
            "month": pa.Column(checks=pa.Check.in_range(1, 12), nullable=True),
            "distance": pa.Column(checks=pa.Check.in_range(17, 5000), nullable=True),
            "hour": pa.Column(checks=pa.Check.in_range(0, 23), nullable=True),
            "origin": pa.Column(checks=pa.Check.isin(["EWR", "JFK", "LGA"]), nullable=True),
            "tailnum": pa.Column(checks=pa.Check.str_matches("^N?[0-9A-Z]+$"), nullable=True),
            "dep_time": pa.Column(
                checks=pa.Check(lambda values: bool(values.notna().mean() >= 0.95), ignore_na=False), nullable=True
            ),
        },
        checks=[
            pa.Check(lambda frame: frame["sched_dep_time"] // 100 == frame["hour"]),
            pa.Check(lambda frame: len(frame) >= 1000),
        ],
    )
    path, rounds = sys.argv[1], int(sys.argv[2])
    times = []
    for _ in range(rounds):
        wall, cpu = time.perf_counter(), time.process_time()
        schema.validate(pd.read_parquet(path, columns=COLUMNS), lazy=True)
        times.append([time.process_time() - cpu, time.perf_counter() - wall])
    print(json.dumps(times))


if __name__ == "__main__":
    main()
