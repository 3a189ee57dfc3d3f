"""What Kubeflow Pipelines does in MLflow for a run and its tasks, as its API server, driver and launcher do it."""

from dataclasses import dataclass
from typing import Any

import pytest

from gatehouse.tracking.mlflow_client import PARENT

_OPEN = ("RUNNING", "SCHEDULED")


@dataclass(frozen=True)
class KfpRun:
    """A pipeline run in MLflow.

    Attributes:
        client: MLflow, as KFP sees it.
        uri: The server, as pods reach it.
        experiment: Id of the experiment.
        id: Id of the run of the whole pipeline.
    """

    client: Any
    uri: str
    experiment: str
    id: str

    @classmethod
    def create(cls, client: Any, uri: str, name: str) -> "KfpRun":
        """Begin it, as the API server does when a run is created."""
        found = client.get_experiment_by_name("KFP")
        experiment = str(found.experiment_id) if found else client.create_experiment("KFP")
        run = client.create_run(experiment, tags={"kfp.pipeline_run_id": name}, run_name=name)
        return cls(client, uri, experiment, run.info.run_id)

    def begin(self, task: str) -> str:
        """Begin the run of a task, as the driver does, and return its id."""
        run = self.client.create_run(self.experiment, tags={PARENT: self.id}, run_name=task)
        return str(run.info.run_id)

    def enter(self, task: str, monkeypatch: pytest.MonkeyPatch, **further: str) -> None:
        """Set what a pod of the task has in its environment."""
        variables = {
            "MLFLOW_RUN_ID": task,
            "MLFLOW_TRACKING_URI": self.uri,
            "MLFLOW_EXPERIMENT_ID": self.experiment,
        }
        for name, value in (variables | further).items():
            monkeypatch.setenv(name, value)

    def end(self, task: str, status: str = "FINISHED") -> None:
        """End the run of a task, as the launcher does, and what is still open directly below it."""
        assert self.client.get_run(task).info.status == "RUNNING", "nobody ended it before KFP did"
        self.client.update_run(task, status=status)
        for run in self.below(task):
            if run.info.status in _OPEN:
                self.client.update_run(run.info.run_id, status=status)

    def below(self, run: str) -> list[Any]:
        """The runs directly below one."""
        return list(self.client.search_runs([self.experiment], f"tags.`{PARENT}` = '{run}'"))
