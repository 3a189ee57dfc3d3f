"""Deprecation: a marker that warns or fails, and changes no identity."""

import logging

import pytest

from gatehouse.errors import ConfigurationError, DeprecatedArtifactError, MissingArtifactError
from gatehouse.store.declaration import Declaration
from gatehouse.store.deprecation import POLICY, deprecate
from gatehouse.store.reference import Reference
from gatehouse.store.run import RUN_ID, events
from gatehouse.store.stage import Stage, StageModel
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


@pytest.mark.parametrize(("policy", "fails"), [("fail", True), ("allow", False), ("warn", False), ("", False)])
def test_the_policy_decides(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, policy: str, fails: bool) -> None:
    old, _ = _pair(store)
    deprecate(store.objects, old, "wrong")
    monkeypatch.setenv(POLICY, policy)
    if fails:
        with pytest.raises(DeprecatedArtifactError, match="wrong"):
            store.path(old, "a")
    else:
        assert store.path(old, "a")
    assert store.manifest(old).reference == old


def test_another_policy_is_refused(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    old, _ = _pair(store)
    monkeypatch.setenv(POLICY, "never")
    with pytest.raises(ConfigurationError, match="expected one of warn, fail, allow, found 'never'"):
        store.path(old, "a")


def test_a_deprecation_is_written_once(store: ArtifactStore) -> None:
    old, new = _pair(store)
    first = deprecate(store.objects, old, "wrong", new)
    assert deprecate(store.objects, old, "wrong", new) == first
    with pytest.raises(ConfigurationError, match="cannot be changed"):
        deprecate(store.objects, old, "another reason", new)


def test_reason_reference_and_successor_are_checked(store: ArtifactStore) -> None:
    old, new = _pair(store)
    unknown = f"datasets/d/sha256-{'0' * 64}"
    with pytest.raises(ConfigurationError, match="needs a reason"):
        deprecate(store.objects, old, "  ")
    with pytest.raises(ConfigurationError, match="another reference"):
        deprecate(store.objects, old, "wrong", old)
    for pair in ((unknown, ""), (old, unknown)):
        with pytest.raises(MissingArtifactError):
            deprecate(store.objects, pair[0], "wrong", pair[1])
    deprecate(store.objects, new, "wrong")
    with pytest.raises(ConfigurationError, match="that is not deprecated"):
        deprecate(store.objects, old, "wrong", new)


class Request(StageModel):
    """What the stage reads."""

    data: str


class Result(StageModel):
    """What it returns."""

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
    monkeypatch.setenv(POLICY, "fail")
    with pytest.raises(DeprecatedArtifactError):
        stage(Request(data=str(old)), ArtifactStore.open(store.address))
