"""Garbage collection by age: what goes and what stays, beside writers and readers, and after a kill."""

import itertools
import os
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gatehouse.errors import CorruptArtifactError, ErasedArtifactError, StoreError
from gatehouse.store import memo
from gatehouse.store.age import DAY, DAYS, store_time, touch
from gatehouse.store.canonical import sha256_bytes
from gatehouse.store.collection import Item, collect
from gatehouse.store.deprecation import deprecate
from gatehouse.store.eraser import erase, plan_erasure
from gatehouse.store.objects.local import LocalObjects
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore
from tests.store.conftest import Place, refuse_listing
from tests.store.memory_objects import Memory, MemoryObjects

OLD = b"old and unreferenced"
OLD_BLOB = f"blobs/{sha256_bytes(OLD)[:2]}/{sha256_bytes(OLD)}"
EVERY = pytest.mark.parametrize("place", ["local", "gs", "s3"], indirect=True)


def _states(items: list[Item]) -> dict[str, str]:
    return {item.key: item.state for item in items}


def _make_old(store: ArtifactStore, days: float = DAYS + 1) -> None:
    """Set every object of a local store back in time."""
    for path in Path(store.address).rglob("*"):
        if path.is_file():
            os.utime(path, (time.time() - days * DAY,) * 2)


def test_a_piece_goes_when_it_is_old_and_its_rows_stay_in_what_was_made(store: ArtifactStore) -> None:
    origin = store.publish("datasets", "origin", {"a": b"raw"})
    piece = store.publish("pieces", "some", {"a": b"rows", "b": b"between"}, derived_from={"dataset": origin})
    table = store.publish("features", "table", {"a": b"rows"}, derived_from={"dataset": origin})
    assert {item.state for item in collect(store)} == {"young"}
    later = store.publish("pieces", "later", {"c": b"later"}, derived_from={"piece": piece})
    _make_old(store)
    for key in (f"{later}/manifest.json", store.manifest(later).files[0].blob):
        os.utime(store.objects.local_path(key))
    assert sorted(item.kind for item in collect(store) if item.state == "deleted") == ["blob", "piece"]
    assert (store.exists(piece), store.exists(origin), store.exists(table)) == (False, True, True)
    assert [item.state for item in collect(store)] == ["young"] and store.verify(table) == 2
    _make_old(store)
    assert sorted(item.kind for item in collect(store) if item.state == "deleted") == ["blob", "piece"]
    assert not store.exists(later) and collect(store) == []


@EVERY
def test_garbage_goes_when_it_is_old_and_everything_else_stays(place: Place) -> None:
    store = ArtifactStore(place.open())
    kept = store.publish("datasets", "kept", {"a": b"kept", "s": b"shared"})
    gone = store.publish("datasets", "gone", {"a": b"gone", "s": b"shared"})
    deprecate(store.objects, gone, "wrong")
    store.objects.put_bytes(OLD_BLOB, OLD)
    store.objects.put_bytes(f"reports/{gone}/style.html", b"<p>")
    store.objects.put_bytes(f"reports/{kept}/style.html", b"<p>")
    for arguments, states in (
        ({"days": 1}, ["young"] * 2),  # The artifact, which still keeps its blob and its page, and the orphan.
        ({"days": 0, "dry_run": True}, ["found"] * 4),
        ({"days": 0}, ["deleted"] * 4),
        ({"days": 0}, []),
    ):
        items = collect(ArtifactStore(place.open()), deprecated=True, **arguments)  # type: ignore[arg-type]  # Of several types.
        assert [item.state for item in items] == states, (arguments, items)
    after = ArtifactStore(place.open())
    assert list(after.references()) == [kept] and after.verify(kept) == 1
    assert list(after.objects.list("reports")) == [f"reports/{kept}/style.html"]
    assert not list(after.objects.list(str(gone))) and after.objects.stat(OLD_BLOB) is None
    assert after.verify(store.publish("datasets", "gone", {"a": b"gone", "s": b"shared"})) == 1


def test_a_dry_run_writes_nothing() -> None:
    memory, requests = Memory(), list[str]()
    store = ArtifactStore(MemoryObjects(memory))
    store.objects.put_bytes(OLD_BLOB, OLD)
    deprecate(store.objects, store.publish("datasets", "d", {"a": b"1"}), "wrong")
    items = collect(ArtifactStore(MemoryObjects(memory, requests.append)), deprecated=True, dry_run=True)
    assert [item.state for item in items] == ["found"] * 3
    assert {request.split(" ")[0] for request in requests} == {"folders", "list", "get", "stat"}


def test_age_is_counted_by_the_stores_clock_from_the_last_touch() -> None:
    memory = Memory()
    store = ArtifactStore(MemoryObjects(memory))
    store.objects.put_bytes(OLD_BLOB, OLD)
    assert store_time(store.objects) == pytest.approx(memory.clock, abs=1)
    for later, state in ((6, "young"), (0.9, "young"), (0.2, "deleted")):
        memory.clock += later * DAY
        assert _states(collect(store)) == {OLD_BLOB: state}


def test_a_touch_makes_what_is_older_than_a_day_young_and_leaves_the_rest(store: ArtifactStore) -> None:
    for key in ("old", "new"):
        store.objects.put_bytes(key, b"1")
    os.utime(Path(store.address) / "old", (0, 0))
    before = store.objects.stat("new")
    stats = touch(store.objects, ["old", "new", "none"])
    assert stats["none"] is None and store.objects.stat("new") == before == stats["new"]
    old = store.objects.stat("old")
    assert old is not None and time.time() - old.modified < DAY


def test_what_a_collector_deletes_just_before_the_touch_is_gone() -> None:
    memory = Memory()
    memory.objects["k"] = (b"1", MemoryObjects(memory)._stat(b"1"))
    vanishing = MemoryObjects(memory, lambda operation: operation == "renew k" and memory.objects.clear())
    assert touch(vanishing, ["k"]) == {"k": None}


def _publish(store: ArtifactStore) -> Reference:
    return store.publish("datasets", "d", {"a": OLD, "b": b"new"})


def _keep(store: ArtifactStore) -> Reference:
    entry = store.keep("a", OLD)
    collect(store)
    return store.publish("datasets", "d", {"a": entry, "b": b"new"})


@pytest.mark.parametrize("conditional", [True, False], ids=["conditional", "blind"])
def test_no_moment_of_a_collection_breaks_what_a_writer_publishes(conditional: bool) -> None:
    """A writer reuses an old blob. Each of the two acts at once while the other stands before one of its steps."""
    for outer, inner, write in itertools.product(("write", "collect"), ("write", "collect"), (_publish, _keep)):
        for moment in itertools.count() if outer != inner else ():
            memory, published, operations = Memory(conditional), list[Reference](), itertools.count()
            ArtifactStore(MemoryObjects(memory)).objects.put_bytes(OLD_BLOB, OLD)
            memory.clock += 8 * DAY

            def act(
                name: str, store: ArtifactStore, write: Callable[..., Reference] = write, out: Any = published
            ) -> None:
                out.append(write(store)) if name == "write" else collect(store)

            def step(
                operation: str, memory: Memory = memory, at: int = moment, inner: str = inner, steps: Any = operations
            ) -> None:
                # On S3 one request lies between the look at a generation and the deletion: nothing closes this gap.
                if next(steps) == at and not operation.startswith("delete"):
                    act(inner, ArtifactStore(MemoryObjects(memory)))

            act(outer, ArtifactStore(MemoryObjects(memory, step)))
            assert all(ArtifactStore(MemoryObjects(memory)).verify(reference) == 1 for reference in published), moment
            if next(operations) <= moment:
                break


def test_a_deprecated_artifact_stays_while_somebody_reads_it(store: ArtifactStore) -> None:
    used, unused = (store.publish("datasets", name, {"a": name.encode()}) for name in ("used", "unused"))
    memo.remember(store, "split", "key", {"out": str(used)})
    for reference in (used, unused):
        deprecate(store.objects, reference, "wrong")
    reads: list[Callable[[ArtifactStore], object]] = [
        lambda store: store.path(used, "a"),
        lambda store: memo.recall(store, "split", "key"),
    ]
    for read in reads:
        _make_old(store)
        store = ArtifactStore.open(store.address)
        assert read(store)
        states = _states(collect(store, deprecated=True))
        assert states[f"{used}/manifest.json"] == "young" and store.verify(used) == 1
    assert list(store.references()) == [used]


def test_a_collection_leaves_the_mark_of_an_erasure(store: ArtifactStore) -> None:
    table = store.publish("datasets", "t", {"a": b"a person's rows"})
    deprecate(store.objects, table, "wrong")
    erase(store, plan_erasure(store, table, only=True), "request 17", "the officer")
    _make_old(store)
    collect(store, deprecated=True)
    with pytest.raises(ErasedArtifactError, match="request 17"):
        store.publish("datasets", "t", {"a": b"a person's rows"})


def _alter(store: ArtifactStore, reference: Reference) -> tuple[Path, bytes]:
    path = Path(store.address) / str(reference) / "manifest.json"
    whole = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(b"{}")
    return path, whole


def test_a_broken_manifest_stops_every_deletion_of_data(store: ArtifactStore) -> None:
    broken = store.publish("datasets", "d", {"a": b"kept"})
    deprecate(store.objects, store.publish("datasets", "e", {"a": b"1"}), "wrong")
    store.objects.put_bytes(OLD_BLOB, OLD)
    path, whole = _alter(store, broken)
    outcome = collect(store, days=0, deprecated=True)
    assert [(item.kind, item.state) for item in outcome] == [
        ("manifest", "broken"),
        ("manifest", "kept"),
        ("blob", "kept"),
        ("blob", "kept"),
    ]
    path.write_bytes(whole)
    assert {item.state for item in collect(store, days=0, deprecated=True)} == {"deleted"}
    assert store.verify(broken) == 1


def test_blobs_stay_while_what_an_artifact_was_made_from_is_missing(store: ArtifactStore) -> None:
    parent = store.publish("datasets", "d", {"a": b"rows"})
    store.publish("splits", "s", {"i": b"index"}, derived_from={"data": parent})
    path = Path(store.address) / str(parent) / "manifest.json"
    path.rename(path.with_name("aside"))
    outcome = collect(store, days=0)
    assert [(item.kind, item.state) for item in outcome] == [("manifest", "broken"), ("blob", "kept")]
    assert f"{parent} is missing" in outcome[0].why
    path.with_name("aside").rename(path)
    assert collect(store, days=0) == [] and store.verify(parent) == 1


def test_what_cannot_be_read_stops_the_collection(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = store.publish("datasets", "d", {"a": b"kept"})
    with monkeypatch.context() as patch:
        refuse_listing(patch, Path(store.address) / "datasets" / "d")
        with pytest.raises(StoreError, match=r"datasets/d .*cannot be read"):
            collect(store, days=0)
    store.objects.put_bytes("registry/m/ledger/000001.json", b"{")
    with pytest.raises(CorruptArtifactError, match="registry/m/ledger/000001"):
        collect(store, days=0, deprecated=True)
    assert store.verify(reference) == 1


def _family(store: ArtifactStore) -> tuple[Reference, Reference]:
    """A deprecated dataset, and a deprecated split of it."""
    data = store.publish("datasets", "d", {"a": b"rows"})
    split = store.publish("splits", "s", {"i": b"index"}, derived_from={"data": data})
    for reference in (data, split):
        deprecate(store.objects, reference, "wrong time zone")
    return data, split


def _derive(store: ArtifactStore, **naming: Any) -> None:
    store.publish("evaluations", "e", {"x": b"1"}, **naming)


HOLDERS: dict[str, Callable[[ArtifactStore, str], object]] = {
    "child": lambda store, split: _derive(store, derived_from={"split": split}),
    "configuration": lambda store, split: _derive(store, configuration={"compare_with": [split]}),
    "details": lambda store, split: _derive(store, details={"rejected": [split]}),
    "ledger": lambda store, split: store.record("registry/m/ledger/000001.json", {"record": {"subject": split}}),
    "a memo, which keeps nothing": lambda store, split: memo.remember(store, "split", "key", {"split": split}),
    "a young child": lambda store, split: os.utime(Path(store.address) / split / "manifest.json"),
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_deprecated_artifact_that_something_reaches_stays(store: ArtifactStore, holder: str) -> None:
    data, split = _family(store)
    _make_old(store)
    HOLDERS[holder](store, str(split))
    _make_old(store, 8 if holder != "a young child" else 0)
    if holder == "a young child":
        os.utime(Path(store.address) / str(data) / "manifest.json", (0, 0))
        os.utime(Path(store.address) / str(data) / "deprecated.json", (0, 0))
    outcome, gone = collect(store, deprecated=True), "nothing" in holder
    assert (store.exists(split), store.exists(data)) == (not gone, not gone)
    assert {item.state for item in outcome} <= ({"deleted"} if gone else {"kept", "young"})


def test_damaged_bytes_go_after_a_month_and_leftovers_of_killed_writers_after_a_week(store: ArtifactStore) -> None:
    keys = [f"quarantine/{OLD_BLOB}/{name}" for name in ("a", "b")]
    with store.workspace() as running:
        for key in (*keys, "tmp/0123"):
            store.objects.put_bytes(key, b"1")
        (Path(store.address) / "tmp" / "work-killed").mkdir()
        _make_old(store, 20)
        os.utime(Path(store.address) / keys[0], (0, 0))
        states = _states(collect(store))
        assert states == {keys[0]: "deleted", keys[1]: "young", "tmp/0123": "deleted"}
        assert running.is_dir() and not (Path(store.address) / "tmp" / "work-killed").exists()


def _killed(store: ArtifactStore, act: Callable[[ArtifactStore], object], change: int) -> bool:
    """Act in a process that is killed before its n-th change; False if it ended."""
    changes = itertools.count(1)

    def dying(method: Callable[..., bool]) -> Callable[..., bool]:
        def changed(*arguments: object) -> bool:
            if next(changes) == change:
                os.kill(os.getpid(), signal.SIGKILL)
            return method(*arguments)

        return changed

    if (child := os.fork()) == 0:
        try:
            for name in ("put_bytes", "put_file", "renew", "delete"):
                setattr(LocalObjects, name, dying(getattr(LocalObjects, name)))
            act(ArtifactStore.open(store.address))
            os._exit(0)
        except BaseException:  # The child must never return into pytest.
            traceback.print_exc()
        finally:
            os._exit(1)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert ended in (0, -signal.SIGKILL)
    return ended != 0


@pytest.mark.parametrize("act", [lambda store: collect(store, deprecated=True), _publish], ids=["collect", "publish"])
def test_a_kill_at_any_change_loses_nothing_and_the_next_collection_finishes(
    tmp_path: Path, act: Callable[[ArtifactStore], object]
) -> None:
    for change in itertools.count(1):
        store = ArtifactStore.open(tmp_path / str(change))
        kept = store.publish("datasets", "kept", {"a": b"kept", "shared": b"shared"})
        gone = store.publish("datasets", "gone", {"a": b"gone", "shared": b"shared"})
        deprecate(store.objects, gone, "wrong")
        store.objects.put_bytes(OLD_BLOB, OLD)
        _make_old(store)
        killed = _killed(store, act, change)
        assert all(store.verify(artifact) == 1 for artifact in store.references()) and store.exists(kept)
        reference = _publish(store) if change % 2 else kept
        collect(store, days=0, deprecated=True)
        assert store.verify(reference) == 1 and {kept, reference} <= set(store.references())
        listed = {entry.blob for artifact in store.references() for entry in store.manifest(artifact).files}
        assert set(store.objects.list("blobs")) == listed
        if not killed:
            break
    assert change > 4
