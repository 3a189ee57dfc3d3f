"""The record of a run with many trials: who does not show them reads the newest alone."""

import pytest

from gatehouse.store.run import RUN_ID, Attempt, events
from gatehouse.store.store import ArtifactStore


def test_of_many_trials_only_the_newest_is_read(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RUN_ID, "run-1")
    attempt = Attempt(store, "tune:trials")
    for number in range(12):
        attempt.note(f"trial-{number}", message=f"trial {number}")
    read, get = [], type(store.objects).get_bytes
    monkeypatch.setattr(type(store.objects), "get_bytes", lambda objects, key: read.append(key) or get(objects, key))
    messages = [event.body.get("message", event.event) for _, event in events(store, "run-1")]
    assert messages == ["started", "trial 11"] and len(read) == 2
    assert len(list(events(store, "run-1", trials=True))) == 13
