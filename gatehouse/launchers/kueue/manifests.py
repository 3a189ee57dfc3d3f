"""Kueue's objects for the teams of a platform profile."""

from typing import Any

from gatehouse.launchers.kueue.spec import Flavor, Kueue, Quota, Team

Object = dict[str, Any]
VERSION = "kueue.x-k8s.io/v1beta2"


def manifests(kueue: Kueue, queue: str) -> list[Object]:
    """ResourceFlavors, WorkloadPriorityClasses, the Cohort, ClusterQueues and LocalQueues, in the order to apply them.

    Args:
        kueue: The teams.
        queue: Name of the LocalQueue in each of their namespaces, which pods carry as a label.
    """
    return [
        *(_object("ResourceFlavor", flavor.name, spec=_flavor(flavor)) for flavor in kueue.flavors),
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


def _flavor(flavor: Flavor) -> Object:
    spec: Object = {"nodeLabels": dict(flavor.node_labels)} if flavor.node_labels else {}
    if flavor.tolerations:
        spec["tolerations"] = [
            {name: value for name, value in toleration.model_dump().items() if value}
            for toleration in flavor.tolerations
        ]
    return spec


def _cluster_queue(kueue: Kueue, team: Team) -> Object:
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
                "coveredResources": list(resources),
                "flavors": [
                    {
                        "name": flavor,
                        "resources": [_quota(resource, team.quotas[flavor][resource]) for resource in resources],
                    }
                    for flavor in flavors
                ],
            }
            for resources, flavors in kueue.groups(team)
        ],
    }


def _quota(resource: str, quota: Quota) -> Object:
    limits = {"borrowingLimit": quota.borrowing_limit, "lendingLimit": quota.lending_limit}
    return {"name": resource, "nominalQuota": quota.nominal} | {
        name: value for name, value in limits.items() if value is not None
    }
