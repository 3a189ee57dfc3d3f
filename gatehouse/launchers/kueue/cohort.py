"""Accounts for a cohort's quota: what is free for each team, and how much of it is borrowed.

The arithmetic is Kueue's (`pkg/cache/scheduler/resource_node.go` and `fair_sharing.go`) for one cohort without parents.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from gatehouse.launchers.kueue.quantity import amount_of
from gatehouse.launchers.kueue.spec import Kueue

Place = tuple[str, str]
"""A flavor and a resource, as a pair."""
Usage = Mapping[Place, int]
"""Thousandths of a resource, by place."""


@dataclass(frozen=True)
class _Quota:
    nominal: int
    borrows: int | None
    kept: int

    @property
    def lent(self) -> int:
        return self.nominal - self.kept


class Cohort:
    """The quotas of all teams, and their present usage."""

    def __init__(self, kueue: Kueue) -> None:
        self.weights = {team.name: team.weight for team in kueue.teams}
        self.usage: dict[str, Counter[Place]] = {team.name: Counter() for team in kueue.teams}
        self._quotas: dict[str, dict[Place, _Quota]] = {}
        self._lendable: Counter[Place] = Counter()
        self._lent: Counter[Place] = Counter()  # Usage of quota that can be lent.
        for team in kueue.teams:
            self._quotas[team.name] = {}
            for flavor, quotas in team.quotas.items():
                for resource, quota in quotas.items():
                    nominal = amount_of(quota.nominal)
                    lends = nominal if quota.lending_limit is None else amount_of(quota.lending_limit)
                    borrows = None if quota.borrowing_limit is None else amount_of(quota.borrowing_limit)
                    self._quotas[team.name][flavor, resource] = _Quota(nominal, borrows, nominal - lends)
                    self._lendable[flavor, resource] += lends
        self._lendable_resources: Counter[str] = Counter()
        for (_, resource), lent in self._lendable.items():
            self._lendable_resources[resource] += lent

    def capacity(self) -> Counter[Place]:
        """The sum of all teams' quotas."""
        return Counter(
            {
                place: sum(quotas[place].nominal for quotas in self._quotas.values() if place in quotas)
                for place in self._lendable
            }
        )

    def nominal(self, team: str, place: Place) -> int:
        """A team's own quota."""
        return self._quotas[team][place].nominal

    def available(self, team: str, place: Place) -> int:
        """What a team may still use, own and borrowed; negative if it uses more than it may."""
        quota, used = self._quotas[team][place], self.usage[team][place]
        free = self._lendable[place] - self._lent[place]
        if quota.borrows is not None:
            free = min(free, quota.lent - max(0, used - quota.kept) + quota.borrows)
        return max(0, quota.kept - used) + free

    def fits(self, team: str, usage: Usage) -> bool:
        """Whether a team may use this much more."""
        return all(amount <= self.available(team, place) for place, amount in usage.items())

    def within(self, team: str, usage: Usage) -> bool:
        """Whether a team stays within its own quota with this much more usage."""
        return all(self.usage[team][place] + more <= self.nominal(team, place) for place, more in usage.items())

    def borrows(self, team: str, place: Place) -> bool:
        """Whether a team uses more than its own quota."""
        return place in self._quotas[team] and self.usage[team][place] > self.nominal(team, place)

    def share(self, team: str, more: Usage | None = None) -> float:
        """A team's share: borrowed divided by lendable amount, for its highest resource, by its weight; from 0.

        Args:
            team: The team.
            more: Usage to count in addition.
        """
        borrowed: Counter[str] = Counter()
        for (flavor, resource), quota in self._quotas[team].items():
            used = self.usage[team][flavor, resource] + (more or {}).get((flavor, resource), 0)
            borrowed[resource] += max(0, used - quota.nominal)
        parts = [
            amount / self._lendable_resources[resource]
            for resource, amount in borrowed.items()
            if self._lendable_resources[resource]
        ]
        most = max(parts, default=0.0)
        if not most:
            return 0.0
        return most / self.weights[team] if self.weights[team] else float("inf")

    def add(self, team: str, usage: Usage) -> None:
        """Add the usage of a team's job."""
        for place, amount in usage.items():
            kept, before = self._quotas[team][place].kept, self.usage[team][place]
            self.usage[team][place] = after = before + amount
            self._lent[place] += max(0, after - kept) - max(0, before - kept)

    def remove(self, team: str, usage: Usage) -> None:
        """Subtract the usage of a team's job."""
        self.add(team, {place: -amount for place, amount in usage.items()})
