"""Garbage collection: what goes, what stays, and that no interleaving with writers or kills loses a reference."""

import itertools
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatehouse.components.artifacts import collection, leases, memo
from gatehouse.components.artifacts.canonical import sha256_bytes
from gatehouse.components.artifacts.collection import Collector, Item, Wish
from gatehouse.components.artifacts.deprecation import deprecate
from gatehouse.components.artifacts.leases import LEASE_LIMIT, LEASES, SWEEP_LIMIT, SWEEPS, TOMBSTONES, Lease
from gatehouse.components.artifacts.objects.base import Stat
from gatehouse.components.artifacts.objects.local import LocalObjects
from gatehouse.components.artifacts.reference import Reference
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.errors import CorruptArtifactError, StoreError
from tests.components.artifacts.memory_objects import Memory, MemoryObjects, Schedule

NOW = Wish(grace=0)
OLD = b"old and unreferenced"
OLD_BLOB = f"blobs/{sha256_bytes(OLD)[:2]}/{sha256_bytes(OLD)}"


def _collect(store: ArtifactStore, wish: Wish = NOW) -> list[Item]:
    collector = Collector(store, wish)
    return collector.sweep(collector.mark())


def _states(items: list[Item]) -> dict[str, str]:
    return {item.key: item.state for item in items}


def test_an_orphan_goes_and_what_a_manifest_lists_stays(store: ArtifactStore) -> None:
    kept = store.publish("datasets", "d", {"a": b"kept"})
    store.objects.put_bytes(OLD_BLOB, OLD)
    assert _states(_collect(store)) == {OLD_BLOB: "deleted"}
    assert store.objects.stat(OLD_BLOB) is None
    assert store.verify(kept) == 1
    assert _collect(store) == []
    assert not list(store.objects.list("gc"))


def test_looking_changes_nothing_not_even_for_a_moment() -> None:
    memory, asked = Memory(), []
    store = ArtifactStore(MemoryObjects(memory))
    store.objects.put_bytes(OLD_BLOB, OLD)
    deprecate(store.objects, store.publish("datasets", "d", {"a": b"1"}), "wrong")
    wish = Wish(deprecated=True, grace=0)
    found = _states(Collector(ArtifactStore(MemoryObjects(memory, asked.append)), wish).look())
    assert found[OLD_BLOB] == "found" and set(found.values()) == {"found"}
    assert {each.split(" ")[0] for each in asked} == {"folders", "list", "get", "stat"}


def test_the_grace_period_is_counted_from_the_tombstone_by_the_stores_clock() -> None:
    memory = Memory()
    store = ArtifactStore(MemoryObjects(memory))
    store.objects.put_bytes(OLD_BLOB, OLD)
    memory.clock += 10_000
    assert _states(_collect(store, Wish(grace=3600))) == {OLD_BLOB: "waiting"}
    memory.clock += 3500
    assert _states(_collect(store, Wish(grace=3600))) == {OLD_BLOB: "waiting"}
    memory.clock += 200
    assert _states(_collect(store, Wish(grace=3600))) == {OLD_BLOB: "deleted"}


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


def test_a_leased_blob_stays_until_the_lease_lapses() -> None:
    memory = Memory()
    store = ArtifactStore(MemoryObjects(memory))
    store.objects.put_bytes(OLD_BLOB, OLD)
    lease = Lease(store.objects, [OLD_BLOB])
    with lease:
        outcome = _collect(store)
        assert [(item.state, item.why) for item in outcome] == [("kept", "a writer holds a lease on it")]
        memory.clock += LEASE_LIMIT + 1
        assert _states(_collect(store))[OLD_BLOB] == "deleted"
        assert not list(store.objects.list(LEASES)), "the lapsed lease was not removed"


def _clocked(memory: Memory, monkeypatch: pytest.MonkeyPatch, seconds: dict[str, float]) -> ArtifactStore:
    """A store on which each operation takes so many seconds of the collector's clock, by how its name begins."""
    clock = [0.0]

    def step(operation: str) -> None:
        clock[0] += next((each for begin, each in seconds.items() if operation.startswith(begin)), 0.0)

    monkeypatch.setattr(collection, "time", SimpleNamespace(monotonic=lambda: clock[0], time=time.time))
    return ArtifactStore(MemoryObjects(memory, step))


def test_a_sweep_that_took_too_long_deletes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory()
    memory.held[OLD_BLOB] = (OLD, Stat(len(OLD), "1", memory.clock))
    (item,) = _collect(_clocked(memory, monkeypatch, {"folders": SWEEP_LIMIT}))
    assert (item.state, item.why) == ("waiting", "this sweep took too long; run it again")
    assert OLD_BLOB in memory.held
    assert _states(_collect(_clocked(memory, monkeypatch, {"folders": SWEEP_LIMIT / 4}))) == {OLD_BLOB: "deleted"}


def test_a_sweep_reads_again_only_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory()
    before = ArtifactStore(MemoryObjects(memory))
    gone = before.publish("datasets", "gone", {"a": OLD})
    deprecate(before.objects, gone, "wrong")
    for number in range(50):
        used = before.publish("datasets", "d", {"a": b"%d" % number})
        memo.remember(before, "split", str(number), {"split": str(used)})
    slow = _clocked(memory, monkeypatch, {"get memo": 1.0, "get datasets": 1.0, "stat datasets/d": 1.0})
    outcome = _collect(slow, Wish(deprecated=True, grace=0))
    assert {item.state for item in outcome} == {"deleted"} and len(outcome) == 2


def test_what_a_writer_spared_has_a_new_grace(store: ArtifactStore) -> None:
    store.objects.put_bytes(OLD_BLOB, OLD)
    with Lease(store.objects, [OLD_BLOB]):
        assert _states(_collect(store)) == {OLD_BLOB: "kept"}
    assert not list(store.objects.list(TOMBSTONES))
    assert _states(_collect(store, Wish(grace=3600))) == {OLD_BLOB: "waiting"}


def test_an_altered_manifest_stops_the_collection(store: ArtifactStore) -> None:
    reference = store.publish("datasets", "d", {"a": b"kept"})
    path = Path(store.address) / str(reference) / "manifest.json"
    path.chmod(0o644)
    path.write_text(path.read_text().replace("datasets", "datasetz"))
    with pytest.raises(CorruptArtifactError, match=r"manifest\.json was altered"):
        _collect(store)


def test_a_folder_that_cannot_be_read_stops_the_collection(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = store.publish("datasets", "d", {"a": b"kept"})
    listed, hidden = os.scandir, Path(store.address) / "datasets" / "d"

    def scandir(path: Path) -> "os._ScandirIterator[str]":
        if Path(path) == hidden:
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", scandir)
        with pytest.raises(StoreError, match=r"datasets/d .*cannot be read"):
            _collect(store)
    assert store.verify(reference) == 1


def test_a_record_that_is_no_json_stops_a_collection_that_needs_it(store: ArtifactStore) -> None:
    store.objects.put_bytes("registry/m/ledger/000001.json", b"{")
    with pytest.raises(CorruptArtifactError, match="registry/m/ledger/000001"):
        Collector(store, Wish(deprecated=True)).look()


def _family(store: ArtifactStore) -> tuple[Reference, Reference, Reference]:
    """A deprecated dataset, a deprecated split of it, and a third artifact in use that has nothing to do with them."""
    data = store.publish("datasets", "d", {"a": b"rows"})
    split = store.publish("splits", "s", {"i": b"index", "shared": b"shared"}, derived_from={"data": data})
    other = store.publish("models", "m", {"shared": b"shared"})
    for each in (data, split):
        deprecate(store.objects, each, "wrong time zone")
    return data, split, other


def test_deprecated_artifacts_stay_unless_asked_for(store: ArtifactStore) -> None:
    _family(store)
    assert _collect(store) == []
    outcome = _collect(store, Wish(deprecated=True, grace=0))
    assert {item.state for item in outcome} == {"deleted"}
    assert sorted(item.kind for item in outcome) == ["blob", "blob", "manifest", "manifest"]


def test_what_is_deleted_with_a_deprecated_artifact_is_not_what_others_share(store: ArtifactStore) -> None:
    data, split, other = _family(store)
    _collect(store, Wish(deprecated=True, grace=0))
    assert list(store.references()) == [other]
    assert store.verify(other) == 1
    assert not list(store.objects.list(str(data))) and not list(store.objects.list(str(split)))
    assert _collect(store, Wish(deprecated=True, grace=0)) == []


def test_the_pages_of_a_deleted_artifact_are_deleted(store: ArtifactStore) -> None:
    data, _, other = _family(store)
    for reference in (data, other):
        store.objects.put_bytes(f"reports/{reference}/style.html", b"<p>")
    _collect(store, Wish(deprecated=True, grace=0))
    assert list(store.objects.list("reports")) == [f"reports/{other}/style.html"]


def _by_child(store: ArtifactStore, split: Reference) -> None:
    store.publish("evaluations", "e", {"x": b"1"}, derived_from={"split": split})


def _by_configuration(store: ArtifactStore, split: Reference) -> None:
    store.publish("evaluations", "e", {"x": b"1"}, configuration={"compare_with": [str(split)]})


def _by_details(store: ArtifactStore, split: Reference) -> None:
    store.publish("evaluations", "e", {"x": b"1"}, details={"rejected": [str(split)]})


def _by_ledger(store: ArtifactStore, split: Reference) -> None:
    store.record("registry/m/ledger/000001.json", {"record": {"verdict": {"subject": {"split": str(split)}}}})


def _by_memo(store: ArtifactStore, split: Reference) -> None:
    memo.remember(store, "split", "key", {"split": str(split)})


def _by_run(store: ArtifactStore, split: Reference) -> None:
    store.record("runs/r/split.1.finished.json", {"result": {"split": str(split)}})


@pytest.mark.parametrize("hold", [_by_child, _by_configuration, _by_details, _by_ledger, _by_memo, _by_run])
@pytest.mark.parametrize("forget", [False, True])
def test_a_deprecated_artifact_that_something_live_reaches_stays(
    store: ArtifactStore, hold: Callable[[ArtifactStore, Reference], None], forget: bool
) -> None:
    data, split, _ = _family(store)
    hold(store, split)
    outcome = _collect(store, Wish(deprecated=True, forget=forget, grace=0))
    gone = forget and hold in (_by_memo, _by_run)
    assert {item.state for item in outcome} == {"deleted" if gone else "kept"}
    assert (store.exists(split), store.exists(data)) == (not gone, not gone)
    if not gone:
        assert all(item.why.startswith("is deprecated, but ") for item in outcome)


def test_a_leased_deprecated_parent_stays(store: ArtifactStore) -> None:
    data, split, _ = _family(store)
    with Lease(store.objects, [f"{split}/manifest.json", f"{data}/manifest.json"]):
        _collect(store, Wish(deprecated=True, grace=0))
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
        assert _states(_collect(store, Wish(grace=3600))) == {}
        outcome = [item for item in _collect(store) if item.kind == "temporary"]
        assert not any(running.name in item.key for item in outcome)
        assert {(item.key, item.bytes) for item in outcome} == {("tmp/0123", 4), ("tmp/work-999999999-x", 5)}
        assert running.is_dir() and not dead.exists()


def test_two_sweeps_of_one_tombstone_delete_once(store: ArtifactStore) -> None:
    store.objects.put_bytes(OLD_BLOB, OLD)
    first, second = Collector(store, NOW), Collector(store, NOW)
    marked, again = first.mark(), second.mark()
    assert _states(first.sweep(marked)) == {OLD_BLOB: "deleted"}
    assert _states(second.sweep(again)) == {OLD_BLOB: "kept"}


# The race: a writer finds an old unreferenced blob, skips the upload, and the collector deletes it.


class Race:
    """Collectors and a writer of the same blob over one store, under schedules."""

    def __init__(self, conditional: bool, patch: pytest.MonkeyPatch) -> None:
        self.memory = Memory(conditional_delete=conditional)
        self.published: list[Reference] = []
        patch.setattr(leases, "time", SimpleNamespace(sleep=self._wait))
        self._schedule = Schedule(())

    def _wait(self, seconds: float) -> None:
        self.memory.clock += 1
        self._schedule.give_way()

    def store(self, step: Callable[[str], None] = lambda operation: None) -> ArtifactStore:
        return ArtifactStore(MemoryObjects(self.memory, step))

    def write(self, step: Callable[[str], None]) -> None:
        self.published.append(self.store(step).publish("datasets", "d", {"a": OLD, "b": b"new"}))

    def collect(self, step: Callable[[str], None]) -> None:
        _collect(self.store(step))

    def run(self, switches: Iterable[int], *actors: Callable[[Callable[[str], None]], None]) -> int:
        """Start from an orphan, run the actors, and check that what was published verifies. Returns the steps."""
        self._schedule = Schedule(switches)
        outcomes = self._schedule.run(*actors)
        trace = "\n".join(self._schedule.trace)
        assert outcomes == [None] * len(actors), trace
        try:
            assert self.store().verify(self.published.pop()) == 1
        except CorruptArtifactError as error:
            raise AssertionError(f"{error}\n{trace}") from error
        assert not [key for key in self.memory.held if key.startswith(SWEEPS)], trace
        return self._schedule.steps

    def orphan(self) -> None:
        self.memory.held.clear()
        self.store().objects.put_bytes(OLD_BLOB, OLD)

    def marked(self) -> Callable[[Callable[[str], None]], None]:
        """An actor that sweeps the orphan, which has its tombstone already."""
        self.orphan()
        marked = Collector(self.store(), NOW).mark()

        def sweep(step: Callable[[str], None]) -> None:
            Collector(self.store(step), NOW).sweep(marked)

        return sweep


@pytest.fixture
def race(monkeypatch: pytest.MonkeyPatch) -> Race:
    """Over a store that deletes blindly, as S3 does: what holds there holds where deletes name a generation."""
    return Race(conditional=False, patch=monkeypatch)


def test_a_returned_reference_verifies_at_every_interleaving_of_two_switches(race: Race) -> None:
    steps = race.run((), race.marked(), race.write)
    for switches in itertools.combinations(range(steps), 2):
        race.run(switches, race.marked(), race.write)


def test_a_writer_that_slept_past_its_lease_still_returns_what_verifies(race: Race) -> None:
    def run(switches: tuple[int, ...]) -> int:
        sweep = race.marked()

        def sweep_later(step: Callable[[str], None]) -> None:
            race.memory.clock += LEASE_LIMIT + 1
            sweep(step)

        return race.run(switches, race.write, sweep_later)

    steps = run(())
    for switches in itertools.combinations(range(steps), 2):
        run(switches)


@given(st.sets(st.integers(0, 120), max_size=8), st.permutations([0, 1, 2]), st.booleans())
@settings(max_examples=60, deadline=None)
def test_two_collectors_and_a_writer_under_any_schedule(
    switches: set[int], order: list[int], conditional: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        race = Race(conditional, patch)
        race.orphan()
        actors = [race.collect, race.collect, race.write]
        race.run(switches, *(actors[number] for number in order))


def _killed(store: ArtifactStore, what: str, change: int) -> bool:
    """Run a collection or a publication in a process that is killed before its n-th change; False where it ended."""
    child = os.fork()
    if child == 0:
        try:
            _change_and_die(store.address, what, change)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    ended = os.waitstatus_to_exitcode(status)
    assert ended in (0, -signal.SIGKILL)
    return ended != 0


def _change_and_die(address: str, what: str, last: int) -> None:
    """The work of the process: dies before change number `last`, counted from 1, and else ends with 0."""
    changes = itertools.count(1)

    def dying(change: Callable[..., bool]) -> Callable[..., bool]:
        def changed(*given: object) -> bool:
            if next(changes) == last:
                os.kill(os.getpid(), signal.SIGKILL)
            return change(*given)

        return changed

    for name in ("put_bytes", "put_file", "delete"):
        setattr(LocalObjects, name, dying(getattr(LocalObjects, name)))
    store = ArtifactStore.open(address)
    if what == "collect":
        collector = Collector(store, Wish(grace=0, deprecated=True))
        collector.sweep(collector.mark())
    else:
        store.publish("datasets", "d", {"a": OLD, "b": b"new"})
    os._exit(0)


def _later(memory_root: str, folder: str, seconds: float) -> None:
    """Set the records of a local store back in time, as if `seconds` had gone by."""
    for path in (Path(memory_root) / folder).rglob("*.json"):
        os.utime(path, (path.stat().st_atime - seconds, path.stat().st_mtime - seconds))


def test_a_collector_killed_at_any_change_loses_nothing_and_the_next_one_finishes(tmp_path: Path) -> None:
    for change in itertools.count(1):
        store = ArtifactStore.open(tmp_path / str(change))
        kept = store.publish("datasets", "kept", {"a": b"kept", "shared": b"shared"})
        gone = store.publish("datasets", "gone", {"a": b"gone", "shared": b"shared"})
        deprecate(store.objects, gone, "wrong")
        store.objects.put_bytes(OLD_BLOB, OLD)
        killed = _killed(store, "collect", change)
        assert store.verify(kept) == 1
        assert gone not in set(store.references()) or store.verify(gone) == 1
        _later(store.address, "gc", 1000)
        reference = store.publish("datasets", "d", {"a": OLD}) if change % 2 else kept
        _collect(store, Wish(grace=0, deprecated=True))
        assert store.verify(reference) == 1
        assert not list(store.objects.list("gc")), f"killed before change {change}"
        assert set(store.references()) == {kept, reference}
        if not killed:
            break
    assert change > 8


def test_what_a_killed_writer_left_is_collected_once_its_lease_lapsed(tmp_path: Path) -> None:
    for change in itertools.count(1):
        store = ArtifactStore.open(tmp_path / str(change))
        if not _killed(store, "publish", change):
            break
        _collect(store)
        _later(store.address, LEASES, LEASE_LIMIT + 1)
        _collect(store)
        _collect(store)
        whole = store.exists(next(iter(store.references()), f"datasets/d/sha256-{'0' * 64}"))
        assert len(list(store.objects.list("blobs"))) == (2 if whole else 0)
        assert not list(store.objects.list("gc")) and not list(store.objects.list(LEASES))
        assert store.verify(store.publish("datasets", "d", {"a": OLD, "b": b"new"})) == 1
    assert change > 4
