"""Workers are to torchrun what processes of `subprocess` are, and a killed one is told before its peers."""

import os
import signal
import subprocess
import sys

from gatehouse.launchers.torchrun import Forked, Watched, exit_code


def main() -> None:
    """The program of a worker: it does nothing until it is stopped, or half a minute has passed."""
    signal.alarm(30)
    signal.pause()


def test_it_leads_its_own_session_as_soon_as_it_is_there() -> None:
    for _ in range(20):
        worker = Forked((__name__,), dict(os.environ), None, None)
        assert worker.poll() is None
        os.killpg(worker.pid, signal.SIGKILL)
        assert worker.wait(30) == -signal.SIGKILL


def test_a_killed_worker_is_told_before_the_peers_that_fail_for_its_sake() -> None:
    failing, killed, done = (
        subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
        for program in ("exit(3)", "import os; os.kill(os.getpid(), 9)", "")
    )
    workers = [Watched(process) for process in (failing, killed, done)]
    for process in (failing, killed, done):
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert [worker.poll() for worker in workers] == [None, -signal.SIGKILL, 0]
    os.killpg(failing.pid, signal.SIGTERM)
    assert [worker.poll() for worker in workers] == [3, -signal.SIGKILL, 0]
    assert workers[0].wait(30) == 3


def test_exit_codes_say_whether_another_try_may_help() -> None:
    assert [exit_code(worker) for worker in (-signal.SIGKILL, 128, 3)] == [137, 128, 1]
