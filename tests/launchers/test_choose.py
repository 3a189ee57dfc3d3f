"""Which launcher runs a job: the environment says so, and nothing of it reaches what is hashed."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from gatehouse.errors import ConfigurationError
from gatehouse.kfp.compilation.compiling import compile_pipeline
from gatehouse.launchers.launcher import ClusterError
from gatehouse.launchers.local import launch_of, launcher
from gatehouse.launchers.spec import TrainJobLaunch
from gatehouse.project.project import load_project
from gatehouse.project.project_file import ProjectFile
from gatehouse.runtime.images import TRAINING, image
from gatehouse.runtime.variables import LAUNCH
from gatehouse.store.canonical import canonical_json
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.provenance import Prices
from gatehouse.training.spec import changed

PROJECT = Path(__file__).parents[2] / "pipelines" / "projects" / "flights" / "project.yaml"


def test_every_problem_of_the_setting_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"nodes: .*; shm: there is no such key for kind trainjob"):
        launch_of('{"kind": "trainjob", "nodes": 0, "shm": "1Gi"}')


def test_a_cluster_that_is_not_configured_is_an_error_that_says_so(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(LAUNCH, '{"kind": "pytorchjob"}')
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(ClusterError, match=r"No Kubernetes cluster is configured: .*\w\. Run in a pod"):
        launcher(store)


def test_a_project_whose_nodes_cannot_share_the_processes_is_refused() -> None:
    body = yaml.safe_load(PROJECT.read_text())
    body["launch"] = {"kind": "pytorchjob", "nodes": 7}
    with pytest.raises(ValidationError, match=r"nodes=7: expected a divisor of training\.parallelism\.processes"):
        ProjectFile.model_validate(body)


def test_where_training_runs_reaches_its_tasks_and_is_no_parameter(tmp_path: Path) -> None:
    project = load_project(PROJECT.parent)
    training = changed(project.file.training, {"operation.timeout_minutes": 600})
    launch = TrainJobLaunch(kind="trainjob", queue="team", scheduling_minutes=90)
    paid = Prices(per_hour={"default": 1.5})
    prices = canonical_json(paid.model_dump())
    file = project.file.model_copy(update={"launch": launch, "training": training, "prices": paid})
    spec = compile_pipeline("training", replace(project, file=file), tmp_path / "specs")
    body, platform = yaml.load_all(spec.read_text(), Loader=yaml.CSafeLoader)
    environments = {
        name: executor["container"].get("env", [])
        for name, executor in body["deploymentSpec"]["executors"].items()
        if LAUNCH in json.dumps(executor)
    }
    assert sorted(environments) == ["exec-train"]
    for env in environments.values():
        (setting,) = [executor["value"] for executor in env if executor["name"] == LAUNCH]
        assert {"name": "GATEHOUSE_PRICES", "value": prices} in env
        chosen = {"kind": "trainjob", "queue": "team", "scheduling_minutes": 90.0, "image": image(TRAINING)}
        assert json.loads(setting) == chosen
    assert "team" not in json.dumps(body["root"])
    settings = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    seconds = int(settings["exec-train"]["activeDeadlineSeconds"])
    assert seconds >= (1 + file.tuning.max_trial_count) * 43200, "KFP would end the task before the last job may end"
