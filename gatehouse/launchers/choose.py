"""Chooses the launcher from the environment; a request cannot name it, because no result depends on it."""

import os

from pydantic import TypeAdapter, ValidationError

from gatehouse.errors import LaunchError
from gatehouse.launchers.launcher import Launcher
from gatehouse.launchers.spec import Launch, LocalLaunch, PyTorchJobLaunch
from gatehouse.runtime.variables import LAUNCH
from gatehouse.store.store import ArtifactStore


def launch_of(text: str, name: str = LAUNCH) -> Launch:
    """Parse the launch settings in the JSON `text`, called `name`; an empty text gives the local launcher's settings.

    Raises:
        LaunchError: if they are not valid; the message names every problem.
    """
    if not text.strip():
        return LocalLaunch()
    try:
        launch: Launch = TypeAdapter(Launch).validate_json(text)
    except ValidationError as error:
        problems = [f"launch.{'.'.join(map(str, line['loc'][1:]))}: {line['msg']}" for line in error.errors()]
        raise LaunchError(f"{name} is not valid: {'; '.join(problems)}. See docs/launchers.md.") from None
    return launch


def launcher(store: ArtifactStore, launch: Launch | None = None) -> Launcher:
    """The launcher whose settings are in `GATEHOUSE_LAUNCH`; the local one where that is not set."""
    launch = launch or launch_of(os.environ.get(LAUNCH, ""))
    if isinstance(launch, LocalLaunch):
        from gatehouse.launchers.local import LocalLauncher

        return LocalLauncher(launch)
    from gatehouse.launchers.kubernetes.launcher import ClusterLauncher
    from gatehouse.launchers.kubernetes.operators import PyTorchJobs, TrainJobs

    operator = PyTorchJobs(launch) if isinstance(launch, PyTorchJobLaunch) else TrainJobs(launch)
    return ClusterLauncher(store, operator, launch)
