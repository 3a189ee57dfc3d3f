"""Workspaces: private directories, each with a lock of its owner, which shows other processes whether it has ended.

The lock is a file beside the directory. The owner holds it before other processes can find either. When the owner's
process ends in any way, the system releases the lock. This also works between machines and containers that share the
file system.
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
    hidden = folder / lock.name.removeprefix(_PREFIX)
    with open(hidden, "x") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        hidden.rename(lock)
        directory.mkdir(mode=0o700)
        try:
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)
            lock.unlink(missing_ok=True)


def sweep(folder: Path) -> int:
    """Remove the workspaces in `folder` whose owner has ended; returns their number."""
    removed = set()
    for path in list(folder.glob(f"{_PREFIX}*")):
        with _abandoned(path) as abandoned:
            if abandoned:
                shutil.rmtree(path.with_suffix(""), ignore_errors=True)
                path.with_suffix(_LOCK).unlink(missing_ok=True)
                removed.add(path.stem)
    return len(removed)


def in_use(path: Path) -> bool:
    """Whether `path` is a workspace, or the lock of one, whose owner still runs."""
    if not path.name.startswith(_PREFIX):
        return False
    with _abandoned(path) as abandoned:
        return not abandoned


@contextmanager
def _abandoned(path: Path) -> Iterator[bool]:
    """Whether the owner of a workspace has ended. If so, this process holds its lock until the end of the block."""
    with ExitStack() as stack:
        try:
            lock = stack.enter_context(open(path.with_suffix(_LOCK)))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            abandoned = True
        except FileNotFoundError:
            abandoned = True  # Its owner has just removed it, or never created a lock.
        except OSError:
            abandoned = False
        yield abandoned
