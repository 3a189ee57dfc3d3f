"""Copies artifacts out of a store: with their lineage to another store, or as files to a directory."""

import os
import shutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gatehouse.errors import ConfigurationError
from gatehouse.store.deprecation import marker_of
from gatehouse.store.manifest import FileEntry
from gatehouse.store.objects.local import LocalObjects
from gatehouse.store.records import create_record, read_record
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore


@dataclass(frozen=True)
class Pulled:
    """One artifact of a transfer.

    Attributes:
        reference: The artifact.
        bytes: Total length of its files.
        state: `copied`; `present` if it was there already; or `erased`, and therefore left out.
    """

    reference: Reference
    bytes: int
    state: str


def pull(
    source: ArtifactStore,
    reference: Reference | str,
    target: ArtifactStore,
    tell: Callable[[Pulled], None] | None = None,
) -> list[Pulled]:
    """Copy an artifact to another store, after all artifacts that it was derived from.

    Complete artifacts are not copied again, so an interrupted transfer continues where it stopped. Bytes are verified
    when they are read, and again in the target. The mark `deprecated` is copied too. An erased ancestor is left out.

    Args:
        source: The store to copy from.
        reference: The artifact to copy.
        target: The store to copy to.
        tell: Called after each artifact.

    Raises:
        MissingArtifactError, CorruptArtifactError: if the artifact, or an ancestor, is incomplete in the source.
        ErasedArtifactError: if it was erased in the source, or in the target.
    """
    wanted = Reference.parse(reference)
    source.erasures.require_kept(wanted)
    done = []
    for current in _parents_first(source, wanted):
        done.append(_pull_one(source, current, target))
        if tell is not None:
            tell(done[-1])
    return done


def _pull_one(source: ArtifactStore, reference: Reference, target: ArtifactStore) -> Pulled:
    manifest = source.manifest(reference)
    size = sum(entry.bytes for entry in manifest.files)
    if source.erasures.of(reference) is not None:
        return Pulled(reference, size, "erased")
    present = target.exists(reference)
    if not present:
        source.require_readable(reference)
        with target.workspace() as workspace:

            def fetch(entry: FileEntry) -> Path:
                path = source.verified_path(reference, entry)
                # A local store links the file that it gets. Two stores must not share a file: damage would hit both.
                links = isinstance(target.objects, LocalObjects)
                return Path(shutil.copyfile(path, workspace / uuid.uuid4().hex)) if links else path

            target.adopt(manifest, fetch)
        for problem in target.problems(reference):
            raise problem
    deprecated = read_record(source.objects, marker_of(reference))
    if deprecated is not None:
        create_record(target.objects, marker_of(reference), deprecated)
    return Pulled(reference, size, "present" if present else "copied")


def _parents_first(store: ArtifactStore, reference: Reference) -> list[Reference]:
    ordered: dict[Reference, None] = {}
    opened: set[Reference] = set()
    pending = [reference]
    while pending:
        current = pending[-1]
        parents = [Reference.parse(each) for each in store.manifest(current).derived_from.values()]
        unseen = [each for each in parents if each not in opened]
        if current in opened or not unseen:
            ordered[pending.pop()] = None
        else:
            pending.extend(unseen)
        opened.add(current)
    return list(ordered)


def export(store: ArtifactStore, reference: Reference | str, directory: Path) -> list[Path]:
    """Copy the files of one artifact to a plain directory, under their paths in the artifact.

    An existing file with the same bytes is not copied again, so an interrupted export continues.

    Returns:
        The files in the directory, in the order of the manifest.

    Raises:
        ConfigurationError: if a file with other bytes exists.
        GatehouseError: if the artifact cannot be read, as `ArtifactStore.path` does.
    """
    manifest = store.manifest(reference)
    written = []
    for entry in manifest.files:
        source, target = store.path(manifest.reference, entry.path), directory / entry.path
        if target.exists() and not _same(source, target):
            raise ConfigurationError(
                f"{target} exists with other content than {manifest.reference} has. Choose an empty directory."
            )
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            half = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
            shutil.copyfile(source, half)
            os.replace(half, target)
        written.append(target)
    return written


def _same(first: Path, second: Path) -> bool:
    if not second.is_file() or first.stat().st_size != second.stat().st_size:
        return False
    with open(first, "rb") as one, open(second, "rb") as other:
        while chunk := one.read(1 << 20):
            if chunk != other.read(1 << 20):
                return False
    return True
