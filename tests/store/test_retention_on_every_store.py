"""Collection, erasure and deprecation through every object store, on real protocol servers."""

import os

import pytest

from gatehouse.errors import CorruptArtifactError, ErasedArtifactError
from gatehouse.store.collection import Collector, Wish
from gatehouse.store.deprecation import deprecate
from gatehouse.store.eraser import erase, plan_erasure
from gatehouse.store.store import ArtifactStore
from tests.store.conftest import Place

EVERY = pytest.mark.parametrize("place", ["local", "gs", "s3"], indirect=True)
ORPHAN = f"blobs/ab/{'ab' * 32}"


@EVERY
def test_garbage_goes_and_everything_else_stays(place: Place) -> None:
    store = ArtifactStore(place.open())
    kept = store.publish("datasets", "kept", {"a": b"kept", "s": b"shared"})
    gone = store.publish("datasets", "gone", {"a": b"gone", "s": b"shared"})
    deprecate(store.objects, gone, "wrong")
    store.objects.put_bytes(ORPHAN, b"orphan")
    collector = Collector(ArtifactStore(place.open()), Wish(deprecated=True, grace=0))
    outcome = collector.sweep(collector.mark())
    assert sorted((item.kind, item.state) for item in outcome) == [
        ("blob", "deleted"),
        ("blob", "deleted"),
        ("manifest", "deleted"),
    ]
    after = ArtifactStore(place.open())
    assert list(after.references()) == [kept] and after.verify(kept) == 1
    assert not list(after.objects.list("gc")) and not list(after.objects.list("leases"))
    assert after.verify(store.publish("datasets", "gone", {"a": b"gone", "s": b"shared"})) == 1


@EVERY
def test_erased_data_is_gone_from_store_and_cache(place: Place) -> None:
    store = ArtifactStore(place.open())
    reference = store.publish("datasets", "d", {"a": b"a person's rows"})
    assert store.read_bytes(reference, "a") == b"a person's rows"
    erase(store, plan_erasure(store, reference, only=True), "request 17", "officer")
    after = ArtifactStore(place.open())
    assert not list(after.objects.list("blobs"))
    for read in (
        lambda: after.read_bytes(reference, "a"),
        lambda: after.publish("datasets", "d", {"a": b"a person's rows"}),
    ):
        with pytest.raises(ErasedArtifactError, match="request 17"):
            read()
    assert not list(after.objects.list("blobs"))
    cached = [name for _, _, names in os.walk(os.environ.get("GATEHOUSE_CACHE", "/nonexistent")) for name in names]
    assert not [name for name in cached if name.startswith(store.manifest(reference).files[0].sha256)]


@EVERY
def test_problems_are_looked_for_in_the_store_not_in_the_cache(place: Place) -> None:
    store = ArtifactStore(place.open())
    reference = store.publish("datasets", "d", {"a": b"rows"})
    assert store.read_bytes(reference, "a") == b"rows"
    entry = store.manifest(reference).files[0]
    found = store.objects.stat(entry.blob)
    assert found is not None and store.objects.delete(entry.blob, found.generation)
    store.objects.put_bytes(entry.blob, b"swor")
    assert [type(problem) for problem in store.problems(reference)] == [CorruptArtifactError]
