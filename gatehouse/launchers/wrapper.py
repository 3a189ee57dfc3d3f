"""Runs torchrun on one machine: owns its processes, turns SIGTERM into a preemption, and finds hangs.

The exit code tells an operator what to do next:

| code | what happened | start it again? |
| --- | --- | --- |
| 0 | the program has ended well | no |
| 1 | the program failed | no, it would fail again |
| 124 | a rank hung | no |
| 128 | the store with the checkpoints did not answer | yes |
| 129 | the machines lost each other | yes |
| 137 | workers were killed more often than restarts are allowed | yes |
| 143 | it was preempted | yes |
"""

import argparse
import ctypes
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from gatehouse.launchers.hang_detection import HangDetector, Silence, stacks
from gatehouse.launchers.launcher import FAILURE, HUNG_CODE, PREEMPTED_CODE
from gatehouse.launchers.timeouts import HANG, HANG_SECONDS
from gatehouse.launchers.worker.heartbeat import FOLDER
from gatehouse.launchers.worker.preemption import FLAG, OUTCOME, Flag, Preempted
from gatehouse.runtime.process import descendants, die_with_parent, follow_owner, owner_env, stop_descendants

logger = logging.getLogger(__name__)

PREEMPTED = "preempted.json"
_TORCHRUN = "gatehouse.launchers.torchrun"
_PR_SET_CHILD_SUBREAPER = 36
_LOOK_SECONDS = 0.1
_END_SECONDS = 10.0
"""Time for checkpoint writers to finish and for processes to be ended, after torchrun has ended."""
_FAILED_SECONDS = 1.0
"""Time for ranks to end by themselves after one has written the failure file."""


@dataclass(frozen=True)
class Options:
    """How the program is run on this machine.

    Attributes:
        program: Dotted name of the module that the workers run.
        processes: Number of workers on this machine.
        directory: The job's directory; logs and the outcome are written there.
        nodes: Minimum and maximum number of machines, `min:max`.
        rendezvous: `host:port` of the rendezvous; empty for a single machine.
        run_id: Distinguishes jobs that use the same rendezvous.
        max_restarts: How often all workers are restarted after one has died.
        grace_seconds: Seconds from SIGTERM to the end of all processes; shorter than the pod's grace period.
        hang_seconds: How long a rank may make no progress.
    """

    program: str
    processes: int
    directory: Path
    nodes: str = "1:1"
    rendezvous: str = ""
    run_id: str = "gatehouse"
    max_restarts: int = 3
    grace_seconds: float = 25.0
    hang_seconds: float = HANG_SECONDS


def main() -> None:
    """Run according to the command line, and end with one of the codes above."""
    options = _parse(sys.argv[1:])
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    die_with_parent()
    follow_owner()
    # A checkpoint writer can outlive its killed rank for a moment. It then becomes a child of this process.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    with tempfile.TemporaryDirectory(prefix="gatehouse-wrapper-") as folder:
        code = Wrapper(options, Path(folder)).run()
    sys.exit(code)


class Wrapper:
    """One run of torchrun on this machine."""

    def __init__(self, options: Options, folder: Path) -> None:
        """Prepare a run.

        Args:
            options: What to run.
            folder: A local folder for the preemption flag, the ranks' outcome and their heartbeats.
        """
        self._options = options
        self._folder = folder
        self._ranks = HangDetector(folder)
        self._flag, self._outcome = folder / "flag.json", folder / "outcome.json"
        self._terms = 0
        self._deadline = float("inf")

    def run(self) -> int:
        """Run until the workers have ended or must be ended; no process keeps running.

        Returns:
            The exit code; see the top of this file.
        """
        (self._options.directory / PREEMPTED).unlink(missing_ok=True)
        signal.signal(signal.SIGTERM, self._on_sigterm)
        agent = subprocess.Popen([sys.executable, "-m", _TORCHRUN, *_arguments(self._options)], env=self._environment())
        try:
            code = self._watch(agent)
            agent.kill()  # The workers die with it. The checkpoint writers of the workers do not.
            agent.wait()
            self._await_writers()
        finally:
            _end_all()
        return self._explain(code)

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        self._terms += 1

    def _environment(self) -> dict[str, str]:
        ours = {FLAG: str(self._flag), OUTCOME: str(self._outcome), FOLDER: str(self._folder), "PYTHONUNBUFFERED": "1"}
        ours |= {HANG: str(self._options.hang_seconds)}
        # Below ERROR, DDP warns on every rank about a setting that keeps resumed runs bit-identical.
        usual = {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
        if _is_alone(self._options):
            usual["GLOO_SOCKET_IFNAME"] = "lo"
        return usual | os.environ | ours | owner_env()

    def _watch(self, agent: "subprocess.Popen[bytes]") -> int:
        while True:
            try:
                return agent.wait(timeout=_LOOK_SECONDS)
            except subprocess.TimeoutExpired:
                pass
            now = time.monotonic()
            failure = self._options.directory / FAILURE
            if failure.exists() and time.time() - failure.stat().st_mtime > _FAILED_SECONDS:
                return 1  # Workers that torchrun starts again would find this file, and end.
            if self._terms and self._deadline == float("inf"):
                self._deadline = now + self._options.grace_seconds
                logger.info("Preempted: the ranks have %.0f s to save and end.", self._options.grace_seconds)
                Flag(self._deadline).write(self._flag)
            if self._terms > 1 or now > self._deadline:
                self._deadline = now
                logger.warning("The ranks did not end in time: they are killed without a checkpoint of this step.")
                return PREEMPTED_CODE
            ranks = self._ranks.look()
            worst = max(ranks, key=lambda silence: silence.seconds, default=None)
            if worst is not None and worst.seconds > self._options.hang_seconds:
                self._report_hang(worst, ranks)
                return HUNG_CODE

    def _report_hang(self, worst: Silence, ranks: list[Silence]) -> None:
        for rank, text in stacks(self._folder, [each.beat for each in ranks]).items():
            (self._options.directory / f"stacks-{rank}.txt").write_text(text)
            logger.error("Stacks of rank %d:\n%s", rank, text.rstrip())
        logger.error(
            "Training hangs: rank %d made no progress for %.0f s after step %d; expected some within %g s. Stacks of "
            "all ranks are above and in %s.",
            worst.beat.rank,
            worst.seconds,
            worst.beat.step,
            self._options.hang_seconds,
            self._options.directory / "stacks-<rank>.txt",
        )

    def _await_writers(self) -> None:
        """Wait until the checkpoint writers of ended ranks are done."""
        deadline = min(self._deadline, time.monotonic() + _END_SECONDS)
        while descendants(os.getpid()) and time.monotonic() < deadline:
            _reap()
            time.sleep(_LOOK_SECONDS)

    def _explain(self, code: int) -> int:
        preempted = Preempted.read(self._outcome)
        if preempted is not None:
            preempted.write(self._options.directory / PREEMPTED)
            saved = "saved" if preempted.saved else "not saved: the checkpoint before it counts"
            logger.info("Preempted after step %d, which is %s.", preempted.step, saved)
        # A finished run stays finished, even if it was told to end at the same moment.
        ended_by_us = self._terms or code in (-signal.SIGTERM, PREEMPTED_CODE)
        return PREEMPTED_CODE if preempted is not None or (code != 0 and ended_by_us) else code


def _end_all() -> None:
    """Kill all descendants of this process, including those started in the meantime."""
    deadline = time.monotonic() + _END_SECONDS
    while descendants(os.getpid()) and time.monotonic() < deadline:
        stop_descendants(os.getpid(), grace=0.0)
        _reap()
        time.sleep(0.01)


def _reap() -> None:
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return
        except ChildProcessError:
            return


def _arguments(options: Options) -> list[str]:
    """The arguments of torchrun. torchrun reads missing options from PET_* environment variables.

    An operator sets PET_* even for a job of one machine. With these alone, torchrun would choose its static rendezvous,
    which always shares the agent's store with the workers: a killed worker could not rejoin.
    """
    where = [f"--nproc-per-node={options.processes}"]
    if options.rendezvous:
        where += [
            f"--nnodes={options.nodes}",
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint={options.rendezvous}",
            f"--rdzv-id={options.run_id}",
            # A machine counts as lost after three missed signs of life, one every two seconds.
            "--rdzv-conf=last_call_timeout=5,join_timeout=300,keep_alive_interval=2",
        ]
    elif _is_alone(options):
        where += ["--nnodes=1", "--standalone", "--local-addr=localhost"]
    restarts = [] if "PET_MAX_RESTARTS" in os.environ else [f"--max-restarts={options.max_restarts}"]
    logs = [f"--log-dir={options.directory}/torchrun", "--tee=3"]
    return [*where, *restarts, *logs, "-m", options.program, str(options.directory)]


def _is_alone(options: Options) -> bool:
    """Whether the job has only this machine. In an elastic job, the operator names the rendezvous."""
    return not options.rendezvous and "PET_RDZV_ENDPOINT" not in os.environ


def _parse(arguments: list[str]) -> Options:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("processes", type=int)
    parser.add_argument("directory", type=Path)
    for name, default in list(Options.__dataclass_fields__.items())[3:]:
        kind = type(default.default)
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, default=default.default)
    return Options(**vars(parser.parse_args(arguments)))


if __name__ == "__main__":
    main()
