"""Judges the 12 checks of contract_rules.py with Great Expectations; prints CPU and wall seconds of each round."""

import json
import os
import sys
import time

import pandas as pd

COLUMNS = ["year", "carrier", "dest", "month", "distance", "hour", "origin", "tailnum", "dep_time", "sched_dep_time"]


def main() -> None:
    # This file has the name of the package, so the folder is taken off the path first.
    sys.path.pop(0)
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    import great_expectations as gx

    expect = gx.expectations
    suite = gx.ExpectationSuite(
        name="flights",
        expectations=[
            *(expect.ExpectColumnValuesToNotBeNull(column=column) for column in ("year", "carrier", "dest")),
            expect.ExpectColumnValueLengthsToEqual(column="dest", value=3),
            expect.ExpectColumnValuesToBeBetween(column="month", min_value=1, max_value=12),
            expect.ExpectColumnValuesToBeBetween(column="distance", min_value=17, max_value=5000),
            expect.ExpectColumnValuesToBeBetween(column="hour", min_value=0, max_value=23),
            expect.ExpectColumnValuesToBeInSet(column="origin", value_set=["EWR", "JFK", "LGA"]),
            expect.ExpectColumnValuesToMatchRegex(column="tailnum", regex="^N?[0-9A-Z]+$"),
            expect.ExpectColumnValuesToNotBeNull(column="dep_time", mostly=0.95),
            # An expression over columns is a column computed before, as pandas sources take no SQL.
            expect.ExpectColumnPairValuesToBeEqual(column_A="departure_hour", column_B="hour"),
            expect.ExpectTableRowCountToBeBetween(min_value=1000),
        ],
    )
    path, rounds = sys.argv[1], int(sys.argv[2])
    times = []
    for _ in range(rounds):
        context = gx.get_context(mode="ephemeral")
        context.variables.progress_bars = {"globally": False}
        asset = context.data_sources.add_pandas("pandas").add_dataframe_asset("flights")
        batch = asset.add_batch_definition_whole_dataframe("all")
        wall, cpu = time.perf_counter(), time.process_time()
        frame = pd.read_parquet(path, columns=COLUMNS)
        frame["departure_hour"] = frame["sched_dep_time"] // 100
        result = batch.get_batch({"dataframe": frame}).validate(suite, result_format="BOOLEAN_ONLY")
        times.append([time.process_time() - cpu, time.perf_counter() - wall])
        if not result.success or len(result.results) != 12:
            sys.exit(f"every check should hold: {result}")
    print(json.dumps(times))


if __name__ == "__main__":
    main()
