"""The local launcher, which runs torchrun as a child process, and the choice of a launcher by the environment."""

import json
import logging
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from threading import Thread

from pydantic import TypeAdapter, ValidationError

from gatehouse.configuration.yaml_lines import in_words, nearest
from gatehouse.errors import LaunchError
from gatehouse.launchers.launcher import (
    EVICTED,
    FAILURE,
    HUNG,
    HUNG_CODE,
    LOCATION,
    LOG,
    PREEMPTED_CODE,
    RESULT,
    WEIGHTS,
    EvictedError,
    Launcher,
    Stop,
    TrainingFailedError,
    TrainingJob,
    last_lines,
    noted_attempts,
    restarts_in,
    result_problem,
    stacks_of,
    stop_here,
    stopped,
    timed_out,
)
from gatehouse.launchers.ranks import STACKS_SIGNAL
from gatehouse.launchers.spec import CommandSpec, Launch, LocalLaunch, PyTorchJobLaunch
from gatehouse.runtime.process import owner_env, stop_tree
from gatehouse.runtime.variables import LAUNCH
from gatehouse.store.store import ArtifactStore

logger = logging.getLogger(__name__)

_WRAPPER = "gatehouse.launchers.wrapper"
_GRACE_SECONDS, _STACKS_SECONDS = 5.0, 10.0


class LocalLauncher:
    """Runs a job with torchrun on this machine. Its output goes to `worker.log` and to the log of this process."""

    remote = False

    def __init__(self, launch: LocalLaunch | None = None) -> None:
        self._launch = launch or LocalLaunch()

    def run(self, job: TrainingJob) -> None:
        """Run `job`; see `Launcher`. If it is stopped, its ranks save first."""
        if (stop := stop_here()).requested():
            raise stopped()
        old = [job.directory / name for name in (RESULT, WEIGHTS, FAILURE, LOG, LOCATION)]
        for path in (*old, *job.directory.glob("stacks-*.txt")):
            path.unlink(missing_ok=True)
        deadline = time.monotonic() + job.timeout_minutes * 60
        restarts = 0
        while (code := self._attempt(job, deadline, stop)) == PREEMPTED_CODE and restarts < self._launch.max_restarts:
            if stop.requested():
                break
            restarts += 1
            logger.info("Preempted: resuming at the last checkpoint (%d of %d).", restarts, self._launch.max_restarts)
        if stop.requested() and code != 0:
            raise stopped()
        tail = _tail(job.directory / LOG)
        if code == PREEMPTED_CODE:
            raise EvictedError(
                f"{EVICTED}\nIt was asked to end (SIGTERM) {restarts + 1} times, with launch.max_restarts={restarts}. "
                f"Run again to resume at its last checkpoint.\n{tail}"
            )
        failure = job.directory / FAILURE
        if failure.exists():
            problem = str(json.loads(failure.read_text())["message"])
        elif code != 0:
            problem = f"the workers ended with exit code {code}, expected 0."
            if code == HUNG_CODE:
                problem = f"{HUNG}\n{stacks_of(job.directory)}"
        else:
            problem = result_problem(job.directory)
        if problem:
            raise TrainingFailedError(f"Training failed: {problem}\n{tail}", repeats=failure.exists())
        place = {"machine": self._launch.machine, "machines": 1, "restarts": restarts_in(noted_attempts(job.directory))}
        (job.directory / LOCATION).write_text(json.dumps(place))

    def forget(self, job: TrainingJob) -> None:
        """Do nothing: all files are in the job's directory."""

    def _attempt(self, job: TrainingJob, deadline: float, stop: Stop) -> int:
        """Run the wrapper once; returns its exit code."""
        command = [sys.executable, "-m", _WRAPPER, job.program, str(job.processes), str(job.directory)]
        options = [f"--hang-seconds={self._launch.hang_seconds}", f"--max-restarts={job.restarts}"]
        wrapper = subprocess.Popen(
            [*command, *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | owner_env(),
        )
        assert wrapper.stdout is not None
        stream, log = wrapper.stdout, job.directory / LOG

        def copy_lines() -> None:
            """Copy until the stream ends, even if the file cannot be written: a full pipe would block the training."""
            full = False
            with stream:
                for line in stream:
                    try:
                        with open(log, "ab") as file:
                            file.write(line)
                    except OSError as error:
                        if not full:
                            logger.warning("%s cannot be written (%s): the training continues.", log, error.strerror)
                        full = True
                    logger.info("%s", line.decode(errors="replace").rstrip())

        reader = Thread(target=copy_lines, daemon=True)
        reader.start()
        try:
            with stop.ending(lambda: wrapper.send_signal(signal.SIGTERM)):
                wrapper.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            wrapper.send_signal(STACKS_SIGNAL)
            with suppress(subprocess.TimeoutExpired):
                wrapper.wait(timeout=_STACKS_SECONDS)
            where = f"{_tail(log)}\n{stacks_of(job.directory)}"
            raise timed_out(job.timeout_minutes, where) from None
        finally:
            if wrapper.poll() is None:
                stop_tree(wrapper.pid, _GRACE_SECONDS)
            code = wrapper.wait()
            reader.join(timeout=_GRACE_SECONDS)
        return code


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return last_lines(lines, f"its log, {log}")


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
        parts = [part.get("properties", {}) for part in (schema, *schema["$defs"].values())]
        for line in error.errors():
            key, words = ".".join(map(str, line["loc"][1:])) or "kind", in_words(line)
            if line["type"] == "extra_forbidden":
                kind = line["loc"][0]
                keys = {key for part in parts if part.get("kind", {}).get("const", kind) == kind for key in part}
                words = f"there is no such key for kind {kind}{nearest(str(line['loc'][-1]), keys, 0.7)}"
            problems.append(f"{key}: {words}")
        raise LaunchError(f"{name} is not valid: {'; '.join(problems)}. See docs/launchers.md.") from None
    return launch


def launcher(store: ArtifactStore, launch: Launch | None = None) -> Launcher:
    """The launcher whose settings are in `GATEHOUSE_LAUNCH`; the local one where that is not set."""
    launch = launch or launch_of(os.environ.get(LAUNCH, ""))
    if isinstance(launch, LocalLaunch):
        return LocalLauncher(launch)
    from gatehouse.launchers.kubernetes.launcher import ClusterLauncher
    from gatehouse.launchers.kubernetes.operators import PyTorchJobs, TrainJobs

    operator = PyTorchJobs(launch) if isinstance(launch, PyTorchJobLaunch) else TrainJobs(launch)
    return ClusterLauncher(store, operator, launch)
