"""A rank's checkpoint writer as the training loop sees it: the buffer of the staged copy, and the process.

The buffer is shared with the writer and reused: a first copy into fresh memory costs ten times a later one, as every
page is mapped then, so all pages are touched when the buffer is made.
"""

import fcntl
import json
import logging
import mmap
import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor

from gatehouse.training.checkpointing.plan import Plan
from gatehouse.training.checkpointing.writer import FINISHED, HEAD, WRITTEN, Request, Share, status_of, write_json

logger = logging.getLogger(__name__)

_WRITER = "gatehouse.training.checkpointing.writer"
_LOOK_SECONDS = 0.002


class StagingBuffer:
    """Shared memory of the size of what this rank writes; its head holds the writer's status."""

    def __init__(self, plan: Plan) -> None:
        self.descriptor = os.memfd_create("checkpoint")
        os.ftruncate(self.descriptor, HEAD + plan.bytes)
        self._memory = mmap.mmap(self.descriptor, HEAD + plan.bytes)
        self.status = status_of(self._memory)
        self._whole = whole = torch.frombuffer(self._memory, dtype=torch.uint8)
        whole[HEAD:].zero_()
        # Let a GPU write directly into the buffer. A training on CPUs does not start CUDA, also where there are GPUs.
        self._pinned = False
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch has none
            runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]  # torch has none
            self._pinned = int(runtime.cudaHostRegister(whole.data_ptr(), whole.numel(), 0)) == 0
        self._targets = [
            whole[HEAD + chunk.at : HEAD + chunk.at + chunk.bytes].view(getattr(torch, chunk.dtype)).view(chunk.sizes)
            for chunk in plan.chunks
        ]

    @property
    def tensors(self) -> memoryview:
        """The bytes of the file."""
        return memoryview(self._memory)[HEAD:]

    @torch.no_grad()
    def copy(self, pieces: list[Tensor]) -> None:
        """Copy the pieces of the plan, in its order and of its shapes; they may change as soon as this returns."""
        for target, piece in zip(self._targets, pieces, strict=True):
            target.copy_(piece, non_blocking=self._pinned)
        if self._pinned:
            torch.cuda.synchronize()

    def close(self) -> None:
        """Release the memory; a writer that is at work keeps it until it has ended."""
        if self._pinned:
            torch.cuda.cudart().cudaHostUnregister(self._whole.data_ptr())  # type: ignore[no-untyped-call]  # torch has none
        os.close(self.descriptor)  # The memory itself goes with the last tensor that views it.


class BackgroundWriter:
    """One writer process over one buffer; it writes at most one checkpoint at a time."""

    def __init__(self, share: Share, buffer: StagingBuffer) -> None:
        self._share = share
        self._buffer = buffer
        self._values = os.memfd_create("values")
        # The rank and its writer hold the lock together, so that nobody sees it free before both are gone.
        self._lock = os.open(Path(share.folder) / f"writer-{share.rank}.lock", os.O_RDWR | os.O_CREAT, 0o644)
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        self._sent = 0
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        share = os.memfd_create("share")
        try:
            write_json(share, asdict(self._share))
            descriptors = (share, self._buffer.descriptor, self._values, self._lock)
            return subprocess.Popen(
                [sys.executable, "-m", _WRITER, *map(str, descriptors[:3])],
                stdin=subprocess.PIPE,
                pass_fds=descriptors,
                process_group=0,
            )
        finally:
            os.close(share)

    def request(self, request: Request) -> None:
        """Have the content of the buffer written. The writer must be idle."""
        if self._process.poll() is not None:
            logger.warning("The checkpoint writer ended with exit code %s; a new one starts.", self._process.returncode)
            self._process = self._start()
        body = asdict(request)
        write_json(self._values, body.pop("values"))
        self._sent = request.sequence
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(body).encode() + b"\n")
        self._process.stdin.flush()

    @property
    def idle(self) -> bool:
        """Whether the writer writes nothing, so that the buffer is free."""
        return self._buffer.status[FINISHED] >= self._sent or self._process.poll() is not None

    @property
    def failed(self) -> bool:
        """Whether the last request will not be written any more."""
        return self.idle and self._buffer.status[WRITTEN] < self._sent

    def wait(self, seconds: float) -> bool:
        """Wait until the writer is idle; returns whether it is."""
        deadline = time.monotonic() + seconds
        while not self.idle and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        return self.idle

    def abandon(self) -> None:
        """End the writer at once."""
        self._process.kill()
        self._process.wait()

    def let_go(self) -> None:
        """Send no more requests: the writer finishes its last one, and ends."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        os.close(self._values)
        os.close(self._lock)

    def close(self, seconds: float) -> bool:
        """Let the writer finish, end it, and release its memory; returns whether all was written."""
        self.wait(seconds)
        done = self._buffer.status[WRITTEN] >= self._sent
        self.let_go()
        if not done:
            self._process.kill()
        self._process.wait()
        return done
