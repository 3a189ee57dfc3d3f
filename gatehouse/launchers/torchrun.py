"""Runs torchrun so that restarted workers find each other, and its exit code says how the first worker failed.

Workers are forked from torchrun's own process, which has already imported torch and the program's libraries. A new
interpreter would import them again, which takes seconds for every worker and every restart.
"""

import contextlib
import gc
import importlib
import os
import signal
import subprocess
import sys
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

from gatehouse.launchers.launcher import RETRY_CODE
from gatehouse.runtime.process import die_with_parent, follow_owner

RENDEZVOUS_CODE = 128 + signal.SIGHUP
"""Exit code if the machines did not connect, or lost the machine of the rendezvous."""


def main() -> None:
    """Run torchrun; end with 0, with `RENDEZVOUS_CODE`, or with the `exit_code` of the worker that failed first."""
    die_with_parent()
    follow_owner()
    # By default the agent shares its store with the workers. A restarted worker then reads keys of the earlier attempt
    # and waits for dead workers.
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    program, directory = sys.argv[-2:]
    gc.disable()  # Modules are no garbage, and scanning them takes a sixth of the time.
    module = importlib.import_module(program)
    forked = module.preload(Path(directory))
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler
    from torch.distributed.elastic.rendezvous.api import RendezvousError
    from torch.distributed.run import main as torchrun

    gc.freeze()
    gc.enable()
    spawn = SubprocessHandler._popen

    def start(handler: Any, arguments: tuple[str, ...], environment: dict[str, str]) -> Watched:
        if environment["LOCAL_RANK"] == "0" and environment["GROUP_WORLD_SIZE"] != "1" and hasattr(module, "restore"):
            module.restore(Path(directory), exactly=True)
        if not forked:
            return Watched(spawn(handler, arguments, environment))
        worker = arguments[arguments.index("-m") + 1 :]
        return Watched(Forked(worker, environment, handler._stdout, handler._stderr))

    SubprocessHandler._popen = start  # type: ignore[method-assign, assignment]  # it has what torchrun uses of Popen
    try:
        torchrun(sys.argv[1:])
    except RendezvousError as error:
        sys.stderr.write(f"The machines did not meet, or lost the machine on which they met: {error}\n")
        sys.exit(RENDEZVOUS_CODE)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        ended = failure.signal_name() if failure.exitcode < 0 else f"exit code {failure.exitcode}"
        sys.stderr.write(f"Worker {rank} was the first to end, with {ended}. No restart is left.\n")
        sys.exit(exit_code(failure.exitcode))
    if hasattr(module, "finish"):
        sys.exit(module.finish(Path(directory)))


class Watched:
    """A worker that reports an error of its own one poll later than a signal.

    When a worker is killed, its peers lose their connection and end with errors. Among the workers that ended at one
    poll, torchrun takes the lowest rank as the first failure. So it could report a peer and the peer's exit code.
    """

    def __init__(self, process: "subprocess.Popen[bytes] | Forked") -> None:
        self._process = process
        self._ended = False
        self.pid = process.pid

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs, and at the first poll after an error of its own."""
        if not self._ended:
            # The process is not reaped here: torchrun may still send its group a signal.
            with contextlib.suppress(ChildProcessError):
                ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if ended is None:
                    return None
                self._ended = True
                if ended.si_code == os.CLD_EXITED and ended.si_status:
                    return None
        return self._process.poll()

    def wait(self, timeout: float) -> int:
        """The exit code; raises `TimeoutExpired` if the process does not end within `timeout` seconds."""
        return self._process.wait(timeout)


class Forked:
    """A forked worker, with the parts of `subprocess.Popen` that torchrun uses."""

    def __init__(self, arguments: tuple[str, ...], environment: dict[str, str], *streams: IO[str] | None) -> None:
        context = get_context("fork")
        ready, connection = context.Pipe(duplex=False)
        self._process = context.Process(target=_become, args=(connection, arguments, environment, *streams))
        self._process.start()
        connection.close()
        # As with Popen, the worker gets its own session here: torchrun sends signals to the session.
        with contextlib.suppress(EOFError):
            ready.recv_bytes()
        ready.close()
        self.pid = self._process.pid or 0

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


def _become(
    connection: Connection, arguments: tuple[str, ...], environment: dict[str, str], *streams: IO[str] | None
) -> None:
    """Turn a forked process into the worker, with its own session, signals, streams, environment and arguments."""
    os.setsid()
    connection.send_bytes(b"has a session")
    connection.close()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for descriptor, stream in enumerate(streams, start=1):
        if stream is not None:
            os.dup2(stream.fileno(), descriptor)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = list(arguments)
    importlib.import_module(arguments[0]).main()


def exit_code(worker: int) -> int:
    """The exit code for a failed worker's own: 128 plus the signal; the code itself if it asks for a retry; else 1."""
    if worker < 0:
        return 128 - worker
    return worker if worker >= RETRY_CODE else 1


if __name__ == "__main__":
    main()
