"""Features and a point-in-time join in pieces, beside Ray Data by hand and Feast's Ray offline store.

The table is that of `_sales.py`. Two processors each: ours are two local processes, with their start and all that a
stage does; Ray runs before the clock starts. Prints processor time of all processes, and which rows have the values of
ours.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
from _peers import run_peer
from _sales import ROWS_PER_FILE, write_definitions, write_sales

from gatehouse.features.computing.stage import ComputeRequest, compute_features
from gatehouse.features.definitions.published import published_files
from gatehouse.features.definitions.repository import read_repository
from gatehouse.features.point_in_time.stage import RetrieveRequest, retrieve_training_set
from gatehouse.features.table_files import feature_files
from gatehouse.runtime.variables import ENGINE
from gatehouse.store.store import ArtifactStore

_FEATURES = ("turnover", "average", "recent", "number")
_CLOSE = "abs(o.{0} - t.{0}) <= 1e-6 * greatest(1, abs(o.{0}))"
"""Features that are declared as numeric have 32 bits."""


def main() -> int:
    """Measure and compare; 0 where Ray Data's features are ours, as Feast's join may not be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--timeout", type=float, default=900, help="seconds that a peer may take")
    parser.add_argument("--one", nargs=2, metavar=("STAGE", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(_measured(options.one[0], Path(options.one[1]))))
        return 0
    os.environ[ENGINE] = json.dumps({"workers": 2})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "sales").mkdir()
        for start in range(0, options.rows, ROWS_PER_FILE):
            write_sales(folder / f"sales/{start:09d}.parquet", start, min(start + ROWS_PER_FILE, options.rows))
        agree = True
        for work, peer in (("features", "Ray Data"), ("join", "Feast's Ray store")):
            command = [sys.executable, __file__, "--one", work, name]
            output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
            ours = json.loads(output.splitlines()[-1])
            try:
                theirs = run_peer("on_ray", work, name, timeout=options.timeout)
            except subprocess.TimeoutExpired:
                print(f"{work}: ours {ours['cpu']:.1f} s CPU; {peer} did not end in {options.timeout:g} s", flush=True)
                continue
            same, rows, back = _compared(folder, work)
            agree &= work != "features" or same == rows == back
            taken = [f"{of['cpu']:.1f} s CPU, {of['wall']:.1f} s by the clock" for of in (ours, theirs)]
            print(f"{work}: ours {taken[0]}; {peer} {taken[1]}, {theirs['cpu'] / ours['cpu']:.1f} times ours")
            print(f"  {same:,} of {rows:,} rows are ours, {back:,} came back", flush=True)
    return 0 if agree else 1


def _measured(work: str, folder: Path) -> dict[str, float]:
    """Run a stage of ours, and give the peers what it reads and we what it wrote as files."""
    store, kept = ArtifactStore.open(folder / "store"), folder / "results.json"
    if work == "features":
        paths = sorted((folder / "sales").iterdir())
        counts = {path.name: pq.read_metadata(path).num_rows for path in paths}
        files = {path.name: path.read_bytes() for path in paths}
        sales = store.publish("datasets", "sales", files, rows=sum(counts.values()), rows_per_file=counts)
        ((newest,),) = duckdb.execute(f"SELECT max(sold_at)::TIMESTAMP FROM '{folder}/sales/*.parquet'").fetchall()
        origin, details = {"sales": sales}, {"as_of": f"{newest.isoformat()}+00:00", "window": ""}
        definitions = published_files(read_repository(write_definitions(folder)))
        kept.write_text(
            json.dumps(
                {
                    "snapshot": str(store.publish("snapshots", "sales", {}, derived_from=origin, details=details)),
                    "definitions": str(store.publish("config", "sales", definitions)),
                }
            )
        )
    named: dict[str, Any] = json.loads(kept.read_text())
    began, before = time.perf_counter(), _processor()
    if work == "features":
        named |= {"feature_tables": compute_features(ComputeRequest(**named, project="sales"), store).feature_tables}
    else:
        as_of = store.manifest(named["snapshot"]).details["as_of"]
        joined = retrieve_training_set(RetrieveRequest(**named, service="both", as_of=as_of), store)
    used = {"wall": time.perf_counter() - began, "cpu": _processor() - before}
    kept.write_text(json.dumps(named))
    if work == "features":
        for view, files in feature_files(store, named["feature_tables"]).items():
            (folder / view).mkdir()
            for file, path in files.items():
                (folder / view / file).symlink_to(path)
    else:
        table = pq.read_table(store.paths(joined.training_set)).rename_columns({"decision_time": "event_timestamp"})
        pq.write_table(table, folder / "ours.parquet")
        pq.write_table(table.select(["shop", "event_timestamp"]), folder / "rows.parquet")
    return used


def _processor() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def _compared(folder: Path, work: str) -> tuple[int, int, int]:
    """How many rows have the values of ours, but for rounding; the rows of ours, and of theirs."""
    if work == "features":
        ours = f"(FROM '{folder}/days/*.parquet' JOIN '{folder}/hours/*.parquet' USING (shop, event_timestamp))"
        theirs = f"(SELECT * RENAME (sold_at AS event_timestamp) FROM '{folder}/by_hand/*.parquet')"
    else:
        ours, theirs = f"'{folder}/ours.parquet'", f"'{folder}/joined.parquet'"
    same = " AND ".join(_CLOSE.format(feature) for feature in _FEATURES)
    query = f"SELECT count(*) FROM {ours} AS o JOIN {theirs} AS t USING (shop, event_timestamp) WHERE {same}"
    counts = [duckdb.execute(text).fetchall()[0][0] for text in (query, f"SELECT count(*) FROM {ours}")]
    return counts[0], counts[1], duckdb.execute(f"SELECT count(*) FROM {theirs}").fetchall()[0][0]


if __name__ == "__main__":
    sys.exit(main())
