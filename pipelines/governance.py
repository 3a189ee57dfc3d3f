"""Turns the table of `world.py` into a task's resources, retries, timeout, cache decision and environment."""

from dataclasses import dataclass, field

from kfp import kubernetes
from kfp.dsl import PipelineTask

from gatehouse.components.artifacts.run import RUN_ID
from gatehouse.components.artifacts.world import WORLD

RETRIES = 2
SETTINGS = "gatehouse-settings"
CREDENTIALS = "gatehouse-credentials"
_SETTINGS_KEYS = {
    "mlflow-tracking-uri": "MLFLOW_TRACKING_URI",
    "aws-endpoint-url": "AWS_ENDPOINT_URL",
    "aws-region": "AWS_DEFAULT_REGION",
}
_CREDENTIAL_KEYS = {
    "mlflow-tracking-token": "MLFLOW_TRACKING_TOKEN",
    "aws-access-key-id": "AWS_ACCESS_KEY_ID",
    "aws-secret-access-key": "AWS_SECRET_ACCESS_KEY",
}


def govern(task: PipelineTask, stage: str, title: str, minutes: int = 0) -> PipelineTask:
    """Give one task everything that its row of the table says, and a display name that says what it does.

    Secrets and endpoints come from the config map `gatehouse-settings` and the secret `gatehouse-credentials`, both
    optional; the run id comes from the pod's label, so that it never is a parameter and never part of a cache key.
    The timeout is that of the row, or `minutes` where the project lets the task run longer.
    """
    door = WORLD[stage]
    task.set_display_name(title)
    task.set_caching_options(enable_caching=door.memo)
    task.set_cpu_request(door.cpu).set_cpu_limit(door.cpu)
    task.set_memory_request(door.memory).set_memory_limit(door.memory)
    if door.retry_safe:
        task.set_retry(num_retries=RETRIES, backoff_duration="15s", backoff_factor=2.0, backoff_max_duration="300s")
    kubernetes.set_timeout(task, max(door.timeout_minutes, minutes) * 60)
    kubernetes.use_field_path_as_env(task, RUN_ID, "metadata.labels['pipeline/runid']")
    kubernetes.use_config_map_as_env(task, SETTINGS, _SETTINGS_KEYS, optional=True)
    kubernetes.use_secret_as_env(task, CREDENTIALS, _CREDENTIAL_KEYS, optional=True)
    return task


def entrust(task: PipelineTask, key: str, variable: str) -> None:
    """Give one task alone what `key` of the secret `gatehouse-credentials` holds, as an environment variable."""
    kubernetes.use_secret_as_env(task, CREDENTIALS, {key: variable}, optional=True)


@dataclass
class Tasks:
    """Collects the tasks of a pipeline as they are made: governed, named, and in order."""

    pipeline: str = ""
    plan: list[tuple[str, str, str]] = field(default_factory=list)

    def add(self, task: PipelineTask, stage: str, title: str, minutes: int = 0) -> PipelineTask:
        """Govern `task` as a run of `stage` and show it to people as `title`."""
        self.plan.append((task.name, stage, title))
        return govern(task, stage, title, minutes)
