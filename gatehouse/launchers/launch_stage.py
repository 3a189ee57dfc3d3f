"""The stage that runs a command of the user's own, and keeps what it leaves."""

import logging
import math
import shutil
import tarfile

from pydantic import Field

from gatehouse.launchers.spec import CommandSpec
from gatehouse.store.canonical import digest_of
from gatehouse.store.identity import identity_of, operational
from gatehouse.store.stage import CONTENTS, Effects, StageModel, stage
from gatehouse.store.store import ArtifactStore

logger = logging.getLogger(__name__)


class CommandRequest(StageModel):
    """A command, and its inputs by name: digests of their content, and paths on this machine."""

    name: str
    command: CommandSpec
    inputs: dict[str, str] = Field({}, description="The user's program is `code`.")
    files: dict[str, str] = operational({})
    task: str = Field("", description="The run and task, for a result that depends on more than what is told here.")
    log: str = operational("", description="A path for its log.")


class LaunchResult(StageModel):
    """The files that the command left, and the last value of each metric in its log or in MLflow."""

    output: str
    metrics: dict[str, float]


@stage(
    "launch",
    title="Launch a command",
    effects=Effects(
        reads="What the command reads.", writes="What the command writes.", why="A command is no function."
    ),
    pages={"outputs": CONTENTS},
)
def launch(request: CommandRequest, store: ArtifactStore) -> LaunchResult:
    """Run the command with the launcher of its settings; a later attempt of this task goes on from its checkpoints.

    Raises LauncherError if it did not succeed, with a class for every cause and the last lines of the worker.
    """
    from gatehouse.launchers.commands import finished_command
    from gatehouse.launchers.launcher import LOG, WEIGHTS
    from gatehouse.runtime.importing import unpack_tar
    from gatehouse.runtime.redaction import holds_password
    from gatehouse.tracking.mlflow_client import JOB, ensure_run, tracking_of
    from gatehouse.tracking.place import RUN, URI, server_uri, warning_on_failure

    key = f"launch-{digest_of(identity_of(request))[:24]}"
    tracking = tracking_of(store) if (uri := server_uri()) and not holds_password(uri) else None
    tracked: dict[str, str] = {}
    if tracking:  # What the command logs in MLflow, it logs in this run.
        with warning_on_failure(store, "launch:tracking"), tracking.client() as client:
            run = ensure_run(client, tracking.experiment(client, request.name), JOB, key, request.name, {})
            tracked = {URI: uri, RUN: run.info.run_id}
    command = request.command.model_copy(update={"environment": tracked | request.command.environment})
    own = request.model_copy(update={"command": command})
    with finished_command(store, key, own) as (job, metrics), store.workspace() as workspace:
        with tarfile.open(job / WEIGHTS) as archive:
            unpack_tar(archive, workspace)
            files = {name: workspace / name for name in archive.getnames()}
        about = {"command": identity_of(request.command), "inputs": request.inputs}
        output = store.publish("outputs", request.name, files, configuration=about)
        if request.log:
            (job / LOG).touch()  # The command may have printed nothing.
            shutil.copyfile(job / LOG, request.log)
    if tracking and tracked:
        with warning_on_failure(store, "launch:tracking"), tracking.client() as client:
            metrics |= client.get_run(tracked[RUN]).data.metrics
    for name in [name for name, value in metrics.items() if not math.isfinite(value)]:
        logger.warning("The metric %s is left out: its last value is %s.", name, metrics.pop(name))
    return LaunchResult(output=str(output), metrics=metrics)
