"""What a checkpoint is in a store: the file of each rank, a part that describes it, and the manifest last.

    <prefix>/<sequence>/<digest>.bin     the tensors of one rank, one after another
    <prefix>/<sequence>/part-<rank>.json where they lie, the other values, and the file's digest
    <prefix>/<sequence>/manifest.json    step, world size and the digests of all parts

Where the manifest is, everything else is. A digest shows a file that is missing, short or altered, and the checkpoint
before it is used. Keys are created once: a sequence number is never used again. A file that stays on its machine has an
XXH3 digest, as SHA-256 takes processor time from the training; one in a store has the SHA-256 by which stores verify.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from xxhash import xxh3_128

from gatehouse.errors import CorruptArtifactError, MissingArtifactError
from gatehouse.store.canonical import sha256_bytes
from gatehouse.store.objects.base import ObjectStore
from gatehouse.store.objects.local import LocalObjects
from gatehouse.store.records import remove_record

FORMAT = "gatehouse/checkpoint/1"
MANIFEST = "manifest.json"
BEST = "best"
BLOCK = 8 << 20  # bytes that are read or written at a time


class TornCheckpointError(CorruptArtifactError):
    """A checkpoint is not whole: the one before it is used."""

    permanent = False


@dataclass(frozen=True)
class Saved:
    """The manifest of one checkpoint, taken after `step` steps; `sequence` counts the checkpoints of a run.

    Reasons are interval, epoch, best and preemption. `uniform` says whether all ranks hold the same names (not so with
    pipeline parallelism); `parts` are the SHA-256 of each rank's part.
    """

    sequence: int
    step: int
    reasons: tuple[str, ...]
    uniform: bool
    parts: tuple[str, ...]

    @property
    def world_size(self) -> int:
        """Ranks that wrote it."""
        return len(self.parts)


@dataclass(frozen=True)
class Chunk:
    """One piece of a tensor: its place in the tensor and in a rank's file."""

    key: str
    dtype: str
    size: tuple[int, ...]
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    at: int
    bytes: int


@dataclass(frozen=True)
class Part:
    """One rank's part after `step`: digest and length of its file, the chunks in it, and the other values."""

    step: int
    digest: str
    bytes: int
    chunks: tuple[Chunk, ...]
    values: dict[str, Any]


@dataclass(frozen=True)
class CheckpointStore:
    """The checkpoints of one run under `prefix` of an object store."""

    objects: ObjectStore
    prefix: str

    def sequences(self) -> list[int]:
        """Sequence numbers in use, newest first, also of torn checkpoints."""
        return sorted((int(name) for name in self.objects.folders(self.prefix) if name.isdigit()), reverse=True)

    def put_part(self, sequence: int, rank: int, file: Path, part: Part) -> None:
        """Store a rank's file, then its part."""
        folder = self._folder(sequence)
        if part.bytes:
            self.objects.put_file(f"{folder}/{part.digest}.bin", file)
        body = asdict(part) | {"chunks": [list(asdict(chunk).values()) for chunk in part.chunks]}
        self.objects.put_bytes(f"{folder}/part-{rank}.json", json.dumps(body).encode())

    def parts(self, sequence: int, world_size: int, step: int) -> tuple[str, ...] | None:
        """Digests of all parts of `step`, or None while one is missing.

        A writer of an attempt that was killed may have left a part of another step under the same number.
        """
        keys = [f"{self._folder(sequence)}/part-{rank}.json" for rank in range(world_size)]
        if None in self.objects.stats(keys).values():
            return None
        parts = [self.objects.get_bytes(key) for key in keys]
        return tuple(map(sha256_bytes, parts)) if all(json.loads(part)["step"] == step for part in parts) else None

    def commit(self, saved: Saved) -> None:
        """Store the manifest: from now on the checkpoint counts."""
        text = json.dumps(asdict(saved) | {"format": FORMAT}, sort_keys=True)
        sealed = json.dumps({"sha256": sha256_bytes(text.encode()), "manifest": text})
        self.objects.put_bytes(f"{self._folder(saved.sequence)}/{MANIFEST}", sealed.encode())

    def saved(self) -> Iterator[Saved]:
        """Manifests that can be read, newest first."""
        for sequence in self.sequences():
            try:
                yield self.read(sequence)
            except (TornCheckpointError, MissingArtifactError):
                continue

    def read(self, sequence: int) -> Saved:
        """The manifest of one checkpoint; raises `TornCheckpointError` if it is missing or altered."""
        try:
            sealed = json.loads(self.objects.get_bytes(f"{self._folder(sequence)}/{MANIFEST}"))
            text = sealed["manifest"]
            if sha256_bytes(text.encode()) != sealed["sha256"]:
                raise self._torn(sequence, MANIFEST, "does not have the digest that it names")
        except MissingArtifactError:
            raise self._torn(sequence, MANIFEST, "is missing") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._torn(sequence, MANIFEST, f"cannot be read: {error}") from error
        body = json.loads(text)
        if body.pop("format") != FORMAT:
            raise self._torn(sequence, MANIFEST, f"is not of the format {FORMAT}")
        return Saved(**body | {"reasons": tuple(body["reasons"]), "parts": tuple(body["parts"])})

    def part(self, saved: Saved, rank: int) -> Part:
        """One rank's part, verified against the manifest; raises `TornCheckpointError` if it is missing or altered."""
        name = f"part-{rank}.json"
        try:
            text = self.objects.get_bytes(f"{self._folder(saved.sequence)}/{name}")
        except MissingArtifactError:
            raise self._torn(saved.sequence, name, "is missing") from None
        if sha256_bytes(text) != saved.parts[rank]:
            raise self._torn(saved.sequence, name, "was altered")
        body = json.loads(text)
        chunks = tuple(
            Chunk(key, dtype, tuple(size), tuple(offsets), tuple(sizes), at, length)
            for key, dtype, size, offsets, sizes, at, length in body["chunks"]
        )
        return Part(**body | {"chunks": chunks})

    def file(self, saved: Saved, part: Part, *, verify: bool = False) -> Path:
        """A local file with one rank's tensors; fetched from a far store, which verifies it.

        Raises `TornCheckpointError` if the file is missing or short, or, with `verify`, altered.
        """
        name = f"{part.digest}.bin"
        try:
            path = self.objects.local_path(f"{self._folder(saved.sequence)}/{name}")
        except (MissingArtifactError, CorruptArtifactError) as error:
            raise self._torn(saved.sequence, name, f"cannot be read: {error}") from error
        if path.stat().st_size != part.bytes:
            raise self._torn(saved.sequence, name, f"has {path.stat().st_size} bytes, expected {part.bytes}")
        if verify:
            digest = hasher(far=len(part.digest) == 64)
            with open(path, "rb", buffering=0) as stream:
                while block := stream.read(BLOCK):
                    digest.update(block)
            if digest.hexdigest() != part.digest:
                raise self._torn(saved.sequence, name, "was altered")
        return path

    def remove(self, sequence: int) -> None:
        """Remove one checkpoint, its manifest first, so that a half-removed one is never taken for whole."""
        keys = list(self.objects.list(self._folder(sequence)))
        for key in sorted(keys, key=lambda key: not key.endswith(MANIFEST)):
            remove_record(self.objects, key)
        if isinstance(self.objects, LocalObjects):
            with suppress(OSError):
                (self.objects.root / self._folder(sequence)).rmdir()

    def prune(self, keep: int) -> None:
        """Keep the last `keep` checkpoints and the last best one; remove the others, also torn ones."""
        whole = list(self.saved())
        kept = {saved.sequence for saved in whole[:keep]}
        kept |= {saved.sequence for saved in [saved for saved in whole if BEST in saved.reasons][:1]}
        newest = max(kept, default=0)
        for sequence in self.sequences():
            if sequence not in kept and sequence < newest:
                self.remove(sequence)

    def _folder(self, sequence: int) -> str:
        return f"{self.prefix}/{sequence:06d}"

    def _torn(self, sequence: int, name: str, problem: str) -> TornCheckpointError:
        where = f"{self.objects.address}/{self.prefix}"
        return TornCheckpointError(
            f"Checkpoint {sequence} in {where} is torn: {name} {problem}. The one before it is used."
        )


def hasher(*, far: bool) -> Any:
    """The digest of a rank's file: SHA-256 where the file goes to a far store, else XXH3."""
    return hashlib.sha256() if far else xxh3_128()
