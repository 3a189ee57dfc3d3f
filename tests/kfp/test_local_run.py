"""A run in a process of its own: what is left when a signal stops it."""

import os
import signal
from pathlib import Path

import pytest

from gatehouse.kfp import local_run
from gatehouse.store.store import ArtifactStore


def test_a_run_that_a_signal_stops_leaves_no_workspace(
    store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = store.local_folder / "tmp"
    script = "exec 9>$0/work-1.lock; flock -x 9; mkdir -p $0/work-1/kfp; touch $0/ready; sleep 60"
    monkeypatch.setattr(local_run, "_command", lambda *_: ["bash", "-c", script, str(folder)])

    def stop_when_ready(_: object) -> None:
        if (folder / "ready").exists():
            (folder / "ready").unlink()
            os.kill(os.getpid(), signal.SIGINT)

    outcome = local_run.run_pipeline(tmp_path, "training", store, {}, stop_when_ready)
    assert outcome.exit_code == 128 + signal.SIGINT
    assert not list(folder.glob("work-*"))
