"""Trials on a simulated clock: a runner and an inbox in one, which computes no step that is not waited for."""

import heapq
import itertools
import queue
import time
from collections.abc import Callable, Iterator
from typing import Any

from gatehouse.tuning.runner import Event, Stopped

Script = Callable[[int, dict[str, Any]], Iterator[tuple[float, Event]]]
"""The events of a trial, each with the seconds from the one before it."""


class Simulation:
    """Runs scripts. Its clock goes on by what trials take, and by what the controller took between two events."""

    def __init__(self, script: Script, stopping: float = 0.0) -> None:
        """A simulation.

        Args:
            script: The events of a trial.
            stopping: Seconds from the order to stop a trial to its end.
        """
        self._script, self._stopping = script, stopping
        self._order = itertools.count()
        self._due: list[tuple[float, int, int, Event]] = []
        self._left: dict[int, Iterator[tuple[float, Event]]] = {}
        self._now, self._answered = 0.0, time.perf_counter()
        self.began: dict[int, float] = {}
        self.ended: dict[int, float] = {}

    def clock(self) -> float:
        """Seconds since the beginning, with those that the controller needs now."""
        return self._now + time.perf_counter() - self._answered

    def start(self, number: int, parameters: dict[str, Any], report: Callable[[Event], None]) -> "_Handle":
        """Begin a trial; its events come out of `get`."""
        self.began[number] = self.clock()
        self._left[number] = self._script(number, parameters)
        self._schedule(number, self.clock())
        return _Handle(self, number)

    def _schedule(self, number: int, now: float) -> None:
        seconds, event = next(self._left[number], (0.0, None))
        if event is not None:
            heapq.heappush(self._due, (now + seconds, next(self._order), number, event))

    def stop(self, number: int) -> None:
        """End a trial: what it would have told is told no more."""
        self._left[number] = iter([(self._stopping, Stopped(number))])
        self._due = [due for due in self._due if due[2] != number]
        heapq.heapify(self._due)
        self._schedule(number, self.clock())

    def put(self, item: Event) -> None:
        """Nobody puts events into a simulation."""
        raise NotImplementedError

    def get(self, *, timeout: float) -> Event:
        """The next event, at once; the clock goes on to it."""
        if not self._due:
            raise queue.Empty
        due, _, number, event = heapq.heappop(self._due)
        self._now, self._answered = max(due, self.clock()), time.perf_counter()
        self.ended[number] = self._now
        self._schedule(number, self._now)
        return event


class _Handle:
    def __init__(self, simulation: Simulation, number: int) -> None:
        self._simulation, self._number = simulation, number

    def stop(self) -> None:
        """End the trial."""
        self._simulation.stop(self._number)
