"""Settings of a task's pod on a platform: resources, a deadline, retries, settings, credentials, and a place."""

from kfp import kubernetes
from kfp.dsl import PipelineTask

from gatehouse.components.interface import Task, set_attempts
from gatehouse.launchers.pod_settings import Pods
from gatehouse.project.platforms import Platform
from gatehouse.project.project_file import TaskResources
from gatehouse.registry.projection import AUTHOR, SERVER, TOKEN
from gatehouse.runtime.images import TRAINING, by_digest, training


def equip(
    task: Task,
    minutes: int,
    resources: TaskResources | None,
    retries: int,
    platform: Platform,
    image: str = "",
) -> None:
    """Give a task's pod what the platform and the project say, beyond what its component needs.

    For resources, the platform comes before the project, and the project before the component.

    Args:
        minutes: The time limit of an attempt.
        resources: Those of the project; None for none.
        retries: How often the task is tried again.
        image: Name of the image in place of the component's.
    """
    needs = task.needs
    own, of_project = platform.of(task.component_spec.name.replace("-", "_")), resources or TaskResources()
    cpu, memory = own.cpu or of_project.cpu or needs.cpu, own.memory or of_project.memory or needs.memory
    task.set_cpu_request(cpu).set_cpu_limit(cpu)
    task.set_memory_request(memory).set_memory_limit(memory)
    accelerated = next((settings for settings in (own, of_project) if settings.accelerator), None)
    if accelerated:
        task.set_accelerator_type(accelerated.accelerator_type).set_accelerator_limit(accelerated.accelerator)
    set_attempts(task, minutes * 60, retries)
    # The platform's image in place of the task's own: training on accelerators gets the image with CUDA.
    name = training(accelerated.accelerator if accelerated else 0) if needs.image == TRAINING else needs.image
    reference = platform.image(image or name)
    task.set_container_image(reference).set_caching_options(needs.caching and by_digest(reference))
    _place(task, own)
    _mount(task, own)
    if platform.model_registry and needs.shows_models:
        task.set_env_variable(SERVER, platform.model_registry.address)
        task.set_env_variable(AUTHOR, platform.model_registry.author)
        mount_secret(task, "model-registry-token", TOKEN, platform)


def mount_secret(task: PipelineTask, key: str, variable: str, platform: Platform) -> None:
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
