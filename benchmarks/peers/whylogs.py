"""Profiles a Parquet file with whylogs; prints CPU and wall seconds of each round as JSON."""

import json
import sys
import time

import pyarrow.parquet as pq


def main() -> None:
    # This file has the name of the package, so the folder is taken off the path first.
    sys.path.pop(0)
    from whylogs.core import DatasetProfile

    path, rounds = sys.argv[1], int(sys.argv[2])
    times = []
    for _ in range(rounds):
        wall, cpu = time.perf_counter(), time.process_time()
        profile, file = DatasetProfile(), pq.ParquetFile(path)
        for group in range(file.num_row_groups):
            profile.track(file.read_row_group(group).to_pandas())
        profile.view().to_pandas()
        times.append([time.process_time() - cpu, time.perf_counter() - wall])
    print(json.dumps(times))


if __name__ == "__main__":
    main()
