"""Runs torchrun around the training program: owns its processes, turns SIGTERM into a preemption, and finds hangs.

Exit codes, as an operator reads them: 0 done; 1 failed, and would again; 124 hung; 128 and above worth another try:
143 preempted, 137 a worker was killed more often than restarts are allowed, 129 the machines lost each other, 128 the
store with the checkpoints was away.
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

from gatehouse.components.launchers.launcher import FAILURE, HUNG_CODE, PREEMPTED_CODE
from gatehouse.components.launchers.timeouts import HANG, HANG_SECONDS
from gatehouse.components.launchers.worker.heartbeat import FOLDER, Pulse, pulses, stacks
from gatehouse.components.launchers.worker.preemption import FLAG, OUTCOME, Flag, Preempted
from gatehouse.process import descendants, die_with_parent, follow_owner, owner_env, stop_descendants

logger = logging.getLogger(__name__)

PREEMPTED = "preempted.json"
_AGENT = "gatehouse.components.launchers.torchrun"
_PR_SET_CHILD_SUBREAPER = 36
_LOOK_SECONDS = 0.1
_LAST_SECONDS = 10.0
_FAILED_SECONDS = 1.0


@dataclass(frozen=True)
class Options:
    """How the program is run on this machine.

    Attributes:
        program: Module that the workers run.
        processes: Workers on this machine.
        directory: Of the job: takes logs and the outcome.
        nodes: Fewest and most machines, `min:max`.
        rendezvous: `host:port` where machines meet; empty for one machine alone.
        run_id: Tells jobs apart that meet at one place.
        max_restarts: How often all workers are started again after one has died.
        grace_seconds: From SIGTERM to the end of everything; shorter than the pod's grace period.
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
    """Run as the command line says and end with one of the codes above."""
    options = _parse(sys.argv[1:])
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    die_with_parent()
    follow_owner()
    # Checkpoint writers outlive their killed ranks for a moment: they become ours then, and not the system's.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    with tempfile.TemporaryDirectory(prefix="gatehouse-wrapper-") as folder:
        code = Wrapper(options, Path(folder)).run()
    sys.exit(code)


class Wrapper:
    """One run of torchrun on this machine."""

    def __init__(self, options: Options, folder: Path) -> None:
        """Prepare; `folder` is private to this machine and takes flag, outcome and heartbeats."""
        self._options = options
        self._folder = folder
        self._flag, self._outcome = folder / "flag.json", folder / "outcome.json"
        self._terms = 0
        self._deadline = float("inf")

    def run(self) -> int:
        """Run until the workers have ended, or have to end; returns the exit code. No process is left behind."""
        (self._options.directory / PREEMPTED).unlink(missing_ok=True)
        signal.signal(signal.SIGTERM, self._on_sigterm)
        agent = subprocess.Popen([sys.executable, "-m", _AGENT, *_arguments(self._options)], env=self._environment())
        try:
            code = self._watch(agent)
            agent.kill()  # Its workers die with it. Their writers do not.
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
        # DDP would warn, on every rank, of a setting that keeps resumed runs bit-identical (`parallel/ddp.py`).
        usual = {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
        if not self._options.rendezvous and "PET_NNODES" not in os.environ:
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
                return 1  # Torchrun would start all workers again, only for them to find this file.
            if self._terms and self._deadline == float("inf"):
                self._deadline = now + self._options.grace_seconds
                logger.info("Preempted: the ranks have %.0f s to save and end.", self._options.grace_seconds)
                Flag(self._deadline).write(self._flag)
            if self._terms > 1 or now > self._deadline:
                self._deadline = now
                logger.warning("The ranks did not end in time: they are ended without a checkpoint of this step.")
                return PREEMPTED_CODE
            alive = pulses(self._folder)
            silent = [pulse for pulse in alive if pulse.silent_seconds > self._options.hang_seconds]
            if silent:
                self._tell_hang(alive, silent)
                return HUNG_CODE

    def _tell_hang(self, alive: list[Pulse], silent: list[Pulse]) -> None:
        for rank, text in stacks(self._folder, alive).items():
            (self._options.directory / f"stacks-{rank}.txt").write_text(text)
            logger.error("Stacks of rank %d:\n%s", rank, text.rstrip())
        worst = max(silent, key=lambda pulse: pulse.silent_seconds)
        logger.error(
            "Training hangs: rank %d made no progress for %.0f s after step %d; expected some within %g s. Stacks of "
            "all ranks are above and in %s.",
            worst.rank,
            worst.silent_seconds,
            worst.step,
            self._options.hang_seconds,
            self._options.directory / "stacks-<rank>.txt",
        )

    def _await_writers(self) -> None:
        """Let the writers of ranks that have ended finish the checkpoint in their hands."""
        deadline = min(self._deadline, time.monotonic() + _LAST_SECONDS)
        while descendants(os.getpid()) and time.monotonic() < deadline:
            _reap()
            time.sleep(_LOOK_SECONDS)

    def _explain(self, code: int) -> int:
        preempted = Preempted.read(self._outcome)
        if preempted is not None:
            preempted.write(self._options.directory / PREEMPTED)
            saved = "saved" if preempted.saved else "not saved: the checkpoint before it counts"
            logger.info("Preempted after step %d, which is %s.", preempted.step, saved)
        # A finished run stays finished, also when it was to be preempted at its very end.
        ended_by_us = self._terms or code in (-signal.SIGTERM, PREEMPTED_CODE)
        return PREEMPTED_CODE if preempted is not None or (code != 0 and ended_by_us) else code


def _end_all() -> None:
    """End all that is below, also what was started meanwhile: orphans come to us, and are not left to the system."""
    deadline = time.monotonic() + _LAST_SECONDS
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
    """What torchrun is told. Where an operator has set PET_*, torchrun takes the place from there."""
    where = [f"--nproc-per-node={options.processes}"]
    if options.rendezvous:
        where += [
            f"--nnodes={options.nodes}",
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint={options.rendezvous}",
            f"--rdzv-id={options.run_id}",
            # A machine that is gone is noticed after three missed signs of life; the others then wait for it no longer.
            "--rdzv-conf=last_call_timeout=5,join_timeout=300,keep_alive_interval=2",
        ]
    elif "PET_NNODES" not in os.environ:
        where += ["--standalone", "--local-addr=localhost"]
    restarts = [] if "PET_MAX_RESTARTS" in os.environ else [f"--max-restarts={options.max_restarts}"]
    logs = [f"--log-dir={options.directory}/torchrun", "--tee=3"]
    return [*where, *restarts, *logs, "-m", options.program, str(options.directory)]


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
