"""Transfers: an artifact and its lineage arrive whole, once, and from any interruption."""

import os
from pathlib import Path

import pytest

from gatehouse.errors import ConfigurationError, CorruptArtifactError, ErasedArtifactError
from gatehouse.store.collection import collect
from gatehouse.store.deprecation import deprecate, deprecation_of
from gatehouse.store.eraser import erase, plan_erasure
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore
from gatehouse.store.transfer import export, pull
from tests.store.memory_objects import Memory, MemoryObjects


@pytest.fixture
def target(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore.open(tmp_path / "target")


def _family(store: ArtifactStore) -> tuple[Reference, Reference, Reference]:
    table = store.publish("datasets", "t", {"a/b.txt": b"rows", "c.txt": b"more"})
    left = store.publish("snapshots", "s", {"x": b"1"}, derived_from={"t": table})
    model = store.publish("models", "m", {"w": b"weights"}, derived_from={"t": table, "s": left})
    return table, left, model


def test_an_artifact_comes_with_its_lineage_parents_first(store: ArtifactStore, target: ArtifactStore) -> None:
    family = _family(store)
    deprecate(store.objects, family[0], "wrong zone")
    assert [pulled.reference for pulled in pull(store, family[2], target)] == list(family)
    deprecation = deprecation_of(target.objects, family[0])
    assert deprecation is not None and deprecation.reason == "wrong zone"
    assert target.verify(family[2]) == 3
    assert not os.path.samefile(store.path(family[0], "c.txt"), target.path(family[0], "c.txt"))
    assert {pulled.state for pulled in pull(store, family[2], target)} == {"present"}


def test_an_interrupted_transfer_goes_on(store: ArtifactStore, target: ArtifactStore) -> None:
    family = _family(store)

    def stop(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull(store, family[2], target, stop)
    assert list(target.references()) == [family[0]]
    assert [pulled.state for pulled in pull(store, family[2], target)] == ["present", "copied", "copied"]


def test_each_file_is_read_once_and_only_where_the_target_has_it_not(target: ArtifactStore) -> None:
    requests: list[str] = []
    source = ArtifactStore(MemoryObjects(Memory(), requests.append))
    files = {f"part-{number}": b"%d" % number for number in range(40)}
    first = source.publish("datasets", "d", files)
    second = source.publish("datasets", "d", files | {"part-0": b"new"})
    for reference, copied in ((first, 40), (second, 1)):
        requests.clear()
        pull(source, reference, target)
        assert sum(request.startswith("get blobs/") for request in requests) == copied
        assert sum(request.endswith("manifest.json") for request in requests) <= 3
        assert target.verify(reference) == 1


def test_what_arrives_altered_is_told(
    store: ArtifactStore, target: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = _family(store)
    put = target.objects.put_file

    def alter(key: str, path: Path) -> bool:
        path.chmod(0o644)
        path.write_bytes(path.read_bytes().swapcase())
        return put(key, path)

    monkeypatch.setattr(target.objects, "put_file", alter)
    with pytest.raises(CorruptArtifactError, match="has SHA-256"):
        pull(store, family[0], target)


def test_a_corrupt_source_leaves_no_reference(store: ArtifactStore, target: ArtifactStore) -> None:
    family = _family(store)
    blob = store.path(family[1], "x")
    blob.chmod(0o644)
    blob.write_text("2")
    with pytest.raises(CorruptArtifactError, match="snapshots/s"):
        pull(ArtifactStore.open(store.address), family[2], target)
    assert list(target.references()) == [family[0]]


def test_what_was_erased_does_not_travel(store: ArtifactStore, target: ArtifactStore, tmp_path: Path) -> None:
    family = _family(store)
    pull(store, family[0], target)
    erase(target, plan_erasure(target, family[0], only=True), "request 17")
    with pytest.raises(ErasedArtifactError, match="request 17"):
        pull(store, family[2], target)
    erase(store, plan_erasure(store, family[0], only=True), "request 18")
    with pytest.raises(ErasedArtifactError, match="request 18"):
        pull(store, family[0], target)
    fresh = ArtifactStore.open(tmp_path / "fresh")
    for other in (target, fresh):
        assert [pulled.state for pulled in pull(store, family[2], other)] == ["erased", "copied", "copied"]
        assert collect(other, days=0) == [], "its manifest is there, or the lineage would be broken"
    with pytest.raises(ErasedArtifactError, match=f"record {store.address}/erasures/000001"):
        fresh.path(family[0], "c.txt")


def test_a_pull_says_where_the_target_still_has_what_the_source_erased(
    store: ArtifactStore, target: ArtifactStore
) -> None:
    family = _family(store)
    pull(store, family[0], target)
    erase(store, plan_erasure(store, family[0], only=True), "request 17")
    assert [pulled.state for pulled in pull(store, family[2], target)] == ["unerased", "copied", "copied"]
    assert target.exists(family[0])


def test_an_export_has_the_paths_of_the_artifact(store: ArtifactStore, tmp_path: Path) -> None:
    table = _family(store)[0]
    for _ in range(2):
        assert export(store, table, tmp_path / "out") == [tmp_path / "out/a/b.txt", tmp_path / "out/c.txt"]
    assert (tmp_path / "out/a/b.txt").read_text() == "rows"
    assert not os.path.samefile(tmp_path / "out/c.txt", store.path(table, "c.txt"))
    (tmp_path / "out/c.txt").write_text("edited")
    with pytest.raises(ConfigurationError, match="other content"):
        export(store, table, tmp_path / "out")
    assert (tmp_path / "out/c.txt").read_text() == "edited"
