"""Rules about features that KFP's local runner and its backend handle differently, measured with KFP 2.17."""

import json
import re
from collections.abc import Iterator
from typing import Any

from gatehouse.kfp.compilation.rules.rule import rule
from gatehouse.kfp.compilation.specification import Compiled, Task

_REWRITTEN = ("{{$", "python3")
_FIXED = re.compile(r"inputs\.parameter_values\['([^']+)'\] [=!]= (true|false|'[A-Za-z_-]+')")


@rule("optional", "the local runner breaks at a parameter of a group that is left out and has no default")
def optional(compiled: Compiled) -> Iterator[str]:
    """An optional parameter has a default."""
    groups = [task for task in compiled.tasks if "dag" in task.component]
    for where, definition in [
        ("", compiled.spec["root"]),
        *((f"task {each.path}: ", each.component) for each in groups),
    ]:
        for name, parameter in definition.get("inputDefinitions", {}).get("parameters", {}).items():
            if parameter.get("isOptional") and "defaultValue" not in parameter:
                yield f'{where}its parameter {name} is optional without a default; use "", -1 or 0.0'


@rule("one-of", "the local runner breaks where an artifact comes from one of several tasks")
def one_of(compiled: Compiled) -> Iterator[str]:
    """No output of a group is an artifact from one of several tasks."""
    for task in compiled.tasks:
        outputs = task.component.get("dag", {}).get("outputs", {}).get("artifacts", {})
        for name, artifact in outputs.items():
            if len(artifact.get("artifactSelectors", [])) > 1:
                yield f"task {task.path}: its artifact {name} is one of several (dsl.OneOf); give a reference instead"


@rule(
    "conditions",
    "the local runner silently finds texts with quotes or line breaks unequal, and numbers may come as text",
)
def conditions(compiled: Compiled) -> Iterator[str]:
    """A condition compares one parameter with true, false or one fixed word."""
    for task in compiled.tasks:
        condition = task.body.get("triggerPolicy", {}).get("condition", "")
        rest = _FIXED.sub("", condition)
        if condition and rest.strip("!() &|"):
            yield f"task {task.path}: runs if {condition}; compare with a bool or with one fixed word"


@rule("loop-in-handler", "the backend breaks at a loop inside an exit handler")
def loop_in_handler(compiled: Compiled) -> Iterator[str]:
    """There is no loop at any depth of a group that an exit task waits for."""
    handled = _handled(compiled)
    for task in compiled.tasks:
        if task.loops and any(group.path in handled for group in task.around):
            yield f"task {task.path}: loops inside an exit handler; start one run for each item"


@rule(
    "after-handler",
    "Argo omits what waits for a failed group, gives it the state of the group's exit task, and the run is green",
)
def after_handler(compiled: Compiled) -> Iterator[str]:
    """No task but the exit task waits for a group that an exit task waits for, nor takes what it gives."""
    handled = _handled(compiled)
    for task in compiled.tasks:
        folder = task.path.removesuffix(task.name)
        awaited = {*task.body.get("dependentTasks", []), *_producers(task.body)}
        if not _is_exit(task) and (groups := sorted(name for name in awaited if f"{folder}{name}" in handled)):
            yield (
                f"task {task.path}: waits for {groups[0]}, the group of an exit handler; move it into the group, or "
                "let it wait for nothing"
            )


def _handled(compiled: Compiled) -> set[str]:
    """Paths of the groups that an exit task waits for."""
    return {
        f"{task.path.removesuffix(task.name)}{name}"
        for task in compiled.tasks
        if _is_exit(task)
        for name in task.body.get("dependentTasks", [])
    }


def _is_exit(task: Task) -> bool:
    return bool(task.body.get("triggerPolicy", {}).get("strategy") == "ALL_UPSTREAM_TASKS_COMPLETED")


def _producers(body: dict[str, Any]) -> set[str]:
    """Names of the tasks whose outputs a task takes."""
    inputs = body.get("inputs", {})
    sources = [*inputs.get("parameters", {}).values(), *inputs.get("artifacts", {}).values()]
    return {source["producerTask"] for given in sources for source in given.values() if "producerTask" in source}


@rule("retry-in-loop", "the backend ignores retries of the tasks of a loop")
def retry_in_loop(compiled: Compiled) -> Iterator[str]:
    """There are no retries at any depth of a loop."""
    for task in compiled.tasks:
        looped = task.loops or any(group.loops for group in task.around)
        if looped and task.body.get("retryPolicy", {}).get("maxRetryCount"):
            yield f"task {task.path}: relies on retries inside a loop"


@rule("empty-loop", "the local runner breaks at a loop over nothing")
def empty_loop(compiled: Compiled) -> Iterator[str]:
    """The items of a loop are fixed at compile time."""
    for task in compiled.tasks:
        if task.loops and not _items(task):
            yield f"task {task.path}: loops over a list that may be empty; fix its items, at least one"


def _items(task: Task) -> Any:
    raw = task.body.get("parameterIterator", {}).get("items", {}).get("raw", "[]")
    return json.loads(raw)


@rule("rewritten", "the local runner rewrites `python3` in values, and breaks at `{{$`")
def rewritten(compiled: Compiled) -> Iterator[str]:
    """No value contains text that KFP's local runner rewrites."""
    defaults = {f"the default of {name}": each.get("defaultValue", "") for name, each in compiled.inputs.items()}
    constants = {
        f"task {task.path}: {name}": value for task in compiled.tasks for name, value in task.constants.items()
    }
    for where, value in {**defaults, **constants}.items():
        text = value if isinstance(value, str) else json.dumps(value)
        yield from (f"{where}: holds {forbidden!r}" for forbidden in _REWRITTEN if forbidden in text)


@rule("workspace", "the local runner deletes the folder that is its workspace")
def workspace(compiled: Compiled) -> Iterator[str]:
    """No pipeline asks KFP for a workspace."""
    if compiled.platform.get("pipelineConfig", {}).get("workspace"):
        yield "asks for a workspace; artifacts go through the store"
