"""Contestants in turns, so that what else runs on the machine meets all of them alike, and what is held to limits."""

import statistics
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


def medians(taken: Seconds) -> tuple[float, float]:
    """CPU and wall time of the round in the middle."""
    return statistics.median(cpu for cpu, _ in taken), statistics.median(wall for _, wall in taken)


def kept(what: str, ratio: float, least: float = 0.0, most: float = float("inf")) -> bool:
    """Whether a ratio is within its limit, which is printed."""
    within, limit = least <= ratio <= most, f"at least {least:g}" if least else f"at most {most:g}"
    print(f"{what:<34} {ratio:6.3f}, {limit}: {'kept' if within else 'MISSED'}")
    return within


def seconds_of(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
