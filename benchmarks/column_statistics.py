"""Statistics of every column with a baseline comparison: ours, DuckDB's SQL, and whylogs.

Everything is read from one Parquet file. DuckDB runs on one thread, once over the table: once for the same statistics
as ours, and, what we are held against, once for the usual ones alone, without bins, lengths and a comparison. whylogs
has no bins; it profiles the same rows. Contestants run in turn, several rounds; medians of CPU and wall seconds.
"""

import argparse
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from _flights import write_flights
from _peers import run_peer
from _race import Seconds, kept, medians, race

from gatehouse.data.statistics.partial import (
    BIN_LEVELS,
    SHOWN_LEVELS,
    TOP_VALUES,
    MeasuredTable,
    measured_files,
    merged_table,
    plans_of,
)

WHYLOGS_LEAST, DUCKDB_MOST = 8.0, 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=15, help="how often the flights are repeated")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--whylogs-rounds", type=int, default=1, help="0 leaves whylogs out")
    parser.add_argument("--varied-rows", type=int, default=2_000_000, help="rows of a table without repeated values")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as directory:
        flights = Path(directory) / "flights.parquet"
        rows = write_flights(flights, options.times)
        print(f"flights, {rows:,} rows of 19 columns, few distinct values; medians of {options.rounds}")
        taken = _race(flights, options.rounds)
        if options.whylogs_rounds:
            runs = run_peer("whylogs", str(flights), str(options.whylogs_rounds))
            taken["whylogs"] = [(cpu, wall) for cpu, wall in runs]
        _print(taken)
        _print_limits(taken)
        varied = Path(directory) / "varied.parquet"
        _write_varied(varied, options.varied_rows)
        print(f"\n{options.varied_rows:,} rows of 4 columns of doubles and 2 of keys, all different: sketched")
        _print(_race(varied, options.rounds))


def _measured(path: Path, baseline: Mapping[str, Any]) -> MeasuredTable:
    return merged_table(measured_files([path], plans_of(path, (), baseline)))


def _race(path: Path, rounds: int) -> dict[str, Seconds]:
    baseline = _measured(path, {}).statistics
    usual, same = _sql(path, baseline, bins=False), _sql(path, baseline, bins=True)
    contestants: dict[str, Callable[[], object]] = {
        "ours, one thread": lambda: _measured(path, baseline),
        "DuckDB, the usual": lambda: duckdb.connect(config={"threads": "1"}).execute(usual).fetchall(),
        "DuckDB, the same": lambda: duckdb.connect(config={"threads": "1"}).execute(same).fetchall(),
    }
    return race(contestants, rounds)


def _print(taken: dict[str, Seconds]) -> None:
    baseline, _ = medians(taken["ours, one thread"])
    for name, seconds in taken.items():
        cpu, wall = medians(seconds)
        print(f"{name:<22} {cpu:7.2f} s CPU {wall:7.2f} s wall {cpu / baseline:6.1f} x the CPU of ours")


def _print_limits(taken: dict[str, Seconds]) -> None:
    thread = medians(taken["ours, one thread"])[0]
    duck = medians(taken["DuckDB, the usual"])[0]
    kept("CPU of ours to DuckDB's usual", thread / duck, most=DUCKDB_MOST)
    if "whylogs" in taken:
        kept("CPU of whylogs to ours", medians(taken["whylogs"])[0] / thread, least=WHYLOGS_LEAST)


def _sql(path: Path, baseline: Mapping[str, Any], bins: bool) -> str:
    """Statistics as aggregates of one query; with `bins`, all that ours has."""
    columns = ["count(*)"]
    for column, statistics in baseline.items():
        quoted = '"' + column.replace('"', '""') + '"'
        columns += [f"count({quoted})", f"approx_count_distinct({quoted})", f"min({quoted})", f"max({quoted})"]
        if "edges" in statistics:
            columns += [f"{name}({quoted})" for name in ("sum", "avg", "stddev_samp")]
            columns.append(f"approx_quantile({quoted}::DOUBLE, {list(SHOWN_LEVELS)})")
        if "edges" in statistics and bins:
            filtered = f" FILTER (WHERE {quoted} <> 0 AND isfinite({quoted}::DOUBLE))"
            columns.append(f"count(*) FILTER (WHERE {quoted} = 0)")
            columns.append(f"approx_quantile({quoted}::DOUBLE, {list(BIN_LEVELS)}){filtered}")
            columns.append(f"histogram({quoted}::DOUBLE, {_doubles(statistics['edges'])}){filtered}")
            columns.append(f"histogram({quoted}::DOUBLE, {_doubles(statistics['histogram']['edges'])})")
        elif "values" in statistics:
            columns.append(f"approx_top_k({quoted}, {TOP_VALUES})")
            columns += [f"{name}(length({quoted}))" for name in ("min", "max", "avg") if bins]
        elif bins:
            columns.append(f"approx_quantile({quoted}, {list(SHOWN_LEVELS)})")
    return f"SELECT {', '.join(columns)} FROM read_parquet('{path}')"


def _doubles(edges: list[float]) -> str:
    return f"[{', '.join(f'{edge!r}::DOUBLE' for edge in edges)}]"


def _write_varied(path: Path, rows: int) -> None:
    generator = np.random.default_rng(7)
    reals = {f"real {number}": generator.normal(size=rows) for number in range(4)}
    keys = {"key": np.arange(rows), "text": [f"key {number:08d}" for number in range(rows)]}
    pq.write_table(pa.table(reals | keys), path, compression="zstd", row_group_size=131_072)


if __name__ == "__main__":
    main()
