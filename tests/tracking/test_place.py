"""The server and run that a pod of Kubeflow Pipelines uses, and the credentials that are sent there."""

import os

import pytest

from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.mlflow_client import tracking_of
from gatehouse.tracking.place import access_to

_KFP = {"MLFLOW_TRACKING_URI": "http://kfp", "MLFLOW_RUN_ID": "task", "MLFLOW_EXPERIMENT_ID": "1"}
_ACCESS = {"MLFLOW_TRACKING_TOKEN": "kfp", "MLFLOW_WORKSPACE": "team", "MLFLOW_TRACKING_AUTH": "kubernetes"}
_OWN = {"GATEHOUSE_MLFLOW_TRACKING_URI": "http://own", "GATEHOUSE_MLFLOW_TRACKING_TOKEN": "own"}
_SAME = {"GATEHOUSE_MLFLOW_TRACKING_URI": "http://kfp/"}
_USER, _SENT = {"MLFLOW_TRACKING_USERNAME": "me"}, {"MLFLOW_TRACKING_TOKEN": "own"}


@pytest.mark.parametrize(
    ("environment", "server", "below", "sent"),
    [
        pytest.param(_KFP | _ACCESS, "http://kfp", "task", _ACCESS, id="KFP's"),
        pytest.param(_KFP | _ACCESS | _OWN, "http://own", None, _SENT, id="the project's own"),
        pytest.param(_KFP | _ACCESS | _SAME, "http://kfp/", "task", _ACCESS, id="both the same"),
        pytest.param(_OWN | _USER, "http://own", None, _SENT | _USER, id="no KFP"),
        pytest.param({"MLFLOW_TRACKING_URI": "http://mine"}, "http://mine", None, {}, id="a laptop's"),
    ],
)
def test_the_project_s_own_server_comes_first_and_gets_no_credentials_of_kfp(
    store: ArtifactStore,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    server: str,
    below: str | None,
    sent: dict[str, str],
) -> None:
    for name in (*_KFP, *_ACCESS, *_OWN):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    tracking = tracking_of(store)
    assert tracking is not None and tracking.uri == server
    assert (tracking.task and tracking.task.run) == below
    with access_to(server):
        assert {name: os.environ[name] for name in (*_ACCESS, *_USER) if name in os.environ} == sent
    assert {name: os.environ[name] for name in environment} == environment


def test_every_workspace_of_a_server_has_a_name(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    names = set()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://kfp")
    for workspace in ("", "a", "b"):
        monkeypatch.setenv("MLFLOW_WORKSPACE", workspace)
        tracking = tracking_of(store)
        assert tracking is not None
        names.add(tracking.name)
    assert len(names) == 3
