"""Contestants in turns, so that what else runs on the machine meets all of them alike."""

import time
from collections.abc import Callable, Mapping

Seconds = list[tuple[float, float]]
"""CPU and wall time of each round."""


def race(contestants: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, Seconds]:
    """CPU and wall time of every contestant in every round."""
    taken: dict[str, Seconds] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, contestant in contestants.items():
            wall, cpu = time.perf_counter(), time.process_time()
            contestant()
            taken[name].append((time.process_time() - cpu, time.perf_counter() - wall))
    return taken
