"""The artifact store: what it promises about identity, verification, concurrency and killed writers."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatehouse.errors import (
    ConfigurationError,
    CorruptArtifactError,
    InvalidReferenceError,
    MissingArtifactError,
    StoreError,
)
from gatehouse.store.canonical import canonical_json, digest_of, sha256_bytes
from gatehouse.store.manifest import Column, Manifest
from gatehouse.store.publishing import NO_KINDS, manifest_of
from gatehouse.store.reference import Reference, references_in
from gatehouse.store.store import ArtifactStore
from tests.store.memory_objects import Memory, MemoryObjects

DIGEST = "0123456789abcdef" * 4


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore.open(tmp_path / "store")


def _publish(store: ArtifactStore, text: str = "hello") -> Reference:
    with store.workspace() as directory:
        (directory / "a.txt").write_text(text)
        return store.publish("datasets", "greeting", {"a.txt": directory / "a.txt", "b/c.json": "{}"}, details={"n": 1})


def test_an_artifact_of_an_input_that_is_gone_is_not_published(store: ArtifactStore) -> None:
    parent = store.publish("datasets", "t", {"a": "rows"})
    store.objects.local_path(f"{parent}/manifest.json").unlink()
    with pytest.raises(MissingArtifactError, match=f"input {parent} is not in the store"):
        store.publish("splits", "t", {"i": "index"}, derived_from={"data": parent})
    assert list(store.references()) == []


def test_publishing_returns_the_digest_of_the_manifest(store: ArtifactStore) -> None:
    reference = _publish(store)
    assert store.manifest(reference).reference == reference
    assert store.read_text(reference, "a.txt") == "hello"
    assert store.read_json(reference, "b/c.json") == {}
    assert list(store.references()) == [reference]
    files: dict[str, bytes] = {"x.sql": b"SELECT 1"}
    assert manifest_of("config", "c", files).reference == store.publish("config", "c", files)


def test_publishing_twice_changes_nothing(store: ArtifactStore) -> None:
    def times() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in Path(store.address).rglob("*") if path.is_file()}

    first, before = _publish(store), times()
    assert _publish(store) == first and times() == before


def _damage(path: Path, text: str | None) -> None:
    os.chmod(path, 0o644)
    path.unlink() if text is None else path.write_text(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [("hallo", f"has SHA-256 {sha256_bytes(b'hallo')}"), ("hel", "has 3 bytes"), (None, "is missing")],
)
def test_a_damaged_blob_is_named_and_published_again(store: ArtifactStore, text: str | None, message: str) -> None:
    reference = _publish(store)
    _damage(store.path(reference, "a.txt"), text)
    again = ArtifactStore.open(store.address)
    with pytest.raises(CorruptArtifactError, match=rf"{reference}: a\.txt {message}.*{sha256_bytes(b'hello')}"):
        again.verify(reference)
    assert again.exists(reference) == (text == "hallo"), "`exists` compares lengths"
    with pytest.raises(CorruptArtifactError, match=message):
        again.path(reference, "a.txt")
    assert not again.exists(reference), "a reader puts damaged bytes aside"
    assert _publish(store) == reference and store.verify(reference) == 1
    assert [store.objects.get_bytes(key).decode() for key in store.objects.list("quarantine")] == (
        [text] if text else []
    )


def test_publishing_over_altered_bytes_puts_them_aside(store: ArtifactStore) -> None:
    reference = _publish(store)
    _damage(store.path(reference, "a.txt"), "hallo")
    assert _publish(store) == reference and store.verify(reference) == 1
    assert [store.objects.get_bytes(key) for key in store.objects.list("quarantine")] == [b"hallo"]


def test_verify_follows_what_an_artifact_was_derived_from(store: ArtifactStore) -> None:
    parent = _publish(store)
    child = store.publish("splits", "s", {"x.json": "[]"}, derived_from={"data": parent})
    assert store.verify(child) == 2
    store.path(parent, "a.txt").unlink()
    with pytest.raises(CorruptArtifactError, match=parent.digest):
        store.verify(child)


def test_unknown_references_and_files_are_named(store: ArtifactStore) -> None:
    with pytest.raises(MissingArtifactError, match="datasets/none"):
        store.manifest(f"datasets/none/sha256-{DIGEST}")
    with pytest.raises(MissingArtifactError, match=r"no file 'z'.*a\.txt"):
        store.path(_publish(store), "z")


def test_a_store_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="expected a directory"):
        ArtifactStore.open(tmp_path / "file")


_WORKER = """
import sys
from gatehouse.store.store import ArtifactStore
with ArtifactStore.open(sys.argv[1]).workspace() as directory:
    print(directory, flush=True)
    sys.stdin.read()
"""
_SWEEPER = "import sys; from gatehouse.store.store import ArtifactStore; ArtifactStore.open(sys.argv[1]).sweep()"


@pytest.mark.parametrize("killed", [False, True])
def test_a_workspace_stays_while_its_process_lives_and_is_swept_when_it_was_killed(
    store: ArtifactStore, killed: bool
) -> None:
    command = [sys.executable, "-c", _WORKER, store.address]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdin and worker.stdout
        directory = Path(worker.stdout.readline().strip())
        (directory / "half").write_bytes(b"1")
        store.sweep()
        # As another pod would: the worker's number is unknown there.
        apart = ["unshare", "--pid", "--fork", "--mount-proc"]
        if subprocess.run([*apart, "true"], check=False, capture_output=True).returncode == 0:
            subprocess.run([*apart, sys.executable, "-c", _SWEEPER, store.address], check=True)
        assert directory.is_dir()
        worker.kill() if killed else worker.stdin.close()
    assert directory.is_dir() == killed
    store.sweep()
    assert not list(directory.parent.iterdir())


@pytest.mark.parametrize("published", [False, True])
def test_a_blob_stored_ahead_that_vanishes_while_it_is_published_leaves_no_new_manifest(published: bool) -> None:
    memory = Memory()
    store = ArtifactStore(MemoryObjects(memory))
    entry = store.keep("a", b"one")
    earlier = [store.publish("datasets", "d", {"a": entry})] if published else []

    def vanish(operation: str) -> None:
        if operation.startswith("put datasets"):
            memory.objects.pop(entry.blob)

    with pytest.raises(MissingArtifactError, match="Run again"):
        ArtifactStore(MemoryObjects(memory, vanish)).publish("datasets", "d", {"a": entry})
    assert list(store.references()) == earlier


def test_a_kind_may_not_have_the_name_of_a_folder_of_the_store(store: ArtifactStore) -> None:
    for kind in NO_KINDS:
        with pytest.raises(ConfigurationError, match=f"expected another kind than '{kind}'"):
            store.publish(kind, "d", {"a": b"one"})
    assert list(store.objects.list("blobs")) == []


def test_append_numbers_records_without_gaps(store: ArtifactStore) -> None:
    assert [store.append("log", {"k": k}) for k in range(3)] == [1, 2, 3]
    assert [json.loads(store.objects.get_bytes(key))["k"] for key in store.objects.list("log")] == [0, 1, 2]


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(_JSON)
@settings(max_examples=200, deadline=None)
def test_canonical_json_survives_a_round_trip_and_ignores_key_order(value: object) -> None:
    text = canonical_json(value)
    assert canonical_json(json.loads(text)) == text
    assert text.isascii()
    if isinstance(value, dict):
        assert digest_of(dict(reversed(list(value.items())))) == digest_of(value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"a": [float("-inf")]}])
def test_canonical_json_refuses_what_json_cannot_say(value: object) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json(value)


@given(st.text(max_size=10), st.integers(0, 5), st.dictionaries(st.sampled_from("abc"), st.integers()))
@settings(max_examples=100, deadline=None)
def test_any_change_of_a_manifest_changes_its_reference(name: str, rows: int, details: dict[str, int]) -> None:
    base = Manifest("datasets", "d", (), columns=(Column("x", "int64"),), rows=rows, details=details)
    assert Manifest.from_json(json.loads(base.to_json())) == base
    assert Manifest("datasets", "d", (), rows=rows, details=details).reference != base.reference
    changed = Manifest("datasets", "d", (), columns=(Column("x", "int64"),), rows=rows + 1, details=details)
    assert changed.reference != base.reference


def test_references_are_parsed_from_identities_and_addresses() -> None:
    identity = f"datasets/flights/sha256-{DIGEST}"
    assert str(Reference.parse(identity)) == identity
    assert Reference.parse(f"gs://acme/gatehouse/{identity}") == Reference.parse(identity)
    assert references_in({"a": [identity, "text"], "b": {"c": identity}}) == (Reference.parse(identity),)


@pytest.mark.parametrize(
    "text", ["", "datasets", f"Datasets/x/sha256-{DIGEST}", f"d/x/sha256-{DIGEST[:-1]}", "d/x/sha256-é"]
)
def test_what_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(InvalidReferenceError, match="expected <kind>/<name>/sha256-"):
        Reference.parse(text)


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    volume = tmp_path / "volume"
    volume.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(volume)]
    if os.geteuid() != 0 or shutil.which("mount") is None or subprocess.run(command, check=False).returncode:
        pytest.skip("needs root to mount a small file system")
    yield volume
    subprocess.run(["umount", "--lazy", str(volume)], check=True)


def test_a_full_disk_is_named_and_publishes_nothing(mounted: Path) -> None:
    store = ArtifactStore.open(mounted / "store")
    with pytest.raises(StoreError, match="the disk is full"):
        store.publish("datasets", "d", {"a": b"x" * 200_000})
    assert list(store.references()) == []


def test_a_volume_that_is_gone_is_missed_although_another_process_opens_its_empty_folder(
    mounted: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    try:
        subprocess.run(["mount", "--bind", str(mounted), str(folder)], check=True)
        store = ArtifactStore.open(folder)
        store.append("records", {"one": 1})
        subprocess.run(["umount", str(folder)], check=True)
        ArtifactStore.open(folder)
        with pytest.raises(StoreError, match="is gone"):
            list(store.objects.list("records"))
        subprocess.run(["mount", "--bind", str(mounted), str(folder)], check=True)
        assert list(store.objects.list("records")) and not list(store.objects.list("none"))
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=False)


def test_a_local_store_whose_volume_is_gone_is_no_empty_store(tmp_path: Path) -> None:
    store = ArtifactStore.open(tmp_path / "store")
    store.append("records", {"one": 1})
    (tmp_path / "store").rename(tmp_path / "aside")
    for folder_stays in (False, True):  # The place of a volume that is not mounted stays as an empty folder.
        if folder_stays:
            (tmp_path / "store").mkdir()
        for read in (store.objects.get_bytes, lambda key: list(store.objects.list(key)), store.objects.folders):
            with pytest.raises(StoreError, match="is gone"):
                list(read("records/000001.json"))
