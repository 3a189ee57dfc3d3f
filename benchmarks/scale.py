"""One, three and ten years of the example: time and peak memory of every stage, beside n log n and the pod's memory.

A year more is the example's flights and weather 52 weeks earlier, with other delays on arrival. Each stage runs in a
process of its own that may not have more data in memory than its pod (`RLIMIT_DATA`), and fails where it asks for
more. Arrow takes memory as the C library does, since its own allocator reserves a GB of addresses, which would count.
Training is kept to one epoch: its time is that of the framework. Fails where a stage takes over `SLACK` times
n log n of the fewest years, or does not end within its pod's memory.
"""

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import _flights
from kubernetes.utils.quantity import parse_quantity

from gatehouse.data.snapshot.stage import SnapshotRequest, snapshot
from gatehouse.data.splitting.stage import SplitRequest, split
from gatehouse.data.validation.stage import ValidateRequest, validate
from gatehouse.evaluation.stage import EvaluateRequest, evaluate
from gatehouse.features.computing.stage import ComputeRequest, compute_features
from gatehouse.features.database import connect
from gatehouse.features.leakage.stage import LeakageRequest, check_leakage
from gatehouse.features.point_in_time.stage import RetrieveRequest, retrieve_training_set
from gatehouse.project.project import Project, load_project
from gatehouse.runtime.process import descendants
from gatehouse.store.stage import Stage
from gatehouse.store.store import ArtifactStore
from gatehouse.training.stage import TrainRequest, train
from gatehouse.training.transformation_stage import FitRequest, fit_transformation

ROWS, SLACK, LEAST_SECONDS = 336_776, 1.5, 2.0
_EXAMPLE = Path(sys.modules["gatehouse"].__path__[0]) / "pipelines" / "projects" / "flights"
_DAY = "make_date(year, month, day) - 364 * {ago}"
_EARLIER = f"""
    year({_DAY}) AS year, month({_DAY}) AS month, day({_DAY}) AS day, time_hour - to_days(364 * {{ago}}) AS time_hour
"""
_FORM = "HEADER, NULLSTR 'NA', TIMESTAMPFORMAT '%Y-%m-%dT%H:%M:%SZ'"
_CHANGED = {"flights": ", arr_delay + (hash(flight, {ago}) % 7)::BIGINT - 3 AS arr_delay", "weather": ""}
Results = dict[str, Any]


def main() -> int:
    """Measure and print one line a stage; 0 where every limit is kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--years", default="1,3,10")
    parser.add_argument("--keep", type=Path, help="folder for the data, used again where it is there")
    parser.add_argument("--unlimited", action="store_true", help="measure, and let stages have what they want")
    parser.add_argument("--stages", default=",".join(_STAGES), help="only these; the others must be in the kept store")
    parser.add_argument("--one", nargs=2, metavar=("STAGE", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(_measured(options.one[0], Path(options.one[1]))))
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        folders = {int(years): (options.keep or Path(temporary)) / years for years in options.years.split(",")}
        for years, folder in folders.items():
            if not (folder / "raw").exists():
                _write_years(folder / "raw", years)
        return _report(folders, options.stages.split(","), not options.unlimited)


def _report(folders: dict[int, Path], stages: list[str], limited: bool) -> int:
    fewest = min(folders)
    missed = []
    titles = ("by clock", "CPU s", "n log n", "peak GB", "pod GB")
    print(f"{'stage':<24} {'years':>5}{''.join(f'{title:>9}' for title in titles)}")
    for name in stages:
        pod = int(parse_quantity(_STAGES[name][0].declared.resources.memory))
        first = 0.0
        for years, folder in folders.items():
            usage = _run(name, folder, pod if limited else 0)
            first = usage["seconds"] if years == fewest else first
            allowed = max(first, LEAST_SECONDS) * _work(years) / _work(fewest)
            notes = [*(["slow"] if usage["seconds"] > SLACK * allowed else []), *(["ended"] if usage["ended"] else [])]
            notes += ["above its pod"] if usage["peak"] > pod else []
            missed += [f"{name}, {years} years: {', '.join(notes)}"] if notes else []
            figures = [usage["elapsed"], usage["seconds"], allowed, usage["peak"] / 1e9, pod / 1e9]
            columns = "".join(f"{figure:>9.1f}" for figure in figures)
            print(f"{name:<24} {years:>5}{columns} {', '.join(notes)}", flush=True)
    print(f"MISSED: {'; '.join(missed)}" if missed else "All limits are kept.")
    return 1 if missed else 0


def _work(years: int) -> float:
    """What sorting the flights of so many years costs: n log n."""
    return years * ROWS * math.log(years * ROWS)


def _run(name: str, folder: Path, limit: int) -> dict[str, Any]:
    """Seconds of a stage, and the peak memory of its processes together, sampled, or of the largest alone."""
    command = [sys.executable, __file__, "--one", name, str(folder)]

    def confine() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

    environment = os.environ | {"ARROW_DEFAULT_MEMORY_POOL": "system"}
    confined = confine if limit else None
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=confined, env=environment)
    together = 0
    while child.poll() is None:
        together = max(together, sum(map(_resident, [child.pid, *descendants(child.pid)])))
        time.sleep(0.1)
    output = child.stdout.read() if child.stdout else ""
    if child.returncode:
        return {"elapsed": math.nan, "seconds": math.nan, "peak": together, "ended": True}
    usage = json.loads(output.splitlines()[-1])
    return usage | {"peak": max(usage["peak"], together), "ended": False}


def _resident(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _measured(name: str, folder: Path) -> dict[str, float]:
    """Run one stage on what the stages before it gave, and keep what it gives."""
    stage, request = _STAGES[name]
    project, store, kept = _project(), ArtifactStore.open(folder / "store"), folder / "results.json"
    for config in project.configs():
        config.publish(store)
    earlier: Results = json.loads(kept.read_text()) if kept.exists() else {}
    stage_request = request(project, earlier | {"raw": str(folder / "raw")})
    began = time.perf_counter()
    result = stage(stage_request, store, force=str(time.time_ns()))
    elapsed = time.perf_counter() - began
    kept.write_text(json.dumps(earlier | result.model_dump(mode="json")))
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {
        "elapsed": elapsed,
        "seconds": sum(usage.ru_utime + usage.ru_stime for usage in used),
        "peak": max(usage.ru_maxrss for usage in used) * 1024,
    }


def _project() -> Project:
    project = load_project(_EXAMPLE)
    training = project.file.training.model_copy(
        update={"stopping": project.file.training.stopping.model_copy(update={"epochs": 1})}
    )
    return replace(project, file=project.file.model_copy(update={"training": training}))


def _write_years(folder: Path, years: int) -> None:
    """The raw files of the example's source, with its flights and weather so many times, the earliest first."""
    part = folder.with_name("part")
    part.mkdir(parents=True, exist_ok=True)
    with tarfile.open(_flights.source_archive()) as archive:
        for member in archive.getmembers():
            if member.name.endswith((".csv", ".csv.zip")):
                (part / Path(member.name).name).write_bytes(archive.extractfile(member).read())  # type: ignore[union-attr]  # A file.
    with zipfile.ZipFile(part / "flights.csv.zip") as packed:
        packed.extractall(part)
    (part / "flights.csv.zip").unlink()
    with connect() as database:
        for table, changed in _CHANGED.items():
            path = part / f"{table}.csv"
            read = f"FROM read_csv('{path}', nullstr = 'NA', sample_size = -1, types = {{'time_hour': 'TIMESTAMP'}})"
            parts = [f"SELECT * {read}"]
            for ago in range(1, years):  # 52 weeks are a day short of a year.
                replaced = (_EARLIER + changed).format(ago=ago)
                parts.insert(0, f"SELECT * REPLACE ({replaced}) {read} WHERE NOT (month = 12 AND day = 31)")
            database.execute(f"COPY ({' UNION ALL '.join(parts)}) TO '{path}.new' ({_FORM})")
            path.with_suffix(".csv.new").replace(path)
    with zipfile.ZipFile(part / "flights.csv.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed:
        packed.write(part / "flights.csv", "flights.csv")
    (part / "flights.csv").unlink()
    part.replace(folder)


_STAGES: dict[str, tuple[Stage[Any, Any], Callable[[Project, Results], Any]]] = {
    "snapshot": (
        snapshot,
        lambda project, earlier: SnapshotRequest(source=project.file.source, location=earlier["raw"]),
    ),
    "validate": (
        validate,
        lambda project, earlier: ValidateRequest(
            snapshot=earlier["snapshot"],
            contract=str(project.contract.reference),
            statistics=project.file.statistics,
        ),
    ),
    "compute_features": (
        compute_features,
        lambda project, earlier: ComputeRequest(
            snapshot=earlier["snapshot"], definitions=str(project.definitions.reference), project=project.name
        ),
    ),
    "retrieve_training_set": (
        retrieve_training_set,
        lambda project, earlier: RetrieveRequest(
            snapshot=earlier["snapshot"],
            feature_tables=earlier["feature_tables"],
            definitions=str(project.definitions.reference),
            service=project.file.features.service,
            as_of=earlier["as_of"],
        ),
    ),
    "check_leakage": (
        check_leakage,
        lambda project, earlier: LeakageRequest(
            snapshot=earlier["snapshot"],
            feature_tables=earlier["feature_tables"],
            training_set=earlier["training_set"],
            definitions=str(project.definitions.reference),
        ),
    ),
    "split": (
        split,
        lambda project, earlier: SplitRequest(training_set=earlier["training_set"], spec=project.file.split),
    ),
    "fit_transformation": (
        fit_transformation,
        lambda project, earlier: FitRequest(
            split=earlier["split"],
            spec=project.file.transformation,
            model_name=project.file.model,
        ),
    ),
    "train": (
        train,
        lambda project, earlier: TrainRequest(
            split=earlier["split"],
            transformation=earlier["transformation"],
            spec=project.file.training,
            model_name=project.file.model,
        ),
    ),
    "evaluate": (
        evaluate,
        lambda project, earlier: EvaluateRequest(
            model=earlier["model"],
            split=earlier["split"],
            spec=project.file.evaluation,
            policy=project.policy,
        ),
    ),
}


if __name__ == "__main__":
    sys.exit(main())
