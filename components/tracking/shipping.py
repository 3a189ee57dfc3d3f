"""Ships spooled metrics to MLflow: a process beside the training loop, and later runs for what it had to leave.

The spool of a job is a folder that outlives the job's directory and its process: under the store's scratch, or under
`GATEHOUSE_SPOOL`, a volume that the next pod mounts too. It holds the metrics, what is known of the job (`about.json`),
the MLflow run (`run.json`), how far it was shipped (`shipped.json`), and a second spool with samples of the machine.

A batch may be sent twice, where a process is killed between sending it and noting so. It still arrives once: points
carry the time at which they were logged, and MLflow keeps one point of the same name, step, time and value.

A job that goes on from a checkpoint logs the steps since then again, to the same bits. The run holds each step of a
metric once, as it came first: of every metric it is known how far the run is (in `run.json`, at first from MLflow).
"""

import fcntl
import json
import logging
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from gatehouse.components.artifacts.run import RUN_ID
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.tracking.environment import capture_environment
from gatehouse.components.tracking.kfp_task import kept_task
from gatehouse.components.tracking.machine import PREFIX, SAMPLING, Machine, gpus_noted
from gatehouse.components.tracking.mlflow_client import (
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
from gatehouse.components.tracking.shown import warning_on_failure
from gatehouse.components.tracking.spool import Point, Position, SpoolWriter, discard, dropped, in_use, read, use
from gatehouse.process import die_with_parent

if TYPE_CHECKING:
    from mlflow import MlflowClient


SPOOL = "GATEHOUSE_SPOOL"
INTERVAL = 0.5
BATCH = 1000
_ABOUT, _RUN, _SHIPPED, _CLOSED, _LOCK, _MACHINE = "about.json", "run.json", "shipped.json", "closed", "lock", "machine"
_STOPPED = "TrainingStoppedError"
_LONGEST_WAIT = 30.0
_BUDGET, _PAUSE = 60.0, 0.002
_held: dict[Path, IO[str]] = {}  # The spools that this process's jobs use.


def open_spool(
    store: ArtifactStore,
    job: str,
    experiment: str,
    link: Path,
    *,
    params: Mapping[str, Any] | None = None,
    inputs: Mapping[str, str] | None = None,
) -> Path:
    """The spool folder of a training job, which outlives the job's directory; a job that goes on takes up its own.

    Args:
        store: The store that the job publishes to.
        job: The job's key.
        experiment: MLflow's experiment.
        link: Where the job finds it.
        params: The job's configuration, shown from the start; with it also a job that fails says what it tried.
        inputs: References that the job reads, by their role.
    """
    folder = _spools(store) / job
    link.unlink(missing_ok=True)
    link.symlink_to(folder)
    about: dict[str, Any] = {"job": job, "experiment": experiment, "run": os.environ.get(RUN_ID, "")}
    about |= {"began": time.time(), "model": "", "error": "", "task": _task(store)}
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        # Whoever delivers the spool of the same job, which another run has finished, removes it first.
        with suppress(FileNotFoundError), _exclusive(folder, wait=True):
            if (folder / _LOCK).exists():
                (folder / _CLOSED).unlink(missing_ok=True)
                (folder / _RUN).unlink(missing_ok=True)
                _release(folder)
                _held[folder] = use(folder)
                _write(folder / _ABOUT, about | {"params": flat(params or {}), "inputs": dict(inputs or {})})
                return folder


def _task(store: ArtifactStore) -> dict[str, str]:
    """The run of KFP's task below which the job is shown, whoever delivers it."""
    tracking = tracking_of(store)
    return tracking.task.to_json() if tracking and tracking.task else {}


def is_spooled(store: ArtifactStore, job: str) -> bool:
    """Whether metrics of a job are still to be shipped."""
    return (_spools(store) / job).exists()


def close_spool(store: ArtifactStore, folder: Path, model: str, error: str = "") -> None:
    """Say which model came of the job, or the class of the `error` for which none did, and that no more is appended.

    Without tracking, the spool is dropped.
    """
    _release(folder)
    if tracking_of(store) is None:
        shutil.rmtree(folder)
        return
    _write(folder / _ABOUT, _about(folder) | {"model": model, "error": error})
    (folder / _CLOSED).touch()


def _release(folder: Path) -> None:
    held = _held.pop(folder, None)
    if held:
        held.close()


@contextmanager
def shipped_live(store: ArtifactStore, folder: Path, live: bool = True, sampled: bool = True) -> Iterator[None]:
    """Ship a spool every half second from a process of its own, which also samples the machine if it is `sampled`.

    Then the run record also says how busy its GPUs are, with tracking or without. Should what is done meanwhile fail,
    the spool is closed with the error, so that the run says so. Without tracking, or where it is not `live`, nothing is
    shipped meanwhile.
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
        # What is left is shipped by `deliver`, which this process or a later one calls when the model is known.
        if process is not None:
            process.terminate()
            process.wait()


def deliver(store: ArtifactStore, seconds: float = _BUDGET) -> set[str]:
    """Ship what is left in spools that nobody will append to, of this process or of others, and remove them.

    The run of a job whose process is gone without a word is marked as killed; a job that goes on takes its run up
    again. What goes wrong is a warning in the run record, never an error: the spool stays for the next time.

    Args:
        store: The store that the jobs published to.
        seconds: After these, what is left stays for the next time: this may stand before or after a training.

    Returns:
        The models whose metrics are complete now.
    """
    tracking, until = tracking_of(store), time.monotonic() + seconds
    folders: list[Path] = []
    delivered: set[str] = set()
    if tracking is None:
        return delivered
    with warning_on_failure(store, "metrics:tracking"):
        folders = [path.parent for path in sorted(_spools(store).glob(f"*/{_ABOUT}")) if _finished(path.parent)]
    for folder in folders:
        # What cannot be shipped, as a run that was deleted in MLflow, keeps no other from it; another process that
        # delivers removes what it has shipped.
        with warning_on_failure(store, "metrics:tracking"), suppress(FileNotFoundError):
            delivered.add(_deliver(tracking, folder, until))
    return delivered - {""}


def _finished(folder: Path) -> bool:
    """Whether nobody will append to a spool; one that is being removed is left to whoever does so."""
    try:
        return (folder / _CLOSED).exists() or not in_use(folder)
    except FileNotFoundError:
        return False


def _deliver(tracking: Tracking, folder: Path, until: float) -> str:
    """Ship a finished spool and remove it. Returns the model; nothing where it is not done, or there is none.

    The lock is let go after each batch: the same job, beginning again, waits for one and no more.
    """
    while time.monotonic() < until:
        with _exclusive(folder) as mine:
            # Asked first: what is appended after the last batch belongs to a job that goes on.
            if not mine or not _finished(folder):
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
    """Send one batch of a job's metrics and one of the machine's. Returns False where nothing new was there."""
    found = False
    for part in (folder, folder / _MACHINE):
        before = _position(part)
        points, after = read(part, before, BATCH) if part.exists() else ([], before)
        if points:
            with tracking.client() as client:
                run = _run(tracking, client, folder)
                log_points(client, run["id"], _once(points, run))
            _write(folder / _RUN, run)
        if after != before:
            _write(part / _SHIPPED, asdict(after))
            discard(part, after)
        found |= bool(points)
    return found


def _once(points: Sequence[Point], run: Mapping[str, Any]) -> list[Point]:
    """The points that a run lacks, whose `reached` is moved on; samples of a machine count the seconds of the run."""
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
    """The MLflow run of a job, which is begun where it is missing, and takes up what was ended before.

    Its `id`, when it `began` in seconds since 1970, and by metric the last step that it has `reached`.
    """
    with suppress(FileNotFoundError):
        known: dict[str, Any] = json.loads((folder / _RUN).read_text())
        if known["server"] == tracking.name:
            return known
    about = _about(folder)
    tracking = replace(tracking, task=kept_task(about.get("task", {}), tracking.name))
    experiment = tracking.experiment(client, about["experiment"])
    above = pipeline_run(tracking, client, experiment, about["run"])
    run = find_run(client, experiment, JOB, about["job"], newest=True)
    # A job that starts again after its run finished gets a run of its own.
    if run is None or (run.info.status == "FINISHED" and run.info.end_time < about["began"] * 1000):
        tags = capture_environment().tags()
        run = create_run(client, experiment, JOB, about["job"], "train", tags, above, about["began"])
    read_tags = {f"gatehouse.input.{role}": reference for role, reference in about.get("inputs", {}).items()}
    log(client, run, about.get("params", {}), tags=read_tags)
    if run.info.status in ("FAILED", "KILLED"):
        client.update_run(run.info.run_id, status="RUNNING")
    # Of each metric MLflow tells the point of the greatest step.
    reached = {metric.key: metric.step for metric in run.data.to_proto().metrics}
    known = {"server": tracking.name, "id": run.info.run_id, "began": run.info.start_time / 1000, "reached": reached}
    _write(folder / _RUN, known)
    return known


def _end(client: "MlflowClient", run: str, folder: Path) -> None:
    """End the run: name the model, so that its parameters and lineage join the run there, or say why there is none."""
    about = _about(folder)
    if lost := dropped(folder):
        client.set_tag(run, "gatehouse.metrics_dropped", str(lost))
    if about["model"]:
        client.set_tag(run, REFERENCE, about["model"])
        client.set_terminated(run)
        return
    failed = (folder / _CLOSED).exists() and about["error"] != _STOPPED
    client.set_tag(run, "gatehouse.error", about.get("error") or "The job's process ended without a word.")
    client.set_terminated(run, "FAILED" if failed else "KILLED")


def main() -> None:
    """Ship a spool until the parent ends; a server that is down is tried again.

    The command line has the store's address and the spool, and `sampled` where the machine is to be sampled.
    """
    die_with_parent()
    os.nice(10)  # What is shipped a moment later is not lost; what the loop waits for is.
    logging.disable(logging.CRITICAL)
    store, folder = ArtifactStore.open(sys.argv[1]), Path(sys.argv[2])
    tracking = tracking_of(store)
    wait = INTERVAL
    if tracking is None:
        return
    # Whoever delivers what an earlier life of the job left has it for a batch.
    with _exclusive(folder, wait=True):
        if sys.argv[3:] == ["sampled"]:
            threading.Thread(target=_sample, args=(folder / _MACHINE,), daemon=True).start()
        while True:
            try:
                with tracking.client() as client:
                    _run(tracking, client, folder)
                while ship(tracking, folder):
                    pass
                wait = INTERVAL
            except Exception:
                wait = min(2 * wait, _LONGEST_WAIT) * random.uniform(0.8, 1.2)
            time.sleep(wait)


def _sample(folder: Path) -> None:
    """Spool samples of the machine; their steps follow from their times (`_once`)."""
    machine, writer = Machine(os.getppid()), SpoolWriter(folder)
    while True:
        time.sleep(SAMPLING)
        writer.log(machine.sample(), 0)


@contextmanager
def _exclusive(folder: Path, wait: bool = False) -> Iterator[bool]:
    """Whether this is the only process that ships the spool; with `wait` it is, sooner or later."""
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
    found: dict[str, Any] = json.loads((folder / _ABOUT).read_text())
    return found


def _position(folder: Path) -> Position:
    try:
        return Position(**json.loads((folder / _SHIPPED).read_text()))
    except FileNotFoundError:
        return Position()


def _write(path: Path, body: Mapping[str, Any]) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(body))
    temporary.replace(path)


if __name__ == "__main__":
    main()
