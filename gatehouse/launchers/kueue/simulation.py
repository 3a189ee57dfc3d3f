"""A discrete-event simulation of teams on one cluster: jobs arrive, start, are preempted, resume, and finish."""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count

from gatehouse.launchers.kueue.cohort import Place
from gatehouse.launchers.kueue.policy import Job, Queues, Running
from gatehouse.launchers.kueue.spec import Kueue


@dataclass
class Course:
    """The history of one job.

    Attributes:
        job: The job.
        started: Minutes of its starts.
        finished: Minute of its end; None if the simulation ended first.
        ended: How often it was preempted.
        lost: Minutes of work that were done again.
    """

    job: Job
    started: list[float] = field(default_factory=list)
    finished: float | None = None
    ended: int = 0
    lost: float = 0.0
    left: float = 0.0

    def waited(self, until: float) -> float:
        """Minutes to its first start."""
        return (self.started[0] if self.started else until) - self.job.created


@dataclass(frozen=True)
class Simulated:
    """The result of a simulation.

    Attributes:
        courses: The course of each job, in order of submission.
        usage: Changes of each team's usage: (minute, team, place, thousandths).
        capacity: Sum of the quotas, by place.
        until: Minute of the last event.
    """

    courses: list[Course]
    usage: list[tuple[float, str, Place, int]]
    capacity: Counter[Place]
    until: float


def simulate(
    kueue: Kueue,
    jobs: Iterable[Job],
    checkpoint_minutes: float = 15,
    restart_minutes: float = 2,
    look: Callable[[float, Queues], None] = lambda now, queues: None,
) -> Simulated:
    """Simulate the queues.

    Args:
        kueue: Teams, quotas and policies.
        jobs: All jobs; a job that exceeds all quotas waits for ever.
        checkpoint_minutes: Time between checkpoints of a job: preemption loses the work since the last one.
        restart_minutes: Time that a job needs to resume from its checkpoint.
        look: Called after each moment in which jobs were started.
    """
    queues, serial = Queues(kueue), count()
    courses = {job.name: Course(job, left=job.minutes) for job in sorted(jobs, key=lambda job: job.created)}
    events = [(one.job.created, next(serial), "submit", name, 0) for name, one in courses.items()]
    heapq.heapify(events)
    usage: list[tuple[float, str, Place, int]] = []
    now = 0.0

    def began(one: Running) -> None:
        course = courses[one.job.name]
        takes = course.left + (restart_minutes if course.started else 0)
        course.started.append(now)
        heapq.heappush(events, (now + takes, next(serial), "finish", one.job.name, course.ended))

    def ended(one: Running) -> None:
        course = courses[one.job.name]
        worked = max(0.0, now - one.since - (restart_minutes if course.ended else 0))
        kept = worked // checkpoint_minutes * checkpoint_minutes
        course.left -= kept
        course.lost += worked - kept
        course.ended += 1

    while events:
        now = events[0][0]
        before = {team: Counter(used) for team, used in queues.cohort.usage.items()}
        while events and events[0][0] == now:
            _, _, what, name, attempt = heapq.heappop(events)
            if what == "submit":
                queues.submit(courses[name].job)
            elif courses[name].ended == attempt:  # Otherwise it was preempted before it finished.
                queues.end(name)
                courses[name].finished = now
        queues.schedule(now, began, ended)
        look(now, queues)
        for team, used in queues.cohort.usage.items():
            usage.extend((now, team, place, used[place]) for place in used if used[place] != before[team][place])
    return Simulated(list(courses.values()), usage, queues.cohort.capacity(), now)
