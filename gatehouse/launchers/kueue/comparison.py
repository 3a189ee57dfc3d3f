"""Results of a simulated week for each team, and the same week under two other ways to share a cluster."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from gatehouse.launchers.kueue.policy import Job
from gatehouse.launchers.kueue.quantity import amount_of
from gatehouse.launchers.kueue.simulation import Course, Simulated, simulate
from gatehouse.launchers.kueue.spec import Kueue, Quota, Team


@dataclass(frozen=True)
class TeamWeek:
    """The results of a week for a team; minutes and shares.

    Attributes:
        team: Its name.
        jobs: Number of submitted jobs.
        median_wait, late_wait, longest_wait: Time from submission to first start: median, 95th percentile, maximum.
        ended: How often one of its jobs was preempted.
        lost: Share of its work that was done again.
        unfinished: Number of jobs that never ended.
    """

    team: str
    jobs: int
    median_wait: float
    late_wait: float
    longest_wait: float
    ended: int
    lost: float
    unfinished: int


def team_weeks(simulated: Simulated) -> list[TeamWeek]:
    """The week of each team, by the first part of its jobs' names, as a common queue has no teams."""
    teams: dict[str, list[Course]] = {}
    for course in simulated.courses:
        teams.setdefault(course.job.name.partition("/")[0], []).append(course)
    return [_of_team(name, courses, simulated.until) for name, courses in sorted(teams.items())]


def _of_team(name: str, courses: list[Course], until: float) -> TeamWeek:
    waits = sorted(course.waited(until) for course in courses)
    return TeamWeek(
        team=name,
        jobs=len(courses),
        median_wait=median(waits),
        late_wait=waits[min(len(waits) - 1, int(0.95 * len(waits)))],
        longest_wait=waits[-1],
        ended=sum(course.ended for course in courses),
        lost=sum(course.lost for course in courses) / sum(course.job.minutes for course in courses),
        unfinished=sum(course.finished is None for course in courses),
    )


def utilisation(simulated: Simulated, resource: str, minutes: float) -> float:
    """Share of a resource that was used until a minute, over all flavors and teams."""
    used, total, since = 0.0, 0, 0.0
    now: Counter[tuple[str, str]] = Counter()
    for moment, team, (flavor, name), amount in simulated.usage:
        if name != resource:
            continue
        reached = min(moment, minutes)
        used, since = used + total * (reached - since), reached
        total += amount - now[team, flavor]
        now[team, flavor] = amount
    used += total * max(0.0, minutes - since)
    whole = sum(amount for (_, name), amount in simulated.capacity.items() if name == resource)
    return used / (whole * minutes)


def without_borrowing(kueue: Kueue) -> Kueue:
    """The same teams, each with its own quota and no borrowing."""
    return kueue.model_copy(
        update={
            "teams": tuple(
                team.model_copy(
                    update={
                        "quotas": {
                            flavor: {
                                name: quota.model_copy(update={"borrowing_limit": "0"}) for name, quota in held.items()
                            }
                            for flavor, held in team.quotas.items()
                        }
                    }
                )
                for team in kueue.teams
            )
        }
    )


def one_queue(kueue: Kueue) -> Kueue:
    """One queue with all quota for all jobs: first come, first served, without preemption."""
    total: dict[str, Counter[str]] = {}
    for team in kueue.teams:
        for flavor, quotas in team.quotas.items():
            total.setdefault(flavor, Counter()).update(
                {name: amount_of(quota.nominal) for name, quota in quotas.items()}
            )
    sums = {
        flavor: {name: Quota(nominal=f"{amount}m") for name, amount in held.items()} for flavor, held in total.items()
    }
    everybody = Team(name="everybody", namespaces=("everybody",), quotas=sums)
    return kueue.model_copy(update={"teams": (everybody,), "within_queue": "Never"})


def compared(kueue: Kueue, jobs: Sequence[Job]) -> dict[str, Simulated]:
    """The same jobs under the profile, under quotas without borrowing, and in one queue for all."""
    shared = [replace(job, team="everybody", priority=0) for job in jobs]
    return {
        "as in the profile": simulate(kueue, jobs),
        "quotas without borrowing": simulate(without_borrowing(kueue), jobs),
        "one queue for all": simulate(one_queue(kueue), shared),
    }
