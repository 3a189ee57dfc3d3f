"""The process that writes one rank's checkpoints while the rank trains on. Imports no torch: it starts in a moment.

A large one is written in processor time that nobody else wants, so that the training loop does not feel it. When its
rank is gone (its input ends), the writer finishes the checkpoint at hand: what was staged before a kill is not lost. It
inherits a lock, which tells the next attempt to wait for that.
"""

import json
import logging
import mmap
import os
import select
import signal
import sys
from typing import Any

from gatehouse.errors import GatehouseError
from gatehouse.training.checkpointing.format import Chunk
from gatehouse.training.checkpointing.part import Request, Share, write_share
from gatehouse.training.checkpointing.status import HEAD, Status

logger = logging.getLogger(__name__)

_SMALL = 16 << 20


def main() -> None:
    """Write what the lines of standard input ask for: `<share> <buffer> <values>` are descriptors of shared memory."""
    # torchrun ends its workers by signals to their group; the writer ends when its input does.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    share_at, buffer, values = (int(argument) for argument in sys.argv[1:4])
    share = _share(read_json(share_at))
    memory = mmap.mmap(buffer, HEAD + share.bytes)
    status = Status(memory)
    if share.bytes > _SMALL:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    for line in sys.stdin:
        request = _request(json.loads(line), read_json(values))
        _serve(share, request, memory, status)


def read_json(descriptor: int) -> Any:
    """The JSON in a piece of shared memory."""
    return json.loads(os.pread(descriptor, os.fstat(descriptor).st_size, 0))


def write_json(descriptor: int, body: Any) -> None:
    """Put JSON into a piece of shared memory, in place of what was there."""
    text = json.dumps(body).encode()
    os.ftruncate(descriptor, len(text))
    os.pwrite(descriptor, text, 0)


def _serve(share: Share, request: Request, memory: mmap.mmap, status: Status) -> None:
    def told() -> None:
        status.written = request.sequence

    try:
        with memoryview(memory) as whole, whole[HEAD:] as tensors:
            write_share(share, request, tensors, _input_ended, told)
    except GatehouseError as error:
        logger.warning("%s", error)
    finally:
        status.finished = request.sequence


def _input_ended() -> bool:
    poll = select.poll()
    poll.register(0, select.POLLHUP)
    return any(event & select.POLLHUP for _, event in poll.poll(0))


def _share(body: dict[str, Any]) -> Share:
    return Share(**body | {"chunks": tuple(Chunk(**chunk) for chunk in body["chunks"])})


def _request(body: dict[str, Any], values: dict[str, Any]) -> Request:
    return Request(**body, values=values)


if __name__ == "__main__":
    main()
