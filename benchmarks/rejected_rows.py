"""What rows that do not fit cost: a snapshot of a CSV with one bad row, 1 % and 50 %, of the same CSV without any.

Once the bad rows have a day that no month has, once a text where a number is due, once that in a table with a sensitive
column, once a cell too many. Beside it, what one would write with DuckDB: `read_csv` with `store_rejects`, which keeps
the rows that it leaves out, and with `ignore_errors`, which drops them, each into Parquet. Each contestant runs in a
fresh process, in turns; ratios compare the medians of processor time, with everything imported: also pandas, which
pyarrow loads once a process, in about 0.4 s, when it first meets a value of Python, as it does where a row is bad.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

LIMIT = 2.0
COLUMNS = {"id": "int64", "at": "timestamp", "value": "double", "name": "string", "flag": "bool", "note": "string"}
_BAD = {
    "time": lambda row, number: [row[0], f"2024-02-3{number % 10} {number}", *row[2:]],
    "number": lambda row, number: [*row[:2], f"many {number}", *row[3:]],
    "hidden": lambda row, number: [*row[:2], f"many {number}", *row[3:]],
    "width": lambda row, number: [*row, str(number)],
}
_OWN = """
import json, sys, time
import pandas
from gatehouse.store.store import ArtifactStore
from gatehouse.data.sources.catalog import parse_source
from gatehouse.data.snapshot.stage import SnapshotRequest, snapshot
from gatehouse.data.snapshot import ingestion
from gatehouse.data.sources import file_reader
request = SnapshotRequest(source=parse_source(json.loads(sys.argv[1])))
store = ArtifactStore.open(sys.argv[2])
began, used = time.perf_counter(), time.process_time()
result = snapshot(request, store)
print(json.dumps([time.process_time() - used, time.perf_counter() - began, sum(result.rows.values())]))
"""
_DUCKDB = """
import json, sys, time
import duckdb
path, target, columns, options = sys.argv[1:]
began, used = time.perf_counter(), time.process_time()
duckdb.sql("SET preserve_insertion_order=true; SET enable_progress_bar=false")
types = {"int64": "BIGINT", "timestamp": "TIMESTAMPTZ", "double": "DOUBLE", "string": "VARCHAR", "bool": "BOOLEAN"}
columns = {name: types[kind] for name, kind in json.loads(columns).items()}
read = f"read_csv('{path}', header=true, columns={columns}, {options})"
duckdb.sql(f"COPY (SELECT * FROM {read}) TO '{target}' (FORMAT parquet, COMPRESSION zstd)")
if duckdb.sql("FROM duckdb_tables() WHERE table_name = 'reject_errors'").fetchall():
    duckdb.sql(f"COPY (SELECT * FROM reject_errors) TO '{target}.rejects' (FORMAT parquet, COMPRESSION zstd)")
rows = duckdb.sql(f"SELECT count(*) FROM '{target}'").fetchall()[0][0]
print(json.dumps([time.process_time() - used, time.perf_counter() - began, rows]))
"""


def main() -> None:
    """Measure and print; exit with 1 where the limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kinds", default=",".join(_BAD))
    options = parser.parse_args()
    missed = False
    for kind in options.kinds.split(","):
        print(f"{options.rows:,} rows of {len(COLUMNS)} columns, misfits of {kind}; medians of {options.rounds}")
        shares = {"none": 0, "one": 1, "1 %": options.rows // 100, "50 %": options.rows // 2}
        with tempfile.TemporaryDirectory() as directory:
            taken = _race(Path(directory), kind, shares, options.rows, options.rounds)
        missed |= _report(taken, list(shares))
    sys.exit(missed)


def _race(
    folder: Path, kind: str, shares: dict[str, int], rows: int, rounds: int
) -> dict[tuple[str, str], list[list[float]]]:
    """Processor and wall seconds and rows kept, of every contestant for every share of bad rows."""
    files = {}
    for name, bad in shares.items():
        files[name] = folder / name.replace(" ", "") / "events.csv"
        files[name].parent.mkdir()
        _write(files[name], kind, rows, bad)
    taken: dict[tuple[str, str], list[list[float]]] = {}
    for number in range(rounds):
        for share, path in files.items():
            target = folder / f"{share}-{number}".replace(" ", "")
            taken.setdefault(("snapshot", share), []).append(_run(_OWN, _source(path.parent, kind), f"{target}-store"))
            for option in ("store_rejects=true, rejects_limit=0", "ignore_errors=true"):
                seconds = _run(_DUCKDB, str(path), f"{target}.parquet", json.dumps(COLUMNS), option)
                taken.setdefault((f"DuckDB {option.partition('=')[0]}", share), []).append(seconds)
    return taken


def _report(taken: dict[tuple[str, str], list[list[float]]], shares: list[str]) -> bool:
    missed = False
    for who in dict.fromkeys(who for who, _ in taken):
        medians = {share: [statistics.median(run) for run in zip(*taken[who, share], strict=True)] for share in shares}
        for share in shares:
            cpu, wall, kept = medians[share]
            ratio = cpu / medians[shares[0]][0]
            limit = ""
            if who == "snapshot" and share != shares[0]:
                limit = f", limit {LIMIT:g}: {'met' if ratio <= LIMIT else 'NOT MET'}"
                missed |= ratio > LIMIT
            print(
                f"{who:<22} {share:>5} bad  {cpu:6.2f} s CPU {wall:6.2f} s wall  {ratio:5.2f} of none, "
                f"{int(kept):,} kept{limit}"
            )
    return missed


def _run(program: str, *arguments: str) -> list[float]:
    ended = subprocess.run([sys.executable, "-c", program, *arguments], check=True, stdout=subprocess.PIPE, text=True)
    seconds: list[float] = json.loads(ended.stdout.splitlines()[-1])
    return seconds


def _source(folder: Path, kind: str) -> str:
    table: dict[str, object] = {
        "member": "events.csv",
        "columns": COLUMNS,
        "event_time": "at",
        "on_invalid": "reject",
        "reject_limit": 1,
    }
    table |= {"sensitive": ["name"]} if kind == "hidden" else {}
    return json.dumps({"name": "benchmark", "kind": "files", "path": str(folder), "tables": {"events": table}})


def _write(path: Path, kind: str, rows: int, bad: int) -> None:
    every = rows // bad if bad else 0
    with open(path, "w") as stream:
        stream.write(",".join(COLUMNS) + "\n")
        for number in range(rows):
            hour, minute, second = number // 3600 % 24, number // 60 % 60, number % 60
            at = f"2024-01-{1 + number // 86_400 % 28:02d}T{hour:02d}:{minute:02d}:{second:02d}Z"
            row = [str(number), at, f"{number * 0.37:.3f}", f"N{number % 5000}", "true" if number % 3 else "false"]
            row.append(f"some text {number % 97}")
            if every and number % every == every // 2:
                row = _BAD[kind](row, number)
            stream.write(",".join(row) + "\n")


if __name__ == "__main__":
    main()
