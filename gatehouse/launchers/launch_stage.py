"""The stage that runs a command of the user's own, and keeps what it leaves."""

import os
import shutil
from pathlib import Path

from pydantic import Field

from gatehouse.launchers.launcher import LOG, TrainingFailedError
from gatehouse.launchers.spec import CommandSpec
from gatehouse.store.canonical import digest_of
from gatehouse.store.identity import identity_of, operational
from gatehouse.store.run import RUN_ID
from gatehouse.store.stage import CONTENTS, Effects, StageModel, stage
from gatehouse.store.store import ArtifactStore


class LaunchRequest(StageModel):
    """The command, and paths of its inputs on this machine."""

    name: str
    spec: CommandSpec
    files: dict[str, str] = Field({}, description="Inputs by name; the program of the user is `code`.")
    log: str = operational("", description="Path to which the log is copied, however the command ends.")


class LaunchResult(StageModel):
    """The files that the command left, and the last value of each metric in its log."""

    output: str
    metrics: dict[str, float]


class CommandFailedError(TrainingFailedError):
    """The command itself reports a failure that another attempt would repeat: an exit code, or an empty output."""

    permanent = True


@stage(
    "launch",
    title="Launch a command",
    effects=Effects(
        reads="Whatever the command reads.", writes="Whatever the command writes.", why="It is no function."
    ),
    pages={"outputs": CONTENTS},
)
def launch(request: LaunchRequest, store: ArtifactStore) -> LaunchResult:
    """Run the command with the launcher of its settings; a later attempt in this run goes on from its checkpoints.

    Raises:
        CommandFailedError: if the command ended with an exit code, or with 0 and without output.
        LauncherError: of another class for every other cause, with the last lines of the worker.
    """
    import math

    from gatehouse.launchers.commands import finished_command, unpack

    metrics: dict[str, float] = {}
    files = {name: Path(path) for name, path in request.files.items()}
    key = f"launch-{digest_of([os.environ.get(RUN_ID, ''), identity_of(request)])[:24]}"
    try:
        with (
            finished_command(store, key, request.spec, files, hear=metrics.update) as directory,
            store.workspace() as workspace,
        ):
            unpack(directory, workspace)
            left = {path.relative_to(workspace).as_posix(): path for path in workspace.rglob("*") if path.is_file()}
            output = store.publish("outputs", request.name, left, configuration=identity_of(request.spec))
            _copy_log(directory, request.log)
    except TrainingFailedError as error:
        _copy_log(store.scratch(key), request.log)
        if error.repeats:
            raise CommandFailedError(str(error), repeats=True) from error
        raise
    finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
    return LaunchResult(output=str(output), metrics=finite)


def _copy_log(directory: Path, target: str) -> None:
    if target and (log := directory / LOG).exists():
        shutil.copyfile(log, target)
