"""Ownership of processes: what follows an owner ends with it, and takes its descendants along."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import psutil
import pytest

from gatehouse.runtime.process import OWNER, descendants, start_time, stop_tree

_OWNER = """
import os, subprocess, sys, time
from gatehouse.runtime.process import owner_env
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], env=os.environ | owner_env(), start_new_session=True)
print(child.pid, flush=True)
time.sleep(60)
"""
_FOLLOWER = """
import subprocess, sys, time
from gatehouse.runtime.process import follow_owner
follow_owner()
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
time.sleep(60)
"""

_PARENT = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
time.sleep(60)
"""
_DEAF = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
"""


def _wait(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_killed_owner_takes_its_follower_and_what_that_started() -> None:
    owner = subprocess.Popen([sys.executable, "-c", _OWNER, _FOLLOWER], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    follower = int(owner.stdout.readline())
    _wait(lambda: len(descendants(follower)) == 1)
    below = descendants(follower)
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    _wait(lambda: not any(start_time(pid) for pid in (follower, *below)))


def test_an_owner_that_is_gone_before_ends_the_follower_at_once() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    follower = subprocess.Popen([sys.executable, "-c", _FOLLOWER], env=os.environ | {OWNER: f"{gone.pid}:1"})
    assert follower.wait(timeout=60) == 128 + signal.SIGKILL


def test_an_id_that_another_process_has_now_is_not_the_owner() -> None:
    env = os.environ | {OWNER: f"{os.getpid()}:1"}
    follower = subprocess.Popen([sys.executable, "-c", _FOLLOWER], env=env)
    assert follower.wait(timeout=60) == 128 + signal.SIGKILL


@pytest.mark.parametrize("deaf", [False, True], ids=["listens", "ignores SIGTERM"])
def test_stopping_a_tree_ends_every_process_of_it(deaf: bool) -> None:
    script = (_DEAF if deaf else "") + _PARENT
    root = subprocess.Popen([sys.executable, "-c", script])
    _wait(lambda: len(descendants(root.pid)) == 1)
    below = descendants(root.pid)
    stop_tree(root.pid, grace=1.0)
    assert root.wait(timeout=60) in (-signal.SIGTERM, -signal.SIGKILL)
    _wait(lambda: not any(psutil.pid_exists(pid) and start_time(pid) for pid in below))
