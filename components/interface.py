"""Makes a function a KFP component whose tasks have what they need: image, resources, retries, cache, settings, run id.

It needs kfp alone. A user's pipeline and those of a project get their tasks here.
"""

import ast
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from kfp import dsl
from kfp.dsl import PipelineTask
from kfp.dsl.pipeline_context import Pipeline
from kfp.dsl.python_component import PythonComponent

from gatehouse.runtime.images import by_digest, image
from gatehouse.runtime.variables import ATTEMPTS, CREDENTIAL_KEYS, CREDENTIALS, RUN_ID, SETTINGS, SETTINGS_KEYS

RETRIES = 2
"""How often KFP tries a task again: a second attempt at a component has the effect of the first."""
PAUSE_SECONDS, PAUSE_FACTOR = 1, 2.0
"""Before KFP tries again, which is right for a lost pod."""
LONGEST_MINUTES = 28 * 24 * 60
"""The time limit of a task that has limits of its own, which only the run knows."""
_QUEUE_SECONDS = 24 * 3600
"""How long each attempt may wait for its node: its timeout counts from there, Argo's longest duration does not."""


@dataclass(frozen=True)
class Needs:
    """The needs of a component's tasks.

    Attributes:
        image: Name of the image, as gatehouse.runtime.images has it.
        title: Name of a task for people.
        caching: Whether KFP's cache may keep the results: they depend on the inputs alone, and are final. KFP knows the
            code of an image by the image's name, so it caches only where that is a digest.
        shows_models: Whether the task shows models in the Model Registry.
        cpu: CPUs, in Kubernetes' notation.
        memory: Memory, in Kubernetes' notation.
        minutes: The time limit of an attempt.
        standalone: Whether it does all its work on files that anything wrote: its file has no store, for which it would
            need credentials.
        files: The component's files by name, each with the optional artifacts that it takes, and requires. In the task
            of a pipeline that is a component, KFP fails if nobody gives an optional artifact.
        configurations: Inputs that are configuration, with their kind in `gatehouse.components.configuration`. They are
            checked as the pipeline is built.
    """

    image: str
    title: str
    caching: bool = False
    shows_models: bool = False
    cpu: str = "1"
    memory: str = "2G"
    minutes: int = 30
    standalone: bool = False
    files: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: {"component": ()})
    configurations: Mapping[str, str] = field(default_factory=dict)


class Task(PipelineTask):  # type: ignore[misc]  # kfp has no types
    """A task of a component, whose other settings follow when KFP's own methods change one."""

    needs: Needs

    def set_container_image(self, name: Any) -> "Task":
        """Set the image; KFP caches no results of an image by tag, whatever was set before."""
        super().set_container_image(name)
        if not (isinstance(name, str) and by_digest(name)):
            self.set_caching_options(False)
        return self

    def set_retry(self, num_retries: int, *pauses: Any, **more: Any) -> "Task":
        """Set how often KFP tries again, and the stage itself after an error."""
        super().set_retry(num_retries, *pauses, **more)
        self.set_env_variable(ATTEMPTS, str(1 + num_retries))
        return self


class Component(PythonComponent):  # type: ignore[misc]  # kfp has no types
    """A component of Gatehouse. Called in a pipeline, it adds a task; KFP's methods of the task change its settings."""

    needs: Needs

    def __call__(self, **inputs: Any) -> PipelineTask:
        """Add a task with these inputs, and with all that it needs.

        The run id comes from the pod's label, so that it never is a parameter and never part of a cache key. Settings
        and credentials are in a config map and a secret, which need not exist.

        Raises TypeError for an input that the component does not have, or lacks. Raises ConfigurationError, listing
        every problem, if a configuration is not right.
        """
        fields = self.component_spec.inputs or {}
        for name in inputs.keys() - fields.keys():
            likely = "".join(f"; did you mean {other}?" for other in get_close_matches(name, fields, 1))
            raise TypeError(f"{self.name}() has no input {name!r}{likely} It has {', '.join(fields)}.")
        for name, value in inputs.items():
            if name in self.needs.configurations and isinstance(value, dict):
                from gatehouse.components.configuration import checked_configuration

                inputs[name] = checked_configuration(self.needs.configurations[name], value, f"{self.name}: {name}")
            elif type(value) is int and fields[name].type == "Float":
                inputs[name] = float(value)  # KFP takes no 5 for 5.0.
        if missing := [name for name in self.required_inputs if name not in inputs]:
            raise TypeError(f"{self.name}() needs the input {', '.join(missing)}.")
        if Pipeline.get_default_pipeline() is None:  # Outside a pipeline KFP runs it now.
            return super().__call__(**inputs)
        task = Task(self.component_spec, inputs, execution_caching_default=self.needs.caching)
        task.needs = needs = self.needs
        task.set_display_name(needs.title).set_container_image(task.container_spec.image)
        task.set_cpu_request(needs.cpu).set_cpu_limit(needs.cpu)
        task.set_memory_request(needs.memory).set_memory_limit(needs.memory)
        limit = inputs.get("timeout_minutes", needs.minutes - 30)  # Of what the task waits for.
        minutes = max(needs.minutes, math.ceil(limit) + 30) if isinstance(limit, int | float) else LONGEST_MINUTES
        set_attempts(task, minutes * 60, RETRIES)
        set_environment(task, SETTINGS, CREDENTIALS)
        return task


def set_environment(task: PipelineTask, settings: str, credentials: str) -> None:
    """Name the config map with settings and the secret with credentials that the pod of a task gets."""
    pod = _pod(task)
    pod["fieldPathAsEnv"] = [{"name": RUN_ID, "fieldPath": "metadata.labels['pipeline/runid']"}]
    pod["configMapAsEnv"] = [_environment("configMap", settings, SETTINGS_KEYS)]
    pod["secretAsEnv"] = [_environment("secret", credentials, CREDENTIAL_KEYS)]


def set_attempts(task: PipelineTask, seconds: int, retries: int) -> None:
    """Set the time limit of an attempt, and how often the task is tried again.

    KFP tries again after a lost pod, the stage itself after an error.
    """
    _pod(task)["activeDeadlineSeconds"] = str(seconds)
    if retries == 0:
        task.set_retry(0)
    else:
        longest = seconds_of_attempts(seconds + _QUEUE_SECONDS, retries, PAUSE_SECONDS, PAUSE_FACTOR)
        task.set_retry(retries, f"{PAUSE_SECONDS}s", PAUSE_FACTOR, f"{longest}s")


def _pod(task: PipelineTask) -> dict[str, Any]:
    """The settings of the task's pod, as kfp-kubernetes writes and reads them; a user need not have that package."""
    pod: dict[str, Any] = task.platform_config.setdefault("kubernetes", {})
    return pod


def _environment(kind: str, name: str, variables: Mapping[str, str]) -> dict[str, Any]:
    """Environment variables from the keys of an optional config map or secret."""
    keys = [{f"{kind}Key": key, "envVar": variable} for key, variable in variables.items()]
    parameter = {"runtimeValue": {"constant": name}}
    return {f"{kind}Name": name, f"{kind}NameParameter": parameter, "keyToEnv": keys, "optional": True}


def seconds_of_attempts(timeout: int, retries: int, pause: int, factor: float) -> int:
    """Time for all attempts and the pauses between them, in seconds; Argo counts it from the start of the first.

    The pauses are `pause`, `pause * factor`, and so on. KFP's SDK cuts a longer duration to an hour.
    """
    return math.ceil((1 + retries) * timeout + sum(pause * factor**number for number in range(retries)))


def component(image_name: str, *, title: str, **needs: Any) -> Callable[[Callable[..., Any]], Component]:
    """Make a function a component; the parameters are the fields of `Needs`.

    The program of the component has no docstring: KFP reads it here, and Argo keeps each program four times.
    """

    def decorate(function: Callable[..., Any]) -> Component:
        plain = dsl.component(base_image=image(image_name), packages_to_install=[], install_kfp_package=False)(function)
        *command, program = plain.component_spec.implementation.container.command
        definition = ast.parse(program).body[-1]
        assert isinstance(definition, ast.FunctionDef)
        doc, lines = definition.body[0], program.splitlines(keepends=True)
        if ast.get_docstring(definition) is not None:
            assert doc.end_lineno is not None
            del lines[doc.lineno - 1 : doc.end_lineno]
        plain.component_spec.implementation.container.command = [*command, "".join(lines)]
        made = Component(component_spec=plain.component_spec, python_func=function)
        made.needs = Needs(image_name, title, **needs)
        return made

    return decorate
