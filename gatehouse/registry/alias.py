"""Resolves NAME@ALIAS to a verified folder on this machine, from local copies of the ledger and of the model's files.

A resolver answers from this machine alone, without MLflow or the store. `refresh` updates its copy of the ledger; a
server calls it every few seconds. So an answer is as old as the last refresh, and states its age. When a model gets an
alias, its files are fetched and verified before the resolver returns it, so no request waits for them.
"""

import json
import os
import shutil
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gatehouse.errors import ConfigurationError, CorruptArtifactError, GatehouseError, StoreError
from gatehouse.registry.ledger import ALIASES, Ledger
from gatehouse.store.atomic_file import write_json
from gatehouse.store.canonical import sha256_bytes, sha256_of
from gatehouse.store.objects.remote import cache_folder
from gatehouse.store.store import ArtifactStore

_VERIFIED = ".verified.json"


class UnknownAliasError(GatehouseError):
    """No version holds the alias, according to this machine's copy of the ledger."""

    exit_code = ConfigurationError.exit_code


@dataclass(frozen=True)
class Resolved:
    """The version that holds an alias.

    `path` is a folder with its verified files; never write to it. `record` is the number of ledger records in the copy,
    `age` the seconds since the ledger was last read.
    """

    name: str
    alias: str
    version: int
    model: str
    path: Path
    record: int
    age: float


class Resolver:
    """Resolves the aliases of one model, in a folder of `ledger.json` and models that several processes may share."""

    def __init__(self, address: str, model_name: str, folder: Path | None = None) -> None:
        """Open this machine's copy, by default in the user's cache; the store is not accessed."""
        self._address, self._name = address, model_name
        place = sha256_bytes(str(address).encode())[:16]
        self.folder = folder or cache_folder() / "resolved" / place / model_name
        self._store: ArtifactStore | None = None
        self._refreshing = threading.Lock()
        self._copy = _read(self.folder / "ledger.json")

    @property
    def knows(self) -> bool:
        """Whether this machine has a copy of the ledger, so that the store may be away."""
        return bool(self._copy)

    def resolve(self, alias: str, at_most: float | None = None) -> Resolved:
        """The version that holds an alias, with its files verified.

        If the copy is older than `at_most` seconds (None for any age), the ledger is read first; if the store does not
        answer, the last known answer stays, and `age` says how old it is. Without a copy the ledger must be read.
        Raises UnknownAliasError if no version holds it; StoreError, CorruptArtifactError if the ledger must be read, or
        altered files fetched again, and the store does not answer.
        """
        if not self._copy:
            self.refresh()
        elif at_most is not None and time.time() - self._copy["at"] > at_most:
            with suppress(StoreError):
                self.refresh()
        copy = self._copy
        holder = copy["aliases"].get(alias)
        if holder is None:
            raise UnknownAliasError(
                f"{self._name}@{alias}: expected an alias that a version holds after record {copy['size']} "
                f"({', '.join(sorted(copy['aliases'])) or 'none'}). Promote a version, or name another alias."
            )
        path, age = self._verified(holder["model"]), max(0.0, time.time() - copy["at"])
        return Resolved(self._name, alias, holder["version"], holder["model"], path, copy["size"], age)

    def refresh(self) -> bool:
        """Update the copy from the ledger; returns whether something changed.

        Raises StoreError if the store does not answer, or has fewer records than before (for example an empty folder
        because a volume is not mounted); the copy does not change then.
        """
        with self._refreshing:
            at = time.time()
            least = _read(self.folder / "ledger.json").get("size", 0)  # Removing the file makes a resolver forget it.
            state = Ledger(self._opened(), self._name).state()
            if state.size < least:
                raise StoreError(
                    f"{self._address} has {state.size} records of {self._name}: expected {least} or more, as were read "
                    f"before. Mount or restore the store; if an earlier copy is meant, remove {self.folder}."
                )
            holders = {alias: version for alias in ALIASES if (version := state.version(state.holder(alias)))}
            for version in holders.values():
                self._verified(version.model)
            aliases = {
                alias: {"version": version.version, "model": version.model} for alias, version in holders.items()
            }
            before = self._copy.get("size")
            self._copy = {"size": state.size, "aliases": aliases, "at": at}
            self.folder.mkdir(parents=True, exist_ok=True)
            write_json(self.folder / "ledger.json", self._copy)
            return before != state.size

    def _opened(self) -> ArtifactStore:
        if self._store is None:
            self._store = ArtifactStore.open(self._address)
        return self._store

    def _verified(self, model: str) -> Path:
        """The folder of a model. Files are hashed when they are fetched, and again if one was changed since."""
        folder = self.folder / model
        note = _read(folder / _VERIFIED)
        if note and _unchanged(folder, note["stamps"]):
            return folder
        digests: dict[str, str] = note.get("digests", {})
        files = {folder / name: digest for name, digest in digests.items()}
        if note and all(path.is_file() and sha256_of(path) == digest for path, digest in files.items()):
            _note(model, folder, digests)
            return folder
        try:
            return self._fetched(model, folder)
        except StoreError as error:
            if not note:
                raise
            raise CorruptArtifactError(
                f"{model}: files in {folder} were altered, and the store {self._address} does not answer ({error})."
            ) from error

    def _fetched(self, model: str, folder: Path) -> Path:
        """Copy the verified files of a model next to its folder, then move them into place together."""
        store = self._opened()
        manifest = store.manifest(model)
        folder.parent.mkdir(parents=True, exist_ok=True)
        half = folder.with_name(f".{uuid.uuid4().hex}")
        try:
            for entry in manifest.files:
                store.copy(model, entry.path, half / entry.path)
            _note(model, half, {entry.path: entry.sha256 for entry in manifest.files})
            if folder.exists():
                folder.rename(folder.with_name(f".{uuid.uuid4().hex}-old"))
            half.rename(folder)
        except OSError as error:
            if not folder.is_dir():
                raise StoreError(f"{folder} cannot be written: {error.strerror}. Set GATEHOUSE_CACHE.") from error
        finally:
            shutil.rmtree(half, ignore_errors=True)
            for old in folder.parent.glob(".*-old"):
                shutil.rmtree(old, ignore_errors=True)
        return self._verified(model) if (folder / _VERIFIED).is_file() else folder


def _note(model: str, folder: Path, digests: dict[str, str]) -> None:
    """Note that the files of a model are verified as they are now."""
    stamps = {name: _stamp(folder / name) for name in digests}
    write_json(folder / _VERIFIED, {"model": model, "digests": digests, "stamps": stamps})


def _read(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty if there is none."""
    try:
        body: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return body


def _unchanged(folder: Path, stamps: dict[str, list[int]]) -> bool:
    return all(_stamp(folder / name) == stamp for name, stamp in stamps.items())


def _stamp(path: Path) -> list[int]:
    """Values that change when a file is written or replaced; empty if it is gone."""
    try:
        stat = os.stat(path)
    except OSError:
        return []
    return [stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
