"""The wish that training ends early: who made the trainings of a context can stop them, and launchers honour it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Stop:
    """A wish that training ends at once and keeps its checkpoint; it may come at any time, from any thread."""

    def __init__(self) -> None:
        self._asked = False
        self._lock = threading.Lock()
        self._ends: list[Callable[[], None]] = []

    def asked(self) -> bool:
        """Whether the wish is there."""
        return self._asked

    def ask(self) -> None:
        """End what runs in the context of this wish, once; what begins in it later does not begin."""
        with self._lock:
            ends = [] if self._asked else list(self._ends)  # A second signal would end a job without its checkpoint.
            self._asked = True
        for end in ends:
            end()

    @contextmanager
    def ending(self, end: Callable[[], None]) -> Iterator[None]:
        """In this context `end` is called when the wish comes, or now if it is there; it may come after the context."""
        with self._lock:
            self._ends.append(end)
            asked = self._asked
        if asked:
            end()
        try:
            yield
        finally:
            with self._lock:
                self._ends.remove(end)


STOP: ContextVar[Stop] = ContextVar("gatehouse_stop")
"""The wish that holds for the trainings of this context; see `stop_here`."""


def stop_here() -> Stop:
    """The wish of this context; one that nobody makes where there is none."""
    return STOP.get(Stop())
