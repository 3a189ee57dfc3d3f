"""The contract of an object store: what every one promises, on real protocol servers, in good and in bad weather."""

import hashlib
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gatehouse.errors import ConfigurationError, CorruptArtifactError, MissingArtifactError, StoreError
from gatehouse.store.objects.local import LocalObjects
from tests.stand_ins.servers import Fault
from tests.store.conftest import Place, refuse_listing

EVERY = pytest.mark.parametrize("place", ["local", "gs", "s3"], indirect=True)
REMOTE = pytest.mark.parametrize("place", ["gs", "s3"], indirect=True)
PART = 8 << 20
LARGE = os.urandom(1 << 20) * 17
HOUR = 3600.0


def _blob(data: bytes) -> str:
    digest = hashlib.sha256(data).hexdigest()
    return f"blobs/{digest[:2]}/{digest}.bin"


@EVERY
@pytest.mark.parametrize("data", [b"", b"small", LARGE], ids=["empty", "small", "large"])
def test_a_key_is_created_once_and_keeps_its_bytes(place: Place, tmp_path: Path, data: bytes) -> None:
    objects, path, key = place.open(), tmp_path / "file", _blob(data)
    path.write_bytes(data)
    assert objects.put_file(key, path) is True
    assert objects.put_file(key, path) is False
    assert objects.put_bytes("a/b.json", data) is True
    assert objects.put_bytes("a/b.json", b"two") is False
    assert place.open().local_path(key).read_bytes() == place.open().get_bytes("a/b.json") == data
    stat = objects.stat(key)
    assert stat is not None and stat.bytes == len(data)


@pytest.mark.parametrize("how", ["bytes", "file"])
def test_a_local_store_has_the_bytes_on_the_disk_before_the_name_and_then_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    objects, key, source, synced = (
        LocalObjects(tmp_path / "store"),
        tmp_path / "store" / "a" / "b",
        tmp_path / "file",
        [],
    )
    source.write_bytes(b"1")
    fsync = os.fsync

    def sync(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_ino, key.exists()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    objects.put_bytes("a/b", b"1") if how == "bytes" else objects.put_file("a/b", source)
    assert synced == [(key.stat().st_ino, False), (key.parent.stat().st_ino, True)]


@EVERY
def test_missing_keys_are_missing_everywhere(place: Place, tmp_path: Path) -> None:
    objects = place.open()
    for read in (objects.get_bytes, objects.local_path):
        with pytest.raises(MissingArtifactError, match="none"):
            read(f"blobs/no/{'0' * 64}.none")
    assert objects.stat("none") is None
    assert objects.renew("none") is False
    assert objects.delete("none", "1") is False
    assert list(objects.list("none")) == []
    assert list(objects.folders("none")) == []


@EVERY
def test_listings_are_sorted_complete_and_keep_to_their_folder(place: Place) -> None:
    objects = place.open()
    keys = ["f/a.json", "f/a/b", "f/a/c/d", "f/z", "f-other/a", "fa"]
    for key in reversed(keys):
        objects.put_bytes(key, b"1")
    if place.proxy is not None:
        place.server.page = 2
    assert [stat and stat.bytes for stat in objects.stats([*keys, "none"]).values()] == [1] * len(keys) + [None]
    assert list(objects.list("f")) == keys[:4]
    assert list(objects.list("f/a")) == keys[1:3]
    assert list(objects.folders("f")) == ["a"]
    assert {"f", "f-other"} <= set(objects.folders())


@EVERY
@pytest.mark.parametrize("offset", [-HOUR, 0, HOUR], ids=["clock behind", "in time", "clock ahead"])
def test_a_renewed_key_is_another_generation_of_the_same_bytes(place: Place, offset: float) -> None:
    if place.proxy is not None:
        place.server.offset = offset
    objects = place.open()
    objects.put_bytes("k", b"1")
    before = objects.stat("k")
    assert before is not None and objects.renew("k") is True
    after = objects.stat("k")
    assert after is not None and after.generation != before.generation and after.bytes == 1
    assert after.modified >= before.modified
    assert objects.delete("k", before.generation) is False
    assert objects.get_bytes("k") == b"1"
    assert objects.delete("k", after.generation) is True
    assert objects.stat("k") is None
    assert objects.put_bytes("k", b"2") is True
    assert objects.delete("k", after.generation) is False
    assert place.open().get_bytes("k") == b"2"


@pytest.mark.parametrize("folder", ["", "d", "d/x"])
def test_a_folder_that_cannot_be_read_is_no_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    objects = Place(str(tmp_path / "store")).open()
    objects.put_bytes("d/x/y", b"1")
    refuse_listing(monkeypatch, tmp_path / "store" / folder)
    with pytest.raises(StoreError, match="Permission denied"):
        list(objects.list("d") if folder else objects.folders())


@pytest.mark.parametrize("content", [b"1", Path("file"), Path("link")], ids=["bytes", "file", "link"])
def test_a_local_key_is_read_only_and_as_old_as_its_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_bytes(b"1")
    os.utime("file", (1, 1))
    Path("link").symlink_to("file")
    objects = Place(str(tmp_path / "store")).open()
    objects.put_bytes("k", content) if isinstance(content, bytes) else objects.put_file("k", content)
    stat = objects.stat("k")
    assert stat is not None and time.time() - stat.modified < HOUR
    assert objects.local_path("k").lstat().st_mode & 0o777 == 0o444


@pytest.mark.parametrize("error", [PermissionError(1, "not the owner"), OSError(30, "read-only")])
def test_a_local_key_that_may_not_be_touched_is_replaced_or_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    objects = Place(str(tmp_path / "store")).open()
    objects.put_bytes("k", b"1")
    os.utime(objects.local_path("k"), (0, 0))

    def refuse(path: Path) -> None:
        raise error

    monkeypatch.setattr(os, "utime", refuse)
    if error.errno == 1:
        assert objects.renew("k") and objects.get_bytes("k") == b"1"
        stat = objects.stat("k")
        assert stat is not None and time.time() - stat.modified < HOUR
        assert objects.local_path("k").stat().st_mode & 0o777 == 0o444
    else:
        with pytest.raises(StoreError, match="read-only"):
            objects.renew("k")


@EVERY
def test_of_several_writers_one_wins(place: Place) -> None:
    stores = [place.open() for _ in range(6)]
    for race in range(3):
        barrier = threading.Barrier(len(stores))

        def write(number: int, race: int = race, barrier: threading.Barrier = barrier) -> bool:
            barrier.wait()
            return stores[number].put_bytes(f"race/{race}", b"%d" % number)

        with ThreadPoolExecutor(len(stores)) as pool:
            won = list(pool.map(write, range(len(stores))))
        assert won.count(True) == 1
        assert stores[0].get_bytes(f"race/{race}") == b"%d" % won.index(True)


@REMOTE
@pytest.mark.parametrize("kind", ["busy", "reset", "lost", "damaged"])
@pytest.mark.parametrize("size", [100_000, len(LARGE)], ids=["small", "large"])
def test_a_write_survives_and_is_ours(place: Place, tmp_path: Path, kind: str, size: int) -> None:
    data = LARGE[:size]
    key, path = _blob(data), tmp_path / "file"
    path.write_bytes(data)
    objects = place.open()
    for method in ("PUT", "POST"):
        place.server.faults.append(Fault(kind, method, times=2))
    assert objects.put_file(key, path) is True
    assert any(fault.times < 2 for fault in place.server.faults)
    place.server.faults.clear()
    assert place.open().local_path(key).read_bytes() == data
    assert list(objects.list("blobs")) == [key]


@REMOTE
def test_a_long_file_is_sent_in_parts(place: Place, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(LARGE)
    assert place.open().put_file(_blob(LARGE), path) is True
    sent = [exchange.sent for exchange in place.server.exchanges]
    assert sum(sent) >= len(LARGE) and max(sent) <= PART + 1000


@REMOTE
def test_renewing_moves_no_bytes(place: Place) -> None:
    objects = place.open()
    objects.put_bytes("k", LARGE[:100_000])
    place.server.exchanges.clear()
    assert objects.renew("k")
    assert sum(exchange.sent + exchange.received for exchange in place.server.exchanges) < 10_000


@REMOTE
def test_a_record_whose_answer_was_lost_was_written_by_us_and_only_by_us(place: Place) -> None:
    objects = place.open()
    assert objects.put_bytes("taken", b"theirs")
    place.server.faults += [Fault("lost", "PUT"), Fault("lost", "POST")]
    assert objects.put_bytes("log/1", b"ours") is True
    place.server.faults += [Fault("lost", "PUT"), Fault("lost", "POST")]
    assert objects.put_bytes("taken", b"theirs") is False


@REMOTE
def test_a_deletion_whose_answer_was_lost_happened(place: Place) -> None:
    objects = place.open()
    objects.put_bytes("k", b"1")
    stat = objects.stat("k")
    assert stat is not None
    place.server.faults.append(Fault("lost", "DELETE"))
    assert objects.delete("k", stat.generation) is True


@REMOTE
@pytest.mark.parametrize("kind", ["busy", "reset", "lost", "cut", "truncated", "flipped"])
def test_a_read_survives(place: Place, kind: str) -> None:
    objects, data = place.open(), LARGE[: 3 << 20]
    objects.put_bytes(_blob(data), data)
    objects.put_bytes("records/r", data)
    for read in (lambda: objects.local_path(_blob(data)).read_bytes(), lambda: objects.get_bytes("records/r")):
        place.server.faults[:] = [Fault(kind, "GET", "blobs" if not place.server.faults else "records")]
        assert read() == data
        assert place.server.faults[0].times == 0


@REMOTE
@pytest.mark.parametrize("kind", ["truncated", "flipped"])
def test_what_arrives_altered_every_time_is_never_believed(place: Place, kind: str, tmp_path: Path) -> None:
    objects, data = place.open(), b"x" * 100_000
    objects.put_bytes(_blob(data), data)
    objects.put_bytes("records/r", data)
    place.server.faults.append(Fault(kind, "GET", times=1000))
    for key, read in ((_blob(data), objects.local_path), ("records/r", objects.get_bytes)):
        with pytest.raises((StoreError, CorruptArtifactError)):
            read(key)
    assert not list((tmp_path / "cache").rglob("*.bin"))


@REMOTE
@pytest.mark.parametrize(("kind", "most"), [("busy", 20), ("forbidden", 4)])
def test_a_server_that_stays_away_or_refuses_is_named(place: Place, kind: str, most: int) -> None:
    objects = place.open()
    place.server.exchanges.clear()
    place.server.faults += [Fault(kind, method, times=1000) for method in ("GET", "PUT", "POST")]
    for request in (lambda: objects.put_bytes("k", b"1"), lambda: objects.get_bytes("k")):
        with pytest.raises(StoreError, match=place.address):
            request()
    assert len(place.server.exchanges) <= most


@REMOTE
def test_a_bucket_that_does_not_exist_is_named(place: Place) -> None:
    place.address = place.address.replace("://bucket", "://nowhere")
    objects = place.open()
    for request in (lambda: objects.put_bytes("k", b"1"), lambda: list(objects.list("k")), lambda: objects.stat("k")):
        with pytest.raises(StoreError, match="bucket"):
            request()


@REMOTE
def test_missing_credentials_are_named(place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("STORAGE_EMULATOR_HOST", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(StoreError, match="credentials"):
        place.open().get_bytes("k")


@pytest.mark.parametrize(
    "address",
    [
        *("", "gs://", "s3://", "gs:///x", "gss://bucket", "gs:/bucket/x", "s3:/bucket", "file://", "gs//bucket"),
        *("memory://x", "https://host/x", "hdfs://"),
    ],
)
def test_an_address_that_names_no_place_is_refused(
    address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=r"expected .*, found"):
        Place(address).open()
    assert list(tmp_path.iterdir()) == []
