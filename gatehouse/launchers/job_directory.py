"""The directory of a training job, which one process has at a time."""

import fcntl
import logging
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gatehouse.launchers.launcher import stop_here, stopped
from gatehouse.store.store import ArtifactStore

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 0.1


@contextmanager
def job_directory(store: ArtifactStore, name: str, arrays: Iterable[str] = ()) -> Iterator[Path]:
    """The directory of one job in the store's scratch space, for one process at a time; removed at the end.

    Another process that trains the same job waits. A process that is killed releases the directory as it stands. After
    an error it is kept without the folders `arrays` of the data, which the next attempt writes anew.
    """
    while True:
        try:
            directory = store.scratch(name)
            descriptor = os.open(directory, os.O_RDONLY)
        except (FileExistsError, FileNotFoundError):
            continue  # The process that had it removed it at the same moment.
        try:
            waiting = False
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if not waiting:
                        logger.info("Another process trains the same model: waiting for it to end.")
                    waiting = True
                    if stop_here().requested():
                        raise stopped() from None
                    time.sleep(_LOOK_SECONDS)
            try:
                removed = not os.path.samestat(os.fstat(descriptor), os.stat(directory))
            except FileNotFoundError:
                removed = True
            if removed:
                continue  # The process that had it has finished and removed it.
            try:
                yield directory
            except BaseException:  # A stopped run too: the arrays go, checkpoints stay, and the error is raised.
                for part in arrays:
                    shutil.rmtree(directory / part, ignore_errors=True)
                raise
            shutil.rmtree(directory)
            return
        finally:
            os.close(descriptor)
