"""The objects of a deployment: a cluster takes them, they are *restricted* and as the platform says; bytes repeat."""

from typing import Any

import pytest
import yaml

from gatehouse.deployment.objects import TEMPLATE, manifests_of, objects_of
from gatehouse.deployment.spec import DeploySpec
from gatehouse.project.platforms import Platform
from tests.stand_ins.kubernetes_kinds import validator

IMAGE = "registry.example/training@sha256:" + "1" * 64
PLATFORM = {
    "name": "cluster",
    "store": "s3://ml/gatehouse",
    "namespace": "ml",
    "service_account": "runner",
    "credentials": "keys",
    "images": {"training": IMAGE},
    "queue": "team",
    "pods": {
        "node_selector": {"disk": "fast"},
        "tolerations": [{"key": "spot"}],
        "labels": {"team": "risk"},
        "annotations": {"note": "ours"},
        "priority_class": "usual",
        "image_pull_secrets": ["registry"],
        "image_pull_policy": "IfNotPresent",
        "run_as_user": 1001,
        "scratch": "4Gi",
        "volumes": [{"claim": "cache", "path": "/cache"}],
        "environment": [{"variable": "AWS_DEFAULT_REGION", "source": "config_map", "name": "own", "key": "region"}],
        "mounted": [{"name": "certificate", "path": "/etc/own"}],
    },
}


def _spec(**deploy: Any) -> DeploySpec:
    return Platform.model_validate(PLATFORM | {"deploy": deploy}).deployment()


def _pod(objects: list[dict[str, Any]]) -> dict[str, Any]:
    specs = [body["spec"] for body in objects if body["kind"] in ("Deployment", "InferenceService")]
    pod: dict[str, Any] = specs[0].get("predictor") or specs[0]["template"]["spec"]
    return pod


@pytest.mark.parametrize("deploy", [{}, {"max_replicas": 4}, {"kind": "kserve"}, {"kind": "kserve", "max_replicas": 4}])
def test_a_cluster_takes_the_objects(deploy: dict[str, Any]) -> None:
    spec = _spec(arguments=["--log", "all", "--online"], **deploy)
    for objects in (objects_of(spec, "delays", "delays"), objects_of(DeploySpec(**deploy), "delays", "delays:4")):
        for body in objects:
            assert [f"{error.json_path}: {error.message}" for error in validator(body["kind"]).iter_errors(body)] == []


@pytest.mark.parametrize("kind", ["deployment", "kserve"])
def test_pods_are_restricted_and_have_what_the_platform_says(kind: str) -> None:
    pod = _pod(objects_of(_spec(kind=kind, arguments=["--online"]), "delays", "delays"))
    (container,) = pod["containers"]
    # https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted
    assert (
        pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    )
    assert not container["securityContext"]["allowPrivilegeEscalation"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert {*map(frozenset, pod["volumes"])} <= {
        frozenset({"name", allowed}) for allowed in ("emptyDir", "persistentVolumeClaim", "secret", "configMap")
    }
    assert container["securityContext"]["readOnlyRootFilesystem"] and not pod["automountServiceAccountToken"]
    assert container["resources"]["limits"] == container["resources"]["requests"] == {"cpu": "1", "memory": "2Gi"}
    assert container["image"] == IMAGE and pod["serviceAccountName"] == "runner"
    assert pod["nodeSelector"] == {"disk": "fast"} and pod["imagePullSecrets"] == [{"name": "registry"}]
    sources = {row["name"]: next(iter(row["valueFrom"].values())) for row in container["env"] if "valueFrom" in row}
    assert sources["AWS_SECRET_ACCESS_KEY"]["name"] == sources["GATEHOUSE_ONLINE_STORE"]["name"] == "keys"
    assert sources["AWS_DEFAULT_REGION"]["name"] == "own"
    assert {row["mountPath"] for row in container["volumeMounts"]} == {"/tmp", "/cache", "/etc/own"}
    assert container["args"][:4] == ["predictor", "delays", "--store", "s3://ml/gatehouse"]


def test_what_the_profile_says_of_deployments_comes_before_the_platform() -> None:
    spec = _spec(
        namespace="serving", image="another:1", credentials="others", labels={"team": "web"}, store="s3://eu/x"
    )
    assert (spec.namespace, spec.image, spec.credentials, spec.store) == ("serving", "another:1", "others", "s3://eu/x")
    assert spec.labels == {"team": "web"} and spec.settings == "gatehouse-settings"


def test_the_same_deployment_has_the_same_bytes_and_only_other_pods_another_template() -> None:
    def template(spec: DeploySpec, model: str = "delays") -> str:
        (deployment,) = (body for body in objects_of(spec, "delays", model) if body["kind"] == "Deployment")
        return str(deployment["spec"]["template"]["metadata"]["labels"][TEMPLATE])

    first, second = (manifests_of(objects_of(_spec(max_replicas=3), "delays", "delays")) for _ in range(2))
    assert first == second and "&id" not in first
    assert [*yaml.safe_load_all(first)] == objects_of(_spec(max_replicas=3), "delays", "delays")
    assert template(_spec()) == template(_spec(replicas=2))
    assert len({template(_spec()), template(_spec(memory="3Gi")), template(_spec(), "delays:4")}) == 3


@pytest.mark.parametrize(
    "wrong",
    [
        {"arguments": ["--port=80"]},
        {"replicas": 3, "max_replicas": 2},
        {"service": "Delays"},
        {"priority_class": "usual"},
        {"memory": "2G"},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(reversed(wrong))):
        DeploySpec(**wrong)
