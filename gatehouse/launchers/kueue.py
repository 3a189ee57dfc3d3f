"""The section `kueue` of a platform profile, the teams that share the cluster, and Kueue's objects for them."""

import re
from collections.abc import Mapping
from fractions import Fraction
from math import ceil
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from gatehouse.configuration.strict import Strict
from gatehouse.launchers.spec import Toleration

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
Object = dict[str, Any]
VERSION = "kueue.x-k8s.io/v1beta2"
_UNITS = {
    "": Fraction(1),
    "m": Fraction(1, 1000),
    **{letter: Fraction(1000**power) for power, letter in enumerate("kMGT", 1)},
    **{f"{letter}i": Fraction(1024**power) for power, letter in enumerate("KMGT", 1)},
}


def amount_of(quantity: str) -> int:
    """A quantity in Kubernetes' notation, such as 4, 500m or 64Gi, in thousandths, rounded up."""
    parts = re.fullmatch(r"(\d+(?:\.\d+)?)([a-zA-Z]*)", quantity)
    if parts is None or parts[2] not in _UNITS:
        raise ValueError(f"expected an amount such as 4, 500m or 64Gi, found {quantity!r}")
    return ceil(Fraction(parts[1]) * _UNITS[parts[2]] * 1000)


def _as_text(value: Any) -> str:
    text = str(value)
    amount_of(text)
    return text


Quantity = Annotated[str, BeforeValidator(_as_text)]  # a quantity in a configuration; a number is read as its text


class Quota(Strict):
    """A team's quota of one resource."""

    nominal: Quantity = Field(description="The team's own quota: it gets it back from borrowers whenever it needs it.")
    borrowing_limit: Quantity | None = Field(
        None, description="Largest amount that it borrows from others; null for no limit."
    )
    lending_limit: Quantity | None = Field(
        None, description="Largest amount of its own quota that it lends; null for all of it."
    )

    @model_validator(mode="after")
    def _lends_its_own(self) -> "Quota":
        if self.lending_limit is not None and amount_of(self.lending_limit) > amount_of(self.nominal):
            raise ValueError(f"lending_limit: expected at most nominal, {self.nominal}, found {self.lending_limit}")
        return self


class Flavor(Strict):
    """A kind of node, for use in quotas."""

    name: Name = Field(description="Name of Kueue's resource flavor.")
    node_labels: Mapping[str, str] = Field(
        {}, description="Labels of its nodes, set as node selector of admitted pods."
    )
    tolerations: tuple[Toleration, ...] = Field((), description="Added to admitted pods.")


class Team(Strict):
    """One team: a ClusterQueue, and a LocalQueue in each of its namespaces."""

    name: Name = Field(description="Name of the team, and of its cluster queue.")
    namespaces: tuple[Name, ...] = Field(
        min_length=1, description="Namespaces of its runs; no namespace belongs to two teams."
    )
    weight: float = Field(1, ge=0, description="Weight of the team when free quota is shared among borrowers.")
    quotas: Mapping[Name, Mapping[str, Quota]] = Field(
        min_length=1,
        description="By flavor, then by resource (cpu, memory, nvidia.com/gpu). Flavors in order of choice.",
    )


class Kueue(Strict):
    """Teams on one cluster, in one cohort: each has its own quota, and borrows unused quota of others."""

    cohort: Name = Field("gatehouse", description="Name of Kueue's cohort, in which teams lend and borrow.")
    flavors: tuple[Flavor, ...] = Field(min_length=1, description="Kinds of nodes.")
    priorities: Mapping[Name, int] = Field({}, description="Workload priority classes by name; higher goes first.")
    teams: tuple[Team, ...] = Field(min_length=1, description="Who shares the cluster.")
    order: Literal["BestEffortFIFO", "StrictFIFO"] = Field(
        "BestEffortFIFO", description="Whether later jobs of a team may start before an earlier one that does not fit."
    )
    within_queue: Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"] = Field(
        "LowerPriority", description="Which running jobs of its own team a waiting job may preempt."
    )
    reclaim: Literal["Never", "LowerPriority", "Any"] = Field(
        "Any", description="Which jobs of borrowing teams a waiting job may preempt."
    )

    @model_validator(mode="after")
    def _fits_together(self) -> "Kueue":
        problems = []
        flavors = [flavor.name for flavor in self.flavors]
        for kind, names in {
            "flavor": flavors,
            "team": [team.name for team in self.teams],
            "namespace": [namespace for team in self.teams for namespace in team.namespaces],
        }.items():
            for name in sorted({name for name in names if names.count(name) > 1}):
                problems.append(f"expected every {kind} once, found {name} twice")
        covered: dict[str, frozenset[str]] = {}
        for team in self.teams:
            for flavor, quotas in team.quotas.items():
                if flavor not in flavors:
                    problems.append(f"team {team.name}: expected a flavor of {', '.join(flavors)}, found {flavor}")
                group = frozenset(quotas)
                if any(covered.setdefault(resource, group) != group for resource in group):
                    problems.append(
                        f"team {team.name}, flavor {flavor}: expected the same resources together in every flavor "
                        f"(Kueue's resource groups), found {', '.join(sorted(group))}"
                    )
        if problems:
            raise ValueError("; ".join(problems))
        return self


def manifests(kueue: Kueue, queue: str) -> list[Object]:
    """ResourceFlavors, WorkloadPriorityClasses, the Cohort, ClusterQueues and LocalQueues, in the order to apply them.

    `queue` is the name of the LocalQueue in the namespaces of the teams, which pods carry as a label.
    """
    flavors = []
    for flavor in kueue.flavors:
        spec: Object = {"nodeLabels": dict(flavor.node_labels)} if flavor.node_labels else {}
        if flavor.tolerations:
            tolerations = [toleration.model_dump() for toleration in flavor.tolerations]
            spec["tolerations"] = [{name: value for name, value in row.items() if value} for row in tolerations]
        flavors.append(_object("ResourceFlavor", flavor.name, spec=spec))
    return [
        *flavors,
        *(_object("WorkloadPriorityClass", name, value=value) for name, value in kueue.priorities.items()),
        _object("Cohort", kueue.cohort, spec={}),
        *(_object("ClusterQueue", team.name, spec=_cluster_queue(kueue, team)) for team in kueue.teams),
        *(
            _object("LocalQueue", queue, namespace=namespace, spec={"clusterQueue": team.name})
            for team in kueue.teams
            for namespace in team.namespaces
        ),
    ]


def _object(kind: str, name: str, *, namespace: str = "", **body: Any) -> Object:
    metadata: Object = {"name": name} | ({"namespace": namespace} if namespace else {})
    metadata["labels"] = {"app.kubernetes.io/managed-by": "gatehouse"}
    return {"apiVersion": VERSION, "kind": kind, "metadata": metadata, **body}


def _cluster_queue(kueue: Kueue, team: Team) -> Object:
    def quota(flavor: str, resource: str) -> Object:
        amounts = team.quotas[flavor][resource]
        limits = {"borrowingLimit": amounts.borrowing_limit, "lendingLimit": amounts.lending_limit}
        limits = {name: value for name, value in limits.items() if value is not None}
        return {"name": resource, "nominalQuota": amounts.nominal, **limits}

    # Resource groups: resources that are counted together, and the flavors that have them.
    groups: dict[frozenset[str], list[str]] = {}
    for flavor, quotas in team.quotas.items():
        groups.setdefault(frozenset(quotas), []).append(flavor)
    return {
        "cohortName": kueue.cohort,
        "fairSharing": {"weight": f"{team.weight:g}"},
        "namespaceSelector": {
            "matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "In", "values": sorted(team.namespaces)}
            ]
        },
        "preemption": {"reclaimWithinCohort": kueue.reclaim, "withinClusterQueue": kueue.within_queue},
        "queueingStrategy": kueue.order,
        "resourceGroups": [
            {
                "coveredResources": sorted(resources),
                "flavors": [
                    {"name": flavor, "resources": [quota(flavor, resource) for resource in sorted(resources)]}
                    for flavor in flavors
                ],
            }
            for resources, flavors in groups.items()
        ],
    }
