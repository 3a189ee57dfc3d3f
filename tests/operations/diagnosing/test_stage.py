"""A pod that lacks something names it, and a job resumes after a killed worker."""

import json
from pathlib import Path

import pytest

from gatehouse import __version__
from gatehouse.operations.diagnosing.program import KILLED_AT
from gatehouse.operations.diagnosing.stage import ReachRequest, RecoverRequest, UnfitPlaceError, reach, recover
from gatehouse.runtime.variables import LAUNCH
from gatehouse.store.store import ArtifactStore
from tests.stand_ins.kubernetes_api import kubernetes
from tests.stand_ins.kubernetes_kinds import container_of
from tests.stand_ins.kubernetes_pods import run_pods


def test_a_pod_with_everything_says_what_it_found(store: ArtifactStore) -> None:
    findings = reach(ReachRequest(version=__version__), store).checks
    assert findings[0] == f"image: holds Gatehouse {__version__}" and "racing writers one won" in findings[1]


def test_a_pod_names_everything_that_it_lacks(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    with pytest.raises(UnfitPlaceError) as caught:
        reach(ReachRequest(version="0.0.0"), store)
    assert "expected 0.0.0" in str(caught.value) and "refuses connections" in str(caught.value)


@pytest.mark.parametrize("kind", ["local", "pytorchjob"])
def test_a_job_of_two_workers_comes_back_after_a_kill(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    if kind == "local":
        assert recover(RecoverRequest(), store).resumed_at == KILLED_AT
        return
    with kubernetes(run_pods) as cluster:
        monkeypatch.setenv("KUBECONFIG", cluster.kubeconfig(tmp_path))
        monkeypatch.setenv(LAUNCH, json.dumps({"kind": kind, "image": "gatehouse/gatehouse:test"}))
        assert recover(RecoverRequest(), store).resumed_at == KILLED_AT
        assert container_of(cluster.created[0])[0] == 2, "a worker on each of two nodes"
        assert not cluster.jobs
