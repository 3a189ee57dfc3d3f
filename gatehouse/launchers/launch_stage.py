"""The stage that runs a command of the user's own as a training job, with any launcher, and keeps what it leaves."""

import json
import logging
import math
import os
import re
import shutil
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

from pydantic import Field

from gatehouse.configuration.yaml_lines import nearest
from gatehouse.errors import ConfigurationError
from gatehouse.launchers.command import CODE, INPUTS, VARIABLE
from gatehouse.launchers.launcher import JOB, LOCATION, LOG, METRICS, PRINTED, TrainingJob, job_directory
from gatehouse.launchers.local import launch_of, launcher
from gatehouse.launchers.spec import CommandSpec, LocalLaunch
from gatehouse.launchers.wrapper import COMMAND
from gatehouse.runtime.redaction import holds_secret
from gatehouse.store.atomic_file import write_json
from gatehouse.store.canonical import canonical_json, digest_of
from gatehouse.store.identity import identity_of, operational
from gatehouse.store.objects.local import LocalObjects
from gatehouse.store.parameters import as_written, checked
from gatehouse.store.publishing import digests_of
from gatehouse.store.records import remove_record
from gatehouse.store.stage import CONTENTS, Effects, StageModel, stage
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.machine import PREFIX, in_background
from gatehouse.tracking.metrics_file import MetricsFile
from gatehouse.tracking.sending import RUN_TITLE, tracked_job

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
    from gatehouse.launchers.launcher import LOG, WEIGHTS
    from gatehouse.runtime.importing import unpack_tar
    from gatehouse.tracking.mlflow_client import JOB, ensure_run, tracking_of
    from gatehouse.tracking.place import RUN, URI, is_shown_later, server_uri, warning_on_failure
    from gatehouse.tracking.sending import send_rest

    key = f"launch-{digest_of(identity_of(request))[:24]}"
    tracking = tracking_of(store) if (uri := server_uri()) and not holds_secret(uri) else None
    tracked: dict[str, str] = {}
    if tracking:  # The command logs to MLflow in this run.
        with warning_on_failure(store, "launch:tracking"), tracking.client() as client:
            run = ensure_run(client, tracking.experiment(client, request.name), JOB, key, request.name, {})
            tracked = {URI: uri, RUN: run.info.run_id}
    command = request.command.model_copy(update={"environment": tracked | request.command.environment})
    own = request.model_copy(update={"command": command})
    with (
        finished_command(store, key, own, tracked=tracking is not None) as (job, metrics),
        store.workspace() as workspace,
    ):
        with tarfile.open(job / WEIGHTS) as archive:
            unpack_tar(archive, workspace)
            files = {name: workspace / name for name in archive.getnames()}
        about = {"command": identity_of(request.command), "inputs": request.inputs}
        output = store.publish("outputs", request.name, files, configuration=about)
        place = json.loads((job / LOCATION).read_text())
        store.append(f"measurements/{output}", {"stage": "launch", "place": place})
        if request.log:
            (job / LOG).touch()  # The command may have printed nothing.
            shutil.copyfile(job / LOG, request.log)
    if tracking:
        if tracked:
            with warning_on_failure(store, "launch:tracking"), tracking.client() as client:
                own_metrics = client.get_run(tracked[RUN]).data.metrics
                metrics |= {name: value for name, value in own_metrics.items() if not name.startswith(PREFIX)}
        if not is_shown_later():
            send_rest(store)  # Now, so that what the command logs itself comes first: it has one value for each step.
    for name in [name for name, value in metrics.items() if not math.isfinite(value)]:
        logger.warning("The metric %s is left out: its last value is %s.", name, metrics.pop(name))
    return LaunchResult(output=str(output), metrics=metrics)


_WHERE: dict[str, Any] = {"kind": "local", "image": "", "nodes": 1, "min_nodes": 0, "processes": 1}
_WHERE |= {"resources": {}, "restarts": 3}
_METRIC = re.compile(
    r"(?<![\w./-])(?:([a-z][\w-]*) +)?([a-z_][\w./-]*)\s*=\s*"
    r"([+-]?(?:\d+\.?\d*(?:e[+-]?\d+)?|\.\d+|nan|inf))(,\d[\d.,]*|\s?%)?(?![\w/]|\.\w|:\d|\s?%)",
    re.I,
)
_OTHER_RANK = re.compile(r"\[default[1-9]\d*\]:")  # as torchrun begins the lines of other processes than the first
STEPS = ("step", "epoch")
"""Metrics of a line that number it; else the lines are counted."""
_LEVELS = ("", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_LOOK_SECONDS = 0.2


def command_of(parameters: Mapping[str, Any], inputs: Mapping[str, Any], script: Path) -> dict[str, Any]:
    """The fields of a CommandRequest from the parameters of a KFP component, and its input artifacts by name.

    The text of a script is written to the path `script`. Raises ConfigurationError if parameters do not fit together.
    """
    settings, texts = as_written(parameters["settings"]), plain(parameters["environment"])
    environment = {key: text if isinstance(text, str) else canonical_json(text) for key, text in texts.items()}
    if twice := [name for name in settings if name in _WHERE and name in parameters]:
        raise ConfigurationError(f"settings: expected no {twice[0]}, as it is an input of its own. Set that input.")
    # A script may be silent for long: only who knows it can say when it hangs.
    where = {"hang_seconds": 60.0 * parameters["timeout_minutes"]} | _WHERE
    where |= {name: parameters[name] for name in _WHERE if name in parameters} | settings
    nodes, processes, restarts, image = (where.pop(name) for name in ("nodes", "processes", "restarts", "image"))
    beyond = {"image": image, "nodes": nodes, "min_nodes": where.pop("min_nodes")}
    beyond["resources"] = as_written(where.pop("resources"))
    if where["kind"] != "local":
        where |= beyond
    elif image or nodes > 1 or beyond["min_nodes"] or beyond["resources"]:
        raise ConfigurationError(
            "kind: expected trainjob or pytorchjob with nodes, min_nodes, image or resources, found local. Set those "
            "of the task itself, with set_container_image and set_memory_limit."
        )
    files = {name: str(getattr(value, "path", value)) for name, value in inputs.items() if value is not None}
    if text := parameters["script"]:
        if CODE in files:
            raise ConfigurationError("script: expected a text or a file, found both.")
        if text.endswith(".py") and "\n" not in text:
            raise ConfigurationError(f"script: expected a program, found its path. Give Path({text!r}).read_text().")
        script.write_text(text, encoding="utf-8")
        files[CODE] = str(script)
    launch = launch_of(json.dumps(where), "settings").model_dump(mode="json")
    if launch["kind"] != "local" and not parameters["store"]:
        raise ConfigurationError("store: expected an address, as the files of a cluster's pods go through it.")
    fields = {"command": parameters["command"], "timeout_minutes": parameters["timeout_minutes"], "launch": launch}
    fields |= {"environment": environment, "processes": processes * nodes, "restarts": restarts, "image": image}
    spec = checked("parameters", CommandSpec, plain(fields))
    require_no_secrets("", {"command": " ".join(spec.command), "environment": environment, "settings": settings})
    folders = ("OUTPUT", "CHECKPOINTS", "PARAMETERS", *(f"INPUT_{name.upper()}" for name in files if name != CODE))
    ours = [f"GATEHOUSE_{name}" for name in folders]
    others = {*os.environ, *environment, *launch.get("env", {})}  # A shell of the command replaces them.
    if unknown := [name for _, name in VARIABLE.findall(" ".join(spec.command)) if name not in {*ours, *others}]:
        near = nearest(unknown[0], ours)
        raise ConfigurationError(f"command: expected ${', $'.join(ours)}, found ${unknown[0]}, which is not set{near}.")
    digests = {name: digest_of(digests_of(path)) for name, path in files.items()}
    return {"name": parameters["name"], "command": spec, "inputs": digests, "files": files}


def require_no_secrets(name: str, parameter: Any) -> None:
    """Check the texts of a parameter, at any depth; raises ConfigurationError if one looks like it holds a secret."""
    if isinstance(parameter, Mapping):
        for key, value in parameter.items():
            require_no_secrets(f"{name}.{key}".lstrip("."), value)
    elif isinstance(parameter, list | tuple):
        for value in parameter:
            require_no_secrets(name, value)
    elif isinstance(parameter, str) and holds_secret(f"{name.rpartition('.')[2]}={parameter}"):
        raise ConfigurationError(
            f"{name} looks like it holds a secret, which the store would keep. Let the program read it from its "
            "environment: for kind local, set it on the task, with set_env_variable or kubernetes.use_secret_as_env; "
            "for a job, name it in settings.secrets."
        )


def plain(parameter: Any) -> Any:
    """A user's own JSON, with 5 where KFP made 5.0 of it; texts stay as they are."""
    return json.loads(canonical_json(parameter), parse_float=lambda text: int(n) if (n := float(text)) % 1 == 0 else n)


@dataclass
class PrintedMetrics:
    """Reads the metrics in the lines of a log, and the steps at which MLflow shows them: the first value at each step.

    A step is the `step` in the line, else its `epoch`, else the number of the line. Where steps begin anew in each
    epoch, and lines have both, the steps of an epoch follow those of the epoch before. A command that goes on from a
    checkpoint repeats its steps.
    """

    lines: int = 0
    reached: int = -1  # The greatest step of a line with `step`.
    offset: int = 0  # What is added to the steps of the last epoch.
    offsets: dict[str, int] = field(default_factory=dict)  # By epoch.
    warned: bool = False
    words: dict[str, str] = field(default_factory=dict)  # The word before each metric, such as `val`.

    def read(self, line: str) -> dict[str, float]:
        """The metrics in a line: every `name=value` with a number, as Katib's collector of lines reads them.

        Of several processes only the first counts. A number with separators or `%`, and a metric that lines have after
        different words, are NaN: it is not known which number is meant.

        Example:
            >>> PrintedMetrics().read("[default0]:epoch=3 loss=0.25, accuracy = 9e-1 shape=(2, 3)")
            {'epoch': 3.0, 'loss': 0.25, 'accuracy': 0.9}
        """
        metrics: dict[str, float] = {}
        for word, name, value, rest in () if _OTHER_RANK.match(line) else _METRIC.findall(line):
            word = "" if word.upper() in _LEVELS or name in STEPS else word
            before = self.words.setdefault(name, word)
            metrics[name] = math.nan if rest or word != before else float(value)
            if rest:
                logger.warning(
                    "%s=%s%s: expected a number without separators and signs; it counts as NaN.", name, value, rest
                )
            elif word != before != "=":
                self.words[name] = "="  # No word is one: the metric stays unknown.
                logger.warning(
                    "%s: expected one metric of this name, found it after %r and after %r; it counts as NaN. Print a "
                    "name of its own for each, such as val_%s=…",
                    *(name, before, word, name),
                )
        return metrics

    def step_of(self, metrics: Mapping[str, float]) -> int:
        """The step of the next line."""
        self.lines += 1
        step, epoch = (int(value) if 0 <= (value := metrics.get(name, math.nan)) < math.inf else None for name in STEPS)
        if step is None:
            return self.lines - 1 if epoch is None else epoch
        if epoch is None:
            if step < self.reached and not self.warned:
                self.warned = True
                logger.warning(
                    "A line has step=%d after step=%d. MLflow keeps the first value at each step. If the steps begin "
                    "anew in each epoch, print epoch=… in the same lines.",
                    step,
                    self.reached,
                )
        else:
            if str(epoch) not in self.offsets and step + self.offset <= self.reached:
                self.offset = self.reached + 1 - step
            self.offset = self.offsets.setdefault(str(epoch), self.offset)
            step += self.offset
        self.reached = max(self.reached, step)
        return step


@contextmanager
def finished_command(
    store: ArtifactStore,
    key: str,
    request: CommandRequest,
    on_metrics: Callable[[dict[str, float]], None] = lambda metrics: None,
    *,
    parameters: Mapping[str, Any] | None = None,
    tracked: bool = False,
) -> Iterator[tuple[Path, dict[str, float]]]:
    """Run a command, and give the directory of its job, with log and packed output, and the last value of each metric.

    A job of this `key` that was interrupted goes on from its checkpoints. `on_metrics` gets those of each line while
    the command runs, from another thread. `parameters` are those of a trial, which may leave no output. The job's
    metrics file has the metrics of each line too; if `tracked`, they are sent to MLflow when the command has ended.

    Raises LauncherError if the command did not succeed; there is a class for every cause.
    """
    spec = request.command
    with job_directory(store, key, arrays=(CODE, INPUTS)) as directory:
        for name, path in request.files.items():
            _link(Path(path), directory / CODE if name == CODE else directory / INPUTS / name)
        # This machine may be a pod, which is lost with its files.
        far = isinstance(spec.launch, LocalLaunch) and not isinstance(store.objects, LocalObjects)
        job = {"command": spec.command, "environment": spec.environment, "store": store.address if far else ""}
        job |= {"key": key, "image": spec.image}  # Jobs and checkpoints on a cluster are named by the digest of this.
        write_json(directory / JOB, job | {"parameters": parameters or {}, "output": parameters is None})
        # A command that goes on from its last checkpoint may have nothing more to print.
        printed = json.loads((directory / PRINTED).read_text()) if (directory / PRINTED).exists() else {}
        metrics, reader = printed.get("metrics", {}), PrintedMetrics(**printed.get("steps", {}))
        if (log := directory / LOG).exists():
            for line in log.read_text(errors="replace").splitlines():
                if new := reader.read(line):
                    metrics |= new
                    reader.step_of(new)
            write_json(directory / PRINTED, {"metrics": metrics, "steps": vars(reader)})
            log.unlink()
        chosen = launcher(store, spec.launch)
        run = TrainingJob(directory, COMMAND, spec.processes, spec.timeout_minutes, spec.restarts)
        with ExitStack() as around:
            if tracked:
                around.callback(RUN_TITLE.reset, RUN_TITLE.set(request.name))  # Of a run that is created later.
                around.enter_context(tracked_job(store, key, request.name, directory / METRICS))
            lines = around.enter_context(closing(MetricsFile(directory / METRICS)))

            def on_line(line: str) -> None:
                if new := reader.read(line):
                    metrics.update(new)
                    lines.log(new, reader.step_of(new))
                    on_metrics(new)

            around.enter_context(in_background(lambda ended: _follow(log, on_line, ended), f"metrics-{key}"))
            chosen.run(run)
        yield directory, metrics
        chosen.forget(run)
        for copied in list(store.objects.list(f"scratch/checkpoints/{directory.name}")) if far else ():
            remove_record(store.objects, copied)


def _link(path: Path, target: Path) -> None:
    """Link a file, or the files of a folder; a program that is one file is `script.py` in its folder."""
    shutil.rmtree(target, ignore_errors=True)
    target.unlink(missing_ok=True)
    if path.is_dir():
        shutil.copytree(path.resolve(), target, copy_function=os.symlink)
        return
    target = target / "script.py" if target.name == CODE else target
    target.parent.mkdir(parents=True, exist_ok=True)
    os.symlink(path.resolve(strict=True), target)


def _follow(log: Path, on_line: Callable[[str], None], ended: Event) -> None:
    """Pass on each line that the log gets, until the command has ended and all are read."""
    position, last = 0, False
    while not last:
        last = ended.wait(_LOOK_SECONDS)
        with suppress(FileNotFoundError), open(log, "rb") as file:
            file.seek(position)
            while (line := file.readline()).endswith(b"\n") or (last and line):
                position = file.tell()
                on_line(line.decode(errors="replace"))
