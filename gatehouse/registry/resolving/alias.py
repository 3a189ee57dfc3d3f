"""Resolves NAME@ALIAS to a verified folder on this machine, from local copies of the ledger and of the model's files.

A resolver answers from this machine alone. `refresh` updates its copy of the ledger; a server does this on a thread. So
an answer is as old as the last refresh, states its age, and needs neither MLflow nor the store. When a model gets an
alias, its files are fetched and verified before the resolver returns it, so no request waits for them.
"""

import json
import logging
import os
import shutil
import threading
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gatehouse.errors import ConfigurationError, CorruptArtifactError, GatehouseError, StoreError
from gatehouse.registry.ledger import Ledger
from gatehouse.registry.state import ALIASES
from gatehouse.store.atomic_file import write_json
from gatehouse.store.canonical import sha256_bytes, sha256_of
from gatehouse.store.objects.cache import cache_folder
from gatehouse.store.store import ArtifactStore

_VERIFIED = ".verified.json"

logger = logging.getLogger(__name__)


class UnknownAliasError(GatehouseError):
    """No version holds the alias, according to this machine's copy of the ledger."""

    exit_code = ConfigurationError.exit_code


@dataclass(frozen=True)
class Resolved:
    """The version that holds an alias.

    Attributes:
        name, alias: Name and alias of the request.
        version: The number of the version.
        model: Its identity.
        path: Folder with its verified files. Read them, but never write to them.
        record: Number of ledger records in the copy.
        age: Seconds since the ledger was last read.
    """

    name: str
    alias: str
    version: int
    model: str
    path: Path
    record: int
    age: float


class Resolver:
    """Resolves the aliases of one model; several processes may share its folder.

    Attributes:
        folder: Its files: `ledger.json`, and a folder for each model that held an alias.
    """

    def __init__(self, address: str, model_name: str, folder: Path | None = None) -> None:
        """Open this machine's copy; the store is not accessed.

        Args:
            address: Address of the store.
            model_name: Name under which models are registered.
            folder: Folder for its files; by default in the user's cache.
        """
        self._address, self._name = address, model_name
        place = sha256_bytes(str(address).encode())[:16]
        self.folder = folder or cache_folder() / "resolved" / place / model_name
        self._store: ArtifactStore | None = None
        self._seen: dict[str, dict[str, list[int]]] = {}
        self._refreshing = threading.Lock()
        self._known = self._read()

    @property
    def knows(self) -> bool:
        """Whether this machine has a copy of the ledger, so that the store may be away."""
        return bool(self._known)

    def resolve(self, alias: str, at_most: float | None = None) -> Resolved:
        """The version that holds an alias, with its files verified.

        Args:
            alias: One of the aliases.
            at_most: Maximum age of the answer in seconds; if the copy is older, or there is none, the ledger is read
                first. None for any age.

        Raises:
            UnknownAliasError: if no version holds it.
            StoreError: if the ledger must be read, and the store does not answer.
            CorruptArtifactError: if files here were altered, and the store cannot provide them again.
        """
        if not self._known or (at_most is not None and time.time() - self._known["at"] > at_most):
            self.refresh()
        known = self._known
        held = known["aliases"].get(alias)
        if held is None:
            held_now = ", ".join(sorted(known["aliases"]))
            expected = f"expected one of {held_now}, which versions hold after record {known['size']}"
            if not held_now:
                expected = f"no version of this name holds an alias after record {known['size']}"
            raise UnknownAliasError(f"{self._name}@{alias}: {expected}. Promote a version, or name another one.")
        path = self._verified(held["model"])
        return Resolved(
            self._name, alias, held["version"], held["model"], path, known["size"], max(0.0, time.time() - known["at"])
        )

    def refresh(self) -> bool:
        """Update the copy from the ledger; returns whether something changed.

        Raises:
            StoreError: if the store does not answer, or has fewer records than before (for example an empty folder
                because a volume is not mounted); the copy does not change then.
        """
        with self._refreshing:
            at = time.time()
            expected = self._read().get("size", 0)  # From the file: removing it makes a running resolver forget it.
            state = Ledger(self._opened(), self._name).state()
            if state.size < expected:
                raise StoreError(
                    f"{self._address} has {state.size} records of {self._name}: expected {expected} or "
                    "more, as were read before; a ledger only grows. Mount or restore the store; where it is to be "
                    f"an earlier copy, remove {self.folder}."
                )
            held = {alias: state.version(state.holder(alias)) for alias in ALIASES}
            aliases = {alias: {"version": each.version, "model": each.model} for alias, each in held.items() if each}
            for each in aliases.values():
                self._verified(str(each["model"]))
            before = self._known.get("size")
            self._known = {"size": state.size, "aliases": aliases, "at": at}
            self.folder.mkdir(parents=True, exist_ok=True)
            write_json(self.folder / "ledger.json", self._known)
            return before != state.size

    def keep_fresh(self, every: float, stop: threading.Event) -> threading.Thread:
        """Refresh on a thread every `every` seconds until `stop` is set; if the store does not answer, retry."""

        def run() -> None:
            told = ""
            while not stop.wait(every):
                try:
                    self.refresh()
                    told = ""
                except GatehouseError as error:
                    if str(error) != told:  # Once, and not at every attempt.
                        told = str(error)
                        logger.warning("%s is not brought up to the ledger: %s", self._name, told)

        thread = threading.Thread(target=run, name=f"refresh {self._name}", daemon=True)
        thread.start()
        return thread

    def _read(self) -> dict[str, Any]:
        try:
            known: dict[str, Any] = json.loads((self.folder / "ledger.json").read_text())
        except (OSError, ValueError):
            return {}
        return known

    def _opened(self) -> ArtifactStore:
        if self._store is None:
            self._store = ArtifactStore.open(self._address)
        return self._store

    def _verified(self, model: str) -> Path:
        """The folder of a model. Files are hashed when they are fetched, and again if one was changed since."""
        folder = self.folder / model
        if model not in self._seen:
            try:
                self._seen[model] = json.loads((folder / _VERIFIED).read_text())["stamps"]
            except (OSError, ValueError, KeyError):
                return self._fetched(model, folder)
        if all(_stamp(folder / name) == stamp for name, stamp in self._seen[model].items()):
            return folder
        return self._checked(model, folder)

    def _checked(self, model: str, folder: Path) -> Path:
        """Hash the files of a folder again; if one has changed, fetch all of them."""
        try:
            digests = json.loads((folder / _VERIFIED).read_text())["digests"]
        except (OSError, ValueError, KeyError):
            return self._fetched(model, folder)
        if all(_digest(folder / name) == digest for name, digest in digests.items()):
            self._note(model, folder, digests)
            return folder
        try:
            return self._fetched(model, folder)
        except StoreError as error:
            raise CorruptArtifactError(
                f"{model}: files in {folder} were altered: expected the digests in {_VERIFIED}, and the store "
                f"{self._address} does not answer ({error}). Resolve again when it is back."
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
            self._note(model, half, {entry.path: entry.sha256 for entry in manifest.files})
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
        self._seen.pop(model, None)
        return self._verified(model) if (folder / _VERIFIED).is_file() else folder

    def _note(self, model: str, folder: Path, digests: dict[str, str]) -> None:
        stamps = {name: _stamp(folder / name) for name in digests}
        write_json(folder / _VERIFIED, {"model": model, "digests": digests, "stamps": stamps})
        self._seen[model] = stamps


def _stamp(path: Path) -> list[int]:
    """Values that change when a file is written or replaced; empty if it is gone."""
    try:
        found = os.stat(path)
    except OSError:
        return []
    return [found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]


def _digest(path: Path) -> str:
    return sha256_of(path) if path.is_file() else ""
