"""Rate limits of callers: a token bucket for each caller, refilled at a constant rate."""

import threading
import time
from collections.abc import Callable


class Rate:
    """At most `burst` calls at once, and `per_second` over time; each server counts separately.

    Args:
        per_second: Refill rate.
        burst: Number of calls at once after a pause.
        clock: A monotonic clock in seconds.
    """

    def __init__(self, per_second: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second, self._burst, self._clock = per_second, burst, clock
        self._left: dict[str, tuple[float, float]] = {}
        self._lock = threading.Lock()

    def wait(self, caller: str) -> float:
        """Count a call. Returns 0 if it is allowed, else the number of seconds to wait."""
        with self._lock:
            now = self._clock()
            left, at = self._left.get(caller, (float(self._burst), now))
            left = min(self._burst, left + (now - at) * self._per_second)
            if left < 1:
                self._left[caller] = (left, now)
                return (1 - left) / self._per_second
            self._left[caller] = (left - 1, now)
            return 0.0
