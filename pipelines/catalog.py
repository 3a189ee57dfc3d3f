"""The pipelines by name, each built for a project."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gatehouse.errors import ConfigurationError
from gatehouse.pipelines.tasks import Tasks
from gatehouse.project import Project


@dataclass(frozen=True)
class Pipeline:
    """A pipeline of one project: what KFP compiles and runs, and the tasks in order for the terminal."""

    function: Any
    plan: list[tuple[str, str, str]]


def build(name: str, project: Project, *, local: bool = False) -> Pipeline:
    """Build the pipeline `name` for `project`.

    Args:
        name: Of the pipeline.
        project: What it is built for.
        local: For a run on this machine: without what only pods get, which takes a second to import, and without
            retries, as a run that is repeated goes on where it failed.

    Raises:
        ConfigurationError: if there is no such pipeline.
    """
    builders = _builders()
    if name not in builders:
        raise ConfigurationError(f"There is no pipeline {name!r}: expected one of {', '.join(builders)}.")
    tasks = Tasks(name, project, local)
    return Pipeline(builders[name](project, tasks), tasks.plan)


def names() -> tuple[str, ...]:
    """Names of all pipelines."""
    return tuple(_builders())


def _builders() -> dict[str, Callable[[Project, Tasks], Any]]:
    from gatehouse.pipelines.materialization import materialization
    from gatehouse.pipelines.monitoring import monitoring
    from gatehouse.pipelines.promotion import promotion
    from gatehouse.pipelines.training import training

    return {
        "training": training,
        "promotion": promotion,
        "monitoring": monitoring,
        "materialization": materialization,
    }
