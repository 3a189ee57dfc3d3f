"""The process that writes one rank's checkpoints while the rank trains on. Imports no torch, so that it starts fast.

A large checkpoint is written at idle priority, so that the training loop does not feel it. When its rank is gone (its
input ends), the writer finishes the checkpoint at hand: a kill does not lose what was staged before. It inherits a lock
for which the next attempt waits.
"""

import errno
import fcntl
import json
import logging
import mmap
import os
import select
import signal
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gatehouse.errors import GatehouseError, StoreError
from gatehouse.store.objects.local import LocalObjects
from gatehouse.store.objects.opening import open_objects
from gatehouse.training.checkpointing.format import BLOCK, CheckpointStore, Chunk, Part, Saved, hasher

logger = logging.getLogger(__name__)

HEAD = 4096  # bytes of the shared memory before the tensors
WRITTEN, FINISHED = 0, 1
"""The last checkpoint whose share is on disk; the last one that the writer is done with, also where it failed."""
_SMALL = 16 << 20
_LOOK_SECONDS = 0.02
_LAST_SECONDS = 5.0


@dataclass(frozen=True)
class Share:
    """What a rank writes into every checkpoint; see `Plan` and `Saved`.

    All ranks of a machine see `folder`; it is `complete` if all ranks of the run do. With several machines, only the
    far store is complete; its address is empty where checkpoints stay in the folder. Rank 0 waits `peers_seconds` for
    the parts of the other ranks.
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
    """What changes from checkpoint to checkpoint: see `Saved`."""

    sequence: int
    step: int
    reasons: tuple[str, ...]
    values: dict[str, Any]


def status_of(memory: mmap.mmap | memoryview) -> memoryview:
    """Two sequence numbers in shared memory, at `WRITTEN` and `FINISHED`, which the writer alone sets.

    Each is an aligned number of eight bytes in a typed view, so that one instruction stores or reads it whole. `struct`
    would set it to zero first.
    """
    return memoryview(memory)[:16].cast("q")


def near(folder: str | Path) -> CheckpointStore:
    """The checkpoints in a folder."""
    return CheckpointStore(LocalObjects(Path(folder)), "steps")


def scratch(folder: str | Path) -> Path:
    """Where files are written before they count, in a folder of checkpoints."""
    return Path(folder) / "tmp"


def write_share(
    share: Share, request: Request, memory: memoryview, abandoned: Callable[[], bool], written: Callable[[], None]
) -> None:
    """Write the bytes of one rank's file to the folder, call `written`, and copy them to the far store.

    With several machines, `written` is called after the copy. `abandoned` says whether the training process is gone:
    then rank 0 waits only as long as its peers need to finish, and nothing goes to the far store.
    """
    folder = near(share.folder)  # Makes the scratch folder.
    file = scratch(share.folder) / uuid.uuid4().hex

    def publish(store: CheckpointStore) -> None:
        store.put_part(request.sequence, share.rank, file, part)
        if share.rank != 0:
            return
        began, limit = time.monotonic(), share.peers_seconds
        while (parts := store.parts(request.sequence, share.world_size, request.step)) is None:
            if abandoned():
                limit = min(limit, time.monotonic() - began + _LAST_SECONDS)
            if time.monotonic() - began > limit:
                raise StoreError(
                    f"Checkpoint {request.sequence} stays incomplete: not all of {share.world_size} ranks wrote their "
                    f"part within {limit:.0f} s. The one before it stays in use."
                )
            time.sleep(_LOOK_SECONDS)
        store.commit(Saved(request.sequence, request.step, request.reasons, share.uniform, parts))
        store.prune(share.keep)

    try:
        digest = _write_file(file, memory, far=bool(share.far))
        part = Part(request.step, digest, share.bytes, share.chunks, request.values)
        if share.complete:
            publish(folder)
            written()
        if share.far and not abandoned():
            publish(CheckpointStore(open_objects(share.far), share.far_prefix))
            if not share.complete:
                written()
    finally:
        file.unlink(missing_ok=True)


def _write_file(file: Path, memory: memoryview, *, far: bool) -> str:
    """Write past the page cache, which takes more processor time than all else; returns the digest.

    The page cache is used for a block that is not whole pages, and on a file system without direct writes.
    """
    digest, flags = hasher(far=far), os.O_CREAT | os.O_EXCL | os.O_WRONLY
    try:
        try:
            descriptor = os.open(file, flags | os.O_DIRECT, 0o644)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            file.unlink(missing_ok=True)  # A file system that does not know the flag may have made the file.
            descriptor = os.open(file, flags, 0o644)
        try:
            for start in range(0, len(memory), BLOCK):
                block = memory[start : start + BLOCK]
                digest.update(block)
                while block:
                    if len(block) % mmap.PAGESIZE:
                        fcntl.fcntl(descriptor, fcntl.F_SETFL, 0)
                    try:
                        block = block[os.write(descriptor, block) :]
                    except OSError as error:
                        if error.errno != errno.EINVAL or not fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
                            raise
                        fcntl.fcntl(descriptor, fcntl.F_SETFL, 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StoreError(f"The checkpoint file {file} could not be written: {error.strerror}.") from error
    return str(digest.hexdigest())


def _read_json(descriptor: int) -> Any:
    return json.loads(os.pread(descriptor, os.fstat(descriptor).st_size, 0))


def write_json(descriptor: int, body: Any) -> None:
    """Replace the JSON in a piece of shared memory."""
    text = json.dumps(body).encode()
    os.ftruncate(descriptor, len(text))
    os.pwrite(descriptor, text, 0)


def main() -> None:
    """Serve the requests on standard input: `<share> <buffer> <values>` are descriptors of shared memory."""
    # torchrun ends its workers by signals to their group; the writer ends when its input does.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    share_at, buffer, values = (int(argument) for argument in sys.argv[1:4])
    body = _read_json(share_at)
    share = Share(**body | {"chunks": tuple(Chunk(**chunk) for chunk in body["chunks"])})
    memory = mmap.mmap(buffer, HEAD + share.bytes)
    status = status_of(memory)
    poll = select.poll()
    poll.register(0, select.POLLHUP)
    if share.bytes > _SMALL:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    for line in sys.stdin:
        request = Request(**json.loads(line), values=_read_json(values))
        try:
            with memoryview(memory) as whole, whole[HEAD:] as tensors:
                written = partial(status.__setitem__, WRITTEN, request.sequence)
                write_share(share, request, tensors, lambda: bool(poll.poll(0)), written)
        except GatehouseError as error:
            logger.warning("%s", error)
        finally:
            status[FINISHED] = request.sequence


if __name__ == "__main__":
    main()
