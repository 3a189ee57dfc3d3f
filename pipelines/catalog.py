"""The pipelines by name, each built for a project."""

import importlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gatehouse.errors import ConfigurationError
from gatehouse.pipelines.settings import Settings
from gatehouse.project.project import Project
from gatehouse.project.signatures import NAMES

if TYPE_CHECKING:
    from gatehouse.project.platforms import Platform

_ON_DEMAND = ("diagnosis",)
"""Pipelines that are no part of a project: they are built on demand, and not compiled with the others."""


@dataclass(frozen=True)
class Pipeline:
    """A pipeline of one project: what KFP compiles and runs, and the tasks in order for the terminal.

    The last of these reports how the others ended.
    """

    function: Any
    plan: list[tuple[str, str, str]]

    @property
    def tasks(self) -> Any:
        """The tasks by name as KFP compiled them, without the one that reports the end: an exit handler holds them."""
        compiled = self.function.pipeline_spec.components.values()
        return next(component.dag.tasks for component in compiled if component.HasField("dag"))


def build(name: str, project: Project, platform: "Platform | None" = None, training: str = "") -> Pipeline:
    """Build the pipeline `name` for `project`.

    Without a platform it is for this machine: it lacks what only pods get, which takes a second to import, and retries,
    as a run that is repeated goes on where it failed. `training` names the version of the training pipeline that
    monitoring orders. Raises ConfigurationError if there is no such pipeline.
    """
    if name not in NAMES + _ON_DEMAND:
        raise ConfigurationError(f"There is no pipeline {name!r}: expected one of {', '.join(NAMES)}.")
    builder = getattr(importlib.import_module(f"gatehouse.pipelines.{name}"), name)
    settings = Settings(name, project, platform, training)
    # At each setting of a task KFP looks up every frame of the stack: a thread of its own has few.
    with ThreadPoolExecutor(1) as thread:
        return Pipeline(thread.submit(builder, project, settings).result(), settings.plan)


def names() -> tuple[str, ...]:
    """Names of all pipelines."""
    return NAMES
