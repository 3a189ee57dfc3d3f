"""Checkpoints that outlive their job, so that trainings with the same beginning do not train it again.

They only save time: a training ends in the same bits without them.
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
    """Start a job from the checkpoints of a shorter one, and keep its own where it ends well.

    Args:
        store: Its scratch space keeps checkpoints until `drop`.
        key: Of the job.
        beginnings: Keys of the jobs with the same beginning, the longest first; None for a job that keeps nothing.
        directory: Of the job; checkpoints in it are used before those of others.
    """
    if beginnings is None:
        yield
        return
    own, copied = directory / CHECKPOINTS, directory / f"{CHECKPOINTS}.part"
    shutil.rmtree(copied, ignore_errors=True)
    kept = None if own.exists() else next(filter(Path.exists, (_place(store, key) for key in beginnings)), None)
    if kept is not None:
        try:
            shutil.copytree(kept, copied)
            os.replace(copied, own)
        except OSError as error:
            logger.warning("%s cannot be copied, so the training begins anew: %s", kept, error)
    yield
    if own.exists():
        drop(store, key)
        os.replace(own, _place(store, key))


def drop(store: ArtifactStore, key: str) -> None:
    """Remove the kept checkpoints of a job."""
    shutil.rmtree(_place(store, key), ignore_errors=True)


def _place(store: ArtifactStore, key: str) -> Path:
    return store.local_folder / "scratch" / f"kept-{key}"
