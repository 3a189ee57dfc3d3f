"""Deprecation: a marker that warns, and changes no identity."""

import logging

import pytest

from gatehouse.errors import ConfigurationError, MissingArtifactError
from gatehouse.store.deprecation import deprecate
from gatehouse.store.reference import Reference
from gatehouse.store.run import RUN_ID, events
from gatehouse.store.stage import Declaration, Stage, StageModel
from gatehouse.store.store import ArtifactStore


def _pair(store: ArtifactStore) -> tuple[Reference, Reference]:
    return store.publish("datasets", "d", {"a": b"old"}), store.publish("datasets", "d", {"a": b"new"})


def test_a_reader_is_warned_once_with_reason_and_successor(
    store: ArtifactStore, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = _pair(store)
    deprecate(store.objects, old, "wrong time zone.", new)
    with caplog.at_level(logging.WARNING):
        assert store.read_bytes(old, "a") == b"old"
        assert store.paths(old) and store.verify(old) == 1 and store.read_bytes(new, "a") == b"new"
    assert [record.message.split(": ", 1)[1] for record in caplog.records] == [f"wrong time zone. Use {new}."]


def test_a_deprecation_is_written_once_and_checked(store: ArtifactStore) -> None:
    old, new = _pair(store)
    unknown = f"datasets/d/sha256-{'0' * 64}"
    for reference, reason, successor, error in (
        (old, "  ", "", ConfigurationError),
        (old, "wrong", old, ConfigurationError),
        (unknown, "wrong", "", MissingArtifactError),
        (old, "wrong", unknown, MissingArtifactError),
    ):
        with pytest.raises(error):
            deprecate(store.objects, reference, reason, successor)
    first = deprecate(store.objects, old, "wrong", new)
    assert deprecate(store.objects, old, "wrong", new) == first
    for reference, reason, successor in ((old, "another reason", new), (new, "wrong", old)):
        with pytest.raises(ConfigurationError):
            deprecate(store.objects, reference, reason, successor)


class Request(StageModel):
    data: str


class Result(StageModel):
    split: str


def test_a_stage_notes_that_its_input_is_deprecated(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RUN_ID, "run")
    old, _ = _pair(store)
    deprecate(store.objects, old, "wrong time zone")

    def divide(request: Request, store: ArtifactStore) -> Result:
        return Result(split=str(store.publish("splits", "s", {"i": b"1"}, derived_from={"data": request.data})))

    stage: Stage[Request, Result] = Stage(Declaration("split", "Split"), divide)
    stage(Request(data=str(old)), store)
    assert ["wrong time zone" in event.body["message"] for _, event in events(store, "run") if event.event == "warned"]
