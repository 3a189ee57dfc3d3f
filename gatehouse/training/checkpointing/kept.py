"""Checkpoints that outlive their job, so that trainings with the same beginning do not train it again.

They only save time: a training ends in the same bits where there are none.
"""

import logging
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gatehouse.launchers.launcher import CHECKPOINTS
from gatehouse.store.store import ArtifactStore

logger = logging.getLogger(__name__)


@contextmanager
def shared(store: ArtifactStore, key: str, beginnings: Iterable[str] | None, directory: Path) -> Iterator[None]:
    """In this context a job is trained, from what another one has kept; what it leaves is kept where it ends well.

    Args:
        store: Whose scratch space keeps checkpoints until `drop`.
        key: Of the job.
        beginnings: Keys of the jobs with the same beginning, the longest first; None for a job that keeps nothing.
        directory: Of the job.
    """
    if beginnings is None:
        yield
        return
    _begin_at(store, beginnings, directory)
    yield
    if (directory / CHECKPOINTS).exists():
        drop(store, key)
        os.replace(directory / CHECKPOINTS, _place(store, key))


def _begin_at(store: ArtifactStore, beginnings: Iterable[str], directory: Path) -> None:
    """Give a job that has no checkpoint of its own those of the first of these jobs of which any are kept."""
    if (directory / CHECKPOINTS).exists():
        return
    copied = directory / f"{CHECKPOINTS}.part"
    shutil.rmtree(copied, ignore_errors=True)
    for kept in (_place(store, key) for key in beginnings):
        if kept.exists():
            try:
                shutil.copytree(kept, copied)
            except OSError as error:
                logger.warning("%s cannot be begun at, so the training begins anew: %s", kept, error)
                return
            os.replace(copied, directory / CHECKPOINTS)
            return


def drop(store: ArtifactStore, key: str) -> None:
    """Remove what is kept of a job."""
    shutil.rmtree(_place(store, key), ignore_errors=True)


def _place(store: ArtifactStore, key: str) -> Path:
    return store.local_folder / "scratch" / f"kept-{key}"
