"""A deployment on a scripted cluster: applied once, waited for, explained when it fails, and taken back."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from gatehouse.deployment import service, stage
from gatehouse.deployment.objects import SERVICE
from gatehouse.deployment.service import DEPLOYMENT, PREVIOUS, DeploymentError
from gatehouse.deployment.stage import MANIFESTS, DeployRequest, DeployResult
from gatehouse.errors import ConfigurationError
from gatehouse.launchers.kubernetes.api import KubernetesApi
from gatehouse.launchers.launcher import ClusterError
from gatehouse.registry.ledger import CHAMPION, Ledger
from tests.deployment.conftest import TIMEOUTS, answering, make_pods, on
from tests.server.live import Live
from tests.stand_ins.kubernetes_api import NAMESPACE, Cluster
from tests.stand_ins.kubernetes_kinds import Object

ROLE = Path(__file__).parents[2] / "docs" / "deploy-role.yaml"
PLACE = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/delays"
HPA = f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers/delays"


def deploy(live: Live, model: str = "delays", minutes: float = 0.5, **more: Any) -> DeployResult:
    request = {name: more.pop(name) for name in ("action", "take", "keep") if name in more}
    volumes = [{"claim": "store", "path": str(live.store.address)}]
    settings = {"volumes": volumes, "image": "training@sha256:1", "timeout_minutes": minutes} | more
    request |= {"model": model, "settings": settings}
    return stage.deploy.function(DeployRequest.model_validate(request), live.store)


@pytest.mark.parametrize("kind", ["deployment", "kserve"])
def test_a_repeat_changes_nothing_and_the_record_says_what_runs(
    live: Live, predictor: str, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    live.promote(1, CHAMPION)
    with on(live, answering(predictor), monkeypatch) as cluster:
        first = deploy(live, kind=kind, replicas=2)
        assert first.version == 1 and len(cluster.pods) == 2
        assert first.changed == {"deployment": ("Service", "Deployment"), "kserve": ("InferenceService",)}[kind]
        state = copy.deepcopy((cluster.objects, cluster.pods))
        again = deploy(live, kind=kind, replicas=2)
        assert (cluster.objects, cluster.pods) == state
        assert again == first.model_copy(update={"changed": ()})
        assert again.address == ("http://delays.ml.svc" if kind == "deployment" else "http://delays-ml.example")
    manifest = live.store.manifest(first.deployment)
    assert manifest.derived_from == {"model": live.models[0]} and manifest.reference.kind == "deployments"
    about = {name: manifest.details[name] for name in ("model", "version", "image", "namespace", "kind")}
    assert about == {"model": "delays", "version": 1, "image": "training@sha256:1", "namespace": "ml", "kind": kind}
    applied = [body["kind"] for body in yaml.safe_load_all(live.store.path(first.deployment, MANIFESTS).read_text())]
    assert applied == list(first.changed)


def test_after_a_promotion_it_waits_until_the_pods_answer_with_the_new_champion(
    live: Live, predictor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    live.promote(1, CHAMPION)
    with on(live, answering(predictor), monkeypatch) as cluster:
        deploy(live)
        pods = {*cluster.pods}
        live.promote(2, CHAMPION)
        assert deploy(live).version == 2 and {*cluster.pods} == pods
        with pytest.raises(DeploymentError) as caught:
            deploy(live, "delays:1", minutes=0.01)  # The pods of this test follow the ledger whatever they are told.
        assert caught.value.cause == "version"


def _waiting(reason: str, **last: Any) -> Object:
    container = {"state": {"waiting": {"reason": reason, "message": "why"}}} | last
    return {"phase": "Pending", "containerStatuses": [container]}


def _crashed(code: int, reason: str, restarts: int = 3) -> Object:
    end = {"terminated": {"exitCode": code, "reason": reason}}
    return _waiting("CrashLoopBackOff", restartCount=restarts, lastState=end) | {"phase": "Running"}


UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
FAILURES: dict[str, Object] = {
    "image": _waiting("ImagePullBackOff"),
    "schedule": {"phase": "Pending", "conditions": [UNSCHEDULABLE]},
    "memory": _crashed(137, "OOMKilled"),
    "crash": _crashed(1, "Error"),
    "probe": {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]},
}


@pytest.mark.parametrize("cause", FAILURES)
def test_a_failure_is_explained_and_the_deployment_before_it_applied_again(
    live: Live, predictor: str, monkeypatch: pytest.MonkeyPatch, cause: str
) -> None:
    live.promote(1, CHAMPION)

    def fail(cluster: Cluster, body: Object) -> None:
        if body["kind"] == "Deployment":
            for pod in make_pods(cluster, body, FAILURES[cause]):
                cluster.say(pod, "the last line")
            name = pod["metadata"]["name"]
            cluster.events.append({"type": "Warning", "reason": "Unhealthy", "message": "refused", "on": name})

    def fail_later(cluster: Cluster, body: Object) -> None:
        larger = body["kind"] == "Deployment" and "memory: 3Gi" in yaml.safe_dump(body)
        (fail if larger else answering(predictor))(cluster, body)

    with on(live, fail_later, monkeypatch) as cluster:
        first = deploy(live)
        with pytest.raises(DeploymentError) as caught:
            deploy(live, memory="3Gi", minutes=0.02 if cause in ("schedule", "probe") else 5)
        assert caught.value.cause == cause and first.deployment in str(caught.value)
        assert ("the last line" in str(caught.value)) == (cause in ("memory", "crash", "probe"))
        assert ("refused" in str(caught.value)) == (cause == "probe")
        about = cluster.objects[PLACE]["metadata"]["annotations"]
        assert about == {DEPLOYMENT: first.deployment}
        assert "2Gi" in yaml.safe_dump(cluster.objects[PLACE])
        assert deploy(live) == first.model_copy(update={"changed": ()})
        with pytest.raises(DeploymentError):
            deploy(live, memory="3Gi", minutes=0.02, keep=True)
        assert "3Gi" in yaml.safe_dump(cluster.objects[PLACE])


def test_a_trouble_is_named_once_while_the_reasons_of_the_node_change(
    live: Live, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", service.__name__)
    reasons = ("ErrImagePull", "ImagePullBackOff", "ErrImagePull")
    looks = [service.Trouble("image", f"no image.\nThe node says: {reason}") for reason in reasons]
    troubles = iter([*looks, service.Trouble("probe", "0 of 1 pods are ready."), None])
    monkeypatch.setattr(service.ClusterService, "_trouble", lambda *_: next(troubles))
    with on(live, lambda *_: None, monkeypatch):
        waiting = service.ClusterService(KubernetesApi(TIMEOUTS), "ml", "delays", "deployment")
        waiting.await_version("delays", lambda: 1, "template", 1, 1.0)
    assert caplog.messages == ["delays: no image.", "delays: 0 of 1 pods are ready."]


def test_pods_that_the_cluster_refuses_to_make_are_explained(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    live.promote(1, CHAMPION)

    def refuse(cluster: Cluster, body: Object) -> None:
        failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota"}
        body["status"] = {"conditions": [failure]}

    with on(live, refuse, monkeypatch), pytest.raises(DeploymentError, match="exceeded quota") as caught:
        deploy(live, minutes=5)
    assert caught.value.cause == "create"


def test_a_rollback_returns_to_the_deployment_before_and_back(
    live: Live, predictor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    live.promote(1, CHAMPION)
    with on(live, answering(predictor), monkeypatch) as cluster:
        with pytest.raises(ConfigurationError):
            deploy(live, action="rollback")
        first = deploy(live)
        with pytest.raises(ConfigurationError):
            deploy(live, action="rollback")
        second = deploy(live, memory="3Gi", max_replicas=3)
        assert HPA in cluster.objects
        live.promote(2, CHAMPION)  # The predictor follows the ledger: what is taken back is how it runs.
        assert deploy(live, action="rollback") == first.model_copy(
            update={"version": 2, "changed": ("Deployment", "HorizontalPodAutoscaler")}
        )
        assert HPA not in cluster.objects
        about = cluster.objects[PLACE]["metadata"]["annotations"]
        assert about == {DEPLOYMENT: first.deployment, PREVIOUS: second.deployment}
        assert deploy(live, action="rollback").deployment == second.deployment


def test_a_field_of_another_manager_is_a_conflict_and_nothing_is_changed(
    live: Live, predictor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    live.promote(1, CHAMPION)
    with on(live, answering(predictor), monkeypatch) as cluster:
        deploy(live)
        cluster.objects[PLACE]["spec"]["replicas"] = 4
        cluster.applied[PLACE]["kubectl-edit"] = {("spec", "replicas"): 4}
        state = copy.deepcopy(cluster.objects)
        with pytest.raises(ClusterError, match=r"kubectl-edit.*\.spec\.replicas"):
            deploy(live, replicas=2)
        assert cluster.objects == state
        assert deploy(live, replicas=2, take=True).changed == ("Deployment",)


def test_a_field_that_the_cluster_does_not_know_is_refused(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by an earlier release of KServe; the cluster answers with 500, which else is tried again."""
    live.promote(1, CHAMPION)
    with on(live, lambda *_: None, monkeypatch) as cluster:
        cluster.lacks = ("deploymentStrategy",)
        with pytest.raises(ClusterError, match=r"\.deploymentStrategy"):
            deploy(live, kind="kserve")
        assert cluster.objects == {} and sum(request.startswith("PATCH") for request in cluster.requests) == 1


def test_nothing_is_applied_to_try_or_to_write(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    live.promote(1, CHAMPION)
    with on(live, lambda *_: None, monkeypatch) as cluster:
        tried = deploy(live, action="try", namespace="ml")
        assert cluster.objects == {} and "PATCH" in str(cluster.requests)
        cluster.requests.clear()
        written = deploy(live, action="write", namespace="ml")
        assert written == tried and cluster.requests == []
    with pytest.raises(ConfigurationError, match="pods reach"):
        deploy(live, action="write", volumes=[])


def test_the_role_of_the_documentation_is_what_it_asks_for_and_no_more(
    live: Live, predictor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    live.promote(1, CHAMPION)
    asked = set()

    def first_fail(cluster: Cluster, body: Object) -> None:
        if body["kind"] == "Deployment" and "3Gi" in yaml.safe_dump(body):
            cluster.pods.clear()
            make_pods(cluster, body, FAILURES["probe"])
        else:
            answering(predictor)(cluster, body)

    with on(live, first_fail, monkeypatch) as cluster:
        deploy(live, max_replicas=2)
        deploy(live)
        deploy(live, kind="kserve")
        for cause in ("probe", "crash"):
            monkeypatch.setitem(FAILURES, "probe", FAILURES[cause])
            with pytest.raises(DeploymentError):
                deploy(live, memory="3Gi", minutes=0.01)
        asked |= cluster.permissions
    role, _ = yaml.safe_load_all(ROLE.read_text())
    assert asked == {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_pods_are_asked_directly_from_inside_the_cluster(
    live: Live, predictor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, _, port = predictor.removeprefix("http://").partition(":")
    monkeypatch.setattr(service, "PORT", int(port))
    with on(live, lambda *_: None, monkeypatch) as cluster:
        inside = service.ClusterService(KubernetesApi(TIMEOUTS), "", "delays", "deployment")
        inside._api.in_cluster = True
        pod = {"metadata": {"name": "p", "labels": {SERVICE: "delays"}}, "status": {"podIP": host}}
        champion = str(Ledger(live.store, "delays").state().champion)
        assert inside._answer(pod, "delays") == champion and inside._answer(pod, "others") == ""
        assert cluster.requests == []
