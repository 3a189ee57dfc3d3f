"""Ships spooled metrics to MLflow: from a process beside the training loop, or in later runs for what was left.

Code that started a training in its own process, such as a search, can follow the same metrics while the job runs.

The spool of a job is a folder that outlives the job's directory and process: in the store's scratch folder, or in
`GATEHOUSE_SPOOL`, a volume that the next pod mounts too. It holds the metrics, facts about the job (`about.json`), the
MLflow run (`run.json`), the shipped position (`shipped.json`), and a second spool with samples of the machine.

A batch may be sent twice, if a process is killed between sending it and recording that. Its points are still stored
once: they carry the time at which they were logged, and MLflow keeps one point per name, step, time and value.

A job that resumes from a checkpoint logs the steps after the checkpoint again, with identical values. The run keeps
only the first points of each step: `run.json` records the last step of every metric (read from MLflow at the start).
"""

import fcntl
import json
import logging
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from gatehouse.runtime.process import die_with_parent
from gatehouse.store.atomic_file import write_json
from gatehouse.store.run import RUN_ID
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.machine import PREFIX, SAMPLING, Machine, gpus_noted, in_background
from gatehouse.tracking.mlflow_client import (
    JOB,
    REFERENCE,
    Tracking,
    create_run,
    find_run,
    flat,
    log,
    log_points,
    metric_name,
    pipeline_run,
    tracking_of,
)
from gatehouse.tracking.place import kept_task, warning_on_failure
from gatehouse.tracking.provenance import capture_environment
from gatehouse.tracking.spool import Point, Position, SpoolWriter, discard, dropped, in_use, read, use

if TYPE_CHECKING:
    from mlflow import MlflowClient

logger = logging.getLogger(__name__)

Follower = Callable[[Sequence[Point]], None]
FOLLOWER: ContextVar[Follower | None] = ContextVar("gatehouse_follower", default=None)
"""The follower: called with the metrics of trainings in this context."""
RUN_TITLE: ContextVar[str] = ContextVar("gatehouse_run_title", default="train")
"""What MLflow calls the runs of trainings in this context."""
SPOOL = "GATEHOUSE_SPOOL"
INTERVAL = 0.5
_DELAY = 3.0  # Nobody watches the metrics of a shorter training; all of them are shipped when it has ended.
BATCH = 1000
_ABOUT, _RUN, _SHIPPED, _CLOSED, _LOCK, _MACHINE = "about.json", "run.json", "shipped.json", "closed", "lock", "machine"
_STOPPED = "TrainingStoppedError"
_LONGEST_WAIT = 30.0
_BUDGET, _PAUSE, _LOOK_SECONDS, _FOLLOWED = 60.0, 0.002, 0.05, 10_000
_used: dict[Path, IO[str]] = {}  # Spools in use by jobs of this process.


def open_spool(
    store: ArtifactStore,
    job: str,
    experiment: str,
    link: Path,
    *,
    params: Mapping[str, Any] | None = None,
    inputs: Mapping[str, str] | None = None,
) -> Path:
    """Open the spool folder of a training job. It outlives the job's directory; a resumed job uses it again.

    The job finds the folder through `link`. Its `params` and `inputs`, references by role, are shown from the start, so
    that a failed job also shows them.
    """
    folder = _spools(store) / job
    link.unlink(missing_ok=True)
    link.symlink_to(folder)
    about: dict[str, Any] = {"job": job, "experiment": experiment, "run": os.environ.get(RUN_ID, "")}
    # KFP's task run below which the job is shown, whichever process ships it.
    tracking = tracking_of(store)
    task = tracking.task.to_json() if tracking and tracking.task else {}
    about |= {"title": RUN_TITLE.get(), "began": time.time(), "model": "", "error": "", "task": task}
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        # Another process may be shipping the finished spool of the same job; it removes it before this one starts.
        with suppress(FileNotFoundError), _exclusive(folder, wait=True):
            if (folder / _LOCK).exists():
                (folder / _CLOSED).unlink(missing_ok=True)
                (folder / _RUN).unlink(missing_ok=True)
                _release(folder)
                _used[folder] = use(folder)
                write_json(folder / _ABOUT, about | {"params": flat(params or {}), "inputs": dict(inputs or {})})
                return folder


def is_spooled(store: ArtifactStore, job: str) -> bool:
    """Whether a job has metrics that are not shipped yet."""
    return (_spools(store) / job).exists()


def is_left(store: ArtifactStore) -> bool:
    """Whether metrics of a job are left that no process is appending to, and so are to be shipped."""
    return any(_finished(path.parent) for path in _spools(store).glob(f"*/{_ABOUT}"))


def close_spool(store: ArtifactStore, folder: Path, model: str, error: str = "") -> None:
    """Record the job's model, or the class of its `error`, at its end. Without tracking, the spool is deleted."""
    _release(folder)
    if tracking_of(store) is None:
        shutil.rmtree(folder)
        return
    write_json(folder / _ABOUT, _about(folder) | {"model": model, "error": error})
    (folder / _CLOSED).touch()


def _release(folder: Path) -> None:
    if file := _used.pop(folder, None):
        file.close()


@contextmanager
def followed(spool: Path) -> Iterator[None]:
    """In this context the follower, if there is one, gets all points of a spool, on a thread.

    The points of one call to `SpoolWriter.log` come together. When this context ends, also by an error, all points have
    been passed on. A spool that existed before is read from its beginning.
    """
    follower = FOLLOWER.get()
    if follower is None:
        yield
        return

    def follow(ended: threading.Event) -> None:
        position, last = Position(), False
        try:
            while not last:
                last = ended.wait(_LOOK_SECONDS)
                points, position = read(spool, position, _FOLLOWED)
                while points:
                    follower(points)
                    points, position = read(spool, position, _FOLLOWED)
        except Exception:
            logger.exception("%s is not followed further", spool)

    with in_background(follow, "follow-metrics"):
        yield


@contextmanager
def shipped_live(store: ArtifactStore, folder: Path, live: bool = True, sampled: bool = True) -> Iterator[None]:
    """Ship a spool every half second from a separate process, which also samples the machine if `sampled`.

    It begins after three seconds. The run record gets the GPU utilisation, with or without tracking. If the body of
    this context fails, the spool is closed with the error. Without tracking, or if not `live`, nothing is shipped here.
    """
    process = None
    try:
        if live and tracking_of(store) is not None:
            command = [sys.executable, "-m", __name__, store.address, str(folder), *(["sampled"] if sampled else [])]
            quiet = subprocess.DEVNULL
            process = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)
        with gpus_noted() if sampled else nullcontext():
            yield
    except Exception as error:
        close_spool(store, folder, "", type(error).__name__)
        raise
    finally:
        # The rest is shipped by `deliver`, which this process or a later one calls when the model is known.
        if process is not None:
            process.terminate()
            process.wait()


def deliver(store: ArtifactStore, seconds: float = _BUDGET) -> set[str]:
    """Ship the rest of finished spools, of this process or of others, and remove them.

    If the process of a job is gone without a recorded end, its run is marked as killed; if the job resumes, its run is
    reopened. An error becomes a warning in the run record, and the spool stays for the next attempt. After `seconds`
    the rest stays for the next time, because this may run before or after a training. Returns the models whose metrics
    are now complete.
    """
    tracking, until = tracking_of(store), time.monotonic() + seconds
    folders: list[Path] = []
    delivered: set[str] = set()
    if tracking is None:
        return delivered
    with warning_on_failure(store, "metrics:tracking"):
        folders = [path.parent for path in sorted(_spools(store).glob(f"*/{_ABOUT}")) if _finished(path.parent)]
    for folder in folders:
        # A spool that cannot be shipped, for example because its run was deleted in MLflow, does not block others.
        # Another process that ships at the same time removes what it has shipped.
        with warning_on_failure(store, "metrics:tracking"), suppress(FileNotFoundError):
            delivered.add(_deliver(tracking, folder, until))
    return delivered - {""}


def _finished(folder: Path) -> bool:
    """Whether a spool is finished and not in use; a spool that is being removed is left to the process that does it."""
    try:
        return (folder / _CLOSED).exists() or not in_use(folder)
    except FileNotFoundError:
        return False


def _deliver(tracking: Tracking, folder: Path, until: float) -> str:
    """Ship a finished spool and remove it. Returns the model; empty if shipping is not complete, or there is no model.

    The lock is released after each batch, so that the same job, if it starts again, waits for one batch at most.
    """
    while time.monotonic() < until:
        with _exclusive(folder) as exclusive:
            # Checked first: points that are appended after the last batch belong to a resumed job.
            if not exclusive or not _finished(folder):
                return ""
            if not ship(tracking, folder):
                with tracking.client() as client:
                    _end(client, _run(tracking, client, folder)["id"], folder)
                model = str(_about(folder)["model"])
                shutil.rmtree(folder)
                return model
        time.sleep(_PAUSE)
    return ""


def ship(tracking: Tracking, folder: Path) -> bool:
    """Send one batch of a job's metrics and one of the machine's. Returns False if there is nothing new."""
    shipped = False
    for part in (folder, folder / _MACHINE):
        before = _position(part)
        points, after = read(part, before, BATCH) if part.exists() else ([], before)
        if points:
            with tracking.client() as client:
                run = _run(tracking, client, folder)
                log_points(client, run["id"], _once(points, run))
            write_json(folder / _RUN, run)
        if after != before:
            write_json(part / _SHIPPED, asdict(after))
            discard(part, after)
        shipped |= bool(points)
    return shipped


def _once(points: Sequence[Point], run: Mapping[str, Any]) -> list[Point]:
    """The points that a run lacks; updates the run's `reached`. Steps of machine samples are seconds of the run."""
    kept: list[Point] = []
    for point in points:
        name = metric_name(point.name)
        if name.startswith(PREFIX):
            kept.append(replace(point, step=max(0, round(point.at - run["began"]))))
        elif point.step > run["reached"].get(name, -1):
            run["reached"][name] = point.step
            kept.append(point)
    return kept


def _run(tracking: Tracking, client: "MlflowClient", folder: Path) -> dict[str, Any]:
    """The MLflow run of a job; it is created if it is missing, and reopened if it was ended.

    The result has its `id`, when it `began` in seconds since 1970, and by metric the last step `reached`.
    """
    with suppress(FileNotFoundError):
        recorded: dict[str, Any] = json.loads((folder / _RUN).read_text())
        if recorded["server"] == tracking.name:
            return recorded
    about = _about(folder)
    tracking = replace(tracking, task=kept_task(about["task"], tracking.name))
    experiment = tracking.experiment(client, about["experiment"])
    above = pipeline_run(tracking, client, experiment, about["run"])
    run = find_run(client, experiment, JOB, about["job"], newest=True)
    # A job that starts again after its run finished gets a new run.
    if run is None or (run.info.status == "FINISHED" and run.info.end_time < about["began"] * 1000):
        tags = capture_environment().tags() | {JOB: about["job"]}
        run = create_run(client, experiment, tags, about["title"], above, about["began"])
    inputs = {f"gatehouse.input.{role}": reference for role, reference in about["inputs"].items()}
    log(client, run, about["params"], tags=inputs)
    if run.info.status in ("FAILED", "KILLED"):
        client.update_run(run.info.run_id, status="RUNNING")
    # MLflow returns the point with the greatest step of each metric.
    reached = {metric.key: metric.step for metric in run.data.to_proto().metrics}
    recorded = {"server": tracking.name, "id": run.info.run_id, "began": run.info.start_time / 1000, "reached": reached}
    write_json(folder / _RUN, recorded)
    return recorded


def _end(client: "MlflowClient", run: str, folder: Path) -> None:
    """End the run: tag it with the model, so that its parameters and lineage are added there, or with the error."""
    about = _about(folder)
    if lost := dropped(folder):
        client.set_tag(run, "gatehouse.metrics_dropped", str(lost))
    if about["model"]:
        client.set_tag(run, REFERENCE, about["model"])
        client.set_terminated(run)
        return
    failed = (folder / _CLOSED).exists() and about["error"] != _STOPPED
    client.set_tag(run, "gatehouse.error", about["error"] or "The job's process ended without a word.")
    client.set_terminated(run, "FAILED" if failed else "KILLED")


def main() -> None:
    """Ship a spool until the parent ends, retrying while a server is down: `<store> <spool> [sampled]`."""
    from tenacity import Retrying, wait_random_exponential

    die_with_parent()
    os.nice(10)  # Shipping can wait; the training loop cannot.
    logging.disable(logging.CRITICAL)
    store, folder = ArtifactStore.open(sys.argv[1]), Path(sys.argv[2])
    tracking = tracking_of(store)
    if tracking is None:
        return

    def send() -> None:
        with tracking.client() as client:
            _run(tracking, client, folder)
        while ship(tracking, folder):
            pass

    def sample() -> None:
        machine, writer = Machine(os.getppid()), SpoolWriter(folder / _MACHINE)
        while True:
            time.sleep(SAMPLING)
            writer.log(machine.sample(), 0)  # The steps follow from the times (`_once`).

    # Another process that ships an earlier attempt's metrics holds the lock for one batch.
    with _exclusive(folder, wait=True):
        if sys.argv[3:] == ["sampled"]:
            threading.Thread(target=sample, daemon=True).start()
        time.sleep(_DELAY)
        retrying = Retrying(wait=wait_random_exponential(INTERVAL, max=_LONGEST_WAIT))
        while True:
            retrying(send)
            time.sleep(INTERVAL)


@contextmanager
def _exclusive(folder: Path, wait: bool = False) -> Iterator[bool]:
    """Whether this is the only process that ships the spool; with `wait`, wait until it is."""
    with open(folder / _LOCK, "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True


def _spools(store: ArtifactStore) -> Path:
    volume = os.environ.get(SPOOL, "")
    if not volume:
        return store.scratch("metrics")
    Path(volume).mkdir(parents=True, exist_ok=True)
    return Path(volume)


def _about(folder: Path) -> dict[str, Any]:
    about: dict[str, Any] = json.loads((folder / _ABOUT).read_text())
    return about


def _position(folder: Path) -> Position:
    try:
        return Position(**json.loads((folder / _SHIPPED).read_text()))
    except FileNotFoundError:
        return Position()


if __name__ == "__main__":
    main()
