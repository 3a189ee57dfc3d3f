"""Compares two compiled specs for a reviewer: parameters, tasks, edges, images, resources."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gatehouse.kfp.compilation.specification import Compiled, SpecError, Task, read_spec

_TYPES = {
    "STRING": "text",
    "NUMBER_INTEGER": "integer",
    "NUMBER_DOUBLE": "number",
    "BOOLEAN": "yes or no",
    "LIST": "list",
    "STRUCT": "object",
    "TASK_FINAL_STATUS": "how KFP says that it ended",
}
_SECTIONS = ("pipeline", "parameters", "tasks", "edges", "images", "resources", "pods", "configuration", "code")
_LONGEST = 100
_BEFORE = 20
_NOTHING = "nothing"


@dataclass(frozen=True)
class Fact:
    """One fact in a spec.

    Attributes:
        section: Its topic, one of `_SECTIONS`.
        subject: The parameter or the task; empty for the whole pipeline.
        aspect: The aspect of the subject; empty if the subject itself is the fact.
    """

    section: str
    subject: str
    aspect: str = ""


def facts(compiled: Compiled) -> dict[Fact, str]:
    """All facts of a spec that matter to a reviewer, with one value each."""
    found = {Fact("pipeline", "", key): _shown(value) for key, value in compiled.spec["pipelineInfo"].items()}
    found |= {
        Fact("pipeline", "", key): _shown(value) for key, value in compiled.platform.get("pipelineConfig", {}).items()
    }
    for name, body in compiled.inputs.items():
        kind = _TYPES.get(body["parameterType"], body["parameterType"])
        choices = " | ".join(map(str, body.get("literals", [])))
        values = {"": kind, "default": _shown(body.get("defaultValue", "")), "choices": choices}
        values["description"] = body.get("description", "")
        found |= {Fact("parameters", name, aspect): value for aspect, value in values.items()}
    names = Counter(task.name for task in compiled.tasks)
    for task in compiled.tasks:
        # A task is named without its groups if no other task has the same name.
        found |= dict(_of_task(task, task.name if names[task.name] == 1 else task.path))
    return found


def _of_task(task: Task, path: str) -> Iterator[tuple[Fact, str]]:
    body = task.body
    yield Fact("tasks", path), task.stage or "group"
    retries, condition = body.get("retryPolicy", {}), body.get("triggerPolicy", {})
    yield Fact("tasks", path, "title"), body.get("taskInfo", {}).get("name", "")
    yield Fact("tasks", path, "cache"), "on" if body.get("cachingOptions", {}).get("enableCache") else "off"
    yield Fact("tasks", path, "retries"), str(retries.get("maxRetryCount", 0))
    yield Fact("tasks", path, "runs if"), condition.get("condition", condition.get("strategy", ""))
    yield Fact("tasks", path, "waits for"), ", ".join(sorted(body.get("dependentTasks", [])))
    if task.container:
        for name, given in body.get("inputs", {}).get("parameters", {}).items():
            yield from _of_input(task, path, name, given)
    for kind in ("parameters", "artifacts"):
        for name, output in task.component.get("outputDefinitions", {}).get(kind, {}).items():
            shown = output.get("parameterType") or output["artifactType"]["schemaTitle"].removeprefix("system.")
            yield Fact("tasks", path, f"gives {name}"), _TYPES.get(shown, shown)
    if task.container:
        yield Fact("images", path, "image"), task.container["image"]
        for key, value in task.container.get("resources", {}).items():
            if isinstance(value, str | dict):  # Numbers are repeated beside them for older backends.
                yield from ((Fact("resources", path, each), _shown(one)) for each, one in _flat({key: value}))
        yield from ((Fact("pods", path, key), _shown(value)) for key, value in _flat(task.pod))
        for variable in task.container.get("env", []):
            yield Fact("configuration", path, variable["name"]), _shown(variable.get("value", ""))


def _of_input(task: Task, path: str, name: str, given: dict[str, Any]) -> Iterator[tuple[Fact, str]]:
    produced, outer = given.get("taskOutputParameter"), given.get("componentInputParameter")
    if produced or outer:
        giver = f"{produced['producerTask']}.{produced['outputParameterKey']}" if produced else str(outer)
        yield Fact("edges", f"{giver.removeprefix('pipelinechannel--')} -> {path}.{name}"), ""
    else:
        section = "code" if name == "code" else "configuration"
        values = _flat({name: _parsed(task.constants.get(name, ""))})
        yield from ((Fact(section, path, key), _shown(value)) for key, value in values)


def _parsed(constant: Any) -> Any:
    """A constant, parsed if it is JSON, because a reviewer looks at single keys of a configuration."""
    if isinstance(constant, str) and constant.startswith(("{", "[")):
        try:
            return json.loads(constant)
        except ValueError:
            return constant
    return constant


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The values of a nested object by dotted keys; a short list is one value, a long list is several."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            # KFP writes each name of a secret twice.
            if not key.endswith("NameParameter"):
                yield from _flat(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and any(isinstance(each, dict) for each in value):
        for index, each in enumerate(value):
            yield from _flat(each, f"{path}[{index}]")
    elif isinstance(value, list) and len(_shown(value)) > _LONGEST:
        yield from ((f"{path}[{each}]", "listed") for each in value)
    else:
        yield path, value


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _change(was: str | None, now: str | None) -> str:
    """Two values in one line; of long values, the part from the first difference on."""
    texts, begin = (was or "", now or ""), 0
    if max(map(len, texts)) > _LONGEST:
        same = next(
            (at for at, (one, other) in enumerate(zip(*texts, strict=False)) if one != other), min(map(len, texts))
        )
        begin = max(0, same - _BEFORE)
    return f"{_cut(was, begin)} -> {_cut(now, begin)}"


def _cut(text: str | None, begin: int) -> str:
    if not text:
        return _NOTHING
    shown = f"...{text[begin:]}" if begin else text
    return f"{shown[: _LONGEST - 3]}..." if len(shown) > _LONGEST else shown


def differences(old: Compiled, new: Compiled) -> list[str]:
    """The changes from one spec to another, one line each, under section headings; empty without changes.

    For a new or removed task only its name is listed; the same change of several tasks is one line.
    """
    before, after = facts(old), facts(new)
    gone = {fact.subject for fact in before if not fact.aspect and fact not in after}
    come = {fact.subject for fact in after if not fact.aspect and fact not in before}
    lines: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for fact in dict.fromkeys((*before, *after)):
        was, now = before.get(fact), after.get(fact)
        if was == now:
            continue
        if not fact.aspect and (was is None or now is None):
            mark = "-" if now is None else "+"
            lines[fact.section][f"{mark} {fact.subject}"].append("")
        elif fact.subject not in gone | come:
            change = f"{fact.aspect or 'is'}: {_change(was, now)}"
            lines[fact.section][change].append(fact.subject)
    every = {fact.subject for fact in before if fact.section == "images" and fact in after}
    return [
        line
        for section in sorted(lines, key=_SECTIONS.index)
        for line in (section, *(_line(text, subjects, every) for text, subjects in lines[section].items()))
    ]


def _line(text: str, subjects: list[str], every: set[str]) -> str:
    if text[:2] in ("- ", "+ "):
        return f"  {text}"
    named = "every task" if every == {*subjects} and len(every) > 1 else ", ".join(filter(None, subjects))
    return f"  ~ {named}: {text}" if named else f"  ~ {text}"


def compare(old: Path, new: Path) -> list[str]:
    """The changes between two compiled files, or between two folders of them, as in `differences`.

    Raises:
        SpecError: if a file is no compiled pipeline, or `old` does not exist.
    """
    if not old.exists():
        raise SpecError(f"There is no {old}: expected a compiled pipeline, or a folder of them, to compare with.")
    if old.is_file():
        return differences(read_spec(old), read_spec(new))
    before, after = ({path.name: path for path in folder.glob("*.yaml")} for folder in (old, new))
    lines = []
    for name in sorted(before.keys() | after.keys()):
        if name not in after:
            lines.append(f"- {name}")
        elif name not in before:
            lines.append(f"+ {name}")
        elif changed := differences(read_spec(before[name]), read_spec(after[name])):
            lines.extend([name, *(f"  {line}" for line in changed)])
    return lines
