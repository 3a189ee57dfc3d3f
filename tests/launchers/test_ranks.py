"""What ranks tell their wrapper, what they agree on at a step, and how the wrapper starts them."""

import os
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch.distributed as dist

from gatehouse.launchers.ranks import Beat, Heartbeat, StepBarrier
from gatehouse.launchers.wrapper import Forked, _how_it_ended, exit_code
from gatehouse.runtime.process import start_time


def test_a_beating_process_is_never_read_as_silent(tmp_path: Path) -> None:
    heartbeat = Heartbeat(tmp_path, 3)
    heartbeat.beat(7)
    first = Beat.read(tmp_path / "rank-3")
    assert first == (3, os.getpid(), int(start_time(os.getpid()) or 0), 7, 1)
    heartbeat.beat(7)  # Progress within a step.
    assert Beat.read(tmp_path / "rank-3") != first


def test_a_checkpoint_that_is_due_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # The other rank sees what this one sees: the sum over both is what this one sent.
    for name, value in {
        "is_initialized": lambda: True,
        "get_world_size": lambda: 2,
        "new_group": lambda **_: object(),
        "all_reduce": lambda *_, **__: SimpleNamespace(wait=lambda: None),
    }.items():
        monkeypatch.setattr(dist, name, value)
    barrier, saved, due = StepBarrier(), [], False
    for step in range(1, 25):
        if due:
            saved.append(step)
        due = barrier.agree(step, due=step - (saved[-1] if saved else 0) >= 10).due
    assert saved == [12, 24]


def main() -> None:
    """The program of a worker: it does nothing until it is stopped, or half a minute has passed."""
    signal.alarm(30)
    signal.pause()


def test_a_worker_leads_its_own_group_as_soon_as_it_is_there() -> None:
    for _ in range(20):
        worker = Forked((__name__,), dict(os.environ), None, None)
        assert worker.poll() is None
        os.killpg(worker.pid, signal.SIGKILL)
        assert worker.wait(30) == -signal.SIGKILL


def _end(code: int, second: int = 0) -> SimpleNamespace:
    return SimpleNamespace(exitcode=code, timestamp=second, signal_name=lambda: signal.Signals(-code).name)


@pytest.mark.parametrize(
    ("failures", "code", "worker"),
    [
        ({0: _end(1), 1: _end(-9)}, 137, 1),  # The peer of a killed worker fails in the same second.
        ({0: _end(-15), 1: _end(128)}, 128, 1),  # torchrun ended worker 0.
        ({0: _end(3, 5), 1: _end(4, 2)}, 1, 1),
        ({0: _end(-15)}, 143, 0),
    ],
)
def test_the_exit_code_is_of_the_worker_that_failed_first(failures: dict[int, object], code: int, worker: int) -> None:
    first, sentence = _how_it_ended(failures)
    assert exit_code(first) == code and sentence.startswith(f"Worker {worker} ")
