"""The stage that runs a command of the user's own, and keeps what it leaves."""

import math
import os
import shutil
from pathlib import Path

from gatehouse.launchers.spec import CommandSpec
from gatehouse.store.canonical import digest_of
from gatehouse.store.identity import identity_of, operational
from gatehouse.store.run import RUN_ID
from gatehouse.store.stage import CONTENTS, Effects, StageModel, stage
from gatehouse.store.store import ArtifactStore


class LaunchRequest(StageModel):
    """The command, and paths on this machine: of its inputs by name, with the user's program as `code`; of its log."""

    name: str
    spec: CommandSpec
    files: dict[str, str]
    log: str = operational("")


class LaunchResult(StageModel):
    """The files that the command left, and the last value of each metric in its log."""

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
def launch(request: LaunchRequest, store: ArtifactStore) -> LaunchResult:
    """Run the command with the launcher of its settings; a later attempt in this run goes on from its checkpoints.

    Raises LauncherError if it did not succeed, with a class for every cause and the last lines of the worker.
    """
    from gatehouse.launchers.commands import finished_command, unpack
    from gatehouse.runtime.redaction import holds_password
    from gatehouse.tracking.mlflow_client import JOB, ensure_run, tracking_of
    from gatehouse.tracking.place import RUN, URI, server_uri, warning_on_failure

    metrics: dict[str, float] = {}
    own: dict[str, str] = {}
    files = {name: Path(path) for name, path in request.files.items()}
    key = f"launch-{digest_of([os.environ.get(RUN_ID, ''), identity_of(request)])[:24]}"
    tracking = tracking_of(store) if (uri := server_uri()) and not holds_password(uri) else None
    if tracking is not None:  # What the command logs in MLflow, it logs in this run.
        with warning_on_failure(store, "launch:tracking"), tracking.client() as client:
            run = ensure_run(client, tracking.experiment(client, request.name), JOB, key, request.name, {})
            own = {URI: tracking.uri, RUN: run.info.run_id}
    spec = request.spec.model_copy(update={"environment": own | request.spec.environment})
    with finished_command(store, key, spec, files, metrics.update) as job, store.workspace() as workspace:
        left = unpack(job, workspace)
        output = store.publish("outputs", request.name, left, configuration=identity_of(request.spec))
        if request.log:
            shutil.copyfile(job / "worker.log", request.log)
    if tracking is not None and own:
        with warning_on_failure(store, "launch:tracking"), tracking.client() as client:
            metrics |= client.get_run(own[RUN]).data.metrics
    return LaunchResult(
        output=str(output), metrics={name: value for name, value in metrics.items() if math.isfinite(value)}
    )
