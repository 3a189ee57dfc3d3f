"""The local launcher: torchrun as a child process, watched, and stopped with everything below it."""

import json
import os
import subprocess
import sys
from pathlib import Path

from gatehouse.components.training.launcher import (
    TAIL_LINES,
    TrainingFailedError,
    TrainingJob,
    TrainingTimeoutError,
)
from gatehouse.process import owner_env, stop_tree

LOG = "worker.log"
_GRACE_SECONDS = 5.0


class LocalLauncher:
    """Runs a job with torchrun on this machine."""

    def run(self, job: TrainingJob) -> None:
        """Run `job`; whatever happens, none of its processes is left behind."""
        log = job.directory / LOG
        command = [sys.executable, "-m", "gatehouse.components.training.wrapper", str(job.processes), str(job.directory)]
        with open(log, "wb") as stream:
            wrapper = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT, env=os.environ | owner_env()
            )
            try:
                code = wrapper.wait(timeout=job.timeout_minutes * 60)
            except subprocess.TimeoutExpired:
                raise TrainingTimeoutError(
                    f"Training took longer than training.timeout_minutes={job.timeout_minutes} and was stopped. "
                    f"Its last lines:\n{_tail(log)}"
                ) from None
            finally:
                if wrapper.poll() is None:
                    stop_tree(wrapper.pid, _GRACE_SECONDS)
                    wrapper.wait()
        if code != 0 or not self.succeeded(job):
            raise TrainingFailedError(_explain(job, code, log))

    @staticmethod
    def succeeded(job: TrainingJob) -> bool:
        """Whether the job left a result and weights that can be read."""
        from safetensors import SafetensorError, safe_open

        try:
            json.loads((job.directory / "result.json").read_text())
            with safe_open(job.directory / "weights.safetensors", framework="np") as weights:
                return len(list(weights.keys())) > 0
        except (OSError, ValueError, SafetensorError):
            return False


def _explain(job: TrainingJob, code: int, log: Path) -> str:
    failure = job.directory / "failure.json"
    if failure.is_file():
        return f"Training stopped: {json.loads(failure.read_text())['message']}"
    ended = f"exit code {code}" if code else "exit code 0 but no readable weights and result"
    return f"Training failed with {ended}. The last lines of its log:\n{_tail(log)}"


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-TAIL_LINES:])
