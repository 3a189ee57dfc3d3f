"""The policy: rules that every compiled spec must keep, each with its reason."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from gatehouse import components
from gatehouse.components.interface import seconds_of_attempts
from gatehouse.kfp.compilation.specification import Compiled, Task
from gatehouse.project.platforms import THIS_MACHINE
from gatehouse.runtime.images import by_digest
from gatehouse.store.stage import TOLERATE

Check = Callable[[Compiled], Iterator[str]]
_RESOURCES = ("resourceCpuRequest", "resourceCpuLimit", "resourceMemoryRequest", "resourceMemoryLimit")
_MOST_BYTES = 16 * 1024
_SECRETS = re.compile(
    r"password|passwd|secret_key|access_key|api_key|BEGIN [A-Z ]*PRIVATE KEY|\bAKIA[0-9A-Z]{16}\b"
    r"|://[^/\s:@]+:[^/\s@]+@",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Rule:
    """A rule: its name, its reason in one sentence, its check, and whether it applies only to a release."""

    name: str
    why: str
    check: Check
    release: bool


RULES: dict[str, Rule] = {}
"""The rules by name, in the order in which they are applied."""


def breaches(compiled: Compiled, *, release: bool = False) -> Iterator[str]:
    """Breaches of the policy in a compiled spec, with rule and reason; rules of a release apply only to a release."""
    for rule in RULES.values():
        if release or not rule.release:
            yield from (f"{breach} [{rule.name}: {rule.why}]" for breach in rule.check(compiled))


def _rule(name: str, why: str, *, release: bool = False) -> Callable[[Check], Check]:
    """Decorator that registers a check as a rule."""

    def register(check: Check) -> Check:
        RULES[name] = Rule(name, why, check, release)
        return check

    return register


@_rule("component", "the component declares what a task may do, and the other rules compare the spec with it")
def _component(compiled: Compiled) -> Iterator[str]:
    for task in compiled.leaves:
        if task.stage not in components.__all__:
            yield f"task {task.path}: there is no component {task.stage!r}"


@_rule("resources", "a pod without requests and limits takes what other pods need, and is evicted first")
def _resources(compiled: Compiled) -> Iterator[str]:
    for task in compiled.leaves:
        resources = task.container.get("resources", {})
        yield from (f"task {task.path}: has no {name}" for name in _RESOURCES if name not in resources)


@_rule("retries", "pods get lost; a second attempt is safe, and needs time for all attempts")
def _retries(compiled: Compiled) -> Iterator[str]:
    for task in compiled.leaves:
        policy = task.body.get("retryPolicy", {})
        if not policy.get("maxRetryCount"):
            yield f"task {task.path}: retries: expected some"
        else:
            pause, longest = (  # KFP writes seconds in a spec as 15s.
                round(float(policy.get(name, "0s").removesuffix("s")))
                for name in ("backoffDuration", "backoffMaxDuration")
            )
            least = seconds_of_attempts(
                _deadline(task.pod), policy["maxRetryCount"], pause, policy.get("backoffFactor", 2.0)
            )
            if longest < least:
                yield (
                    f"task {task.path}: retries: expected a backoffMaxDuration of at least {least}s, found {longest}s: "
                    "Argo counts all attempts from the start of the first, and ends the one that is running"
                )


@_rule("timeout", "a task that hangs would keep its node and its run for ever")
def _timeout(compiled: Compiled) -> Iterator[str]:
    yield from (f"task {task.path}: has no timeout" for task in compiled.leaves if not _deadline(task.pod))


def _deadline(pod: dict[str, Any]) -> int:
    return int(pod.get("activeDeadlineSeconds", 0))


@_rule(
    "cache", "KFP's cache is right only for final results that depend on the parameters and on an image by digest alone"
)
def _cache(compiled: Compiled) -> Iterator[str]:
    for task in compiled.leaves:
        component = getattr(components, task.stage, None)
        tolerated = any(variable["name"] == TOLERATE for variable in task.container.get("env", []))
        cacheable = component is not None and component.needs.caching and by_digest(task.container["image"])
        cacheable = cacheable and not tolerated
        # KFP learns that a group has ended from a pod alone, and a cached task has none: the last one needs a pod.
        folder = task.path.removesuffix(task.name)
        siblings = (other for other in compiled.tasks if other.path.removesuffix(other.name) == folder)
        is_last = not any(task.name in other.body.get("dependentTasks", []) for other in siblings)
        cacheable = cacheable and not (task.around and is_last)
        if component is not None and bool(task.body.get("cachingOptions", {}).get("enableCache")) != cacheable:
            yield f"task {task.path}: cache: expected enableCache={cacheable}"


@_rule("rights", "a task reads data and writes artifacts, and needs no rights on its node")
def _rights(compiled: Compiled) -> Iterator[str]:
    for task in compiled.leaves:
        context = task.pod.get("securityContext", {})
        if context.get("privileged") or context.get("allowPrivilegeEscalation"):
            yield f"task {task.path}: its pod is privileged"
        if context.get("runAsUser", 1) in (0, "0") or context.get("runAsNonRoot") is False:
            yield f"task {task.path}: its pod may run as root"


@_rule("image-tag", "`latest`, or no tag, can be another image at every start")
def _image_tag(compiled: Compiled) -> Iterator[str]:
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


@_rule("start", "packages that a pod installs at its start may differ between runs, and need the network")
def _start(compiled: Compiled) -> Iterator[str]:
    for task in compiled.leaves:
        if any("pip install" in part for part in task.container.get("command", [])):
            yield f"task {task.path}: installs packages when it starts; put them into its image"


@_rule("image-digest", "only a digest always names the same image", release=True)
def _image_digest(compiled: Compiled) -> Iterator[str]:
    for image, where in _images(compiled):
        if not by_digest(image):
            yield f"image {image} is not named by digest, 64 hex digits that are not all zero ({where})"


@_rule("platform", "a spec compiled for this machine does not run on a cluster", release=True)
def _platform(compiled: Compiled) -> Iterator[str]:
    if missing := [key for key in ("project", "platform", "gatehouse") if not compiled.stamp.get(key)]:
        yield f"its description does not say {', '.join(missing)}"
    if compiled.stamp.get("platform") == THIS_MACHINE.name:
        yield "is for this machine only: compile it with --platform FILE"
    if not compiled.inputs.get("store", {}).get("defaultValue"):
        yield "its parameter `store` has no default"


@_rule("ascii", "the database of some KFP installations stores ASCII only")
def _ascii_only(compiled: Compiled) -> Iterator[str]:
    text = json.dumps([compiled.spec, compiled.platform], ensure_ascii=False)
    if not (compiled.text.isascii() and text.isascii()):
        wrong = next(character for character in compiled.text + text if not character.isascii())
        yield f"is not ASCII: holds {wrong!a}"


@_rule("size", "KFP passes all parameters of a task in one argument, which Linux limits to 128 KiB")
def _size(compiled: Compiled) -> Iterator[str]:
    for where, value in _values(compiled):
        if (length := len(_text(value).encode())) > _MOST_BYTES:
            yield f"{where}: {length} bytes, expected at most {_MOST_BYTES}"


@_rule("secrets", "everyone who may read a spec or a run can read its values; pass secrets as Kubernetes secrets")
def _secrets(compiled: Compiled) -> Iterator[str]:
    for where, value in _values(compiled):
        if match := _SECRETS.search(_text(value)):
            # Report only the matched word, not the text after it.
            yield f"{where}: holds {match[0].partition('://')[0]!r}, as secrets do"


def _values(compiled: Compiled) -> Iterator[tuple[str, Any]]:
    """Every value that the spec fixes, with its location."""
    for name, parameter in compiled.inputs.items():
        yield f"the default of {name}", parameter.get("defaultValue", "")
    for task in compiled.tasks:
        for name, value in task.constants.items():
            yield f"task {task.path}: {name}", value
        for variable in task.container.get("env", []):
            yield f"task {task.path}: the variable {variable['name']}", variable.get("value", "")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


@_rule("after-handler", "if a task depends on the exit handler's group, Argo shows a failed run as succeeded")
def _after_handler(compiled: Compiled) -> Iterator[str]:
    handled = {  # Paths of the groups that an exit task waits for.
        f"{task.path.removesuffix(task.name)}{name}"
        for task in compiled.tasks
        if _is_exit(task)
        for name in task.body.get("dependentTasks", [])
    }
    for task in compiled.tasks:
        folder, inputs = task.path.removesuffix(task.name), task.body.get("inputs", {})
        sources = [*inputs.get("parameters", {}).values(), *inputs.get("artifacts", {}).values()]
        taken = [source for by_kind in sources for source in by_kind.values() if "producerTask" in source]
        awaited = {*task.body.get("dependentTasks", []), *(source["producerTask"] for source in taken)}
        if not _is_exit(task) and (groups := sorted(name for name in awaited if f"{folder}{name}" in handled)):
            yield (
                f"task {task.path}: waits for {groups[0]}, the group of an exit handler; move it into the group, or "
                "let it wait for nothing"
            )


def _is_exit(task: Task) -> bool:
    return bool(task.body.get("triggerPolicy", {}).get("strategy") == "ALL_UPSTREAM_TASKS_COMPLETED")
