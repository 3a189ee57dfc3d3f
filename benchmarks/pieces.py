"""Feature tables and a training set in pieces: two processes beside one, and two workers of Ray beside two processes.

A table of sales has `--rows` rows; one view sums them over three days, another over an hour, and a decision in twenty
gets both. Each engine has a store of its own. Prints seconds by the clock, processor time of driver and workers, and
the ratios; fails where digests differ, or a ratio is above its limit. With `--ray`, the address of a cluster.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _sales import write_definitions, write_sales

from gatehouse.features.computing.stage import ComputeRequest, compute_features
from gatehouse.features.database import connect
from gatehouse.features.definitions.published import published_files
from gatehouse.features.definitions.repository import read_repository
from gatehouse.features.point_in_time.stage import RetrieveRequest, retrieve_training_set
from gatehouse.pieces.driving import driving
from gatehouse.runtime.variables import ENGINE, RUN_ID
from gatehouse.store.run import events
from gatehouse.store.store import ArtifactStore

CLOCK, PROCESSOR = 0.65, 1.3
"""Most seconds of two processes for each of one, and most processor time of Ray for each of two processes."""


def main() -> int:
    """Measure; 0 where every digest is the same and every limit is kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--ray", default="", help="address of a Ray cluster; empty to leave Ray out")
    parser.add_argument("--rounds", type=int, default=2, help="the quickest of so many counts")
    options = parser.parse_args()
    engines: dict[str, dict[str, Any]] = {"one process": {"workers": 1}, "two processes": {"workers": 2}}
    if options.ray:
        engines["two workers of Ray"] = {"kind": "ray", "workers": 2, "address": options.ray}
    measured = dict[str, tuple[float, float, object]]()
    with tempfile.TemporaryDirectory() as folder:
        write_definitions(Path(folder))
        write_sales(Path(folder) / "sales.parquet", 0, options.rows)
        for name in [*engines] * options.rounds:
            clock, processor, references = _measure(Path(folder), engines[name])
            print(f"{name:<20}{clock:>9.1f} s{processor:>9.1f} s of processors", flush=True)
            before = measured.get(name, (clock, processor, references))
            measured[name] = min(clock, before[0]), min(processor, before[1]), references
    ratios = [("by the clock, two processes for one", *_ratio(measured, "two processes", "one process", 0), CLOCK)]
    if options.ray:
        pair = _ratio(measured, "two workers of Ray", "two processes", 1)
        ratios.append(("processor time, Ray for two processes", *pair, PROCESSOR))
    for title, ratio, limit in ratios:
        print(f"{title}: {ratio:.2f} (at most {limit})")
    same = len({str(references) for _, _, references in measured.values()}) == 1
    print("The digests are the same." if same else f"MISSED: the digests differ: {measured}")
    return 0 if same and all(ratio <= limit for _, ratio, limit in ratios) else 1


def _ratio(measured: dict[str, tuple[float, float, object]], name: str, other: str, index: int) -> tuple[float]:
    return (float(measured[name][index]) / float(measured[other][index]),)  # type: ignore[arg-type]  # Both are numbers.


def _measure(folder: Path, engine: dict[str, Any]) -> tuple[float, float, object]:
    """Seconds by the clock and of processors, and the references of both stages."""
    store = ArtifactStore.open(tempfile.mkdtemp(dir=folder))
    definitions = str(store.publish("config", "sales", published_files(read_repository(folder / "repository"))))
    with connect() as connection:
        counted = connection.execute(f"SELECT count(*), max(sold_at)::TIMESTAMP FROM '{folder}/sales.parquet'")
        ((rows, newest),) = counted.fetchall()
    content = {"part-00000.parquet": (folder / "sales.parquet").read_bytes()}
    sales = store.publish("datasets", "sales", content, rows=rows, rows_per_file={"part-00000.parquet": rows})
    as_of = f"{newest.isoformat()}+00:00"
    origin = {"sales": sales}
    snapshot = str(store.publish("snapshots", "sales", {}, derived_from=origin, details={"as_of": as_of, "window": ""}))
    os.environ |= {ENGINE: json.dumps(engine), RUN_ID: "pieces"}
    began, used = time.monotonic(), time.process_time()
    with driving():  # As in the task of each stage.
        tables = compute_features(ComputeRequest(snapshot=snapshot, definitions=definitions, project="sales"), store)
    named = {"snapshot": snapshot, "feature_tables": tables.feature_tables, "definitions": definitions}
    with driving():
        joined = retrieve_training_set(RetrieveRequest(**named, service="both", as_of=as_of), store)
    clock, processor = time.monotonic() - began, time.process_time() - used
    pieces = [usage for _, event in events(store, "pieces") for usage in event.body.get("pieces", [])]
    return clock, processor + sum(usage["processor"] for usage in pieces), (tables, joined)


if __name__ == "__main__":
    sys.exit(main())
