"""Chooses the launcher from the environment; a request cannot name it, because no result depends on it."""

import os

from pydantic import TypeAdapter, ValidationError

from gatehouse.configuration.yaml_lines import in_words, nearest
from gatehouse.errors import LaunchError
from gatehouse.launchers.launcher import Launcher
from gatehouse.launchers.spec import CommandSpec, Launch, LocalLaunch, PyTorchJobLaunch
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
        schema, problems = CommandSpec.model_json_schema(), []
        keys = {key for part in (schema, *schema["$defs"].values()) for key in part.get("properties", {})}
        for line in error.errors():
            key, words = ".".join(map(str, line["loc"][1:])) or "kind", in_words(line)
            if line["type"] == "extra_forbidden":
                words = f"there is no such key for kind {line['loc'][0]}{nearest(str(line['loc'][-1]), keys, 0.7)}"
            problems.append(f"{key}: {words}")
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
