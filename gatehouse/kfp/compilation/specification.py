"""A parsed compiled spec: its tasks at every depth, with component, container and pod, and its tags in KFP."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from gatehouse.errors import GatehouseError
from gatehouse.store.canonical import digest_of

_LONGEST_TAG = 63
"""Most characters of a key and of a value in KFP 2.17."""
_SHORT = 16


class SpecError(GatehouseError):
    """A compiled spec cannot be read, is stale or breaks the policy; the message lists every finding."""


@dataclass(frozen=True)
class Task:
    """One task of a spec.

    Attributes:
        path: Names of its groups, and its own, joined by slashes.
        body: Its part of the spec: inputs, dependencies, retries, cache.
        container: Image, command, resources; empty for a group or another task without a container.
        pod: The kfp-kubernetes settings of its pod.
        around: The tasks of its groups, the outermost first.
    """

    path: str
    body: dict[str, Any]
    component: dict[str, Any]
    container: dict[str, Any]
    pod: dict[str, Any]
    around: tuple["Task", ...] = ()

    @property
    def name(self) -> str:
        """Its name in its group."""
        return self.path.rpartition("/")[2]

    @property
    def stage(self) -> str:
        """The function in its container, which is the name of a stage; empty for a group."""
        arguments = self.container.get("args", [])
        flag = "--function_to_execute"
        return str(arguments[arguments.index(flag) + 1]) if flag in arguments else ""

    @property
    def constants(self) -> dict[str, Any]:
        """The values fixed at compile time, by parameter."""
        parameters = self.body.get("inputs", {}).get("parameters", {})
        values = {name: value.get("runtimeValue", {}) for name, value in parameters.items()}
        return {name: value["constant"] for name, value in values.items() if "constant" in value}


@dataclass(frozen=True)
class Compiled:
    """A compiled spec: the name of its file without the ending, and the part of kfp-kubernetes, which may be empty."""

    name: str
    text: str
    spec: dict[str, Any]
    platform: dict[str, Any]

    @property
    def inputs(self) -> dict[str, dict[str, Any]]:
        """The parameters of a run, by name."""
        parameters: dict[str, dict[str, Any]] = self.spec["root"].get("inputDefinitions", {}).get("parameters", {})
        return parameters

    @cached_property
    def tasks(self) -> tuple[Task, ...]:
        """All tasks: groups, each followed by its tasks, and tasks that run a container."""
        return tuple(self._of_group(self.spec["root"], "", ()))

    @property
    def leaves(self) -> tuple[Task, ...]:
        """The tasks that run a container."""
        return tuple(task for task in self.tasks if task.container)

    def task(self, name: str) -> Task:
        """The first task of this name, at any depth."""
        return next(task for task in self.tasks if task.name == name)

    @property
    def stamp(self) -> dict[str, str]:
        """The origin of a compiled pipeline, from its description: project, platform, gatehouse."""
        lines = str(self.spec["pipelineInfo"].get("description", "")).splitlines()
        pairs = [line.partition(": ") for line in lines[lines.index("") + 1 :]] if "" in lines else []
        return {key: value for key, separator, value in pairs if separator}

    def _of_group(self, group: dict[str, Any], path: str, around: tuple[Task, ...]) -> Iterator[Task]:
        pods = self.platform.get("deploymentSpec", {}).get("executors", {})
        executors = self.spec.get("deploymentSpec", {}).get("executors", {})
        for name, body in group["dag"]["tasks"].items():
            component = self.spec["components"][body["componentRef"]["name"]]
            label = component.get("executorLabel", "")
            container = executors.get(label, {}).get("container", {})
            task = Task(f"{path}{name}", body, component, container, pods.get(label, {}), around)
            yield task
            if "dag" in component:
                yield from self._of_group(component, f"{path}{name}/", (*around, task))


def read_spec(path: Path) -> Compiled:
    """Read a compiled spec. Raises SpecError if the file is no compiled pipeline."""
    try:
        text = path.read_text(encoding="utf-8")
        documents = [document for document in yaml.load_all(text, Loader=yaml.CSafeLoader) if document]
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SpecError(f"{path} is no compiled pipeline: {' '.join(str(error).split())}") from error
    if not documents or not all(isinstance(document, dict) for document in documents) or "root" not in documents[0]:
        raise SpecError(f"{path} is no compiled pipeline: expected a YAML document with the key `root`.")
    platform = documents[1]["platforms"]["kubernetes"] if len(documents) > 1 else {}
    return Compiled(path.stem, text, documents[0], platform)


def content_of(compiled: Compiled) -> list[dict[str, Any]]:
    """The content of a spec, without the version of the SDK that wrote it."""
    return [{key: value for key, value in compiled.spec.items() if key != "sdkVersion"}, compiled.platform]


def tags_of(compiled: Compiled) -> dict[str, str]:
    """The tags of a version in KFP: what it was compiled from and for, and the digest of the spec.

    No key contains a dot, because KFP refuses dots.
    """
    tags = compiled.stamp | {"spec": digest_of(content_of(compiled))[:_SHORT]}
    return {key: value[:_LONGEST_TAG] for key, value in tags.items()}
