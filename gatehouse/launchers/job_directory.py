"""The directory of a training job, which one process has at a time."""

import fcntl
import logging
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gatehouse.launchers.launcher import stopped
from gatehouse.launchers.stopping import stop_here
from gatehouse.store.store import ArtifactStore

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 0.1


@contextmanager
def job_directory(store: ArtifactStore, name: str, arrays: Iterable[str] = ()) -> Iterator[Path]:
    """The directory of one job, for one process at a time; removed at the end.

    Where an error ends the job it is kept, without the arrays of the data, which the next attempt writes anew.

    Another process that wants the same job waits. A process that is killed gives the directory free as it stands.

    Args:
        store: In whose scratch space it lies.
        name: Of the job.
        arrays: Names of the folders in it that hold arrays of the data.
    """
    while True:
        try:
            directory = store.scratch(name)
            descriptor = os.open(directory, os.O_RDONLY)
        except (FileExistsError, FileNotFoundError):
            continue  # It was there, and the process that had it removed it in the same moment.
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                logger.info("Another process trains the same model: waiting for it to end.")
                _wait_for(descriptor)
            if not _is_at(descriptor, directory):
                continue  # The process that we waited for has finished and removed it.
            try:
                yield directory
            except BaseException:  # A stopped run too: the arrays go, checkpoints stay, and the error goes on.
                for part in arrays:
                    shutil.rmtree(directory / part, ignore_errors=True)
                raise
            shutil.rmtree(directory)
            return
        finally:
            os.close(descriptor)


def _wait_for(descriptor: int) -> None:
    """Lock a directory as soon as the process that has it gives it free.

    Raises:
        TrainingStoppedError: if this training is to stop meanwhile.
    """
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if stop_here().asked():
                raise stopped() from None
            time.sleep(_LOOK_SECONDS)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
