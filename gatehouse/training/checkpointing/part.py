"""Writes one rank's share of a checkpoint: its file and part, and on rank 0 the manifest once all parts are there."""

import errno
import fcntl
import mmap
import os
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gatehouse.errors import StoreError
from gatehouse.store.objects.local import LocalObjects
from gatehouse.store.objects.opening import open_objects
from gatehouse.training.checkpointing.format import BLOCK, CheckpointStore, Chunk, Hasher, Part, Saved, hasher

_LOOK_SECONDS = 0.02
_LAST_SECONDS = 5.0


@dataclass(frozen=True)
class Share:
    """What stays the same from checkpoint to checkpoint.

    Attributes:
        folder: Where checkpoints lie, seen by all ranks of a machine.
        rank, world_size: Who writes, and among how many.
        chunks: Where each piece lies in the file.
        bytes: Length of the file.
        uniform: As in the manifest.
        keep: How many checkpoints are kept.
        complete: Whether the folder sees all ranks; where there are several machines, only the far store does.
        far, far_prefix: Address of the artifact store and prefix in it; empty where checkpoints stay in the folder.
        peers_seconds: For how long rank 0 waits for the parts of the others.
    """

    folder: str
    rank: int
    world_size: int
    chunks: tuple[Chunk, ...]
    bytes: int
    uniform: bool
    keep: int
    complete: bool
    far: str
    far_prefix: str
    peers_seconds: float


@dataclass(frozen=True)
class Request:
    """What changes: see `Saved`."""

    sequence: int
    step: int
    world_sizes: tuple[tuple[int, int], ...]
    reasons: tuple[str, ...]
    values: dict[str, Any]


def near(folder: str | Path) -> CheckpointStore:
    """The checkpoints in a folder."""
    return CheckpointStore(LocalObjects(Path(folder)), "steps")


def scratch(folder: str | Path) -> Path:
    """Where files are written before they count, in a folder of checkpoints."""
    return Path(folder) / "tmp"


def write_share(
    share: Share, request: Request, memory: memoryview, abandoned: Callable[[], bool], told: Callable[[], None]
) -> None:
    """Write one rank's share to the folder, call `told`, and bring it to the far store; see `Share.complete`.

    Args:
        share: What this rank writes.
        request: Which checkpoint.
        memory: The bytes of the file.
        abandoned: Whether the process that asked for it is gone: rank 0 then waits for the others no longer than they
            need to finish, and nothing goes to the far store.
        told: Called when the checkpoint is in the folder, or, of several machines, in the far store.

    Raises:
        StoreError: if it cannot be written, or the parts of the others do not come.
    """
    folder = near(share.folder)
    file = scratch(share.folder) / uuid.uuid4().hex
    try:
        digest = _write_file(file, memory, hasher(far=bool(share.far)))
        part = Part(request.step, digest, share.bytes, share.chunks, request.values)
        if share.complete:
            _publish(folder, share, request, file, part, abandoned)
            told()
        if share.far and not abandoned():
            _publish(CheckpointStore(open_objects(share.far), share.far_prefix), share, request, file, part, abandoned)
            if not share.complete:
                told()
    finally:
        file.unlink(missing_ok=True)


def _write_file(file: Path, memory: memoryview, digest: Hasher) -> str:
    """Write past the page cache: filling it takes more processor time than all else, and the training loop lacks it."""
    try:
        descriptor = _created(file)
        try:
            for start in range(0, len(memory), BLOCK):
                block = memory[start : start + BLOCK]
                digest.update(block)
                _write(descriptor, block)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StoreError(f"The checkpoint file {file} could not be written: {error.strerror}.") from error
    return digest.hexdigest()


def _created(file: Path) -> int:
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
    try:
        return os.open(file, flags | os.O_DIRECT, 0o644)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        file.unlink(missing_ok=True)  # A file system that does not know the flag may have made the file.
        return os.open(file, flags, 0o644)


def _write(descriptor: int, block: memoryview) -> None:
    """Write all of a block; through the page cache where it is not whole pages, or the file system wants it so."""
    while block:
        if len(block) % mmap.PAGESIZE:
            fcntl.fcntl(descriptor, fcntl.F_SETFL, 0)
        try:
            block = block[os.write(descriptor, block) :]
        except OSError as error:
            if error.errno != errno.EINVAL or not fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
                raise
            fcntl.fcntl(descriptor, fcntl.F_SETFL, 0)


def _publish(
    store: CheckpointStore, share: Share, request: Request, file: Path, part: Part, abandoned: Callable[[], bool]
) -> None:
    store.put_part(request.sequence, share.rank, file, part)
    if share.rank == 0:
        parts = _await_parts(store, share, request, abandoned)
        store.commit(
            Saved(request.sequence, request.step, request.world_sizes, request.reasons, share.uniform, parts),
        )
        store.prune(share.keep)


def _await_parts(
    store: CheckpointStore, share: Share, request: Request, abandoned: Callable[[], bool]
) -> tuple[str, ...]:
    began = time.monotonic()
    limit = share.peers_seconds
    while (parts := store.parts(request.sequence, share.world_size, request.step)) is None:
        if abandoned():
            limit = min(limit, time.monotonic() - began + _LAST_SECONDS)
        if time.monotonic() - began > limit:
            raise StoreError(
                f"Checkpoint {request.sequence} stays incomplete: not all of {share.world_size} ranks wrote their part "
                f"within {limit:.0f} s. The one before it stays in use."
            )
        time.sleep(_LOOK_SECONDS)
    return parts
