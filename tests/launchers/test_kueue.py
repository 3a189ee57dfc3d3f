"""Kueue's objects are those that a cluster takes, and say what the profile says."""

from typing import Any

import pytest
from pydantic import ValidationError

from gatehouse.launchers.kueue import VERSION, Kueue, manifests
from tests.stand_ins.kubernetes_kinds import validator_of

TOLERATIONS = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
PROFILE: dict[str, Any] = {
    "cohort": "ml",
    "flavors": [
        {"name": "cpu-nodes"},
        {"name": "a100", "node_labels": {"gpu": "a100"}, "tolerations": TOLERATIONS},
        {"name": "t4", "node_labels": {"gpu": "t4"}},
    ],
    "priorities": {"production": 1000, "batch": 100},
    "teams": [
        {
            "name": "forecasting",
            "namespaces": ["forecasting", "forecasting-staging"],
            "weight": 2,
            "quotas": {
                "cpu-nodes": {"cpu": {"nominal": 64}, "memory": {"nominal": "256Gi"}},
                "a100": {"nvidia.com/gpu": {"nominal": 8, "borrowing_limit": 4, "lending_limit": 6}},
                "t4": {"nvidia.com/gpu": {"nominal": 16}},
            },
        },
        {"name": "vision", "namespaces": ["vision"], "quotas": {"a100": {"nvidia.com/gpu": {"nominal": 8}}}},
    ],
}


def _changed(**teams: Any) -> dict[str, Any]:
    return PROFILE | {"teams": [PROFILE["teams"][0] | teams, *PROFILE["teams"][1:]]}


def test_a_cluster_takes_every_object() -> None:
    objects = manifests(Kueue.model_validate(PROFILE), "ours")
    for manifest in objects:
        kind = manifest["kind"].lower()
        validator_of(f"kueue.x-k8s.io_{kind}{'es' if kind.endswith('s') else 's'}.yaml").validate(manifest)
        assert manifest["apiVersion"] == VERSION
    kinds = [manifest["kind"] for manifest in objects]
    order = "ResourceFlavor WorkloadPriorityClass Cohort ClusterQueue LocalQueue"
    assert list(dict.fromkeys(kinds)) == order.split()


def test_objects_say_what_the_profile_says() -> None:
    objects = {
        (manifest["kind"], manifest["metadata"].get("namespace", ""), manifest["metadata"]["name"]): manifest
        for manifest in manifests(Kueue.model_validate(PROFILE), "ours")
    }
    queue = objects["ClusterQueue", "", "forecasting"]["spec"]
    assert queue["cohortName"] == "ml" and queue["fairSharing"] == {"weight": "2"}
    assert queue["preemption"] == {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
    (selected,) = queue["namespaceSelector"]["matchExpressions"]
    assert selected["values"] == ["forecasting", "forecasting-staging"]
    cpu, gpu = queue["resourceGroups"]
    assert cpu["coveredResources"] == ["cpu", "memory"]
    assert [flavor["name"] for flavor in gpu["flavors"]] == ["a100", "t4"]
    assert gpu["flavors"][0]["resources"] == [
        {"name": "nvidia.com/gpu", "nominalQuota": "8", "borrowingLimit": "4", "lendingLimit": "6"}
    ]
    assert objects["LocalQueue", "forecasting-staging", "ours"]["spec"] == {"clusterQueue": "forecasting"}
    assert objects["WorkloadPriorityClass", "", "production"]["value"] == 1000
    assert objects["ResourceFlavor", "", "a100"]["spec"] == {"nodeLabels": {"gpu": "a100"}, "tolerations": TOLERATIONS}


@pytest.mark.parametrize(
    ("profile", "message"),
    [
        (_changed(quotas={"h100": {"cpu": {"nominal": 1}}}), "team forecasting: expected a flavor of cpu-nodes, a100"),
        (_changed(namespaces=["vision"]), "expected every namespace once, found vision twice"),
        (
            _changed(quotas={"a100": {"cpu": {"nominal": 1}, "nvidia.com/gpu": {"nominal": 1}}}),
            "team vision, flavor a100: expected the same resources together",
        ),
        (_changed(quotas={"a100": {"nvidia.com/gpu": {"nominal": "8 GPUs"}}}), "expected an amount such as 4, 500m"),
        (
            _changed(quotas={"a100": {"nvidia.com/gpu": {"nominal": 4, "lending_limit": 5}}}),
            "expected at most nominal, 4",
        ),
    ],
)
def test_what_kueue_would_refuse_is_refused(profile: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Kueue.model_validate(profile)
