"""A snapshot of a large CSV beside DuckDB's COPY to Parquet with SHA-256 added, then a second one of 1 % more rows.

The second one adds little to the store. The CSV is the table of flights again and again, a year later each time. Each
contestant runs in a fresh process, in turns; the ratios compare medians. Times are those of the snapshot and of the
copy themselves, with everything imported; the time that a process takes to start and import is printed beside them.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import yaml
from _race import kept

from gatehouse.data.sources.catalog import SourceSpec, parse_source
from gatehouse.data.sources.files import SdistSource
from gatehouse.data.sources.raw_file import archive_members
from gatehouse.store.store import ArtifactStore

PROJECT = Path(__file__).parent.parent / "pipelines" / "projects" / "flights" / "project.yaml"
FIRST_LIMIT, SECOND_LIMIT, MEMORY_LIMIT = 1.3, 0.10, 1024
_SNAPSHOT = """
import json, sys, time
from gatehouse.store.store import ArtifactStore
from gatehouse.data.sources.catalog import parse_source
from gatehouse.data.snapshot.stage import SnapshotRequest, snapshot
from gatehouse.data.snapshot import ingestion
from gatehouse.data.sources import file_reader
request = SnapshotRequest(source=parse_source(json.load(open(sys.argv[2]))))
store = ArtifactStore.open(sys.argv[1])
began, used = time.perf_counter(), time.process_time()
snapshot(request, store)
print(time.perf_counter() - began, time.process_time() - used)
"""
_DUCKDB = """
import hashlib, sys, time
import duckdb
began, used = time.perf_counter(), time.process_time()
duckdb.sql("SET preserve_insertion_order=true; SET enable_progress_bar=false")
duckdb.sql(f"COPY (SELECT * FROM read_csv('{sys.argv[1]}', nullstr=['', 'NA'])) TO '{sys.argv[2]}' "
           "(FORMAT parquet, COMPRESSION zstd)")
with open(sys.argv[2], "rb") as stream:
    hashlib.file_digest(stream, "sha256").hexdigest()
print(time.perf_counter() - began, time.process_time() - used)
"""
_MEASURE = """
import json, resource, subprocess, sys
ended = subprocess.run([sys.executable, "-c", *sys.argv[1:]], check=True, stdout=subprocess.PIPE, text=True)
wall, cpu = map(float, ended.stdout.splitlines()[-1].split())
used = resource.getrusage(resource.RUSAGE_CHILDREN)
start = used.ru_utime + used.ru_stime - cpu
print(json.dumps({"wall": wall, "cpu": cpu, "start": start, "mib": used.ru_maxrss / 1024}))
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        raw = folder / "raw"
        raw.mkdir()
        yearly = _flights(folder)
        source = folder / "source.json"
        source.write_text(_source(raw).model_dump_json())
        taken: dict[str, list[dict[str, float]]] = {"ours": [], "duckdb": [], "second": []}
        sizes: list[tuple[int, int]] = []
        for _ in range(options.rounds):
            rows = _write(raw / "flights.csv", yearly, options.megabytes * 10**6)
            store = folder / "store"
            taken["duckdb"].append(_run(_DUCKDB, str(raw / "flights.csv"), str(folder / "duckdb.parquet")))
            taken["ours"].append(_run(_SNAPSHOT, str(store), str(source)))
            first = _bytes(store)
            _append(raw / "flights.csv", yearly, rows // 100)
            taken["second"].append(_run(_SNAPSHOT, str(store), str(source)))
            sizes.append((first, _bytes(store) - first))
            shutil.rmtree(store)
        _report(taken, sizes, options.megabytes)


def _report(taken: dict[str, list[dict[str, float]]], sizes: list[tuple[int, int]], megabytes: int) -> None:
    median = {
        who: {what: statistics.median(run[what] for run in runs) for what in ("wall", "cpu", "start", "mib")}
        for who, runs in taken.items()
    }
    print(f"CSV of {megabytes} MB; medians of {len(sizes)}")
    for who, what in (
        ("duckdb", "DuckDB COPY and SHA-256"),
        ("ours", "snapshot"),
        ("second", "snapshot, 1 % appended"),
    ):
        usage = median[who]
        took = f"{usage['wall']:6.2f} s wall {usage['cpu']:6.2f} s CPU"
        print(f"{what:<26} {took}, {usage['start']:.2f} s to start, {usage['mib']:4.0f} MiB at most")
    for what in ("wall", "cpu"):
        kept(f"snapshot against DuckDB, {what}", median["ours"][what] / median["duckdb"][what], most=FIRST_LIMIT)
    share = statistics.median(second / first for first, second in sizes)
    kept("second against first, bytes", share, most=SECOND_LIMIT)
    kept("memory against 1 GiB", max(median["ours"]["mib"], median["second"]["mib"]) / MEMORY_LIMIT, most=1.0)


def _run(program: str, *arguments: str) -> dict[str, float]:
    os.sync()  # Nobody waits for what others, or the benchmark itself, left to be written.
    command = [sys.executable, "-c", _MEASURE, program, *arguments]
    ended = subprocess.run(command, check=True, capture_output=True, text=True)
    usage: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    return usage


def _flights(folder: Path) -> bytes:
    """The table of flights as CSV, from the archive of the example project."""
    spec: Any = parse_source(yaml.safe_load(PROJECT.read_text())["source"])
    assert isinstance(spec, SdistSource)
    member = spec.tables["flights"].member
    store = ArtifactStore.open(PROJECT.parents[3] / ".gatehouse" / "store")
    [(_, path)] = archive_members(spec, member, "", store, folder / "member")
    with zipfile.ZipFile(path) as archive:
        return archive.read(archive.namelist()[0])


def _source(raw: Path) -> SourceSpec:
    body = yaml.safe_load(PROJECT.read_text())["source"]
    table = body["tables"]["flights"] | {"member": "flights.csv"}
    return parse_source({"name": "benchmark", "kind": "files", "path": str(raw), "tables": {"flights": table}})


def _write(path: Path, yearly: bytes, size: int) -> int:
    """Write whole years until the file has `size` bytes; returns its rows."""
    header, rows = yearly.split(b"\n", 1)
    year = 2013
    with open(path, "wb") as stream:
        stream.write(header + b"\n")
        while stream.tell() < size:
            stream.write(_moved(rows, year)[: size - stream.tell()].rpartition(b"\n")[0] + b"\n")
            year += 1
    return round(size / len(rows) * rows.count(b"\n"))


def _append(path: Path, yearly: bytes, rows: int) -> None:
    lines = _moved(yearly.split(b"\n", 1)[1], 2090).split(b"\n", rows)[:rows]
    with open(path, "ab") as stream:
        stream.write(b"\n".join(lines) + b"\n")


def _moved(rows: bytes, year: int) -> bytes:
    """The rows of 2013 in another year."""
    moved = (
        rows.replace(b",2013-", b",%d-" % year)
        .replace(b"\n2013,", b"\n%d," % year)
        .replace(b",2014-", b",%d-" % (year + 1))
    )
    return b"%d" % year + moved.removeprefix(b"2013")


def _bytes(store: Path) -> int:
    return sum(path.stat().st_size for path in store.rglob("*") if path.is_file() and path.parent.name != "tmp")


if __name__ == "__main__":
    main()
