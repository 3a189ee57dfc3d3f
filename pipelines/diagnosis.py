"""The diagnosis of a platform: two tasks that say whether pods find what they need, and come back after a kill."""

from typing import Any

from kfp import dsl

from gatehouse import __version__
from gatehouse.launchers.spec import LocalLaunch
from gatehouse.launchers.timeouts import stage_minutes
from gatehouse.operations.diagnosing_stage import MINUTES, reach, recover
from gatehouse.pipelines.tasks import Tasks
from gatehouse.project.project import Project


def diagnosis(project: Project, tasks: Tasks) -> Any:
    """Build the diagnosis for the platform of `tasks`, with the launcher of `project`."""
    launch = project.file.launch

    @dsl.pipeline(name=f"{project.name}-diagnosis", description="Whether pods find what they need, and come back.")
    def pipeline(store: str = project.store) -> None:
        """Look from a pod, then try a job that loses a worker.

        Args:
            store: Address of the artifact store.
        """
        with tasks.begin(store):
            reached = tasks.add(reach, version=__version__)
            minutes = 0 if isinstance(launch, LocalLaunch) else stage_minutes(launch.scheduling_minutes, MINUTES)
            recovered = tasks.add(recover, minutes=minutes).after(reached)
            tasks.say_launch(recovered)

    return pipeline
