"""The local launcher: torchrun as a child process, watched, and stopped with everything below it."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from threading import Thread
from typing import IO

from gatehouse.components.training.launcher import (
    FAILURE,
    LOG,
    RESULT,
    WEIGHTS,
    TrainingFailedError,
    TrainingJob,
    last_lines,
    problem,
    timed_out,
)
from gatehouse.process import owner_env, stop_tree

logger = logging.getLogger(__name__)

_WRAPPER = "gatehouse.components.training.wrapper"
_GRACE_SECONDS = 5.0


class LocalLauncher:
    """Runs a job with torchrun on this machine; its log goes to the job's `worker.log` and to this process's log."""

    def run(self, job: TrainingJob) -> None:
        """Run `job`; however this ends, none of its processes is left behind.

        Raises:
            TrainingFailedError: if it exits with anything but 0, or leaves no result, or other weights than the result
                names.
            TrainingTimeoutError: if it was stopped for taking too long.
        """
        for name in (RESULT, WEIGHTS, FAILURE):
            (job.directory / name).unlink(missing_ok=True)
        wrapper = subprocess.Popen(
            [sys.executable, "-m", _WRAPPER, str(job.processes), str(job.directory)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | owner_env(),
        )
        log = job.directory / LOG
        reader = Thread(target=_copy_lines, args=(wrapper.stdout, log), daemon=True)
        reader.start()
        expired = False
        try:
            wrapper.wait(timeout=job.timeout_minutes * 60)
        except subprocess.TimeoutExpired:
            expired = True
        finally:
            if wrapper.poll() is None:
                stop_tree(wrapper.pid, _GRACE_SECONDS)
            code = wrapper.wait()
            reader.join(timeout=_GRACE_SECONDS)
        if expired:
            raise timed_out(job.timeout_minutes, _tail(log))
        wrong = _problem(job, code)
        if wrong:
            raise TrainingFailedError(f"Training failed: {wrong}\n{_tail(log)}")


def _problem(job: TrainingJob, code: int) -> str:
    """What is wrong with a job that has ended; empty where it left the weights that its result names."""
    if (job.directory / FAILURE).exists():
        return str(json.loads((job.directory / FAILURE).read_text())["message"])
    if code != 0:
        return f"torchrun ended with exit code {code}, expected 0."
    return problem(job.directory)


def _copy_lines(stream: IO[bytes], log: Path) -> None:
    with open(log, "wb") as file:
        for line in stream:
            file.write(line)
            file.flush()
            logger.info("%s", line.decode(errors="replace").rstrip())


def _tail(log: Path) -> str:
    return last_lines(log.read_text(errors="replace").splitlines(), f"its log, {log}")
