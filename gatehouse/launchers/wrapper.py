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

The wrapper forks torchrun's agent, and the agent forks the workers: it has imported torch and the program's libraries,
which takes seconds in a new interpreter for every worker and every restart.
"""

import argparse
import ctypes
import gc
import importlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from io import TextIOWrapper
from multiprocessing import get_context
from pathlib import Path
from types import FrameType
from typing import IO, Any, cast

from gatehouse.launchers.launcher import (
    FAILURE,
    HANG,
    HANG_SECONDS,
    HUNG_CODE,
    PREEMPTED_CODE,
    RENDEZVOUS,
    RETRY_CODE,
    note_attempt,
)
from gatehouse.launchers.ranks import FLAG, FOLDER, OUTCOME, STACKS_SIGNAL, Beat, Flag, Preempted, stacks_file
from gatehouse.runtime.process import (
    descendants,
    die_with_parent,
    follow_owner,
    owner_env,
    start_time,
    stop_descendants,
)

logger = logging.getLogger(__name__)

COMMAND = "gatehouse.launchers.command"
"""The program that runs a command of the user's own; with one process it runs without torchrun."""
RENDEZVOUS_CODE = 128 + signal.SIGHUP
"""Exit code if the machines did not connect, or lost the machine of the rendezvous."""
_PR_SET_CHILD_SUBREAPER = 36
_LOOK_SECONDS = 0.1
_LONGEST_LOOK = 1.0
"""Seconds that one look adds to the silence of a rank at most: if this process was paused, so were the ranks."""
_END_SECONDS = 10.0  # time for checkpoint writers to finish and for processes to be ended, after torchrun has ended
_ADDRESS_SECONDS = 60.0  # for the first rank of a round to tell its address; it may have left the round before
_FAILED_SECONDS = 1.0  # time for ranks to end by themselves after one has written the failure file


@dataclass(frozen=True)
class Options:
    """How the program is run on this machine."""

    program: str
    processes: int  # workers on this machine
    directory: Path  # the job's; logs are written there
    nodes: int = 1  # the most nodes
    min_nodes: int = 0  # the fewest nodes with which the program goes on; 0 for all
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
    for stream in (sys.stdout, sys.stderr):
        cast(TextIOWrapper, stream).reconfigure(line_buffering=True)
    die_with_parent()
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
        self._terms, self._stacks_asked = 0, False
        self._deadline = float("inf")

    def run(self) -> int:
        """Run until the workers have ended or must be ended; returns the exit code. No process keeps running."""

        def on_signal(number: int, frame: FrameType | None) -> None:
            self._terms += number == signal.SIGTERM
            self._stacks_asked |= number == STACKS_SIGNAL

        options = self._options
        for number in (signal.SIGTERM, STACKS_SIGNAL):
            signal.signal(number, on_signal)
        variables = {FLAG: str(self._flag), OUTCOME: str(self._outcome), FOLDER: str(self._folder)}
        variables |= {HANG: str(options.hang_seconds), RENDEZVOUS: options.rendezvous, "PYTHONUNBUFFERED": "1"}
        # Below ERROR, DDP warns on every rank about a setting that keeps resumed runs bit-identical.
        defaults = {"TORCH_CPP_LOG_LEVEL": "ERROR"} | ({} if options.rendezvous else {"GLOO_SOCKET_IFNAME": "lo"})
        environment = defaults | os.environ | variables | owner_env()
        agent = get_context("fork").Process(target=_agent, args=(options, environment))
        agent.start()
        follow_owner()  # It starts a thread, and a process with threads does not fork well.
        try:
            code = self._watch(agent)
            agent.kill()  # The workers die with it. The checkpoint writers of the workers do not.
            agent.join()
            deadline = min(self._deadline, time.monotonic() + _END_SECONDS)
            while any(map(start_time, descendants(os.getpid()))) and time.monotonic() < deadline:
                time.sleep(_LOOK_SECONDS)
        finally:  # Kill all descendants, including those started in the meantime.
            deadline = time.monotonic() + _END_SECONDS
            while any(map(start_time, descendants(os.getpid()))) and time.monotonic() < deadline:
                stop_descendants(os.getpid(), grace=0.0)
                time.sleep(0.01)
        preempted = Preempted.read(self._outcome)
        if preempted is not None:
            saved = "saved" if preempted.saved else "not saved: the checkpoint before it counts"
            logger.info("Preempted after step %d, which is %s.", preempted.step, saved)
        # A finished run stays finished, even if it received a SIGTERM at the same moment.
        ended_by_us = self._terms or code in (-signal.SIGTERM, PREEMPTED_CODE)
        return PREEMPTED_CODE if preempted is not None or (code != 0 and ended_by_us) else code

    def _watch(self, agent: Any) -> int:
        directory, hang_seconds = self._options.directory, self._options.hang_seconds
        failure = directory / FAILURE
        while True:
            agent.join(_LOOK_SECONDS)
            if agent.exitcode is not None:
                return int(agent.exitcode)
            now = time.monotonic()
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
            # The agent would wait for the other nodes, which go on without this one, or with its next pod.
            if self._outcome.exists() and not any(map(start_time, descendants(agent.pid))):
                return PREEMPTED_CODE
            silences = self._ranks.look()
            worst = max(silences, key=lambda beat: silences[beat], default=None)
            hangs = worst is not None and silences[worst] > hang_seconds
            if hangs or self._stacks_asked:
                for rank, text in stacks(self._folder, list(silences)).items():
                    (directory / f"stacks-{rank}.txt").write_text(text)
                    logger.error("Stacks of rank %d:\n%s", rank, text.rstrip())
                if worst is not None and hangs:
                    logger.error(
                        "Training hangs: rank %d made no progress for %.0f s after step %d; expected some within "
                        "%g s. Stacks of all ranks are above and in %s.",
                        worst.rank,
                        silences[worst],
                        worst.step,
                        hang_seconds,
                        directory / "stacks-<rank>.txt",
                    )
                return HUNG_CODE


class HangDetector:
    """Watches the ranks that write their heartbeats to a folder of this machine.

    The time is counted here, from look to look, while the numbers of a rank stay the same. The ranks' numbers are never
    compared with a clock, so no single reading can look like a hang.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._silences: dict[Beat, float] = {}
        self._looked = time.monotonic()

    def look(self) -> dict[Beat, float]:
        """The last beat of each rank whose process exists, and for how many seconds it has been the last."""
        now = time.monotonic()
        passed, self._looked = min(now - self._looked, _LONGEST_LOOK), now
        beats = sorted(map(Beat.read, self._folder.glob("rank-*")))  # A file can outlive its rank.
        alive = [beat for beat in beats if start_time(beat.pid) == str(beat.started)]
        self._silences = {beat: self._silences.get(beat, -passed) + passed for beat in alive}
        return self._silences


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


def _agent(options: Options, environment: dict[str, str]) -> None:
    """The child of the wrapper: torchrun's agent, or the command itself if it is one process and needs no torchrun.

    It ends with 0, with `RENDEZVOUS_CODE`, or with the `exit_code` of the worker that failed first.
    """
    os.environ.update(environment)
    for number in (signal.SIGTERM, STACKS_SIGNAL):
        signal.signal(number, signal.SIG_DFL)
    die_with_parent()
    follow_owner()
    directory = options.directory
    if options.program == COMMAND and options.processes == 1 and not options.rendezvous:
        _become(options.program, str(directory), str(options.max_restarts))
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # By default the agent shares its store with the workers. A restarted worker then reads keys of the earlier attempt
    # and waits for dead workers.
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    gc.disable()  # Modules are no garbage, and scanning them takes a sixth of the time.
    module = importlib.import_module(options.program)
    forked = module.preload(directory)
    from torch.distributed import DistError
    from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler
    from torch.distributed.elastic.rendezvous.api import RendezvousError, RendezvousStoreInfo
    from torch.distributed.run import main as torchrun

    gc.freeze()
    gc.enable()
    start_workers, monitor_workers = LocalElasticAgent._start_workers, LocalElasticAgent._monitor_workers
    build = RendezvousStoreInfo.build

    def fork(handler: Any, arguments: tuple[str, ...], environment: dict[str, str]) -> Forked:
        return Forked(arguments[arguments.index("-m") + 1 :], environment, handler._stdout, handler._stderr)

    def start(agent: Any, group: Any) -> Any:
        if options.nodes > 1 and hasattr(module, "restore"):
            module.restore(directory, [worker.global_rank for worker in group.workers])
        workers, nodes = group.workers[0].world_size, group.group_world_size
        note_attempt(directory, f"{workers} workers start" + f" on {nodes} nodes" * (options.nodes > 1), start=True)
        return start_workers(agent, group)

    def monitor(agent: Any, group: Any) -> Any:
        result = monitor_workers(agent, group)
        if result.is_failed() and result.failures:
            note_attempt(directory, _how_it_ended(result.failures)[1])
        return result

    def find(rank: int, store: Any, *arguments: Any, **named: Any) -> Any:
        if rank:
            await_address(store)
        return build(rank, store, *arguments, **named)

    # They have what torchrun uses.
    LocalElasticAgent._start_workers = start  # type: ignore[method-assign]  # torchrun offers no other way in.
    LocalElasticAgent._monitor_workers = monitor  # type: ignore[method-assign]  # Likewise.
    RendezvousStoreInfo.build = staticmethod(find)  # type: ignore[method-assign]  # Likewise.
    if forked:
        SubprocessHandler._popen = fork  # type: ignore[method-assign, assignment]  # It has what torchrun calls.
    try:
        torchrun(_arguments(options))
    except (RendezvousError, DistError) as error:
        sys.stderr.write(f"The machines did not meet, or lost the machine on which they met: {error}\n")
        sys.exit(RENDEZVOUS_CODE)
    except ChildFailedError as error:
        code, ended = _how_it_ended(error.failures)
        sys.stderr.write(f"{ended}. No restart is left.\n")
        sys.exit(exit_code(code))
    if hasattr(module, "finish"):
        sys.exit(module.finish(directory))


def await_address(store: Any) -> None:
    """Return when the first rank of a round has told its address; raises RendezvousTimeoutError if it does not.

    torch waits for it in one call, which holds the connection of the agent. If the first rank is slow, such a node can
    send no sign of life: the others count it as lost, and go on without it, while it takes itself for one of them.
    """
    from torch.distributed.elastic.rendezvous.api import RendezvousTimeoutError

    until = time.monotonic() + _ADDRESS_SECONDS
    while not store.check(["MASTER_ADDR", "MASTER_PORT"]):
        if time.monotonic() > until:
            raise RendezvousTimeoutError(f"the first rank did not tell its address within {_ADDRESS_SECONDS:g} s.")
        time.sleep(_LOOK_SECONDS)


def _arguments(options: Options) -> list[str]:
    """The arguments of torchrun. torchrun reads missing options from PET_* environment variables.

    An operator sets PET_* even for a job of one machine. With these alone, torchrun would choose its static rendezvous,
    which always shares the agent's store with the workers: a killed worker could not rejoin.
    """
    arguments = [f"--nproc-per-node={options.processes}"]
    if options.rendezvous:
        arguments += [
            f"--nnodes={options.min_nodes or options.nodes}:{options.nodes}",
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint={options.rendezvous}",
            f"--rdzv-id={options.run_id}",
            # A machine counts as lost after three missed signs of life, one every two seconds.
            "--rdzv-conf=last_call_timeout=5,join_timeout=300,read_timeout=300,keep_alive_interval=2",
        ]
    else:
        arguments += ["--nnodes=1", "--standalone", "--local-addr=localhost"]
    arguments += [f"--max-restarts={options.max_restarts}", f"--log-dir={options.directory}/torchrun", "--tee=3"]
    return [*arguments, "-m", options.program, str(options.directory)]


class Forked:
    """A forked worker, with the parts of `subprocess.Popen` that torchrun uses."""

    def __init__(self, arguments: tuple[str, ...], environment: dict[str, str], *streams: IO[str] | None) -> None:
        self._process = get_context("fork").Process(target=_work, args=(arguments, environment, *streams))
        self._process.start()
        self.pid = self._process.pid or 0
        with suppress(OSError):  # The worker does the same: torchrun may send its group a signal at any time.
            os.setpgid(self.pid, self.pid)

    def poll(self) -> int | None:
        """The exit code, negative for the signal that ended it; None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float) -> int:
        """The exit code; raises `TimeoutExpired` as `Popen.wait`."""
        self._process.join(timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout)
        return code


def _work(arguments: tuple[str, ...], environment: dict[str, str], *streams: IO[str] | None) -> None:
    """Turn a forked process into the worker, with its own process group, signals, streams, environment, arguments."""
    os.setpgid(0, 0)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for descriptor, stream in enumerate(streams, start=1):
        if stream is not None:
            os.dup2(stream.fileno(), descriptor)
    os.environ.clear()
    os.environ.update(environment)
    _become(*arguments)


def _become(*arguments: str) -> None:
    sys.argv = list(arguments)
    importlib.import_module(arguments[0]).main()


def _how_it_ended(failures: dict[int, Any]) -> tuple[int, str]:
    """The exit code of the worker that failed first, negative for a signal, and a sentence about it.

    When a worker is killed, its peers lose their connection and fail, perhaps in the same look. torchrun then calls the
    lowest rank the first; and it ends those that still run by SIGTERM.
    """
    own = {rank: end for rank, end in failures.items() if end.exitcode != -signal.SIGTERM} or failures
    rank, end = min(own.items(), key=lambda failure: (failure[1].exitcode > 0, failure[1].timestamp))
    ended = end.signal_name() if end.exitcode < 0 else f"exit code {end.exitcode}"
    return int(end.exitcode), f"Worker {rank} was the first to end, with {ended}"


def exit_code(worker: int) -> int:
    """The exit code for a failed worker's own: 128 plus the signal; the code itself if it asks for a retry; else 1."""
    if worker < 0:
        return 128 - worker
    return worker if worker >= RETRY_CODE else 1


if __name__ == "__main__":
    main()
