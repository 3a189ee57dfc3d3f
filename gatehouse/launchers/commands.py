"""Runs a command of the user's own as a training job, with any launcher."""

import hashlib
import json
import os
import re
import shutil
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import Any

from gatehouse.errors import ConfigurationError
from gatehouse.launchers.choose import launch_of, launcher
from gatehouse.launchers.command import CODE, INPUTS
from gatehouse.launchers.job_directory import job_directory
from gatehouse.launchers.launcher import COMMAND, JOB, LOG, WEIGHTS, TrainingJob
from gatehouse.launchers.spec import CommandSpec, LocalLaunch
from gatehouse.store.atomic_file import write_json
from gatehouse.store.canonical import digest_of
from gatehouse.store.objects.local import LocalObjects
from gatehouse.store.parameters import as_written, spec_of
from gatehouse.store.records import remove_record
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.machine import in_background

SCRIPT = "script.py"
"""The name of a program that is one file, in the folder where the command starts."""
_METRIC = re.compile(
    r"(?<![\w./-])([A-Za-z_][\w./-]*)\s*=\s*([+-]?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+|nan|inf))(?![\w./])"
)
_LOOK_SECONDS = 0.2


def command_spec(
    *,
    kind: str,
    nodes: int,
    processes: int,
    resources: dict[str, Any],
    settings: dict[str, Any],
    store: str,
    **fields: Any,
) -> CommandSpec:
    """A command from the parameters of a KFP component; `processes` are those of a node, `fields` those of the spec.

    Raises ConfigurationError if they do not fit together.
    """
    image = fields["image"]
    if kind == "local" and (image or nodes > 1 or resources):
        raise ConfigurationError(
            "kind: expected pytorchjob or trainjob with nodes, image or resources, found local. Set those of the "
            "task for a local command, with set_container_image and set_memory_limit."
        )
    if kind != "local" and not store:
        raise ConfigurationError(f"store: expected an address with kind {kind}, as the files of pods go through it.")
    own = {} if kind == "local" else {"image": image, "nodes": nodes, "resources": resources}
    launch = launch_of(json.dumps(as_written({"kind": kind} | settings | own)), "settings")
    return spec_of(CommandSpec, {**fields, "processes": processes * nodes, "launch": launch.model_dump(mode="json")})


def command_files(script: str, beside: str, **artifacts: Any) -> dict[str, str]:
    """Paths of a command's inputs by name, from a KFP component's artifacts; a `script` is written `beside` a path.

    Raises ConfigurationError if the program is both a text and a file.
    """
    files = {name: str(artifact.path) for name, artifact in artifacts.items() if artifact is not None}
    if script:
        if "code" in files:
            raise ConfigurationError("script: expected a text or a file, found both.")
        files["code"] = f"{beside}.py"
        Path(files["code"]).write_text(script, encoding="utf-8")
    return files


def metrics_in(line: str) -> dict[str, float]:
    """The metrics in a line of a log: every `name=value` with a number, as Katib's collector of lines reads them.

    Example:
        >>> metrics_in("[default0]:epoch=3 loss=0.25, accuracy = 9e-1 shape=(2, 3)")
        {'epoch': 3.0, 'loss': 0.25, 'accuracy': 0.9}
    """
    return {name: float(value) for name, value in _METRIC.findall(line)}


@contextmanager
def finished_command(
    store: ArtifactStore,
    key: str,
    spec: CommandSpec,
    files: Mapping[str, Path],
    *,
    parameters: Mapping[str, Any] | None = None,
    output: bool = True,
    hear: Callable[[dict[str, float]], None] = lambda metrics: None,
) -> Iterator[Path]:
    """Run a command, and give the directory of its job, with log and packed output; it is removed at the end.

    Args:
        key: Identifies the job: a job of this key that was interrupted goes on from its checkpoints.
        files: A file or folder for each input by its name, and the program of the user under `code`.
        parameters: What the file `$GATEHOUSE_PARAMETERS` holds; None for no such file.
        output: Whether an empty output folder is a failure.
        hear: Gets the metrics of each line while the command runs, from another thread.

    Raises:
        LauncherError: if the command did not succeed; there is a class for every cause.
    """
    with job_directory(store, key, arrays=(CODE, INPUTS)) as directory:
        for name, path in files.items():
            _place(path, directory / (CODE if name == CODE else f"{INPUTS}/{name}"), single=name == CODE)
        job: dict[str, Any] = {"command": spec.command, "environment": spec.environment, "output": output}
        if parameters is not None:
            job["parameters"] = parameters
        far = isinstance(spec.launch, LocalLaunch) and not isinstance(store.objects, LocalObjects)
        if far:  # This machine may be a pod, which is lost with its files.
            job["store"] = store.address
        write_json(directory / JOB, job)
        (directory / LOG).unlink(missing_ok=True)
        chosen = launcher(store, spec.launch)
        run = TrainingJob(directory, COMMAND, spec.processes, spec.timeout_minutes, spec.restarts)
        with in_background(lambda ended: _follow(directory / LOG, hear, ended), f"metrics-{key}"):
            chosen.run(run)
        yield directory
        chosen.forget(run)
        for copied in list(store.objects.list(f"scratch/checkpoints/{directory.name}")) if far else ():
            remove_record(store.objects, copied)


def unpack(directory: Path, target: Path) -> None:
    """Write the output of a finished command to a folder."""
    target.mkdir(parents=True, exist_ok=True)
    with tarfile.open(directory / WEIGHTS) as archive:
        archive.extractall(target, filter="data")


def _place(path: Path, target: Path, *, single: bool) -> None:
    """Link a file, or the files of a folder; a program that is one file gets a name in its folder."""
    if not path.exists():
        raise ConfigurationError(f"{target.name}: expected a file or a folder, found nothing at {path}.")
    shutil.rmtree(target, ignore_errors=True)
    target.unlink(missing_ok=True)
    if path.is_dir():
        shutil.copytree(path.resolve(), target, copy_function=os.symlink)
        return
    target = target / SCRIPT if single else target
    target.parent.mkdir(parents=True, exist_ok=True)
    os.symlink(path.resolve(), target)


def _follow(log: Path, hear: Callable[[dict[str, float]], None], ended: Event) -> None:
    """Pass on the metrics of each line that the log gets, until the command has ended, and those that came last."""
    position = 0
    while True:
        last = ended.wait(_LOOK_SECONDS)
        with suppress(FileNotFoundError), open(log, "rb") as file:
            file.seek(position)
            while (line := file.readline()).endswith(b"\n") or (last and line):
                position = file.tell()
                if metrics := metrics_in(line.decode(errors="replace")):
                    hear(metrics)
        if last:
            return


def digest_of_files(path: Path) -> str:
    """SHA-256 of a file, or of the names and contents of the files in a folder."""
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
        return digest_of([[file.relative_to(path).as_posix(), digest_of_files(file)] for file in files])
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
