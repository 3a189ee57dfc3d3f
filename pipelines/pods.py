"""What the pod of a task gets on a cluster: resources, a deadline, retries, settings and credentials."""

from kfp import kubernetes
from kfp.dsl import PipelineTask

from gatehouse.components.artifacts.declaration import Declaration
from gatehouse.components.artifacts.run import RUN_ID
from gatehouse.project import TaskResources

SETTINGS = "gatehouse-settings"
CREDENTIALS = "gatehouse-credentials"
SETTINGS_KEYS = {
    "mlflow-tracking-uri": "GATEHOUSE_MLFLOW_TRACKING_URI",
    "aws-endpoint-url": "AWS_ENDPOINT_URL",
    "aws-region": "AWS_DEFAULT_REGION",
}
CREDENTIAL_KEYS = {
    "mlflow-tracking-token": "GATEHOUSE_MLFLOW_TRACKING_TOKEN",
    "aws-access-key-id": "AWS_ACCESS_KEY_ID",
    "aws-secret-access-key": "AWS_SECRET_ACCESS_KEY",
}


def equip(task: PipelineTask, declared: Declaration, minutes: int, given: TaskResources | None, retries: int) -> None:
    """Give a task's pod everything that its stage declares.

    Settings and endpoints come from the config map `gatehouse-settings` and the secret `gatehouse-credentials`, both
    optional; the run id comes from the pod's label, so that it never is a parameter and never part of a cache key.

    Args:
        task: The task.
        declared: The declaration of its stage.
        minutes: The least timeout.
        given: What the project says of its resources; None where it says nothing.
        retries: How often it is tried again where it fails, where that is safe.
    """
    resources = declared.resources
    cpu, memory = (given and given.cpu) or resources.cpu, (given and given.memory) or resources.memory
    task.set_cpu_request(cpu).set_cpu_limit(cpu)
    task.set_memory_request(memory).set_memory_limit(memory)
    if given and given.accelerator:
        task.set_accelerator_type(given.accelerator_type).set_accelerator_limit(given.accelerator)
    if declared.effects.retry_safe:
        task.set_retry(num_retries=retries, backoff_duration="15s", backoff_factor=2.0, backoff_max_duration="300s")
    kubernetes.set_timeout(task, max(resources.minutes, minutes) * 60)
    kubernetes.use_field_path_as_env(task, RUN_ID, "metadata.labels['pipeline/runid']")
    kubernetes.use_config_map_as_env(task, SETTINGS, SETTINGS_KEYS, optional=True)
    kubernetes.use_secret_as_env(task, CREDENTIALS, CREDENTIAL_KEYS, optional=True)


def entrust(task: PipelineTask, key: str, variable: str) -> None:
    """Give one task's pod alone what `key` of the secret `gatehouse-credentials` holds, as an environment variable."""
    kubernetes.use_secret_as_env(task, CREDENTIALS, {key: variable}, optional=True)
