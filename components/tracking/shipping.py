"""Ships spooled metrics to MLflow: a process beside the training loop, and later runs for what it had to leave.

A batch may be sent twice, where a process is killed between sending it and noting so. It still arrives once: points
carry the time at which they were logged, and MLflow keeps one point of the same name, step, time and value.
"""

import fcntl
import json
import logging
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from gatehouse.components.artifacts.run import RUN_ID
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.tracking.mlflow_client import (
    JOB,
    REFERENCE,
    Tracking,
    degrading,
    ensure_run,
    find_run,
    log_points,
    pipeline_run,
    tracking_of,
)
from gatehouse.components.tracking.spool import Position, discard, read
from gatehouse.process import die_with_parent

logger = logging.getLogger(__name__)

INTERVAL = 0.5
BATCH = 1000
_ABOUT, _SHIPPED, _CLOSED, _LOCK = "about.json", "shipped.json", "closed", "lock"
_LONGEST_WAIT = 30.0


def open_spool(store: ArtifactStore, job: str, experiment: str, link: Path) -> Path:
    """The spool folder of a training job, which outlives the job's directory; a job that goes on takes up its own.

    Args:
        store: The store that the job publishes to.
        job: The job's key.
        experiment: MLflow's experiment.
        link: Where the job finds it.
    """
    folder = _spools(store) / job
    link.unlink(missing_ok=True)
    link.symlink_to(folder)
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        # Whoever delivers the spool of the same job, which another run has finished, removes it first.
        with suppress(FileNotFoundError), _alone(folder, wait=True):
            if (folder / _LOCK).exists():
                (folder / _CLOSED).unlink(missing_ok=True)
                about = {"job": job, "experiment": experiment, "run": os.environ.get(RUN_ID, ""), "model": ""}
                _write(folder / _ABOUT, about)
                return folder


def close_spool(store: ArtifactStore, folder: Path, model: str) -> None:
    """Say which model came of the job, and that nothing more will be appended; without tracking, drop the spool."""
    if tracking_of(store) is None:
        shutil.rmtree(folder)
        return
    _write(folder / _ABOUT, _about(folder) | {"model": model})
    (folder / _CLOSED).touch()


@contextmanager
def shipped_live(store: ArtifactStore, folder: Path) -> Iterator[None]:
    """Ship a spool every half second from a process of its own; without tracking, do nothing."""
    if tracking_of(store) is None:
        yield
        return
    command = [sys.executable, "-m", __name__, store.address, str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        # What is left is shipped by `deliver`, which this process or a later one calls when the model is known.
        process.terminate()
        process.wait()


def deliver(store: ArtifactStore) -> None:
    """Ship what is left in the spools of finished jobs, of this process or of others that are gone, and remove them.

    What goes wrong is a warning in the run record: the spool stays for the next time.
    """
    tracking = tracking_of(store)
    finished = sorted(path.parent for path in _spools(store).glob(f"*/{_CLOSED}"))
    if tracking is None or not finished:
        return
    with degrading(store, "metrics:tracking"):
        for folder in finished:
            with _alone(folder) as mine:
                if mine and (folder / _CLOSED).exists():  # it may have been taken up again meanwhile
                    while ship(tracking, folder):
                        pass
                    _name_model(tracking, folder)
                    shutil.rmtree(folder)


def ship(tracking: Tracking, folder: Path) -> bool:
    """Send one batch of a spool. Returns False where nothing new was there."""
    before = _position(folder)
    points, after = read(folder, before, BATCH)
    if points:
        about = _about(folder)
        with tracking.client() as client:
            experiment = tracking.experiment(client, about["experiment"])
            parent = pipeline_run(client, experiment, about["run"])
            run = ensure_run(client, experiment, JOB, about["job"], "train", {}, parent)
            log_points(client, run, points)
    if after != before:
        _write(folder / _SHIPPED, asdict(after))
        discard(folder, after)
    return bool(points)


def _name_model(tracking: Tracking, folder: Path) -> None:
    """Tag the run with the model that came of it, so that its parameters and lineage join it there."""
    about = _about(folder)
    with tracking.client() as client:
        run = find_run(client, tracking.experiment(client, about["experiment"]), JOB, about["job"])
        if run is not None:
            client.set_tag(run.info.run_id, REFERENCE, about["model"])


def main() -> None:
    """Ship the spool `argv[2]` of the store `argv[1]` until the parent ends; a server that is down is tried again."""
    die_with_parent()
    logging.disable(logging.CRITICAL)
    store, folder = ArtifactStore.open(sys.argv[1]), Path(sys.argv[2])
    tracking = tracking_of(store)
    wait = INTERVAL
    with _alone(folder) as mine:
        while mine and tracking is not None:
            try:
                while ship(tracking, folder):
                    pass
                wait = INTERVAL
            except Exception:
                wait = min(2 * wait, _LONGEST_WAIT) * random.uniform(0.8, 1.2)
            time.sleep(wait)


@contextmanager
def _alone(folder: Path, wait: bool = False) -> Iterator[bool]:
    """Whether this is the only process that ships the spool; with `wait` it is, sooner or later."""
    with open(folder / _LOCK, "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True


def _spools(store: ArtifactStore) -> Path:
    return store.scratch("metrics")


def _about(folder: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads((folder / _ABOUT).read_text())
    return found


def _position(folder: Path) -> Position:
    try:
        return Position(**json.loads((folder / _SHIPPED).read_text()))
    except FileNotFoundError:
        return Position()


def _write(path: Path, body: dict[str, object] | dict[str, str]) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(body))
    temporary.replace(path)


if __name__ == "__main__":
    main()
