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
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from gatehouse.launchers.launcher import COMMAND, FAILURE, HANG, HANG_SECONDS, HUNG_CODE, PREEMPTED_CODE
from gatehouse.launchers.rank_files import (
    FLAG,
    FOLDER,
    OUTCOME,
    STACKS_SIGNAL,
    Beat,
    BeatFile,
    Flag,
    Preempted,
    stacks_file,
)
from gatehouse.runtime.process import (
    descendants,
    die_with_parent,
    follow_owner,
    owner_env,
    start_time,
    stop_descendants,
)

logger = logging.getLogger(__name__)

PREEMPTED = "preempted.json"
_TORCHRUN = "gatehouse.launchers.torchrun"
_PR_SET_CHILD_SUBREAPER = 36
_LOOK_SECONDS = 0.1
_LONGEST_LOOK = 1.0
"""Seconds that one look adds to the silence of a rank at most: if this process was paused, so were the ranks."""
_END_SECONDS = 10.0  # time for checkpoint writers to finish and for processes to be ended, after torchrun has ended
_FAILED_SECONDS = 1.0  # time for ranks to end by themselves after one has written the failure file


@dataclass(frozen=True)
class Options:
    """How the program is run on this machine."""

    program: str
    processes: int  # workers on this machine
    directory: Path  # the job's; logs and the outcome are written there
    nodes: int = 1
    rendezvous: str = ""  # `host:port`; empty for a single machine
    run_id: str = "gatehouse"  # distinguishes jobs that use the same rendezvous
    max_restarts: int = 3
    grace_seconds: float = 25.0  # from SIGTERM to the end of all processes; shorter than the pod's grace period
    hang_seconds: float = HANG_SECONDS


def main() -> None:
    """Run according to the command line, and end with one of the codes above."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("processes", type=int)
    parser.add_argument("directory", type=Path)
    for name, field in list(Options.__dataclass_fields__.items())[3:]:
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(field.default), default=field.default)
    options = Options(**vars(parser.parse_args()))
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
        """Prepare a run; `folder` is a local one for the preemption flag, the ranks' outcome and their heartbeats."""
        self._options = options
        self._folder = folder
        self._ranks = HangDetector(folder)
        self._flag, self._outcome = folder / "flag.json", folder / "outcome.json"
        self._terms = 0
        self._deadline = float("inf")

    def run(self) -> int:
        """Run until the workers have ended or must be ended; returns the exit code. No process keeps running."""

        def on_sigterm(number: int, frame: FrameType | None) -> None:
            self._terms += 1

        options = self._options
        (options.directory / PREEMPTED).unlink(missing_ok=True)
        signal.signal(signal.SIGTERM, on_sigterm)
        variables = {FLAG: str(self._flag), OUTCOME: str(self._outcome), FOLDER: str(self._folder)}
        variables |= {HANG: str(self._options.hang_seconds), "PYTHONUNBUFFERED": "1"}
        # Below ERROR, DDP warns on every rank about a setting that keeps resumed runs bit-identical.
        defaults, program = {"TORCH_CPP_LOG_LEVEL": "ERROR", "OMP_NUM_THREADS": "1"}, [_TORCHRUN, *_arguments(options)]
        if options.program == COMMAND and options.processes == 1 and not options.rendezvous:  # It needs no torchrun.
            program = [options.program, str(options.directory), str(options.max_restarts)]
            del defaults["OMP_NUM_THREADS"]
        if not options.rendezvous:
            defaults["GLOO_SOCKET_IFNAME"] = "lo"
        environment = defaults | os.environ | variables | owner_env()
        agent = subprocess.Popen([sys.executable, "-m", *program], env=environment)
        try:
            code = self._watch(agent)
            agent.kill()  # The workers die with it. The checkpoint writers of the workers do not.
            agent.wait()
            deadline = min(self._deadline, time.monotonic() + _END_SECONDS)
            while descendants(os.getpid()) and time.monotonic() < deadline:
                _reap()
                time.sleep(_LOOK_SECONDS)
        finally:  # Kill all descendants, including those started in the meantime.
            deadline = time.monotonic() + _END_SECONDS
            while descendants(os.getpid()) and time.monotonic() < deadline:
                stop_descendants(os.getpid(), grace=0.0)
                _reap()
                time.sleep(0.01)
        preempted = Preempted.read(self._outcome)
        if preempted is not None:
            preempted.write(self._options.directory / PREEMPTED)
            saved = "saved" if preempted.saved else "not saved: the checkpoint before it counts"
            logger.info("Preempted after step %d, which is %s.", preempted.step, saved)
        # A finished run stays finished, even if it received a SIGTERM at the same moment.
        ended_by_us = self._terms or code in (-signal.SIGTERM, PREEMPTED_CODE)
        return PREEMPTED_CODE if preempted is not None or (code != 0 and ended_by_us) else code

    def _watch(self, agent: "subprocess.Popen[bytes]") -> int:
        while True:
            with suppress(subprocess.TimeoutExpired):
                return agent.wait(timeout=_LOOK_SECONDS)
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
                directory = self._options.directory
                for rank, text in stacks(self._folder, [silence.beat for silence in ranks]).items():
                    (directory / f"stacks-{rank}.txt").write_text(text)
                    logger.error("Stacks of rank %d:\n%s", rank, text.rstrip())
                logger.error(
                    "Training hangs: rank %d made no progress for %.0f s after step %d; expected some within %g s. "
                    "Stacks of all ranks are above and in %s.",
                    worst.beat.rank,
                    worst.seconds,
                    worst.beat.step,
                    self._options.hang_seconds,
                    directory / "stacks-<rank>.txt",
                )
                return HUNG_CODE


def _reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0] != 0:
            pass


def _arguments(options: Options) -> list[str]:
    """The arguments of torchrun. torchrun reads missing options from PET_* environment variables.

    An operator sets PET_* even for a job of one machine. With these alone, torchrun would choose its static rendezvous,
    which always shares the agent's store with the workers: a killed worker could not rejoin.
    """
    arguments = [f"--nproc-per-node={options.processes}"]
    if options.rendezvous:
        arguments += [
            f"--nnodes={options.nodes}",
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint={options.rendezvous}",
            f"--rdzv-id={options.run_id}",
            # A machine counts as lost after three missed signs of life, one every two seconds.
            "--rdzv-conf=last_call_timeout=5,join_timeout=300,keep_alive_interval=2",
        ]
    else:
        arguments += ["--nnodes=1", "--standalone", "--local-addr=localhost"]
    arguments += [f"--max-restarts={options.max_restarts}", f"--log-dir={options.directory}/torchrun", "--tee=3"]
    return [*arguments, "-m", options.program, str(options.directory)]


@dataclass(frozen=True)
class Silence:
    """For how many seconds a rank has been watched since its last beat."""

    beat: Beat
    seconds: float


class HangDetector:
    """Watches the ranks that write their heartbeats to a folder of this machine.

    The time is counted here, from look to look, while the numbers of a rank stay the same. The ranks' numbers are never
    compared with a clock, so no single reading can look like a hang.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._silences: dict[int, Silence] = {}
        self._looked = time.monotonic()

    def look(self) -> list[Silence]:
        """The ranks that have started to beat and whose process still exists, in order."""
        now = time.monotonic()
        passed, self._looked = min(now - self._looked, _LONGEST_LOOK), now
        silences = {}
        for path in self._folder.glob("rank-*"):  # A file can outlive its rank.
            beat = BeatFile(path).read()
            if start_time(beat.pid) == str(beat.started):
                before = self._silences.get(beat.rank)
                same = before is not None and before.beat == beat
                silences[beat.rank] = Silence(beat, before.seconds + passed if before and same else 0.0)
        self._silences = silences
        return [silences[rank] for rank in sorted(silences)]


def stacks(folder: Path, beats: list[Beat]) -> dict[int, str]:
    """The stacks of all threads by rank, after at most five seconds; empty for a rank without an answer."""
    files = {beat.rank: stacks_file(folder, beat.rank) for beat in beats}
    for beat in beats:
        with suppress(ProcessLookupError):
            os.kill(beat.pid, STACKS_SIGNAL)
    deadline = time.monotonic() + 5.0
    before: dict[int, int] = {}
    while time.monotonic() < deadline:
        time.sleep(0.1)
        # A rank writes its stacks piece by piece. They are complete when the file has stopped growing.
        sizes = {rank: path.stat().st_size for rank, path in files.items()}
        if sizes == before and all(sizes.values()):
            break
        before = sizes
    return {rank: path.read_text(errors="replace") for rank, path in files.items()}


if __name__ == "__main__":
    main()
