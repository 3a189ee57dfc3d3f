"""Garbage collection: no interleaving with writers and no kill loses a reference."""

import itertools
import os
import signal
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatehouse.errors import CorruptArtifactError
from gatehouse.store import leases
from gatehouse.store.collection import Collection, Collector
from gatehouse.store.deprecation import deprecate
from gatehouse.store.leases import LEASE_LIMIT, LEASES, SWEEPS
from gatehouse.store.objects.local import LocalObjects
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore
from tests.store.conftest import NOW, OLD, OLD_BLOB, collect
from tests.store.memory_objects import Memory, MemoryObjects, Schedule

# The race: a writer finds an old unreferenced blob, skips the upload, and the collector deletes it.


class Race:
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
        collect(self.store(step))

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
        assert not [key for key in self.memory.objects if key.startswith(SWEEPS)], trace
        return self._schedule.steps

    def orphan(self) -> None:
        self.memory.objects.clear()
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
    changes = itertools.count(1)

    def dying(change: Callable[..., bool]) -> Callable[..., bool]:
        def changed(*arguments: object) -> bool:
            if next(changes) == last:
                os.kill(os.getpid(), signal.SIGKILL)
            return change(*arguments)

        return changed

    for name in ("put_bytes", "put_file", "delete"):
        setattr(LocalObjects, name, dying(getattr(LocalObjects, name)))
    store = ArtifactStore.open(address)
    if what == "collect":
        collector = Collector(store, Collection(grace=0, deprecated=True))
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
        collect(store, Collection(grace=0, deprecated=True))
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
        collect(store)
        _later(store.address, LEASES, LEASE_LIMIT + 1)
        collect(store)
        collect(store)
        whole = store.exists(next(iter(store.references()), f"datasets/d/sha256-{'0' * 64}"))
        assert len(list(store.objects.list("blobs"))) == (2 if whole else 0)
        assert not list(store.objects.list("gc")) and not list(store.objects.list(LEASES))
        assert store.verify(store.publish("datasets", "d", {"a": OLD, "b": b"new"})) == 1
    assert change > 4
