"""Rules about how a task runs: resources, retries, deadline, cache, rights, image."""

from collections.abc import Iterator
from typing import Any

from gatehouse.kfp.compilation.rules.rule import rule
from gatehouse.kfp.compilation.specification import Compiled, Task
from gatehouse.project.platforms import THIS_MACHINE
from gatehouse.project.task_settings import seconds_of_attempts
from gatehouse.runtime.images import by_digest
from gatehouse.store.stage import TOLERATE, declared_stages, in_task

_RESOURCES = ("resourceCpuRequest", "resourceCpuLimit", "resourceMemoryRequest", "resourceMemoryLimit")


@rule("stage", "what a task may do is declared by its stage, and only that is held against the spec")
def stage(compiled: Compiled) -> Iterator[str]:
    """Every container runs the function of a declared stage."""
    for task in compiled.leaves:
        if task.stage not in declared_stages():
            yield f"task {task.path}: there is no stage {task.stage!r}: no stage.py declares it"


@rule("resources", "a pod without requests and limits takes what others need, and is the first to be evicted")
def resources(compiled: Compiled) -> Iterator[str]:
    """Every task has requests and limits of CPU and memory."""
    for task in compiled.leaves:
        given = task.container.get("resources", {})
        yield from (f"task {task.path}: has no {wanted}" for wanted in _RESOURCES if wanted not in given)


@rule(
    "retries",
    "a pod is lost now and then, and a second try is safe only where the stages of the task say so, and helps only "
    "with time for all attempts",
)
def retries(compiled: Compiled) -> Iterator[str]:
    """A task has retries exactly if its stages declare them safe, and time for all of them."""
    for task in compiled.leaves:
        stage = declared_stages().get(task.stage)
        wanted = stage is not None and all(one.declared.effects.retry_safe for one in in_task(stage))
        policy = task.body.get("retryPolicy", {})
        if stage is not None and bool(policy.get("maxRetryCount")) != wanted:
            yield f"task {task.path}: retries: expected {'some' if wanted else 'none'}"
        elif wanted:
            pause, longest = (_seconds(policy.get(name)) for name in ("backoffDuration", "backoffMaxDuration"))
            least = seconds_of_attempts(
                _deadline(task.pod), policy["maxRetryCount"], pause, policy.get("backoffFactor", 2.0)
            )
            if longest < least:
                yield (
                    f"task {task.path}: retries: expected a backoffMaxDuration of at least {least}s, found {longest}s: "
                    "Argo counts all attempts from the start of the first, and ends the one that is running"
                )


def _seconds(duration: str | None) -> int:
    """Seconds of a duration as KFP writes it in a spec; 0 without one."""
    return round(float((duration or "0s").removesuffix("s")))


@rule("timeout", "a task that hangs holds its node, and its run, for ever")
def timeout(compiled: Compiled) -> Iterator[str]:
    """Every pod has a deadline."""
    yield from (f"task {task.path}: has no timeout" for task in compiled.leaves if not _deadline(task.pod))


def _deadline(pod: dict[str, Any]) -> int:
    return int(pod.get("activeDeadlineSeconds", 0))


@rule(
    "cache",
    "KFP's cache gives an old answer where a stage reads or writes more than its parameters say, or its result is "
    "provisional",
)
def cache(compiled: Compiled) -> Iterator[str]:
    """KFP's cache is on exactly if no result of the stage is provisional, and its failures are not tolerated."""
    for task in compiled.leaves:
        stage = declared_stages().get(task.stage)
        tolerated = any(each["name"] == TOLERATE for each in task.container.get("env", []))
        wanted = stage is not None and all(one.cacheable for one in in_task(stage)) and not tolerated
        wanted = wanted and not (task.around and _is_last(task, compiled))
        if stage is not None and bool(task.body.get("cachingOptions", {}).get("enableCache")) != wanted:
            yield f"task {task.path}: cache: expected enableCache={wanted}"


def _is_last(task: Task, compiled: Compiled) -> bool:
    """Whether no task waits for it. KFP learns that a group has ended from a pod alone, and a cached task has none."""
    folder = task.path.removesuffix(task.name)
    others = (other for other in compiled.tasks if other.path.removesuffix(other.name) == folder)
    return not any(task.name in other.body.get("dependentTasks", []) for other in others)


@rule("rights", "a task reads data and writes artifacts, which needs no right over its node")
def rights(compiled: Compiled) -> Iterator[str]:
    """No pod is privileged or runs as root."""
    for task in compiled.leaves:
        context = task.pod.get("securityContext", {})
        if context.get("privileged") or context.get("allowPrivilegeEscalation"):
            yield f"task {task.path}: its pod is privileged"
        if context.get("runAsUser", 1) in (0, "0") or context.get("runAsNonRoot") is False:
            yield f"task {task.path}: its pod may run as root"


@rule("image-tag", "under `latest`, or under no tag, another image may stand at every start")
def image_tag(compiled: Compiled) -> Iterator[str]:
    """An image has a digest, or a tag that is a version."""
    for image, where in _images(compiled):
        name, _, tag = image.rpartition("/")[2].partition(":")
        if tag in ("", "latest") and "@" not in name:
            yield f"image {image}: expected a version or a digest ({where})"


def _images(compiled: Compiled) -> Iterator[tuple[str, str]]:
    """Every image, with the tasks that run in it."""
    tasks: dict[str, list[str]] = {}
    for task in compiled.leaves:
        tasks.setdefault(task.container["image"], []).append(task.path)
    for image, paths in tasks.items():
        more = f" and {len(paths) - 1} more" * (len(paths) > 1)
        yield image, f"task {paths[0]}{more}"


@rule("start", "what is installed when a pod starts may differ from run to run, and needs the network")
def start(compiled: Compiled) -> Iterator[str]:
    """Nothing is installed at the start of a task."""
    for task in compiled.leaves:
        if any("pip install" in part for part in task.container.get("command", [])):
            yield f"task {task.path}: installs packages when it starts; put them into its image"


@rule("image-digest", "only a digest names one image for ever", release=True)
def image_digest(compiled: Compiled) -> Iterator[str]:
    """Images are named by digest."""
    for image, where in _images(compiled):
        if not by_digest(image):
            yield f"image {image} is not named by digest, 64 hex digits that are not all zero ({where})"


@rule("platform", "a spec that was compiled for one machine does not run on a cluster", release=True)
def platform(compiled: Compiled) -> Iterator[str]:
    """It was compiled for a platform, says by which version, and has a store that pods can reach."""
    if missing := [key for key in ("project", "platform", "gatehouse") if not compiled.stamp.get(key)]:
        yield f"its description does not say {', '.join(missing)}"
    if compiled.stamp.get("platform") == THIS_MACHINE.name:
        yield "is for this machine only: compile it with --platform FILE"
    if not compiled.inputs.get("store", {}).get("defaultValue"):
        yield "its parameter `store` has no default"
