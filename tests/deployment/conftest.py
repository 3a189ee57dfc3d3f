"""A registry with two versions that score, a predictor that follows it, and a cluster whose pods all lead there."""

import copy
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gatehouse.deployment import service
from gatehouse.launchers.kubernetes.api import ApiTimeouts
from gatehouse.registry.ledger import CHAMPION, Ledger
from gatehouse.server.predictor import Following, create_app
from gatehouse.server.traffic import Traffic
from gatehouse.store.store import ArtifactStore
from tests.server.live import Live, make_live
from tests.server.serving import serving
from tests.stand_ins.kubernetes_api import Cluster, kubernetes
from tests.stand_ins.kubernetes_kinds import Object

TIMEOUTS = ApiTimeouts(request=30, retry=60, first_pause=0.005, longest_pause=0.05, resync=0.02)
Controller = Callable[[Cluster, Object], None]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Live:
    return make_live(ArtifactStore.open(tmp_path_factory.mktemp("deploying")))


@pytest.fixture(scope="module")
def predictor(live: Live) -> Iterator[str]:
    """A predictor that follows the ledger, for all pods that answer."""
    live.promote(1, CHAMPION)
    ledger = Ledger(live.store, "delays")
    followed = Following(live.traffic(), lambda present: Traffic.of(live.store, ledger, False, present), seconds=0.01)
    with serving(create_app(followed)) as address:
        yield address


def _pods_of(body: Object) -> tuple[Object, int]:
    """Labels of the pods that an object makes, and their number."""
    if body["kind"] == "InferenceService":
        return body["spec"]["predictor"]["labels"], body["spec"]["predictor"]["minReplicas"]
    return body["spec"]["template"]["metadata"]["labels"], body["spec"].get("replicas", 1)


def make_pods(cluster: Cluster, body: Object, status: Object) -> list[Object]:
    """Add the pods of an object, all with this status."""
    labels, number = _pods_of(body)
    pods = []
    for _ in range(number):
        about = {"name": f"delays-{uuid.uuid4().hex[:6]}", "uid": uuid.uuid4().hex, "labels": labels}
        pod = {"metadata": about, "status": copy.deepcopy(status)}
        cluster.pods[about["name"]] = pod
        cluster.logs[about["uid"]] = []
        pods.append(pod)
    return pods


READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def answering(predictor: str) -> Controller:
    """A controller that exchanges all pods, if the template is another one, for pods that answer."""

    def roll(cluster: Cluster, body: Object) -> None:
        if body["kind"] not in ("Deployment", "InferenceService"):
            return
        labels, number = _pods_of(body)
        if [pod["metadata"]["labels"] for pod in cluster.pods.values()] != [labels] * number:
            cluster.pods.clear()
            for pod in make_pods(cluster, body, READY):
                cluster.reached[pod["metadata"]["name"]] = predictor
        if body["kind"] == "InferenceService":
            ready = {"type": "Ready", "status": "True"}
            body["status"] = {"conditions": [ready], "url": "http://delays-ml.example"}

    return roll


@contextmanager
def on(live: Live, applies: Controller, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A stand-in for a cluster, whose controllers do `applies` after an object was changed."""
    with kubernetes(lambda *_: None) as cluster:
        cluster.applies = applies
        monkeypatch.setenv("KUBECONFIG", cluster.kubeconfig(Path(live.store.address)))
        monkeypatch.setattr("gatehouse.launchers.kubernetes.api.ApiTimeouts", lambda: TIMEOUTS)
        monkeypatch.setattr(service, "_PATIENCE", 0.1)
        yield cluster
