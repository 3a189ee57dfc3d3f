"""A server that drops no request when it ends: it answers on for some seconds, while callers learn to go elsewhere."""

import signal
import time
from types import FrameType

import uvicorn
from fastapi import FastAPI

_KEEP_ALIVE_SECONDS = 75
"""Longer than proxies keep a connection, so that none sends a request on one that is being closed."""


class DrainingServer(uvicorn.Server):
    """After a SIGTERM it is not ready, but answers for `seconds`, and each answer ends its connection.

    Then it takes no more connections, and ends with its last answer. A second signal ends the waiting.
    """

    def __init__(self, app: FastAPI, host: str, port: int, seconds: float) -> None:
        """Prepare to serve an app that has `problems.guard`."""
        super().__init__(
            uvicorn.Config(
                app, host, port, log_config=None, server_header=False, timeout_keep_alive=_KEEP_ALIVE_SECONDS
            )
        )
        self._state, self._seconds, self._until = app.state, seconds, 0.0

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end; called by a signal."""
        drains = sig == signal.SIGTERM and not self.should_exit
        self._until, self._state.draining = time.monotonic() + self._seconds * drains, True
        super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        """Whether to end now."""
        return await super().on_tick(counter) and time.monotonic() >= self._until
