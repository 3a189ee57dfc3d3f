"""The tasks of a pipeline: each gets what its stage declares, and what every task of a run shares."""

from functools import cache
from typing import Any

from kfp import kubernetes
from kfp.dsl import PipelineTask

from gatehouse.components.artifacts.declaration import Declaration
from gatehouse.components.artifacts.run import RUN_ID
from gatehouse.components.artifacts.stage import Stage, declared_stages
from gatehouse.components.control.stage import prepare
from gatehouse.pipelines.interfaces import component_of
from gatehouse.pipelines.preparation import prepare_component
from gatehouse.project import Project, TaskResources

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


class Tasks:
    """Adds tasks to a pipeline while KFP builds it, and collects them in order for the terminal.

    Attributes:
        pipeline: Name of the pipeline.
        project: The project that it is built for.
        plan: Name of the task in KFP, stage and title of each.
    """

    def __init__(self, pipeline: str, project: Project) -> None:
        self.pipeline = pipeline
        self.project = project
        self.plan: list[tuple[str, str, str]] = []
        self._store: Any = project.store
        self._prepared: PipelineTask | None = None

    def begin(self, store: Any, force: Any = None) -> None:
        """Say where the run keeps its artifacts; with `force`, add the task that hands each stage its nonce.

        Args:
            store: The pipeline's parameter `store`.
            force: The pipeline's parameter `force`.
        """
        self._store = store
        if force is not None:
            stages = forcible_stages()
            configs = [str(config.reference) for config in self.project.configs()]
            arguments = {"force": force, "stages": list(stages), "configs": configs}
            self._prepared = self._add(prepare_component(stages), prepare, "", 0, arguments)

    def add(self, stage: Stage[Any, Any], /, *, title: str = "", minutes: int = 0, **arguments: Any) -> PipelineTask:
        """Add the task of a stage, with the settings that it declares; store, code and nonce are given to it.

        Args:
            stage: The stage.
            title: What people call the task, where its stage runs twice in a pipeline.
            minutes: The least timeout, where the configuration lets the task run longer than the stage declares.
            **arguments: The other parameters of its component: the fields of its request.
        """
        component = component_of(stage.name)
        if "code" in component.component_spec.inputs:
            arguments["code"] = stage.code()
        if "force" in component.component_spec.inputs and "force" not in arguments:
            assert self._prepared is not None, f"{stage.name} can be forced: begin the pipeline with `force`"
            arguments["force"] = self._prepared.outputs[stage.name]
        return self._add(component, stage, title, minutes, arguments)

    def _add(
        self, component: Any, stage: Stage[Any, Any], title: str, minutes: int, arguments: dict[str, Any]
    ) -> PipelineTask:
        task = component(store=self._store, **arguments)
        title = title or stage.declared.title
        self.plan.append((task.name, stage.name, title))
        return _configured(task, stage.declared, title, minutes, self.project.file.resources.get(stage.name))


@cache
def forcible_stages() -> tuple[str, ...]:
    """Names of the stages whose component takes a nonce, in order."""
    tasks = (name for name, stage in declared_stages().items() if not stage.declared.inner and name != prepare.name)
    return tuple(sorted(name for name in tasks if "force" in component_of(name).component_spec.inputs))


def _configured(
    task: PipelineTask, declared: Declaration, title: str, minutes: int, given: TaskResources | None
) -> PipelineTask:
    """Give a task everything that its stage declares, and a display name that says what it does.

    Secrets and endpoints come from the config map `gatehouse-settings` and the secret `gatehouse-credentials`, both
    optional; the run id comes from the pod's label, so that it never is a parameter and never part of a cache key.
    """
    effects, resources = declared.effects, declared.resources
    cpu, memory = (given and given.cpu) or resources.cpu, (given and given.memory) or resources.memory
    task.set_display_name(title)
    task.set_caching_options(enable_caching=effects.memo)
    task.set_cpu_request(cpu).set_cpu_limit(cpu)
    task.set_memory_request(memory).set_memory_limit(memory)
    if given and given.accelerator:
        task.set_accelerator_type(given.accelerator_type).set_accelerator_limit(given.accelerator)
    if effects.retry_safe:
        task.set_retry(num_retries=RETRIES, backoff_duration="15s", backoff_factor=2.0, backoff_max_duration="300s")
    kubernetes.set_timeout(task, max(resources.minutes, minutes) * 60)
    kubernetes.use_field_path_as_env(task, RUN_ID, "metadata.labels['pipeline/runid']")
    kubernetes.use_config_map_as_env(task, SETTINGS, _SETTINGS_KEYS, optional=True)
    kubernetes.use_secret_as_env(task, CREDENTIALS, _CREDENTIAL_KEYS, optional=True)
    return task


def entrust(task: PipelineTask, key: str, variable: str) -> None:
    """Give one task alone what `key` of the secret `gatehouse-credentials` holds, as an environment variable."""
    kubernetes.use_secret_as_env(task, CREDENTIALS, {key: variable}, optional=True)
