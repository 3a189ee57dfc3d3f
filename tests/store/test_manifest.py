"""Manifests are read as what they are, or refused: nothing in one leads outside of its artifact and its blobs."""

import json
from pathlib import Path
from typing import Any

import pytest

from gatehouse.errors import InvalidManifestError
from gatehouse.store.canonical import canonical_json, sha256_bytes
from gatehouse.store.collection import collect
from gatehouse.store.eraser import erase, plan_erasure
from gatehouse.store.manifest import Column, FileEntry, Manifest, Shard
from gatehouse.store.publishing import manifest_of
from gatehouse.store.store import ArtifactStore

GOOD = "0" * 64


def _plant(store: ArtifactStore, data: bytes, name: str = "crafted") -> str:
    reference = f"datasets/{name}/sha256-{sha256_bytes(data)}"
    store.objects.put_bytes(f"{reference}/manifest.json", data)
    return reference


def _crafted(**changes: Any) -> bytes:
    body = json.loads(manifest_of("datasets", "crafted", {"a": b"rows"}).to_json())
    file = {name: changes.pop(name) for name in list(changes) if name in body["files"][0]}
    body["files"][0] |= file
    return canonical_json(body | changes).encode()


WRITTEN = (
    '{"columns":[{"name":"delay","nullable":true,"type":"double"}],"configuration":{"share":0.1},'
    f'"derived_from":{{"snapshot":"snapshots/raw/sha256-{GOOD}"}},"details":{{"\\u00fc":[1,null]}},'
    f'"files":[{{"bytes":4,"path":"a.parquet","rows":3,"sha256":"{GOOD}","suffix":".parquet"}}],'
    '"format":"gatehouse/manifest/1","kind":"datasets","name":"flights","rows":3,'
    '"schema_sha256":"780dc55f26a4086aca118c9eb9dac905840992d0346af12a6da9d0c0ab5c8d78",'
    '"shards":[{"path":"a.parquet","rows":3,"start":0}]}'
)


def test_what_is_written_has_these_bytes_or_another_format() -> None:
    """No code digest holds what writes manifests: written otherwise, equal results would have other references."""
    written = Manifest(
        "datasets",
        "flights",
        (FileEntry("a.parquet", GOOD, 4, 3, ".parquet"),),
        columns=(Column("delay", "double", True),),
        rows=3,
        shards=(Shard("a.parquet", 0, 3),),
        derived_from={"snapshot": f"snapshots/raw/sha256-{GOOD}"},
        configuration={"share": 0.1},
        details={"ü": [1, None]},
    )
    assert written.to_json() == WRITTEN


FIELDS: dict[str, list[Any]] = {
    "sha256": ["../victim/keys", GOOD + "\n", GOOD.replace("0", "A"), None],
    "suffix": ["/../../victim", ".a\0", ".a\n", "x"],
    "path": ["../a", "/a", "a//b", "a/./b", "a/", "", "a\nb", "a\0", "a\\b", 7],
    "bytes": [-1, True],
    "rows": ["3"],
    "shards": [[{"path": "../a", "rows": 1, "start": 0}]],
    "derived_from": [{"t": f"../../victim/datasets/d/sha256-{GOOD}"}, {"t": f"datasets/../sha256-{GOOD}"}, {"t": 7}],
}
BODIES = {
    "no JSON": b"rows",
    "no text": b"\xff\xfe",
    "a list": b"[]",
    "nested too deeply": b"[" * 100_000,
    "no files": _crafted(files=None),
    "a file too many": _crafted(files=[{"path": "a"}] * 2),
    "a field too many": _crafted(other=1),
    "not canonical": _crafted() + b"\n",
    "NaN": _crafted(rows=7).replace(b'"rows":7', b'"rows":NaN'),
    "another name": _crafted(name="other"),
    "no name": _crafted(name="../x"),
    "another format": _crafted(format="gatehouse/manifest/9"),
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field in FIELDS for value in FIELDS[field]])
def test_no_field_of_a_manifest_leads_elsewhere(store: ArtifactStore, field: str, value: object) -> None:
    reference = _plant(store, _crafted(**{field: value}))
    with pytest.raises(InvalidManifestError, match=rf"crafted.*: {field}.*expected .*found"):
        store.manifest(reference)


@pytest.mark.parametrize("data", BODIES.values(), ids=BODIES)
def test_what_cannot_be_read_is_found_by_verify_and_gc_which_go_on(store: ArtifactStore, data: bytes) -> None:
    good = store.publish("datasets", "good", {"a": b"rows"})
    reference = _plant(store, data)
    assert [type(problem) for problem in store.problems(reference)] == [InvalidManifestError]
    assert store.problems(good) == []
    items = collect(store, days=0, dry_run=True)
    assert [(item.key, item.state) for item in items] == [(f"{reference}/manifest.json", "broken")]


def test_no_erasure_deletes_a_file_outside_of_the_store(tmp_path: Path) -> None:
    store = ArtifactStore.open(tmp_path / "store")
    assert store.manifest(_plant(store, _crafted())).files[0].path == "a"
    (tmp_path / "store" / "blobs").mkdir()
    victim = tmp_path / "victim"
    victim.write_text("precious")
    with pytest.raises(InvalidManifestError):
        erase(store, plan_erasure(store, _plant(store, _crafted(sha256="../victim", bytes=8)), only=True), "request 17")
    assert victim.read_text() == "precious"


def test_nothing_is_published_under_such_a_path(store: ArtifactStore) -> None:
    with pytest.raises(InvalidManifestError, match=r"^path: "):
        store.publish("datasets", "d", {"a/../../b": b"rows"})
    assert list(store.objects.list("blobs")) == []
