"""Garbage collection: what goes and what stays."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gatehouse.errors import CorruptArtifactError, StoreError
from gatehouse.store import collection, memo
from gatehouse.store.collection import Collection, Collector, Item
from gatehouse.store.deprecation import deprecate
from gatehouse.store.leases import LEASE_LIMIT, LEASES, SWEEP_LIMIT, TOMBSTONES, Lease
from gatehouse.store.objects.base import Stat
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore
from tests.store.conftest import NOW, OLD, OLD_BLOB, Place, collect, refuse_listing
from tests.store.memory_objects import Memory, MemoryObjects


def _states(items: list[Item]) -> dict[str, str]:
    return {item.key: item.state for item in items}


@pytest.mark.parametrize("place", ["local", "gs", "s3"], indirect=True)
def test_garbage_goes_and_everything_else_stays(place: Place) -> None:
    store = ArtifactStore(place.open())
    kept = store.publish("datasets", "kept", {"a": b"kept", "s": b"shared"})
    gone = store.publish("datasets", "gone", {"a": b"gone", "s": b"shared"})
    deprecate(store.objects, gone, "wrong")
    store.objects.put_bytes(OLD_BLOB, OLD)
    outcome = collect(ArtifactStore(place.open()), Collection(deprecated=True, grace=0))
    assert sorted((item.kind, item.state) for item in outcome) == [
        ("blob", "deleted"),
        ("blob", "deleted"),
        ("manifest", "deleted"),
    ]
    after = ArtifactStore(place.open())
    assert list(after.references()) == [kept] and after.verify(kept) == 1
    assert not list(after.objects.list("gc")) and not list(after.objects.list("leases"))
    assert after.verify(store.publish("datasets", "gone", {"a": b"gone", "s": b"shared"})) == 1


def test_looking_changes_nothing_not_even_for_a_moment() -> None:
    memory, requests = Memory(), []
    store = ArtifactStore(MemoryObjects(memory))
    store.objects.put_bytes(OLD_BLOB, OLD)
    deprecate(store.objects, store.publish("datasets", "d", {"a": b"1"}), "wrong")
    collection = Collection(deprecated=True, grace=0)
    states = _states(Collector(ArtifactStore(MemoryObjects(memory, requests.append)), collection).look())
    assert states[OLD_BLOB] == "found" and set(states.values()) == {"found"}
    assert {request.split(" ")[0] for request in requests} == {"folders", "list", "get", "stat"}


def test_the_grace_period_is_counted_from_the_tombstone_by_the_stores_clock() -> None:
    memory = Memory()
    store = ArtifactStore(MemoryObjects(memory))
    store.objects.put_bytes(OLD_BLOB, OLD)
    for seconds, state in ((10_000, "waiting"), (3500, "waiting"), (200, "deleted")):
        memory.clock += seconds
        assert _states(collect(store, Collection(grace=3600))) == {OLD_BLOB: state}


def test_a_blob_that_was_renewed_or_referenced_after_its_tombstone_stays(store: ArtifactStore) -> None:
    other = OLD_BLOB + ".x"
    store.objects.put_bytes(OLD_BLOB, OLD)
    store.objects.put_bytes(other, OLD)
    collector = Collector(store, NOW)
    marked = collector.mark()
    store.objects.renew(other)
    reference = store.publish("datasets", "d", {"a": OLD})
    assert set(_states(collector.sweep(marked)).values()) == {"kept"}
    assert store.verify(reference) == 1 and store.objects.stat(other) is not None
    assert not list(store.objects.list("gc"))


def test_a_writer_renews_what_has_a_tombstone_and_nothing_else(store: ArtifactStore) -> None:
    store.objects.put_bytes(OLD_BLOB, OLD)
    before = store.objects.stat(OLD_BLOB)
    store.publish("datasets", "d", {"a": OLD})
    assert store.objects.stat(OLD_BLOB) == before
    store.record("gc/tombstones/x.json", {"candidates": [[OLD_BLOB, before.generation if before else ""]]})
    store.publish("datasets", "e", {"a": OLD})
    assert before and not store.objects.delete(OLD_BLOB, before.generation)


def test_a_leased_blob_stays_until_the_lease_lapses_and_then_has_a_new_grace() -> None:
    memory = Memory()
    store = ArtifactStore(MemoryObjects(memory))
    store.objects.put_bytes(OLD_BLOB, OLD)
    with Lease(store.objects, [OLD_BLOB]):
        outcome = collect(store)
        assert [(item.state, item.why) for item in outcome] == [("kept", "a writer holds a lease on it")]
        assert not list(store.objects.list(TOMBSTONES))
        memory.clock += LEASE_LIMIT + 1
        assert _states(collect(store, Collection(grace=3600)))[OLD_BLOB] == "waiting"
        assert _states(collect(store))[OLD_BLOB] == "deleted"
        assert not list(store.objects.list(LEASES)), "the lapsed lease was not removed"


def _clocked(memory: Memory, monkeypatch: pytest.MonkeyPatch, seconds: dict[str, float]) -> ArtifactStore:
    """A store on which each operation takes so many seconds of the collector's clock, by how its name begins."""
    clock = [0.0]

    def step(operation: str) -> None:
        clock[0] += next((taken for begin, taken in seconds.items() if operation.startswith(begin)), 0.0)

    monkeypatch.setattr(collection, "time", SimpleNamespace(monotonic=lambda: clock[0], time=time.time))
    return ArtifactStore(MemoryObjects(memory, step))


def test_a_sweep_that_took_too_long_deletes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory()
    memory.objects[OLD_BLOB] = (OLD, Stat(len(OLD), "1", memory.clock))
    (item,) = collect(_clocked(memory, monkeypatch, {"folders": SWEEP_LIMIT}))
    assert (item.state, item.why) == ("waiting", "this sweep took too long; run it again")
    assert OLD_BLOB in memory.objects
    assert _states(collect(_clocked(memory, monkeypatch, {"folders": SWEEP_LIMIT / 4}))) == {OLD_BLOB: "deleted"}


def test_a_sweep_reads_again_only_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory()
    before = ArtifactStore(MemoryObjects(memory))
    gone = before.publish("datasets", "gone", {"a": OLD})
    deprecate(before.objects, gone, "wrong")
    for number in range(50):
        used = before.publish("datasets", "d", {"a": b"%d" % number})
        memo.remember(before, "split", str(number), {"split": str(used)})
    slow = _clocked(memory, monkeypatch, {"get memo": 1.0, "get datasets": 1.0, "stat datasets/d": 1.0})
    outcome = collect(slow, Collection(deprecated=True, grace=0))
    assert {item.state for item in outcome} == {"deleted"} and len(outcome) == 2


def _alter(store: ArtifactStore, reference: Reference) -> None:
    path = Path(store.address) / str(reference) / "manifest.json"
    path.chmod(0o644)
    path.write_text(path.read_text().replace("datasets", "datasetz"))


def test_while_a_manifest_is_altered_no_data_goes_and_the_rest_does(store: ArtifactStore) -> None:
    broken = store.publish("datasets", "d", {"a": b"kept"})
    deprecate(store.objects, store.publish("datasets", "e", {"a": b"deprecated"}), "wrong")
    lapsed = Path(store.address) / "leases" / f"{'0' * 32}.json"
    store.objects.put_bytes(f"leases/{lapsed.name}", b'{"keys": []}')
    os.utime(lapsed, (0, 0))
    path = Path(store.address) / str(broken) / "manifest.json"
    whole = path.read_bytes()
    _alter(store, broken)
    outcome = collect(store, Collection(deprecated=True, grace=0))
    assert sorted((item.kind, item.state) for item in outcome) == [
        *(("blob", "kept"), ("blob", "kept"), ("lease", "deleted"), ("manifest", "broken"), ("manifest", "kept"))
    ]
    path.write_bytes(whole)
    outcome = collect(store, Collection(deprecated=True, grace=0))
    assert {item.state for item in outcome} == {"deleted"} and store.verify(broken) == 1


def test_a_manifest_that_breaks_after_the_tombstones_stops_the_sweep(store: ArtifactStore) -> None:
    broken = store.publish("datasets", "d", {"a": b"kept"})
    store.objects.put_bytes(OLD_BLOB, OLD)
    marked = Collector(store, Collection(grace=0)).mark()
    _alter(store, broken)
    assert [item.state for item in Collector(store, Collection(grace=0)).sweep(marked)] == ["kept"]


def test_blobs_stay_while_what_a_living_artifact_was_made_from_is_missing(store: ArtifactStore) -> None:
    parent = store.publish("datasets", "d", {"a": b"rows"})
    store.publish("splits", "s", {"i": b"index"}, derived_from={"data": parent})
    path = Path(store.address) / str(parent) / "manifest.json"
    path.rename(path.with_name("aside"))
    outcome = collect(store)
    assert [(item.kind, item.state) for item in outcome] == [("manifest", "broken"), ("blob", "kept")]
    assert f"{parent} is missing" in outcome[0].why
    path.with_name("aside").rename(path)
    assert collect(store) == [] and store.verify(parent) == 1


def test_damaged_bytes_go_after_a_month(store: ArtifactStore) -> None:
    keys = [f"quarantine/{OLD_BLOB}/{name}" for name in ("old", "young")]
    for key in keys:
        store.objects.put_bytes(key, b"damaged")
    os.utime(Path(store.address) / keys[0], (0, 0))
    assert _states(collect(store)) == {keys[0]: "deleted"}
    assert list(store.objects.list("quarantine")) == keys[1:]


def test_a_folder_that_cannot_be_read_stops_the_collection(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = store.publish("datasets", "d", {"a": b"kept"})
    with monkeypatch.context() as patch:
        refuse_listing(patch, Path(store.address) / "datasets" / "d")
        with pytest.raises(StoreError, match=r"datasets/d .*cannot be read"):
            collect(store)
    assert store.verify(reference) == 1


def test_a_record_that_is_no_json_stops_a_collection_that_needs_it(store: ArtifactStore) -> None:
    store.objects.put_bytes("registry/m/ledger/000001.json", b"{")
    with pytest.raises(CorruptArtifactError, match="registry/m/ledger/000001"):
        Collector(store, Collection(deprecated=True)).look()


def _family(store: ArtifactStore) -> tuple[Reference, Reference, Reference]:
    """A deprecated dataset, a deprecated split of it, and a third artifact in use that has nothing to do with them."""
    data = store.publish("datasets", "d", {"a": b"rows"})
    split = store.publish("splits", "s", {"i": b"index", "shared": b"shared"}, derived_from={"data": data})
    other = store.publish("models", "m", {"shared": b"shared"})
    for reference in (data, split):
        deprecate(store.objects, reference, "wrong time zone")
    return data, split, other


def test_deprecated_artifacts_go_on_request_with_their_pages_and_without_what_others_share(
    store: ArtifactStore,
) -> None:
    data, split, other = _family(store)
    for reference in (data, other):
        store.objects.put_bytes(f"reports/{reference}/style.html", b"<p>")
    assert collect(store) == []
    outcome = collect(store, Collection(deprecated=True, grace=0))
    assert {item.state for item in outcome} == {"deleted"}
    assert sorted(item.kind for item in outcome) == ["blob", "blob", "manifest", "manifest"]
    assert list(store.references()) == [other] and store.verify(other) == 1
    assert not list(store.objects.list(str(data))) and not list(store.objects.list(str(split)))
    assert list(store.objects.list("reports")) == [f"reports/{other}/style.html"]
    assert collect(store, Collection(deprecated=True, grace=0)) == []


def _publish(store: ArtifactStore, **naming: Any) -> None:
    store.publish("evaluations", "e", {"x": b"1"}, **naming)


HOLDERS: dict[str, Callable[[ArtifactStore, str], object]] = {
    "child": lambda store, split: _publish(store, derived_from={"split": split}),
    "configuration": lambda store, split: _publish(store, configuration={"compare_with": [split]}),
    "details": lambda store, split: _publish(store, details={"rejected": [split]}),
    "ledger": lambda store, split: store.record("registry/m/ledger/000001.json", {"record": {"subject": split}}),
    "memo": lambda store, split: memo.remember(store, "split", "key", {"split": split}),
    "run": lambda store, split: store.record("runs/r/split.1.finished.json", {"result": {"split": split}}),
}


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("forget", [False, True])
def test_a_deprecated_artifact_that_something_live_reaches_stays(
    store: ArtifactStore, holder: str, forget: bool
) -> None:
    data, split, _ = _family(store)
    HOLDERS[holder](store, str(split))
    outcome = collect(store, Collection(deprecated=True, forget=forget, grace=0))
    gone = forget and holder in ("memo", "run")
    assert {item.state for item in outcome} == {"deleted" if gone else "kept"}
    assert (store.exists(split), store.exists(data)) == (not gone, not gone)
    if not gone:
        assert all(item.why.startswith("is deprecated, but ") for item in outcome)


def test_a_leased_deprecated_parent_stays(store: ArtifactStore) -> None:
    data, split, _ = _family(store)
    with Lease(store.objects, [f"{split}/manifest.json", f"{data}/manifest.json"]):
        collect(store, Collection(deprecated=True, grace=0))
    assert {data, split} <= set(store.references())


def test_leftovers_of_killed_writers_go_and_running_ones_stay(store: ArtifactStore) -> None:
    with store.workspace() as running:
        tmp = Path(store.address) / "tmp"
        (tmp / "0123").write_bytes(b"half")
        dead = tmp / "work-999999999-x"
        dead.mkdir()
        (dead / "big").write_bytes(b"12345")
        for path in (tmp / "0123", dead / "big", dead):
            os.utime(path, (time.time() - 60,) * 2)
        assert _states(collect(store, Collection(grace=3600))) == {}
        outcome = [item for item in collect(store) if item.kind == "temporary"]
        assert not any(running.name in item.key for item in outcome)
        assert {(item.key, item.bytes) for item in outcome} == {("tmp/0123", 4), ("tmp/work-999999999-x", 5)}
        assert running.is_dir() and not dead.exists()


def test_two_sweeps_of_one_tombstone_delete_once(store: ArtifactStore) -> None:
    store.objects.put_bytes(OLD_BLOB, OLD)
    first, second = Collector(store, NOW), Collector(store, NOW)
    marked, again = first.mark(), second.mark()
    assert _states(first.sweep(marked)) == {OLD_BLOB: "deleted"}
    assert _states(second.sweep(again)) == {OLD_BLOB: "kept"}
