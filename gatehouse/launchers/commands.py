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
from gatehouse.runtime.archives import unpack_tar
from gatehouse.store.atomic_file import write_json
from gatehouse.store.canonical import digest_of
from gatehouse.store.objects.local import LocalObjects
from gatehouse.store.parameters import as_written, spec_of
from gatehouse.store.records import remove_record
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.machine import in_background

_WHERE: dict[str, Any] = {"kind": "local", "image": "", "nodes": 1, "processes": 1, "resources": {}, "restarts": 3}
_METRIC = re.compile(
    r"(?<![\w./-])([A-Za-z_][\w./-]*)\s*=\s*([+-]?(?:\d+\.?\d*(?:e[+-]?\d+)?|\.\d+|nan|inf))(?![\w./])", re.I
)
_LOOK_SECONDS = 0.2


def command_of(
    parameters: Mapping[str, Any], inputs: Mapping[str, Any], script: Path
) -> tuple[CommandSpec, dict[str, str]]:
    """A command from the parameters of a KFP component, and the paths of its input artifacts, by name.

    The text of a script is written to the path `script`. Raises ConfigurationError if parameters do not fit together.
    """
    where = _WHERE | {name: parameters[name] for name in _WHERE if name in parameters}
    where |= as_written(parameters["settings"])
    nodes, processes, restarts, image = (where.pop(name) for name in ("nodes", "processes", "restarts", "image"))
    beyond = {"image": image, "nodes": nodes, "resources": as_written(where.pop("resources"))}
    if where["kind"] != "local":
        if not parameters["store"]:
            raise ConfigurationError("store: expected an address, as the files of a cluster's pods go through it.")
        where |= beyond
    elif image or nodes > 1 or beyond["resources"]:
        raise ConfigurationError(
            "kind: expected pytorchjob or trainjob with nodes, image or resources, found local. Set those of "
            "the task itself, with set_container_image and set_memory_limit."
        )
    files = {name: str(artifact.path) for name, artifact in inputs.items() if artifact is not None}
    if text := parameters["script"]:
        if CODE in files:
            raise ConfigurationError("script: expected a text or a file, found both.")
        script.write_text(text, encoding="utf-8")
        files[CODE] = str(script)
    launch = launch_of(json.dumps(where), "settings").model_dump(mode="json")
    fields = {name: parameters[name] for name in ("command", "environment", "timeout_minutes")}
    fields |= {"processes": processes * nodes, "restarts": restarts, "image": image, "launch": launch}
    return spec_of(CommandSpec, fields), files


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
    hear: Callable[[dict[str, float]], None],
    *,
    parameters: Mapping[str, Any] | None = None,
) -> Iterator[Path]:
    """Run a command, and give the directory of its job, with log and packed output; it is removed at the end.

    Args:
        key: Identifies the job: a job of this key that was interrupted goes on from its checkpoints.
        files: A file or folder for each input by its name, and the program of the user under `code`.
        hear: Gets the metrics of each line while the command runs, from another thread.
        parameters: Of a trial, which may leave no output; None for a command that must.

    Raises LauncherError if the command did not succeed; there is a class for every cause.
    """
    with job_directory(store, key, arrays=(CODE, INPUTS)) as directory:
        for name, path in files.items():
            _place(path, directory / CODE if name == CODE else directory / INPUTS / name)
        # This machine may be a pod, which is lost with its files.
        far = isinstance(spec.launch, LocalLaunch) and not isinstance(store.objects, LocalObjects)
        job = {"command": spec.command, "environment": spec.environment, "store": store.address if far else ""}
        write_json(directory / JOB, job | {"parameters": parameters or {}, "output": parameters is None})
        (directory / LOG).unlink(missing_ok=True)
        chosen = launcher(store, spec.launch)
        run = TrainingJob(directory, COMMAND, spec.processes, spec.timeout_minutes, spec.restarts)
        with in_background(lambda ended: _follow(directory / LOG, hear, ended), f"metrics-{key}"):
            chosen.run(run)
        yield directory
        chosen.forget(run)
        for copied in list(store.objects.list(f"scratch/checkpoints/{directory.name}")) if far else ():
            remove_record(store.objects, copied)


def unpack(directory: Path, target: Path) -> dict[str, Path | bytes | str]:
    """Write the output of a finished command to a folder; returns its files by path."""
    with tarfile.open(directory / WEIGHTS) as archive:
        unpack_tar(archive, target)
        return {name: target / name for name in archive.getnames()}


def _place(path: Path, target: Path) -> None:
    """Link a file, or the files of a folder; a program that is one file is `script.py` in its folder."""
    shutil.rmtree(target, ignore_errors=True)
    target.unlink(missing_ok=True)
    if path.is_dir():
        shutil.copytree(path.resolve(), target, copy_function=os.symlink)
        return
    target = target / "script.py" if target.name == CODE else target
    target.parent.mkdir(parents=True, exist_ok=True)
    os.symlink(path.resolve(strict=True), target)


def _follow(log: Path, hear: Callable[[dict[str, float]], None], ended: Event) -> None:
    """Pass on the metrics of each line that the log gets, until the command has ended, and those that came last."""
    position, last = 0, False
    while not last:
        last = ended.wait(_LOOK_SECONDS)
        with suppress(FileNotFoundError), open(log, "rb") as file:
            file.seek(position)
            while (line := file.readline()).endswith(b"\n") or (last and line):
                position = file.tell()
                if metrics := metrics_in(line.decode(errors="replace")):
                    hear(metrics)


def digest_of_files(path: Path) -> str:
    """SHA-256 of a file, or of the names and contents of the files in a folder."""
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
        return digest_of([[file.relative_to(path).as_posix(), digest_of_files(file)] for file in files])
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
