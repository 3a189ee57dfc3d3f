"""Requests to stop training early: the process that started trainings can stop them, and launchers obey."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Stop:
    """A request to stop training at once and keep its checkpoint; it may be made at any time, from any thread."""

    def __init__(self) -> None:
        self._asked = False
        self._lock = threading.Lock()
        self._ends: list[Callable[[], None]] = []

    def asked(self) -> bool:
        """Whether a stop was requested."""
        return self._asked

    def ask(self) -> None:
        """Stop what runs in the context of this request, once; nothing new starts in it afterwards."""
        with self._lock:
            ends = [] if self._asked else list(self._ends)  # A second signal would end a job without its checkpoint.
            self._asked = True
        for end in ends:
            end()

    @contextmanager
    def ending(self, end: Callable[[], None]) -> Iterator[None]:
        """In this context `end` is called at a stop request, or now after one; possibly after the context has ended."""
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
"""The stop request for the trainings of this context; see `stop_here`."""


def stop_here() -> Stop:
    """The stop request of this context; outside of a context, one that is never made."""
    return STOP.get(Stop())
