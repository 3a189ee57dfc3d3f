"""A job with nothing to train, for launchers whose pods are scripted."""

import time
from pathlib import Path

import pytest

from gatehouse.launchers.kubernetes import watch as deadlines
from gatehouse.launchers.launcher import JOB, TrainingJob


@pytest.fixture
def job(tmp_path: Path) -> TrainingJob:
    directory = tmp_path / "job"
    (directory / "train").mkdir(parents=True)
    (directory / JOB).write_text("{}")
    (directory / "train" / "labels.npy").write_bytes(b"labels")
    return TrainingJob(directory, "tests.training.stand_in", processes=1, timeout_minutes=60)


@pytest.fixture(params=["pytorchjob", "trainjob"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Clock:
    """The clock of the launcher's deadlines, which a scenario puts forward."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def pass_minutes(self, minutes: float) -> None:
        self._ahead += minutes * 60

    def monotonic(self) -> float:
        return time.monotonic() + self._ahead


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(deadlines, "time", clock)
    return clock
