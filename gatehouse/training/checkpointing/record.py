"""A checkpoint in a store: a safetensors file of each rank, and a manifest that is written last.

    <prefix>/<start>-<step>-<token>/<sha256>.safetensors   the tensors of one rank; other values are JSON in the header
    <prefix>/<start>-<step>-<token>/manifest.json          step, reasons, and the file of each rank

Where the manifest is, everything else is. A digest shows a file that is missing, short or altered, and the checkpoint
before it is used. Each start of a run has a number and a token of its own, so files that an earlier start still writes
never mix with those of the next one.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from gatehouse.errors import CorruptArtifactError, MissingArtifactError
from gatehouse.store.canonical import sha256_bytes, sha256_of
from gatehouse.store.objects.base import ObjectStore
from gatehouse.store.objects.local import LocalObjects
from gatehouse.store.records import remove_record

MANIFEST = "manifest.json"
BEST = "best"


class TornCheckpointError(CorruptArtifactError):
    """A checkpoint is not whole, or of another number of processes: the one before it is used."""

    permanent = False


@dataclass(frozen=True)
class RankFile:
    """The file of one rank: its SHA-256, and where each tensor in it begins in the whole tensor, along each axis."""

    sha256: str
    pieces: dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Saved:
    """The manifest of a checkpoint that was taken after `step` steps; `files` has one entry for each rank.

    Names sort as checkpoints were taken. Reasons are interval, epoch, best and preemption.
    """

    name: str
    step: int
    reasons: tuple[str, ...]
    files: tuple[RankFile, ...]


@dataclass(frozen=True)
class CheckpointStore:
    """The checkpoints of one run under `prefix` of an object store."""

    objects: ObjectStore
    prefix: str

    def names(self) -> list[str]:
        """Names of all checkpoints, newest first, also of those without a manifest."""
        return sorted(self.objects.folders(self.prefix), reverse=True)

    def put_file(self, name: str, path: Path) -> str:
        """Store the file of a rank; returns its SHA-256."""
        digest = sha256_of(path)
        self.objects.put_file(self._key(name, f"{digest}.safetensors"), path)
        return digest

    def commit(self, saved: Saved) -> None:
        """Store the manifest: from now on the checkpoint counts."""
        text = json.dumps(asdict(saved), sort_keys=True)
        sealed = json.dumps({"sha256": sha256_bytes(text.encode()), "manifest": text})
        self.objects.put_bytes(self._key(saved.name, MANIFEST), sealed.encode())

    def read(self, name: str, processes: int | None = None) -> Saved:
        """The manifest of a checkpoint.

        Raises `TornCheckpointError` if it is missing or altered, or not of as many `processes`, if that is given.
        """
        try:
            sealed = json.loads(self.objects.get_bytes(self._key(name, MANIFEST)))
            text = sealed["manifest"]
            if sha256_bytes(text.encode()) != sealed["sha256"]:
                raise self.torn(name, f"{MANIFEST} does not have the digest that it names")
        except MissingArtifactError:
            raise self.torn(name, f"{MANIFEST} is missing") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self.torn(name, f"{MANIFEST} cannot be read: {error}") from error
        body = json.loads(text)
        if processes not in (None, len(body["files"])):
            problem = f"it has files of {len(body['files'])} processes, and this run has {processes}"
            raise self.torn(name, f"{problem}, on whose number the bits of a model depend")
        files = tuple(
            RankFile(file["sha256"], {path: tuple(offsets) for path, offsets in file["pieces"].items()})
            for file in body["files"]
        )
        return Saved(body["name"], body["step"], tuple(body["reasons"]), files)

    def saved(self) -> Iterator[Saved]:
        """Manifests that can be read, newest first."""
        for name in self.names():
            with suppress(TornCheckpointError):
                yield self.read(name)

    def file(self, saved: Saved, rank: int, *, verify: bool = False) -> Path:
        """A local copy of the file of a rank.

        Raises `TornCheckpointError` if it is missing or, with `verify` or from a bucket, altered.
        """
        digest = saved.files[rank].sha256
        try:
            path = self.objects.local_path(self._key(saved.name, f"{digest}.safetensors"))
        except (MissingArtifactError, CorruptArtifactError) as error:
            raise self.torn(saved.name, f"the file of rank {rank} cannot be read: {error}") from error
        if verify and sha256_of(path) != digest:
            raise self.torn(saved.name, f"the file of rank {rank} was altered")
        return path

    def prune(self, keep: int) -> None:
        """Keep the last `keep` checkpoints and the last best one; remove the others, also torn ones."""
        whole = list(self.saved())
        best = [saved for saved in whole if BEST in saved.reasons][:1]
        kept = {saved.name for saved in whole[:keep] + best}
        for name in self.names():
            if name not in kept and name < max(kept, default=""):
                self._remove(name)

    def _remove(self, name: str) -> None:
        """Remove a checkpoint, its manifest first, so that a half-removed one is never taken for whole."""
        keys = list(self.objects.list(f"{self.prefix}/{name}"))
        for key in sorted(keys, key=lambda key: not key.endswith(MANIFEST)):
            remove_record(self.objects, key)
        if isinstance(self.objects, LocalObjects):
            with suppress(OSError):
                (self.objects.root / self.prefix / name).rmdir()

    def _key(self, name: str, file: str) -> str:
        return f"{self.prefix}/{name}/{file}"

    def torn(self, name: str, problem: str) -> TornCheckpointError:
        """The error of a checkpoint that is skipped."""
        return TornCheckpointError(f"Checkpoint {name} in {self.objects.address}/{self.prefix} is skipped: {problem}.")
