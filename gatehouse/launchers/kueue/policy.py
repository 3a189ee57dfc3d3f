"""Decides which waiting job starts next, and which running jobs are preempted: Kueue's documented fair sharing.

https://kueue.sigs.k8s.io/docs/concepts/preemption/#fair-sharing, with both preemption strategies in their usual order.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product

from gatehouse.launchers.kueue.cohort import Cohort, Place, Usage
from gatehouse.launchers.kueue.spec import Kueue


@dataclass(frozen=True)
class Job:
    """A job as it was submitted.

    Attributes:
        name: Unique name of the job.
        team: Its team.
        priority: Higher goes first.
        created: Minute of its submission.
        minutes: How long it works.
        asks: Thousandths of each resource.
    """

    name: str
    team: str
    priority: int
    created: float
    minutes: float
    asks: Mapping[str, int]

    @property
    def order(self) -> tuple[float, ...]:
        """Its place in the queue of its team."""
        return (-self.priority, self.created)


@dataclass(frozen=True)
class Running:
    """A job that was admitted.

    Attributes:
        job: The job.
        usage: What it takes, and of which flavors.
        since: Minute of its admission.
    """

    job: Job
    usage: Usage
    since: float


class Queues:
    """The jobs of all teams: those that wait, in order, and those that run."""

    def __init__(self, kueue: Kueue) -> None:
        self.kueue = kueue
        self.cohort = Cohort(kueue)
        self.waiting: dict[str, list[Job]] = {team.name: [] for team in kueue.teams}
        self.running: dict[str, Running] = {}
        self._teams = {team.name: team for team in kueue.teams}
        self._options: dict[tuple[object, ...], list[Usage]] = {}

    def submit(self, job: Job) -> None:
        """Put a job into the queue of its team."""
        self.waiting[job.team].append(job)
        self.waiting[job.team].sort(key=lambda one: one.order)

    def end(self, name: str) -> None:
        """Remove a running job."""
        gone = self.running.pop(name)
        self.cohort.remove(gone.job.team, gone.usage)

    def schedule(self, now: float, began: Callable[[Running], None], ended: Callable[[Running], None]) -> None:
        """Start the jobs that can start; preempted jobs wait again.

        Args:
            now: The minute.
            began: Called with each job that starts.
            ended: Called with each job that is preempted.
        """
        parked: set[tuple[object, ...]] = set()  # Requests that do not fit now, so equal requests are skipped.
        evicted: set[str] = set()  # They wait, and may preempt nobody in the same moment.
        while heads := list(self._heads(parked, evicted)):
            job, _ = min(heads, key=lambda head: self._turn(*head))
            usage, targets = self._admitted(job, may_preempt=job.name not in evicted)
            if not usage:
                parked.add(self._asked(job, evicted))
                continue
            for target in targets:
                self.end(target.job.name)
                self.submit(target.job)
                evicted.add(target.job.name)
                ended(target)
                parked.clear()
            self.waiting[job.team].remove(job)
            self.cohort.add(job.team, usage)
            self.running[job.name] = Running(job, usage, now)
            began(self.running[job.name])

    def _asked(self, job: Job, evicted: set[str]) -> tuple[object, ...]:
        """The facts that decide whether a job can start now."""
        age = job.created if self.kueue.within_queue == "LowerOrNewerEqualPriority" else None
        return job.team, job.priority, age, tuple(job.asks.items()), job.name in evicted

    def _heads(self, parked: set[tuple[object, ...]], evicted: set[str]) -> Iterator[tuple[Job, Usage]]:
        """The next job of each team to try, with its usage."""
        for team, waiting in self.waiting.items():
            tried = waiting[:1] if self.kueue.order == "StrictFIFO" else waiting
            job = next((job for job in tried if self._asked(job, evicted) not in parked), None)
            if job is not None:
                options = self.options(job)
                yield job, next((usage for usage in options if self.cohort.fits(team, usage)), options[0])

    def _turn(self, job: Job, usage: Usage) -> tuple[float, ...]:
        """Sort key of turns: teams within their quota first, then lower share with the job, then queue order."""
        return (not self.cohort.within(job.team, usage), self.cohort.share(job.team, usage), *job.order)

    def options(self, job: Job) -> list[Usage]:
        """Possible usages of a job: one flavor per group of resources, in the order in which they are tried."""
        key = job.team, *job.asks.items()
        if key not in self._options:
            groups = [
                [{(flavor, name): job.asks[name] for name in resources if job.asks.get(name)} for flavor in flavors]
                for resources, flavors in self.kueue.groups(self._teams[job.team])
                if any(job.asks.get(name) for name in resources)
            ]
            self._options[key] = [dict(chain(*(part.items() for part in parts))) for parts in product(*groups)]
        return self._options[key]

    def _admitted(self, job: Job, may_preempt: bool) -> tuple[Usage, Sequence[Running]]:
        """The job's usage, and the jobs preempted for it; empty if it has to wait."""
        options = self.options(job)
        for usage in options:
            if self.cohort.fits(job.team, usage):
                return usage, ()
        for usage in options if may_preempt else ():
            if targets := self._targets(job, usage):
                return usage, targets
        return {}, ()

    def _candidates(self, job: Job, contested: set[Place]) -> list[Running]:
        """Running jobs that may be preempted: other teams first, lowest priority first, newest first."""

        def allowed(one: Running) -> bool:
            if not contested & one.usage.keys():
                return False
            lower = one.job.priority < job.priority
            if one.job.team == job.team:
                newer = one.job.priority == job.priority and one.job.created > job.created
                within = self.kueue.within_queue
                return (lower and within != "Never") or (newer and within == "LowerOrNewerEqualPriority")
            borrows = any(self.cohort.borrows(one.job.team, place) for place in contested)
            return borrows and (self.kueue.reclaim == "Any" or (lower and self.kueue.reclaim == "LowerPriority"))

        found = filter(allowed, self.running.values())
        return sorted(found, key=lambda one: (one.job.team == job.team, one.job.priority, -one.since, one.job.name))

    def _targets(self, job: Job, usage: Usage) -> list[Running]:
        """The jobs to preempt so that this one fits; empty if that is not enough."""
        contested = {place for place, amount in usage.items() if amount > self.cohort.available(job.team, place)}
        left = self._candidates(job, contested)
        self.cohort.add(job.team, usage)
        targets: list[Running] = []
        try:
            self._choose(job, usage, contested, left, targets)
            if not self._room(job, usage):
                return []
            return self._without_needless(job, usage, targets)
        finally:
            for target in targets:
                self.cohort.add(target.job.team, target.usage)
            self.cohort.remove(job.team, usage)

    def _choose(
        self, job: Job, usage: Usage, contested: set[Place], left: list[Running], targets: list[Running]
    ) -> None:
        """Choose jobs, from the team with the highest share first, until the job fits."""
        own = self.cohort.within(job.team, dict.fromkeys(contested, 0))

        def take(target: Running) -> bool:
            self.cohort.remove(target.job.team, target.usage)
            targets.append(target)
            return self._room(job, usage)

        later: list[Running] = []
        while team := self._next_team(job, left):
            for one in [one for one in left if one.job.team == team]:
                left.remove(one)
                if team == job.team or own or self.cohort.share(job.team) <= self._share_without(one):
                    if take(one):
                        return
                    break
                later.append(one)
        while team := self._next_team(job, later):
            one = next(one for one in later if one.job.team == team)
            if self.cohort.share(job.team) < self.cohort.share(team) and take(one):
                return
            later = [other for other in later if other.job.team != team]

    def _next_team(self, job: Job, left: list[Running]) -> str:
        """The team with the highest share among those with candidates: its own, and those that borrow."""
        shares = {one.job.team: self.cohort.share(one.job.team) for one in left}
        open_to = {team: share for team, share in shares.items() if share > 0 or team == job.team}
        return max(open_to, key=lambda team: (open_to[team], team), default="")

    def _share_without(self, one: Running) -> float:
        """The share of a team without one of its jobs."""
        return self.cohort.share(one.job.team, {place: -amount for place, amount in one.usage.items()})

    def _room(self, job: Job, usage: Usage) -> bool:
        """Whether the job, which is already counted, is within its team's limits."""
        return all(self.cohort.available(job.team, place) >= 0 for place in usage)

    def _without_needless(self, job: Job, usage: Usage, targets: list[Running]) -> list[Running]:
        """The jobs to preempt without unnecessary ones; the last one was necessary."""
        for target in list(reversed(targets))[1:]:
            self.cohort.add(target.job.team, target.usage)
            if self._room(job, usage):
                targets.remove(target)
            else:
                self.cohort.remove(target.job.team, target.usage)
        return list(targets)
