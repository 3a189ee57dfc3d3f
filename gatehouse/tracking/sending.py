"""Sends the metrics of training jobs to MLflow: on a thread of the stage while a job runs, the rest when it has ended.

The rank appends lines to the metrics file of its job (`metrics_file.py`); the stage that started the job reads them,
also for a search that follows the job. The folder of the file outlives the job's directory and process: it is in the
store's scratch folder, or in `GATEHOUSE_METRICS`, a volume that the next pod mounts too. It also holds facts about the
job (`about.json`), the offset up to which the lines have arrived (`sent.json`), and a lock, which the stage holds while
the job runs. A folder whose lock is free belongs to a job that has ended, and whoever comes next sends the rest.

MLflow holds one value of a metric for each step: the one that came first. A batch that was sent and not recorded, and
the steps that a resumed job repeats since its checkpoint, have the same bits: they are left out, because a sender asks
MLflow for the last step of each metric before it begins.
"""

import fcntl
import json
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from gatehouse.runtime.redaction import error_text
from gatehouse.store.atomic_file import write_json
from gatehouse.store.records import flat
from gatehouse.store.run import RUN_ID
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.machine import PREFIX, SAMPLING, Machine, in_background, note_gpus
from gatehouse.tracking.metrics_file import MetricsFile, Point, read_points
from gatehouse.tracking.mlflow_client import (
    JOB,
    REFERENCE,
    Tracking,
    create_run,
    find_run,
    log,
    metric_name,
    pipeline_run,
    tracking_of,
)
from gatehouse.tracking.place import KfpTask, warning_on_failure
from gatehouse.tracking.provenance import capture_environment

if TYPE_CHECKING:
    from mlflow import MlflowClient

logger = logging.getLogger(__name__)

Follower = Callable[[Sequence[Point]], None]
FOLLOWER: ContextVar[Follower | None] = ContextVar("gatehouse_follower", default=None)
"""The follower: called with the metrics of trainings in this context."""
RUN_TITLE: ContextVar[str] = ContextVar("gatehouse_run_title", default="train")
"""The names that MLflow has for the runs of trainings in this context."""
VOLUME = "GATEHOUSE_METRICS"
INTERVAL = 0.5
_DELAY = 3.0  # Nobody watches the metrics of a shorter training; all of them are sent when it has ended.
_ABOUT, _SENT, _LOCK, _METRICS = "about.json", "sent.json", "lock", "metrics.jsonl"
_STOPPED = "TrainingStoppedError"
_LONGEST_WAIT, _BUDGET, _PAUSE, _LOOK_SECONDS, _BATCH = 30.0, 60.0, 0.02, 0.05, 1000


class TrackedJob:
    """A training job that runs. Its context sets `model` when there is one."""

    def __init__(self, folder: Path, lock: IO[str]) -> None:
        self.folder, self.metrics, self.lock, self.model = folder, folder / _METRICS, lock, ""

    def close(self, error: str = "") -> None:
        """Record how the job ended: with its model, or with the class of its `error`."""
        write_json(self.folder / _ABOUT, _about(self.folder) | {"model": self.model, "error": error, "closed": True})
        self.lock.close()


@contextmanager
def tracked_job(
    store: ArtifactStore,
    job: str,
    experiment: str,
    link: Path,
    *,
    params: Mapping[str, Any] | None = None,
    inputs: Mapping[str, str] | None = None,
    live: bool = False,
    sampled: bool = False,
) -> Iterator[TrackedJob]:
    """In this context a training job runs, and appends to its metrics file, which it finds through `link`.

    Its `params` and `inputs`, references by role, are shown from the start, so that a failed job also shows them. If
    `live`, a thread sends the metrics from the fourth second on, every half second. If `sampled`, this machine is
    sampled, and the run record gets the utilisation of its GPUs. The follower of the context gets all points, also
    those of an earlier attempt; when this context ends, it has them all. An error is recorded and raised.
    """
    tracking = tracking_of(store)
    opened = open_job(store, job, experiment, link, params or {}, inputs or {})
    shown_live = tracking if live else None
    try:
        with ExitStack() as beside:
            if follower := FOLLOWER.get():
                beside.enter_context(in_background(partial(_follow, opened.metrics, follower), "follow-metrics"))
            if sampled:
                samples = opened.metrics if shown_live else None
                beside.enter_context(in_background(partial(_sample, samples), "sample-machine"))
            if shown_live:
                ended = threading.Event()
                beside.callback(ended.set)  # Nobody waits here for a server that is slow: `send_rest` does.
                # The thread holds the lock too, so that nobody else sends before it has ended.
                lock = open(os.dup(opened.lock.fileno()), "a")  # noqa: SIM115 - the thread closes it
                work = shown_live, opened.folder, ended, lock
                threading.Thread(target=_send_live, args=work, name="send-metrics", daemon=True).start()
            yield opened
    except Exception as error:
        opened.close(type(error).__name__)
        raise
    else:
        opened.close()
    finally:
        if tracking is None:
            shutil.rmtree(opened.folder)


def open_job(
    store: ArtifactStore, job: str, experiment: str, link: Path, params: Mapping[str, Any], inputs: Mapping[str, str]
) -> TrackedJob:
    """Open the folder of a job, which a resumed job uses again; see `tracked_job`."""
    folder = _folder(store) / job
    link.unlink(missing_ok=True)
    link.symlink_to(folder / _METRICS)
    about: dict[str, Any] = {"job": job, "experiment": experiment, "run": os.environ.get(RUN_ID, ""), "closed": False}
    tracking = tracking_of(store)
    task = asdict(tracking.task) if tracking and tracking.task else {}
    about |= {"title": RUN_TITLE.get(), "began": time.time(), "model": "", "error": "", "task": task}
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        # Another process may be sending the rest of an earlier attempt. It may remove the folder then.
        with suppress(FileNotFoundError), ExitStack() as stack:
            lock = stack.enter_context(open(folder / _LOCK, "a"))
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(lock.fileno()), os.stat(folder / _LOCK)):
                write_json(folder / _ABOUT, about | {"params": flat(params), "inputs": dict(inputs)})
                stack.pop_all()
                return TrackedJob(folder, lock)


def _follow(metrics: Path, follower: Follower, ended: threading.Event) -> None:
    offset, last = 0, False
    try:
        while not last:
            last = ended.wait(_LOOK_SECONDS)
            points, offset = read_points(metrics, offset)
            while points:
                follower(points)
                points, offset = read_points(metrics, offset)
    except Exception:  # On a thread: the log is the only place for it, and the training goes on.
        logger.exception("%s is not followed further", metrics)


def _sample(metrics: Path | None, ended: threading.Event) -> None:
    """Sample this machine for its task, and for a metrics file, if given."""
    machine = Machine(os.getpid())
    if not (metrics or machine.has_gpus):
        return
    with closing(MetricsFile(metrics)) if metrics else nullcontext() as file:
        while not ended.wait(SAMPLING):
            values = machine.sample() if file else machine.gpus()
            note_gpus(values)
            if file:
                file.log(values, 0)  # The sender counts the seconds of the run.


def _send_live(tracking: Tracking, folder: Path, ended: threading.Event, lock: IO[str]) -> None:
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)  # Sending can wait; the training cannot.
    sender, pause, warned = None, _DELAY, False
    with lock:
        while not ended.wait(pause):
            try:
                with tracking.client() as client:
                    sender = sender or _Sender(tracking, client, folder)
                    while sender.send(client) and not ended.is_set():
                        pass
                pause = INTERVAL
            except Exception as error:
                cause = error_text(error)[:500]
                logger.log(logging.DEBUG if warned else logging.WARNING, "MLflow gets the metrics later: %s", cause)
                sender, pause, warned = None, min(2 * pause, _LONGEST_WAIT), True


class _Sender:
    """Sends the lines of a job to its MLflow run, which is created if it is missing, and reopened if it was ended."""

    def __init__(self, tracking: Tracking, client: "MlflowClient", folder: Path) -> None:
        about = _about(folder)
        # KFP's task run below which the job is shown, whichever process sends; it is on one server.
        task = KfpTask(**about["task"]) if about["task"].get("server") == tracking.name else None
        tracking = replace(tracking, task=task)
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
        self._folder, self._server = folder, tracking.name
        self._run, self._began = str(run.info.run_id), run.info.start_time / 1000
        # The last step of each metric: MLflow returns the point with the greatest one.
        self._reached = {metric.key: metric.step for metric in run.data.to_proto().metrics}
        self._offset = 0
        with suppress(FileNotFoundError):
            sent = json.loads((folder / _SENT).read_text())
            self._offset = sent["offset"] if sent["server"] == tracking.name else 0

    def send(self, client: "MlflowClient") -> bool:
        """Send some thousand points, and record that they have arrived; False if there is nothing new."""
        from mlflow.entities import Metric

        points, after = read_points(self._folder / _METRICS, self._offset)
        metrics = []
        for point in points:
            name, step = metric_name(point.name), point.step
            if name.startswith(PREFIX):  # Samples of a machine count the seconds of the run.
                step = max(0, round(point.at - self._began))
            elif step > self._reached.get(name, -1):
                self._reached[name] = step
            else:
                continue
            metrics.append(Metric(name, point.value, int(point.at * 1000), step))
        for first in range(0, len(metrics), _BATCH):
            client.log_batch(self._run, metrics=metrics[first : first + _BATCH])
        if after != self._offset:
            self._offset = after
            write_json(self._folder / _SENT, {"server": self._server, "offset": after})
        return bool(points)

    def end(self, client: "MlflowClient") -> None:
        """End the run: tag it with the model, so that its parameters and lineage are added there, or with the error."""
        about = _about(self._folder)
        error = about["error"] or ("" if about["closed"] else "The job's process ended without a word.")
        for tag, value in ((REFERENCE, about["model"]), ("gatehouse.error", error)):
            if value:
                client.set_tag(self._run, tag, value)
        failed = "FAILED" if about["closed"] and error != _STOPPED else "KILLED"
        client.set_terminated(self._run, failed if error else "FINISHED")


def send_rest(store: ArtifactStore) -> set[str]:
    """Send the rest of jobs that have ended, of this process or of others, and remove their folders.

    If the process of a job is gone without a recorded end, its run is marked as killed; if the job resumes, its run is
    reopened. An error becomes a warning in the run record, and the folder stays for the next attempt. After a minute
    the rest stays for the next time, because this may run before or after a training. Returns the models whose metrics
    are now complete.
    """
    tracking, until = tracking_of(store), time.monotonic() + _BUDGET
    folders: list[Path] = []
    delivered: set[str] = set()
    if tracking is None:
        return delivered
    with warning_on_failure(store, "metrics:tracking"):
        folders = _jobs(store)
    for folder in folders:
        # A job that cannot be sent, for example because its run was deleted in MLflow, does not block others. Another
        # process that sends at the same time removes the folder.
        with warning_on_failure(store, "metrics:tracking"), suppress(FileNotFoundError):
            delivered.add(_send_rest_of(tracking, folder, until))
    return delivered - {""}


def _send_rest_of(tracking: Tracking, folder: Path, until: float) -> str:
    """Send the rest of a job that has ended, and remove its folder.

    Returns the model; empty if the job runs, the rest is not complete, or there is no model. The lock is released after
    each batch, so that the same job, if it starts again, waits for one batch at most.
    """
    about, sender = _about(folder), None
    while time.monotonic() < until and _about(folder) == about:
        with _exclusive(folder) as exclusive:
            if not exclusive and not about["closed"]:
                return ""
            if exclusive:
                with tracking.client() as client:
                    sender = sender or _Sender(tracking, client, folder)
                    if not sender.send(client):
                        sender.end(client)
                        shutil.rmtree(folder)
                        return str(about["model"])
        time.sleep(_PAUSE)
    return ""


@contextmanager
def _exclusive(folder: Path) -> Iterator[bool]:
    """Whether nobody else holds the lock of a folder: no job that runs, and no other sender."""
    with open(folder / _LOCK, "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def is_unsent(store: ArtifactStore, job: str) -> bool:
    """Whether a job has metrics that are not sent yet."""
    return (_folder(store) / job).exists()


def is_left(store: ArtifactStore) -> bool:
    """Whether a job has ended whose metrics are not all sent."""
    for folder in _jobs(store):
        with suppress(FileNotFoundError), _exclusive(folder) as exclusive:
            if exclusive or _about(folder)["closed"]:
                return True
    return False


def _jobs(store: ArtifactStore) -> list[Path]:
    return [path.parent for path in sorted(_folder(store).glob(f"*/{_ABOUT}"))]


def _folder(store: ArtifactStore) -> Path:
    volume = os.environ.get(VOLUME, "")
    if not volume:
        return store.scratch("metrics")
    Path(volume).mkdir(parents=True, exist_ok=True)
    return Path(volume)


def _about(folder: Path) -> dict[str, Any]:
    about: dict[str, Any] = json.loads((folder / _ABOUT).read_text())
    return about
