"""The wish that training ends."""

import pytest

from gatehouse.components import train
from gatehouse.launchers import launcher as timeouts
from gatehouse.launchers.launcher import Stop
from gatehouse.launchers.spec import LocalLaunch, PyTorchJobLaunch
from tests.training.specs import network


def test_what_runs_is_ended_once_however_often_it_is_wished() -> None:
    """A second signal would end a job before its checkpoint is written."""
    stop, ended = Stop(), list[int]()
    with stop.ending(lambda: ended.append(1)):
        stop.ask()
        stop.ask()
        assert ended == [1]
    with stop.ending(lambda: ended.append(2)):
        stop.ask()
    assert ended == [1, 2] and stop.requested()


def test_every_wait_is_longer_than_those_that_it_must_not_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    launch, spec = PyTorchJobLaunch(kind="pytorchjob"), network()
    assert LocalLaunch().hang_seconds == launch.hang_seconds
    stage = timeouts.stage_minutes(launch.scheduling_minutes, spec.operation.timeout_minutes)
    ladder = [
        launch.hang_seconds,
        timeouts.collective_seconds(),
        launch.scheduling_minutes * 60,
        timeouts.job_minutes(launch.scheduling_minutes, spec.operation.timeout_minutes) * 60,
        stage * 60,
    ]
    assert ladder == sorted(set(ladder))
    assert train.needs.minutes >= stage
    monkeypatch.setenv(timeouts.HANG, "7200")
    assert timeouts.collective_seconds() > 7200
