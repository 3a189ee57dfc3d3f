"""Ownership of processes: a task, a torchrun agent or a worker never outlives the process that owns it.

`kfp.local` leaves its task processes running when its own process is killed. Every process of a run therefore follows
an owner, named in the environment by process id and start time (an id alone may be reused).
"""

import ctypes
import os
import select
import signal
import socket
import threading
import time
from pathlib import Path

OWNER = "GATEHOUSE_OWNER"
_PR_SET_PDEATHSIG = 1


def start_time(pid: int) -> str | None:
    """Start time of a process in clock ticks since boot, or None if it has ended (also if it is a zombie)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in ("Z", "X") else fields[19]


def owner_env() -> dict[str, str]:
    """The environment entry that names the current process as the owner of a child."""
    return {OWNER: f"{os.getpid()}:{start_time(os.getpid())}"}


def in_pod() -> bool:
    """Whether Kubernetes runs this process."""
    return "KUBERNETES_SERVICE_HOST" in os.environ


def here() -> str:
    """Identity of this machine or container, because process ids are valid only within it."""
    return f"{socket.gethostname()}/{os.stat('/proc/self/ns/pid').st_ino}"


def die_with_parent(parent: int = 0) -> None:
    """Ask Linux to kill this process when the thread that started it ends.

    Args:
        parent: Process id of the parent; if it is given and has ended already, this process ends now.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent and os.getppid() != parent:
        os._exit(1)


def follow_owner() -> None:
    """End this process and all its descendants as soon as its owner has ended; do nothing without an owner."""
    owner = os.environ.get(OWNER, "")
    if not owner or threading.current_thread().name == "follow-owner":
        return
    pid, _, started = owner.partition(":")
    if int(pid) == os.getpid() or any(thread.name == "follow-owner" for thread in threading.enumerate()):
        return

    def wait_and_end() -> None:
        try:
            descriptor = os.pidfd_open(int(pid))
        except ProcessLookupError:
            descriptor = -1
        if descriptor >= 0 and start_time(int(pid)) == started:
            select.select([descriptor], [], [])
        stop_descendants(os.getpid(), grace=0.0)
        os._exit(128 + signal.SIGKILL)

    threading.Thread(target=wait_and_end, name="follow-owner", daemon=True).start()


def descendants(pid: int) -> list[int]:
    """Process ids of the descendants of `pid`, children before grandchildren."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    below = list(children.get(pid, []))
    for descendant in below:  # The list grows while it is read.
        below += children.get(descendant, [])
    return below


def stop_tree(pid: int, grace: float) -> None:
    """End a process and all its descendants: SIGTERM, up to `grace` seconds, then SIGKILL."""
    _stop([pid, *descendants(pid)], grace)


def stop_descendants(pid: int, grace: float) -> None:
    """End all descendants of `pid` like `stop_tree`, but not `pid` itself."""
    _stop(descendants(pid), grace)


def stop_carrying(variable: str, value: str, grace: float) -> None:
    """End the descendants that were started with this value of a variable, like `stop_tree`; others keep running.

    Processes that one of them started meanwhile are looked for again, and ended at once.
    """
    entry = f"{variable}={value}".encode()
    for patience in (grace, 0.0, 0.0):
        _stop([pid for pid in descendants(os.getpid()) if entry in _environment(pid)], patience)


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # It has ended, or belongs to another user.
        return []


def _stop(pids: list[int], grace: float) -> None:
    if grace > 0:
        _signal_all(pids, signal.SIGTERM)
        deadline = time.monotonic() + grace
        while time.monotonic() < deadline and any(map(start_time, pids)):
            time.sleep(0.05)
    started = [below for pid in pids for below in descendants(pid)]
    _signal_all([*pids, *started], signal.SIGKILL)


def _signal_all(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
