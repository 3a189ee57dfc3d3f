"""What the pod of a task gets on a platform: resources, a deadline, retries, settings, credentials, and a place."""

from collections.abc import Sequence
from typing import Any

from kfp import kubernetes
from kfp.dsl import PipelineTask

from gatehouse.launchers.kueue import amount_of
from gatehouse.launchers.spec import CREDENTIAL_KEYS, SETTINGS_KEYS
from gatehouse.project.platforms import Platform, Pods
from gatehouse.project.task_settings import TaskResources, seconds_of_attempts
from gatehouse.registry.model_registry import AUTHOR, SERVER, TOKEN
from gatehouse.runtime.images import PACKAGES, TRAINING, image, training
from gatehouse.store.run import RUN_ID
from gatehouse.store.stage import ATTEMPTS, Declaration, Stage

_PAUSE_SECONDS, _PAUSE_FACTOR = 15, 2.0
_QUEUE_SECONDS = 24 * 3600
"""How long each attempt may wait for its node: its timeout counts from there, Argo's longest duration does not."""


def equip(
    task: PipelineTask,
    stage: Stage[Any, Any],
    declared: Sequence[Declaration],
    minutes: int,
    resources: TaskResources | None,
    retries: int,
    platform: Platform,
) -> None:
    """Give a task's pod everything that its stages declare, and what the platform says.

    Settings and endpoints come from a config map and a secret, both optional; the run id comes from the pod's label, so
    that it never is a parameter and never part of a cache key. For resources, the platform comes before the project,
    and the project before the stage.

    Args:
        declared: The declarations of all stages that the task runs.
        minutes: The least time of `stage`.
        resources: Those of the project; None for none.
        retries: How often the task is tried again, if that is safe: by KFP after a lost pod, by the stage after an
            error.
    """
    own, of_project = platform.of(stage.name), resources or TaskResources()
    cpu = own.cpu or of_project.cpu or max((part.resources.cpu for part in declared), key=amount_of)
    memory = own.memory or of_project.memory or max((part.resources.memory for part in declared), key=amount_of)
    task.set_cpu_request(cpu).set_cpu_limit(cpu)
    task.set_memory_request(memory).set_memory_limit(memory)
    accelerated = next((settings for settings in (own, of_project) if settings.accelerator), None)
    if accelerated:
        task.set_accelerator_type(accelerated.accelerator_type).set_accelerator_limit(accelerated.accelerator)
    timeout = sum(max(part.resources.minutes, minutes if part is stage.declared else 0) for part in declared) * 60
    kubernetes.set_timeout(task, timeout)
    if all(part.effects.retry_safe for part in declared):
        longest = seconds_of_attempts(timeout + _QUEUE_SECONDS, retries, _PAUSE_SECONDS, _PAUSE_FACTOR)
        task.set_retry(retries, f"{_PAUSE_SECONDS}s", _PAUSE_FACTOR, f"{longest}s")
        task.set_env_variable(ATTEMPTS, str(1 + retries))
    kubernetes.use_field_path_as_env(task, RUN_ID, "metadata.labels['pipeline/runid']")
    kubernetes.use_config_map_as_env(task, platform.settings, SETTINGS_KEYS, optional=True)
    kubernetes.use_secret_as_env(task, platform.credentials, CREDENTIAL_KEYS, optional=True)
    # The platform's image in place of the task's own: training on accelerators gets the image with CUDA.
    name = next(name for name in PACKAGES if image(name) == task.container_spec.image)
    name = training(accelerated.accelerator if accelerated else 0) if name == TRAINING else name
    task.set_container_image(platform.image(name))
    _place(task, own)
    _mount(task, own)
    if platform.model_registry and any(part.effects.shows_models for part in declared):
        task.set_env_variable(SERVER, platform.model_registry.address)
        task.set_env_variable(AUTHOR, platform.model_registry.author)
        entrust(task, "model-registry-token", TOKEN, platform)


def entrust(task: PipelineTask, key: str, variable: str, platform: Platform) -> None:
    """Give one task's pod alone what `key` of the secret with credentials holds, as an environment variable."""
    kubernetes.use_secret_as_env(task, platform.credentials, {key: variable}, optional=True)


def _place(task: PipelineTask, own: Pods) -> None:
    """Say on which nodes a pod runs, as whom, and what it is called there."""
    for key, value in own.node_selector.items():
        kubernetes.add_node_selector(task, key, value)
    for taint in own.tolerations:
        kubernetes.add_toleration(task, taint.key, taint.operator, taint.value or None, taint.effect or None)
    for key, value in own.labels.items():
        kubernetes.add_pod_label(task, key, value)
    for key, value in own.annotations.items():
        kubernetes.add_pod_annotation(task, key, value)
    if own.image_pull_secrets:
        kubernetes.set_image_pull_secrets(task, list(own.image_pull_secrets))
    if own.image_pull_policy:
        kubernetes.set_image_pull_policy(task, own.image_pull_policy)
    if own.run_as_user or own.run_as_group:
        kubernetes.set_security_context(task, own.run_as_user, own.run_as_group, run_as_non_root=True)


def _mount(task: PipelineTask, own: Pods) -> None:
    """Mount claims, scratch, secrets and config maps, or hand on single keys of them as variables."""
    if own.scratch:
        kubernetes.empty_dir_mount(task, "scratch", "/tmp", size_limit=own.scratch)
    for volume in own.volumes:
        kubernetes.mount_pvc(task, volume.claim, volume.path)
    for entry in own.environment:
        as_env = kubernetes.use_secret_as_env if entry.source == "secret" else kubernetes.use_config_map_as_env
        as_env(task, entry.name, {entry.key: entry.variable}, optional=entry.optional)
    for folder in own.mounted:
        as_files = kubernetes.use_secret_as_volume if folder.source == "secret" else kubernetes.use_config_map_as_volume
        as_files(task, folder.name, folder.path, optional=folder.optional)
