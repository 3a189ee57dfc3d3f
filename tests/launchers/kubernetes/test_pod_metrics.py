"""Metrics on their way from pods to the launcher: counted once, and no reason to end a training."""

from pathlib import Path

import pytest

from gatehouse.launchers.kubernetes import pod as pod_metrics
from gatehouse.launchers.kubernetes.pod import PodMetrics, sending_metrics
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.spool import Position, SpoolWriter, dropped, read

FOLDER = "jobs/gatehouse-1/first"


def _pod(store: ArtifactStore, spool: Path, step: int, lost: int = 0) -> None:
    with sending_metrics(store, FOLDER, spool):
        writer = SpoolWriter(spool)
        writer.log({"loss": 1.0}, step)
        writer.drop(lost)
        writer.close()


def _steps(spool: Path) -> list[int]:
    return sorted({point.step for point in read(spool, Position(), 1000)[0] if point.name == "loss"})


def test_points_that_are_lost_are_counted_once_over_pods_and_launchers(store: ArtifactStore, tmp_path: Path) -> None:
    for step, lost in ((1, 10), (2, 0), (3, 5)):
        _pod(store, tmp_path / f"pod-{step}", step, lost)
    for _ in range(2):
        PodMetrics(store, FOLDER, tmp_path / "launcher").close()
    assert dropped(tmp_path / "launcher") == 15


def test_hours_that_are_past_are_read_at_the_start_and_at_the_end_only(
    store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 3600.0 * 500_000

    def send(step: int, hour: int) -> None:
        monkeypatch.setattr(pod_metrics.time, "time", lambda: now + 3600 * hour)
        _pod(store, tmp_path / f"pod-{step}", step)

    for hour in range(4):
        send(hour, hour)
    there = PodMetrics(store, FOLDER, tmp_path / "launcher")
    there.receive()
    assert _steps(tmp_path / "launcher") == [0, 1, 2, 3]
    for step, hour in ((4, 0), (5, 2), (6, 3)):
        send(step, hour)
    there.receive()
    assert _steps(tmp_path / "launcher") == [0, 1, 2, 3, 5, 6]
    there.close()
    assert _steps(tmp_path / "launcher") == [0, 1, 2, 3, 4, 5, 6]
