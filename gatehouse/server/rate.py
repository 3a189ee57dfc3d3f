"""How often a caller may ask: a bucket of calls for each token, which fills up again at a constant rate."""

import threading
import time
from collections.abc import Callable


class Rate:
    """At most `burst` calls at once, and `per_second` for longer; each server counts for itself.

    Args:
        per_second: Calls that come back each second.
        burst: Calls that a caller who was silent may make at once.
        clock: Seconds of a clock that never goes back.
    """

    def __init__(self, per_second: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second, self._burst, self._clock = per_second, burst, clock
        self._left: dict[str, tuple[float, float]] = {}
        self._lock = threading.Lock()

    def wait(self, caller: str) -> float:
        """Count a call. Gives 0 where it may pass, else the seconds after which it may."""
        with self._lock:
            now = self._clock()
            left, at = self._left.get(caller, (float(self._burst), now))
            left = min(self._burst, left + (now - at) * self._per_second)
            if left < 1:
                self._left[caller] = (left, now)
                return (1 - left) / self._per_second
            self._left[caller] = (left - 1, now)
            return 0.0
