"""Workspaces: private directories, each with a lock that its owner holds, so that every machine can tell who is gone.

The lock is a file beside the directory. It is held before either can be found, and the system lets go of it when the
process ends, also on another machine or in another container that shares the file system.
"""

import fcntl
import shutil
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

_PREFIX, _LOCK = "work-", ".lock"


@contextmanager
def workspace_in(folder: Path) -> Iterator[Path]:
    """A new directory in `folder`, removed at the end."""
    directory = folder / f"{_PREFIX}{uuid.uuid4().hex}"
    lock = directory.with_suffix(_LOCK)
    unseen = folder / lock.name.removeprefix(_PREFIX)
    with open(unseen, "x") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        unseen.rename(lock)
        directory.mkdir(mode=0o700)
        try:
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)
            lock.unlink(missing_ok=True)


def sweep(folder: Path) -> None:
    """Remove the workspaces in `folder` whose owner is gone."""
    for path in list(folder.glob(f"{_PREFIX}*")):
        with _claimed(path) as mine:
            if mine:
                shutil.rmtree(path.with_suffix(""), ignore_errors=True)
                path.with_suffix(_LOCK).unlink(missing_ok=True)


def in_use(path: Path) -> bool:
    """Whether `path` is a workspace, or the lock of one, whose owner is there."""
    if not path.name.startswith(_PREFIX):
        return False
    with _claimed(path) as mine:
        return not mine


@contextmanager
def _claimed(path: Path) -> Iterator[bool]:
    """Hold the lock of a workspace where nobody else does."""
    with ExitStack() as stack:
        try:
            lock = stack.enter_context(open(path.with_suffix(_LOCK)))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            mine = True
        except FileNotFoundError:
            mine = True  # Its owner has ended meanwhile, or wrote no lock.
        except OSError:
            mine = False
        yield mine
