"""The diagnosis of a platform: a task that says whether pods find what they need, and come back after a kill."""

from typing import Any

from kfp import dsl

from gatehouse import __version__
from gatehouse.components import diagnose
from gatehouse.pipelines.settings import Settings
from gatehouse.project.project import Project


def diagnosis(project: Project, settings: Settings) -> Any:
    """Build the diagnosis for the platform of `settings`, with the launcher of `project`."""

    @dsl.pipeline(name=f"{project.name}-diagnosis", description="Whether pods find what they need, and come back.")
    def pipeline(store: str = project.store) -> None:
        """Look from a pod, then try a job that loses a worker.

        Args:
            store: Address of the artifact store.
        """
        with settings.applied(store):
            diagnose(store=store, version=__version__)

    return pipeline
