"""Retries: which errors are retried, and the waits between attempts."""

import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar

logger = logging.getLogger(__name__)

ATTEMPTS = 6
FIRST_WAIT, LONGEST_WAIT = 0.2, 8.0
T = TypeVar("T")


class TransientError(Exception):
    """A request failed for a reason that may be temporary: the server is busy, or the connection was lost.

    Attributes:
        cause: The client's error.
        exhausted: Whether it was retried often enough already, as part of a larger request.
    """

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.exhausted = False


def retried(request: Callable[[bool], T], what: str) -> T:
    """Make a request, and repeat it after a TransientError, up to `ATTEMPTS` times in all.

    Waits double from `FIRST_WAIT` seconds up to `LONGEST_WAIT`, each multiplied by a random number in [0.5, 1.5], so
    that clients that failed together do not retry together.

    Args:
        request: Called with whether this is a repetition. In that case the attempt before may have succeeded with only
            its answer lost.
        what: Names the request in the log.

    Raises:
        TransientError: the error of the last attempt.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return request(attempt > 1)
        except TransientError as error:
            if attempt == ATTEMPTS or error.exhausted:
                error.exhausted = True
                raise
            wait = min(FIRST_WAIT * 2 ** (attempt - 1), LONGEST_WAIT) * random.uniform(0.5, 1.5)
            logger.info("%s: %s; trying again in %.1f s", what, error, wait)
            time.sleep(wait)
    raise AssertionError("the last attempt returns or raises")
