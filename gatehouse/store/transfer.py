"""Copies artifacts out of a store: with their lineage to another store, or as files to a directory."""

import os
import shutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from graphlib import TopologicalSorter
from pathlib import Path

from gatehouse.errors import ConfigurationError
from gatehouse.store.canonical import sha256_of
from gatehouse.store.deprecation import marker_of
from gatehouse.store.erasure import erased_marker, require_kept
from gatehouse.store.manifest import FileEntry
from gatehouse.store.objects.local import LocalObjects
from gatehouse.store.records import create_record, read_record
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore


@dataclass(frozen=True)
class Pulled:
    """One artifact of a transfer.

    It is `copied`; `present`, if it was there already; `erased`, and without its files; or `unerased`, if the source
    erased it and the target still has its files.
    """

    reference: Reference
    bytes: int
    state: str


def pull(
    source: ArtifactStore,
    reference: Reference | str,
    target: ArtifactStore,
    notify: Callable[[Pulled], None] | None = None,
) -> list[Pulled]:
    """Copy an artifact to another store, after all artifacts that it was derived from.

    Complete artifacts are not copied again, so an interrupted transfer continues where it stopped. Bytes are verified
    when they are read, and again in the target. The mark `deprecated` is copied too. An erased ancestor is copied
    without its files. `notify` is called after each artifact. Raises MissingArtifactError, CorruptArtifactError if the
    artifact, or an ancestor, is incomplete in the source; ErasedArtifactError if it was erased in the source, or in the
    target.
    """
    reference = Reference.parse(reference)
    require_kept(source.objects, reference)
    pulled = []
    manifests = {manifest.reference: manifest for manifest in source.lineage(reference)}
    inputs = {current: map(Reference.parse, manifests[current].derived_from.values()) for current in manifests}
    for current in TopologicalSorter(inputs).static_order():  # Each artifact comes after those it was made from.
        manifest = manifests[current]
        size = sum(entry.bytes for entry in manifest.files)
        if (erasure := read_record(source.objects, erased_marker(current))) is not None:
            state = "erased" if read_record(target.objects, erased_marker(current)) else "unerased"
            if target.objects.stat(f"{current}/manifest.json") is None:
                state = "erased"
                body = erasure | {"record": f"{source.address}/{erasure['record']}"}
                create_record(target.objects, erased_marker(current), body)
                target.objects.put_bytes(f"{current}/manifest.json", manifest.to_json().encode())
        else:
            state = "present" if target.exists(current) else "copied"
            if state == "copied":
                source.require_readable(current)
                with target.workspace() as workspace:
                    target.adopt(manifest, partial(_fetched, source, current, target, workspace))
                for problem in target.problems(current):
                    raise problem
            if (deprecated := read_record(source.objects, marker_of(current))) is not None:
                create_record(target.objects, marker_of(current), deprecated)
        pulled.append(Pulled(current, size, state))
        if notify is not None:
            notify(pulled[-1])
    return pulled


def _fetched(
    source: ArtifactStore, reference: Reference, target: ArtifactStore, folder: Path, entry: FileEntry
) -> Path:
    path = source.verified_path(reference, entry)
    if not isinstance(target.objects, LocalObjects):
        return path
    # A local store links the file that it gets. Two stores must not share a file: damage would hit both.
    return Path(shutil.copyfile(path, folder / uuid.uuid4().hex))


def export(store: ArtifactStore, reference: Reference | str, directory: Path) -> list[Path]:
    """Copy the files of one artifact to a plain directory, under their paths in the artifact.

    An existing file with the same bytes is not copied again, so an interrupted export continues. Returns the files in
    the directory, in the order of the manifest. Raises ConfigurationError if a file with other bytes exists;
    GatehouseError if the artifact cannot be read.
    """
    manifest = store.manifest(reference)
    targets = []
    for entry in manifest.files:
        source, target = store.path(manifest.reference, entry.path), directory / entry.path
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            half = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
            shutil.copyfile(source, half)
            os.replace(half, target)
        elif not target.is_file() or sha256_of(target) != entry.sha256:
            raise ConfigurationError(
                f"{target} exists with other content than {manifest.reference} has. Choose an empty directory."
            )
        targets.append(target)
    return targets
