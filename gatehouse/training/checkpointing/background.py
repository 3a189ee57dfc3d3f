"""A rank's checkpoint writer seen from the training loop: started, asked, awaited, replaced when it is gone."""

import fcntl
import json
import logging
import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

from gatehouse.training.checkpointing.buffer import StagingBuffer
from gatehouse.training.checkpointing.part import Request, Share
from gatehouse.training.checkpointing.writer import write_json

logger = logging.getLogger(__name__)

_WRITER = "gatehouse.training.checkpointing.writer"
_LOOK_SECONDS = 0.002


class BackgroundWriter:
    """One writer process over one buffer; at most one checkpoint is in its hands."""

    def __init__(self, share: Share, buffer: StagingBuffer) -> None:
        self._share = share
        self._buffer = buffer
        self._values = os.memfd_create("values")
        # Held by the rank and its writer together, so that nobody sees it free before both are gone.
        self._lock = os.open(Path(share.folder) / f"writer-{share.rank}.lock", os.O_RDWR | os.O_CREAT, 0o644)
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        self._sent = 0
        self._asked: Request | None = None
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        share = os.memfd_create("share")
        try:
            write_json(share, asdict(self._share))
            handed = (share, self._buffer.descriptor, self._values, self._lock)
            return subprocess.Popen(
                [sys.executable, "-m", _WRITER, *map(str, handed[:3])],
                stdin=subprocess.PIPE,
                pass_fds=handed,
                process_group=0,
            )
        finally:
            os.close(share)

    def request(self, request: Request) -> None:
        """Have what the buffer holds written. The writer must be idle."""
        if self._process.poll() is not None:
            logger.warning("The checkpoint writer ended with exit code %s; a new one starts.", self._process.returncode)
            self._process = self._start()
        body = asdict(request)
        write_json(self._values, body.pop("values"))
        self._sent, self._asked = request.sequence, request
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(body).encode() + b"\n")
        self._process.stdin.flush()

    @property
    def idle(self) -> bool:
        """Whether nothing is in the writer's hands, so that the buffer is free."""
        return self._buffer.status.finished >= self._sent or self._process.poll() is not None

    @property
    def failed(self) -> bool:
        """Whether what was asked for last will not be written any more."""
        return self.idle and self._buffer.status.written < self._sent

    def wait(self, seconds: float) -> bool:
        """Wait until the writer is idle; returns whether it is."""
        deadline = time.monotonic() + seconds
        while not self.idle and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        return self.idle

    def abandon(self) -> Request | None:
        """End the writer at once; returns what it was writing."""
        unfinished = None if self.idle else self._asked
        self._process.kill()
        self._process.wait()
        return unfinished

    def let_go(self) -> None:
        """Ask for nothing any more: the writer finishes what it has, and ends."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        os.close(self._values)
        os.close(self._lock)

    def close(self, seconds: float) -> bool:
        """Let the writer finish, end it, and give its memory back; returns whether all was written."""
        self.wait(seconds)
        done = self._buffer.status.written >= self._sent
        assert self._process.stdin is not None
        self._process.stdin.close()
        if not done:
            self._process.kill()
        self._process.wait()
        os.close(self._values)
        os.close(self._lock)
        return done
