"""The artifact store on stores behind a network: what a transfer costs, what a kill leaves, what the cache keeps."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gatehouse.errors import ConfigurationError, CorruptArtifactError, MissingArtifactError, StoreError
from gatehouse.store import memo
from gatehouse.store import store as module
from gatehouse.store.objects import remote as caches
from gatehouse.store.objects.remote import BlobCache
from gatehouse.store.store import ArtifactStore
from tests.stand_ins.servers import Fault
from tests.store.conftest import Place

REMOTE = pytest.mark.parametrize("place", ["gs", "s3"], indirect=True)
FILES = {f"part-{number:03d}": os.urandom(20_000) for number in range(20)}  # More than are sent at once.
_CONSTANT = 16  # Lease, manifest, markers: what a commit asks however many files it has.


def _store(place: Place) -> ArtifactStore:
    return ArtifactStore.open(place.address)


def _replace(store: ArtifactStore, blob: str, data: bytes | None) -> None:
    stat = store.objects.stat(blob)
    assert stat is not None and store.objects.delete(blob, stat.generation)
    if data is not None:
        store.objects.put_bytes(blob, data)


def _received(place: Place) -> int:
    return sum(request.received for request in place.server.exchanges)


@REMOTE
def test_an_artifact_has_one_identity_everywhere(place: Place, tmp_path: Path) -> None:
    store, local = _store(place), ArtifactStore.open(tmp_path / "local")
    with store.workspace() as directory:
        (directory / "f").write_bytes(b"one")
        reference = store.publish("datasets", "d", {"f": directory / "f", "g": b"two"})
    assert local.publish("datasets", "d", {"f": b"one", "g": "two"}) == reference
    other = _store(place)
    assert list(other.references()) == [reference] and other.verify(reference) == 1
    assert [path.read_bytes() for path in other.paths(reference)] == [b"one", b"two"]
    assert other.address_of(reference) == f"{place.address}/{reference}"


@REMOTE
def test_publishing_again_sends_only_what_is_new(place: Place) -> None:
    first = _store(place).publish("datasets", "d", FILES)
    assert sum(request.sent for request in place.server.exchanges) > sum(map(len, FILES.values()))
    for new in ({}, {"part-000": b"new" * 7000}):
        place.server.exchanges.clear()
        reference = _store(place).publish("datasets", "d", FILES | new)
        assert len(place.server.exchanges) <= 2 * len(FILES) + _CONSTANT
        assert (reference == first) == (not new) and _store(place).verify(reference) == 1
        files = [request for request in place.server.exchanges if request.method in ("PUT", "POST")]
        assert sum(request.sent >= 20_000 for request in files) == len(new)


@REMOTE
@pytest.mark.parametrize("kept", [False, True])
def test_a_blob_with_another_length_is_put_aside(place: Place, kept: bool) -> None:
    digest = hashlib.sha256(b"right").hexdigest()
    place.open().put_bytes(f"blobs/{digest[:2]}/{digest}", b"wrong bytes")
    store = _store(place)
    reference = store.publish("datasets", "d", {"a": store.keep("a", b"right") if kept else b"right"})
    assert _store(place).verify(reference) == 1
    assert [store.objects.get_bytes(key) for key in store.objects.list("quarantine")] == [b"wrong bytes"]


@REMOTE
@pytest.mark.parametrize("data", [None, b"wrong"], ids=["gone", "altered"])
def test_a_blob_that_a_reader_found_damaged_is_made_again(place: Place, data: bytes | None) -> None:
    store = _store(place)
    entry = store.keep("a", b"right")
    reference = store.publish("datasets", "d", {"a": entry})
    memo.remember(store, "split", "k" * 64, {"out": str(reference)})
    assert _store(place).read_bytes(reference, "a") == b"right"
    _replace(store, entry.blob, data)
    if data is None:
        with pytest.raises(MissingArtifactError, match="Run again"):
            _store(place).publish("datasets", "e", {"a": entry})
        assert [artifact.name for artifact in store.references()] == ["d"]
    else:
        place.open().forget(entry.blob)
        assert [type(problem) for problem in store.problems(reference)] == [CorruptArtifactError]
        with pytest.raises(CorruptArtifactError, match=hashlib.sha256(b"wrong").hexdigest()):
            _store(place).path(reference, "a")
    assert memo.recall(_store(place), "split", "k" * 64) is None
    assert _store(place).publish("datasets", "d", {"a": _store(place).keep("a", b"right")}) == reference
    assert _store(place).verify(reference) == 1


@REMOTE
def test_reading_again_moves_no_bytes_of_files(place: Place) -> None:
    reference = _store(place).publish("datasets", "d", FILES)
    paths = _store(place).paths(reference)
    assert [path.read_bytes() for path in paths] == list(FILES.values())
    place.server.exchanges.clear()
    again = _store(place)
    assert again.paths(reference) == paths
    assert _received(place) < sum(map(len, FILES.values())) / 4
    place.server.exchanges.clear()
    again.paths(reference)
    assert not place.server.exchanges
    # A manifest is remembered for readers alone.
    _replace(again, f"{reference}/manifest.json", b"{}")
    assert len(again.manifest(reference).files) == len(FILES)
    assert [type(problem) for problem in again.problems(reference)] == [CorruptArtifactError]


@REMOTE
def test_few_manifests_are_remembered(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    references = [_store(place).publish("datasets", name, {"a": b"one"}) for name in "def"]
    monkeypatch.setattr(module, "_MOST_FILES", 4)  # Two manifests of one file.
    store = _store(place)
    place.server.exchanges.clear()
    assert [manifest.name for manifest in store.manifests(references * 2)] == [*"def"] * 2
    assert len(place.server.exchanges) >= len(references)
    place.server.exchanges.clear()
    for reference in references:
        store.manifest(reference)
    assert place.server.exchanges, "two of three are remembered, whichever came last"
    place.server.exchanges.clear()
    store.manifest(references[-1])
    assert not place.server.exchanges


@REMOTE
def test_verifying_keeps_nothing_on_this_machine(place: Place, tmp_path: Path) -> None:
    reference = _store(place).publish("datasets", "d", FILES)
    store = _store(place)
    place.server.exchanges.clear()
    assert store.verify(reference) == 1 and store.problems(reference) == []
    assert _received(place) >= 2 * sum(map(len, FILES.values()))
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < 20_000


@REMOTE
def test_an_altered_cached_file_is_fetched_again(place: Place) -> None:
    reference = _store(place).publish("datasets", "d", {"a": b"hello"})
    cached = _store(place).path(reference, "a")
    cached.chmod(0o644)
    cached.write_bytes(b"hallo")
    assert _store(place).read_bytes(reference, "a") == b"hello"


_KILLED_WRITER = """
import os, signal, sys
from gatehouse.store.objects.remote import RemoteObjects
from gatehouse.store.store import ArtifactStore
put = RemoteObjects.put_bytes
def dying(self, key, data):
    if sys.argv[2] in key:
        os.kill(os.getpid(), signal.SIGKILL)
    return put(self, key, data)
RemoteObjects.put_bytes = dying
ArtifactStore.open(sys.argv[1]).publish("datasets", "d", {"a": b"one", "b": b"two"})
"""


@REMOTE
@pytest.mark.parametrize("where", ["blobs", "manifest.json"])
def test_a_killed_writer_leaves_nothing_visible_and_nothing_twice(place: Place, where: str) -> None:
    command = [sys.executable, "-c", _KILLED_WRITER, place.address, where]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    store = _store(place)
    assert list(store.references()) == []
    reference = store.publish("datasets", "d", {"a": b"one", "b": b"two"})
    assert store.verify(reference) == 1
    assert len(list(store.objects.list("blobs"))) == 2


@pytest.mark.parametrize("place", ["local", "gs", "s3"], indirect=True)
def test_two_writers_of_one_artifact_agree_also_in_bad_weather(place: Place) -> None:
    for kind in ("busy", "lost", "reset") if place.proxy else ():
        place.server.faults += [Fault(kind, method, "blobs") for method in ("PUT", "POST", "HEAD", "GET")]
    stores = [_store(place) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        references = set(pool.map(lambda store: store.publish("datasets", "d", FILES), stores))
    assert len(references) == 1
    assert _store(place).verify(references.pop()) == 1
    assert len(list(stores[0].objects.list("blobs"))) == len(FILES)


@REMOTE
def test_a_recall_from_the_memo_is_a_handful_of_requests(place: Place) -> None:
    store = _store(place)
    reference = store.publish("datasets", "d", {"a": b"one"})
    memo.remember(store, "split", "k" * 64, {"out": str(reference)})
    place.server.exchanges.clear()
    assert memo.recall(_store(place), "split", "k" * 64) == {"out": str(reference)}
    assert len(place.server.exchanges) <= 8


@REMOTE
def test_work_is_done_on_this_machine(place: Place, tmp_path: Path) -> None:
    store = _store(place)
    with store.workspace() as directory:
        assert tmp_path in directory.parents and directory.is_dir()
    assert not directory.exists()
    scratch = store.scratch("job")
    assert tmp_path in scratch.parents and scratch == _store(place).scratch("job")


def _entry(data: bytes) -> str:
    return f"blobs/xx/{hashlib.sha256(data).hexdigest()}"


def test_the_cache_keeps_to_its_limit_and_what_was_used_last(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path, 2500)
    contents = [bytes([number]) * 1000 for number in range(4)]
    for age, data in zip((4000, 3000, 2000), contents[:3], strict=True):
        path = cache.get(_entry(data), lambda target, data=data: target.write_bytes(data))  # type: ignore[misc]
        os.utime(path, (time.time() - age,) * 2)
    cache.get(_entry(contents[1]), lambda _: pytest.fail("it is here"))
    cache.get(_entry(contents[3]), lambda target: target.write_bytes(contents[3]) and None)
    cached = [path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()]
    assert sorted(cached) == [contents[1], contents[3]]


def test_a_full_disk_of_the_cache_is_named_and_keeps_nothing(tmp_path: Path) -> None:
    def fetch(target: Path) -> None:
        target.write_bytes(b"new")
        raise OSError(28, "No space left on device")

    with pytest.raises(StoreError, match=r"No space left.*GATEHOUSE_CACHE"):
        BlobCache(tmp_path, 1 << 30).get(_entry(b"new"), fetch)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_limit_of_the_cache_that_is_no_number_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(caches.LIMIT, "10GB")
    with pytest.raises(ConfigurationError, match=r"^GATEHOUSE_CACHE_BYTES: .*'10GB'"):
        BlobCache.default()
