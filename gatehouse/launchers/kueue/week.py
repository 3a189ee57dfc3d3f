"""A synthetic week of jobs of a profile's teams: scheduled trainings, daytime work, long trainings, and sweeps."""

import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

from gatehouse.launchers.kueue.policy import Job
from gatehouse.launchers.kueue.quantity import amount_of
from gatehouse.launchers.kueue.spec import Kueue, Team

HOUR, DAY = 60, 24 * 60
WEEK = 7 * DAY


class Kind(NamedTuple):
    """One kind of jobs: when a batch is submitted, its number of jobs, and their durations and sizes."""

    arrival: Callable[[random.Random], float]
    batch: tuple[int, int]
    median_minutes: float
    parts: tuple[int, ...]
    """Sizes: divisors of the team's own quota."""
    priority: int
    """Index among the priorities of the profile, from the highest."""


def _by_day(chance: random.Random) -> float:
    return chance.randrange(5) * DAY + chance.triangular(8 * HOUR, 19 * HOUR, 14 * HOUR)


def _by_night(chance: random.Random) -> float:
    return chance.randrange(7) * DAY + 1 * HOUR


def _any_time(chance: random.Random) -> float:
    return chance.uniform(0, WEEK - 12 * HOUR)


NIGHTLY = Kind(_by_night, (1, 1), 90, (2, 4), 0)
BY_DAY = Kind(_by_day, (1, 1), 40, (4, 8), 1)
LONG = Kind(_any_time, (1, 1), 8 * HOUR, (1, 2, 4), 1)
SWEEP = Kind(_by_day, (20, 40), 60, (8,), 2)
HABITS = ((NIGHTLY, BY_DAY), (LONG, BY_DAY), (SWEEP, BY_DAY))
"""The kinds of jobs, assigned to teams in turn."""


def synthetic_week(kueue: Kueue, load: float, seed: int) -> list[Job]:
    """Jobs of one week, from Monday midnight on, in minutes.

    Args:
        kueue: The teams.
        load: Work of each team as a share of the capacity of its own quota in the week.
        seed: Seed of the random numbers.
    """
    jobs: list[Job] = []
    for number, team in enumerate(kueue.teams):
        chance = random.Random(f"{seed} {team.name}")
        for kind in HABITS[number % len(HABITS)]:
            jobs += _jobs(kueue, team, kind, load / len(HABITS[0]), chance)
    return sorted(jobs, key=lambda job: (job.created, job.name))


def _jobs(kueue: Kueue, team: Team, kind: Kind, load: float, chance: random.Random) -> Iterator[Job]:
    """Jobs of one kind, until they reach the load."""
    classes = sorted(kueue.priorities.values(), reverse=True) or [0]
    own, left, number = _own(team), load * WEEK, 0
    while left > 0:
        arrival = kind.arrival(chance)
        for _ in range(chance.randint(*kind.batch)):
            minutes = max(5, round(kind.median_minutes * chance.lognormvariate(0, 0.5)))
            part = chance.choice(kind.parts)
            left -= minutes / part
            number += 1
            yield Job(
                name=f"{team.name}/{kind.median_minutes:g}-{number}",
                team=team.name,
                priority=classes[min(kind.priority, len(classes) - 1)],
                created=round(arrival),
                minutes=minutes,
                asks={name: max(1000, amount // part // 1000 * 1000) for name, amount in own.items()},
            )


def _own(team: Team) -> dict[str, int]:
    """For each resource, the team's quota in the flavor that has most of it, because a job runs on one flavor."""
    own: dict[str, int] = {}
    for quotas in team.quotas.values():
        for resource, quota in quotas.items():
            own[resource] = max(own.get(resource, 0), amount_of(quota.nominal))
    return {resource: amount for resource, amount in own.items() if amount}
