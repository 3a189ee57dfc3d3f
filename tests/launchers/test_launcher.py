"""The directory of a job: one process at a time, and what is kept of it."""

import fcntl
import os
import threading
import time
from pathlib import Path

import pytest

from gatehouse.launchers.launcher import STOP, Stop, TrainingStoppedError, job_directory
from gatehouse.store.store import ArtifactStore


def test_one_process_at_a_time_has_the_job(store: ArtifactStore) -> None:
    waited: list[float] = []
    left: list[Path] = []

    def wait_for_it() -> None:
        with job_directory(store, "job") as directory:
            left.extend(directory.iterdir())
            waited.append(time.monotonic())

    with job_directory(store, "job") as directory:
        (directory / "checkpoint").touch()
        other = threading.Thread(target=wait_for_it)
        other.start()
        time.sleep(0.3)
        assert waited == []
        released = time.monotonic()
    other.join(timeout=60)
    assert waited[0] > released
    assert left == []
    assert not directory.exists()


def _fail(checkpoint: Path) -> None:
    checkpoint.touch()
    raise RuntimeError


def test_a_job_that_ends_in_an_error_keeps_its_checkpoints_without_the_data(store: ArtifactStore) -> None:
    directory = store.scratch("job")
    (directory / "train").mkdir()
    with pytest.raises(RuntimeError), job_directory(store, "job", ["train", "validation"]):
        _fail(directory / "checkpoint")
    assert [path.name for path in directory.iterdir()] == ["checkpoint"]
    descriptor = os.open(directory, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(descriptor)


def test_a_training_that_waits_for_another_process_can_be_stopped(store: ArtifactStore) -> None:
    descriptor = os.open(store.scratch("job"), os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    stop, errors = Stop(), list[BaseException]()

    def wait() -> None:
        STOP.set(stop)
        try:
            with job_directory(store, "job"):
                pass
        except TrainingStoppedError as error:
            errors.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    stop.ask()
    waiting.join(timeout=60)
    os.close(descriptor)
    assert len(errors) == 1
