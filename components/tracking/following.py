"""Tells whoever made a training run what its job spools, while the job appends."""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path

from gatehouse.components.tracking.background import in_background
from gatehouse.components.tracking.spool import Point, Position, read

logger = logging.getLogger(__name__)

Follower = Callable[[Sequence[Point]], None]

FOLLOWER: ContextVar[Follower | None] = ContextVar("gatehouse_follower", default=None)
"""Who is told of the metrics of the trainings of this context."""
_LOOK_SECONDS = 0.05
_POINTS = 10_000


@contextmanager
def followed(spool: Path) -> Iterator[None]:
    """In this context the follower, if there is one, is told of all points of a spool, on a thread.

    The points of one call to `SpoolWriter.log` come together. When this context ends, all have been told, also where it
    ends by an error. A spool that was there before is told from its beginning.
    """
    follower = FOLLOWER.get()
    if follower is None:
        yield
        return
    with in_background(partial(_follow, spool, follower), "follow-metrics"):
        yield


def _follow(spool: Path, follower: Follower, ended: threading.Event) -> None:
    try:
        _tell(spool, follower, ended)
    except Exception:
        logger.exception("%s is not followed further", spool)


def _tell(spool: Path, follower: Follower, ended: threading.Event) -> None:
    position, last = Position(), False
    while not last:
        last = ended.wait(_LOOK_SECONDS)
        while True:
            points, position = read(spool, position, _POINTS)
            if not points:
                break
            follower(points)
