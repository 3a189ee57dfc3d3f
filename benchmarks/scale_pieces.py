"""The stages that run in pieces, on a table of any size in an S3 store: processor time a row, and memory.

The table is that of `_sales.py`; it and the store are on the S3 server of the tests, which counts requests and bytes.
Each stage runs in a process of its own with two workers, and begins with an empty cache. `--memory` is what each
process may hold. Processor time is that of all processes of a stage, and memory that of the largest of them. Fails
where a process has more memory than that, or a stage takes over `GROWTH` times the processor time a row of the fewest
rows. `--figures` keeps the figures for `simulation.py`.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from _sales import ROWS_PER_FILE, write_definitions, write_sales

from gatehouse.data.snapshot.stage import SnapshotRequest, snapshot
from gatehouse.data.validation.contract import publish_contract
from gatehouse.data.validation.stage import ValidateRequest, validate
from gatehouse.features.computing.stage import ComputeRequest, compute_features
from gatehouse.features.definitions.published import published_files
from gatehouse.features.definitions.repository import read_repository
from gatehouse.features.leakage.stage import LeakageRequest, check_leakage
from gatehouse.features.point_in_time.stage import RetrieveRequest, retrieve_training_set
from gatehouse.pieces.engine import Engine
from gatehouse.runtime.process import descendants
from gatehouse.runtime.variables import ENGINE, RUN_ID
from gatehouse.store.objects.remote import FOLDER, LIMIT, RemoteObjects
from gatehouse.store.run import events
from gatehouse.store.stage import Stage
from gatehouse.store.store import ArtifactStore
from tests.stand_ins.servers import BUCKET, Proxy, s3_server

GROWTH, _CACHE = 1.2, 4_000_000_000
_TABLE = {
    "member": "*.parquet",
    "event_time": "sold_at",
    "columns": {"shop": "int64", "sold_at": "timestamp", "amount": "double"},
    "guards": {"future": "accept"},
}
_RULES = {
    "shop": {"type": "int64", "nullable": False, "min": 0, "max": 4999},
    "sold_at": {"type": "timestamp", "nullable": False},
    "amount": {"type": "double", "completeness": 1.0, "min": 0, "max": 104},
}
_CONTRACT = {"version": 1, "tables": {"sales": {"min_rows": 1000, "columns": _RULES}}}
Results = dict[str, Any]
_STAGES: dict[str, tuple[Stage[Any, Any], Callable[[Results], Any]]] = {
    "snapshot": (snapshot, lambda of: SnapshotRequest(source=of["source"])),
    "validate": (validate, lambda of: ValidateRequest(snapshot=of["snapshot"], contract=of["contract"])),
    "compute_features": (compute_features, lambda of: ComputeRequest(**_named(of, "snapshot"), project="sales")),
    "retrieve_training_set": (
        retrieve_training_set,
        lambda of: RetrieveRequest(**_named(of, "snapshot", "feature_tables", "as_of"), service="both"),
    ),
    "check_leakage": (
        check_leakage,
        lambda of: LeakageRequest(**_named(of, "snapshot", "feature_tables", "training_set")),
    ),
}


def _named(results: Results, *names: str) -> dict[str, Any]:
    return {name: results[name] for name in ("definitions", *names)}


def main() -> int:
    """Measure and print one line a stage; 0 where every limit is kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="3000000,100000000")
    parser.add_argument("--memory", default="1500M", help="of each process")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds that a request to the store is on its way")
    parser.add_argument("--stages", default=",".join(_STAGES), help="the first of them")
    parser.add_argument("--folder", type=Path, help="for what the server holds; by default a temporary one")
    parser.add_argument("--figures", type=Path, help="a file for the figures, as JSON")
    parser.add_argument("--one", nargs=2, metavar=("STAGE", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(_measured(options.one[0], Path(options.one[1]))))
        return 0
    sizes = [int(rows) for rows in options.rows.split(",")]
    figures: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = tempfile.tempdir = name  # The server keeps large objects in files there.
        os.environ |= {"MOTO_S3_DEFAULT_KEY_BUFFER_SIZE": str(1 << 18), "TMPDIR": folder}
        for rows in sizes:
            with s3_server() as proxy:
                proxy.delay = options.delay
                os.environ |= proxy.environment | {FOLDER: f"{folder}/cache", LIMIT: str(_CACHE)}
                _prepare(Path(folder), rows)
                for stage in options.stages.split(","):
                    figures.append(_run(proxy, stage, Path(folder), rows, options.memory))
                    _print(figures, stage)
                    if options.figures:
                        options.figures.write_text(json.dumps(figures, indent=1) + "\n")
    limit = Engine(memory=options.memory).memory_bytes
    missed = [f"{each['stage']}, {each['rows']:,} rows" for each in figures if _is_missed(each, figures, limit)]
    print(f"MISSED: {'; '.join(missed)}" if missed else "All limits are kept.")
    return 1 if missed else 0


def _prepare(folder: Path, rows: int) -> None:
    """Write the raw files and what a project says to the server, and the first references to the folder."""
    import boto3

    for start in range(0, rows, ROWS_PER_FILE):
        write_sales(path := folder / "sales.parquet", start, min(start + ROWS_PER_FILE, rows))
        boto3.client("s3").upload_file(str(path), BUCKET, f"raw/sales-{start // ROWS_PER_FILE:06d}.parquet")
        path.unlink()
    store = ArtifactStore.open(f"s3://{BUCKET}/store")
    repository = read_repository(write_definitions(folder))
    source = {"kind": "files", "name": "sales", "path": f"s3://{BUCKET}/raw", "tables": {"sales": _TABLE}}
    definitions = str(store.publish("config", "sales", published_files(repository)))
    results = {"source": source, "definitions": definitions, "contract": publish_contract(store, _CONTRACT)}
    (folder / "results.json").write_text(json.dumps(results))


def _run(proxy: Proxy, stage: str, folder: Path, rows: int, memory: str) -> dict[str, Any]:
    """One stage in a process of its own, and what it cost."""
    shutil.rmtree(folder / "cache", ignore_errors=True)
    proxy.exchanges.clear()
    engine = json.dumps({"workers": 2, "memory": memory})
    variables = os.environ | {ENGINE: engine, RUN_ID: stage, "ARROW_DEFAULT_MEMORY_POOL": "system"}
    limit = Engine(memory=memory).memory_bytes
    child = subprocess.Popen(
        [sys.executable, __file__, "--one", stage, str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        env=variables,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)),
    )
    peak = 0
    while child.poll() is None:
        peak = max([peak, *map(_peak, [child.pid, *descendants(child.pid)])])
        time.sleep(0.2)
    output = child.stdout.read() if child.stdout else ""
    if child.returncode:
        sys.exit(f"{stage} of {rows:,} rows ended with code {child.returncode}; the largest process had {peak:,} bytes")
    methods = {method: proxy.count(method) for method in ("GET", "HEAD", "PUT", "POST")}
    sent, received = (sum(getattr(each, way) for each in proxy.exchanges) for way in ("sent", "received"))
    facts = json.loads(output.splitlines()[-1]) | {"peak": peak, "requests": methods, "sent": sent}
    return {"stage": stage, "rows": rows, "received": received} | facts


def _peak(process: int) -> int:
    """The most memory that a process has had, in bytes; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0)


def _measured(name: str, folder: Path) -> dict[str, Any]:
    """Run one stage on what the stages before it gave, and keep what it gives."""
    stage, request = _STAGES[name]
    store, kept = ArtifactStore.open(f"s3://{BUCKET}/store"), folder / "results.json"
    earlier: Results = json.loads(kept.read_text())
    asked, ask = list[tuple[float, float]](), RemoteObjects._request

    def timed(self: RemoteObjects, of: Callable[[bool], Any], what: str) -> Any:
        sent = time.perf_counter()
        try:
            return ask(self, of, what)
        finally:
            asked.append((sent, time.perf_counter()))

    began = time.perf_counter()
    RemoteObjects._request = timed  # type: ignore[method-assign]  # This process measures, and ends.
    result = stage(request(earlier), store).model_dump(mode="json")
    elapsed = time.perf_counter() - began
    if result.get("verdict", "pass") != "pass":
        sys.exit(f"{name}: {result['reasons']}")
    kept.write_text(json.dumps(earlier | result))
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    rounds = [usage for _, event in events(store, name) for usage in event.body.get("pieces", [])]
    return {
        "elapsed": elapsed,
        "seconds": sum(usage.ru_utime + usage.ru_stime for usage in used),
        "driver": used[0].ru_utime + used[0].ru_stime,
        "driver_requests": len(asked),
        "driver_waits": _covered(asked),
        "pieces": sum(usage["pieces"] for usage in rounds),
        "slowest": max((usage["slowest"] for usage in rounds), default=0.0),
        "in_pieces": sum(usage["processor"] for usage in rounds),
    }


def _covered(spans: list[tuple[float, float]]) -> float:
    """Seconds in which at least one of the requests was on its way."""
    total, until = 0.0, 0.0
    for sent, answered in sorted(spans):
        total += max(0.0, answered - max(sent, until))
        until = max(until, answered)
    return total


def _a_row(figures: dict[str, Any]) -> float:
    """Microseconds of a processor."""
    return float(1e6 * figures["seconds"] / figures["rows"])


def _is_missed(figures: dict[str, Any], every: list[dict[str, Any]], memory: int) -> bool:
    first = next(each for each in every if each["stage"] == figures["stage"])
    return bool(figures["peak"] > memory or _a_row(figures) > GROWTH * _a_row(first))


def _print(every: list[dict[str, Any]], stage: str) -> None:
    titles = ("rows", "pieces", "by clock", "CPU s", "µs a row", "growth", "GB", "requests", "MB sent", "MB read")
    if len(every) == 1:
        print(f"{'stage':<22}{''.join(f'{title:>12}' for title in titles)}")
    this = every[-1]
    first = next(each for each in every if each["stage"] == stage)
    figures = [f"{this['rows']:,}", f"{this['pieces']}", f"{this['elapsed']:.1f}", f"{this['seconds']:.1f}"]
    figures += [f"{_a_row(this):.2f}", f"{_a_row(this) / _a_row(first):.2f}", f"{this['peak'] / 1e9:.2f}"]
    figures += [f"{sum(this['requests'].values()):,}", f"{this['sent'] / 1e6:.0f}", f"{this['received'] / 1e6:.0f}"]
    print(f"{stage:<22}{''.join(f'{figure:>12}' for figure in figures)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
