"""Passes the metrics that a training job spools to the code that started the training, while the job runs."""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path

from gatehouse.tracking.background import in_background
from gatehouse.tracking.spool import Point, Position, read

logger = logging.getLogger(__name__)

Follower = Callable[[Sequence[Point]], None]

FOLLOWER: ContextVar[Follower | None] = ContextVar("gatehouse_follower", default=None)
"""The follower: called with the metrics of trainings in this context."""
RUN_TITLE: ContextVar[str] = ContextVar("gatehouse_run_title", default="train")
"""What MLflow calls the runs of trainings in this context."""
_LOOK_SECONDS = 0.05
_POINTS = 10_000


@contextmanager
def followed(spool: Path) -> Iterator[None]:
    """In this context the follower, if there is one, gets all points of a spool, on a thread.

    The points of one call to `SpoolWriter.log` come together. When this context ends, also by an error, all points have
    been passed on. A spool that existed before is read from its beginning.
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
