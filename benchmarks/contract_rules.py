"""The same 12 checks on the flights table: our contract rules, hand-written SQL, pandera and Great Expectations.

Everything is read from one Parquet file, in which every check holds. Ours parses the contract, opens the table and
judges it; no statistics are measured. Ours and the SQL, each in a DuckDB of its own on one thread, run in turn, several
rounds; the peers run in environments of their own. Medians of CPU and wall seconds. Ends with 1 if a limit is missed.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
from _flights import write_flights
from _peers import run_peer
from _race import Seconds, kept, medians, race

from gatehouse.data.validation.anomalies import Findings
from gatehouse.data.validation.checks import Judge
from gatehouse.data.validation.contract import parse_contract
from gatehouse.data.validation.tables import Table, opened
from gatehouse.store.manifest import Column

SQL_MOST, PANDERA_LEAST, GREAT_EXPECTATIONS_LEAST = 1.3, 15.0, 40.0
CONTRACT = """
version: 1
tables:
  flights:
    extra_columns: allow
    min_rows: 1000
    columns:
      year: {type: int64, nullable: false}
      carrier: {type: string, nullable: false}
      dest: {type: string, nullable: false, min_length: 3, max_length: 3}
      month: {type: int64, min: 1, max: 12}
      distance: {type: int64, min: 17, max: 5000}
      hour: {type: int64, min: 0, max: 23}
      origin: {type: string, allowed: [EWR, JFK, LGA]}
      tailnum: {type: string, pattern: "N?[0-9A-Z]+"}
      dep_time: {type: int64, completeness: 0.95}
    expressions:
      - {name: hour_of_departure, sql: sched_dep_time // 100 = hour}
"""
BROKEN = (
    "year IS NULL",
    "carrier IS NULL",
    "dest IS NULL",
    "length(dest) <> 3",
    "month NOT BETWEEN 1 AND 12",
    "distance NOT BETWEEN 17 AND 5000",
    "hour NOT BETWEEN 0 AND 23",
    "origin NOT IN ('EWR', 'JFK', 'LGA')",
    "NOT regexp_full_match(tailnum, 'N?[0-9A-Z]+')",
    "sched_dep_time // 100 <> hour",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=15, help="how often the flights are repeated")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--peer-rounds", type=int, default=1, help="0 leaves pandera and Great Expectations out")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        flights = Path(directory) / "flights.parquet"
        rows = write_flights(flights, options.times)
        print(f"flights, {rows:,} rows of 19 columns, 12 checks; medians of {options.rounds}", flush=True)
        taken = _race(flights, options.rounds)
        for peer in ("pandera", "great_expectations") if options.peer_rounds else ():
            taken[peer] = [(cpu, wall) for cpu, wall in run_peer(peer, str(flights), str(options.peer_rounds))]
    _print(taken)
    sys.exit(0 if _limits_kept(taken) else 1)


def _race(path: Path, rounds: int) -> dict[str, Seconds]:
    contestants: dict[str, Callable[[], None]] = {"ours": lambda: _gatehouse(path), "SQL": lambda: _sql(path)}
    return race(contestants, rounds)


def _gatehouse(path: Path) -> None:
    file, findings = pq.ParquetFile(path), Findings()
    columns = tuple(Column(field.name, str(field.type)) for field in file.schema_arrow)
    tables = {"flights": Table("flights", columns, ((path, file.metadata.num_rows),))}
    with opened(list(tables.values()), path.parent) as connection:
        as_of = datetime(2014, 1, 1, tzinfo=UTC)
        Judge(connection, tables, parse_contract(CONTRACT), as_of, {}, None, findings).run()
    if findings.verdict != "pass" or findings.not_judged:
        sys.exit(f"every check should hold: {findings.reasons()} {findings.not_judged}")


def _sql(path: Path) -> None:
    counted = ", ".join(f"count(*) FILTER (WHERE {broken})" for broken in BROKEN)
    query = f"SELECT count(*), count(dep_time), {counted} FROM read_parquet('{path}')"
    with duckdb.connect(config={"threads": "1"}) as connection:
        rows, departed, *broken = connection.execute(query).fetchall()[0]
    if rows < 1000 or departed < 0.95 * rows or any(broken):
        sys.exit(f"every check should hold: {rows} {departed} {broken}")


def _print(taken: dict[str, Seconds]) -> None:
    for name, seconds in taken.items():
        cpu, wall = medians(seconds)
        ratio = cpu / medians(taken["ours"])[0]
        print(f"{name:<20} {cpu:7.2f} s CPU {wall:7.2f} s wall {ratio:6.1f} x the CPU of ours")


def _limits_kept(taken: dict[str, Seconds]) -> bool:
    cpu = {name: medians(seconds)[0] for name, seconds in taken.items()}
    checks = [kept("CPU of ours to SQL", cpu["ours"] / cpu["SQL"], most=SQL_MOST)]
    for peer, least in (("pandera", PANDERA_LEAST), ("great_expectations", GREAT_EXPECTATIONS_LEAST)):
        if peer in taken:
            checks.append(kept(f"CPU of {peer} to ours", cpu[peer] / cpu["ours"], least=least))
    return all(checks)


if __name__ == "__main__":
    main()
