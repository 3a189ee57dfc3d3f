"""The cluster's API where it refuses: said once, and not asked all the time."""

import time
from pathlib import Path

import pytest

from gatehouse.launchers.kubernetes.api import ApiConflict, ApiTimeouts, KubernetesApi
from gatehouse.launchers.kubernetes.ownership import OwnedJob
from gatehouse.launchers.launcher import ClusterError
from tests.launchers.kubernetes.scenarios import TIMEOUTS
from tests.stand_ins.kubernetes_api import kubernetes

JOBS = "/apis/kubeflow.org/v1/namespaces/ml/pytorchjobs"


def test_a_watch_that_is_refused_is_said_once_and_waits(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with kubernetes(lambda *_: None) as cluster:
        api = KubernetesApi(TIMEOUTS, cluster.kubeconfig(tmp_path))
        cluster.faults.extend([403, 403])
        began = time.monotonic()
        for _ in range(2):
            api.wait_for_change(JOBS, "x", "1", 0.1)
    assert time.monotonic() - began >= 0.2
    assert caplog.text.count("refuses with HTTP 403") == 1


def test_a_conflict_over_no_object_is_not_tried_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with kubernetes(lambda *_: None) as cluster:
        api, tries = KubernetesApi(TIMEOUTS, cluster.kubeconfig(tmp_path)), []

        def conflict(path: str, body: object) -> None:
            tries.append(time.monotonic())
            raise ApiConflict(409)

        monkeypatch.setattr(api, "create", conflict)
        monkeypatch.setattr(api, "timeouts", ApiTimeouts(retry=0.3, min_interval=0.1))
        with pytest.raises(ClusterError, match="HTTP 409, although it has no job of this name"):
            OwnedJob(api, JOBS, "x", "d").create({"kind": "PyTorchJob", "metadata": {"annotations": {}}})
        assert len(tries) <= 5
