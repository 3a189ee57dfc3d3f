"""A server in a thread, with a client for each scope: what tests of the routes share."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import requests
import uvicorn
from fastapi import FastAPI

from gatehouse.server.access import Scope, create_token
from gatehouse.store.store import ArtifactStore


class _Uvicorn(uvicorn.Server):
    """Tells when it listens, so that nobody has to look again and again."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listens = threading.Event()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.listens.set()


@contextmanager
def serving(app: FastAPI) -> Iterator[str]:
    """Serve an app on a free port, by the parser that `gatehouse[serve]` installs; gives its address."""
    server = _Uvicorn(uvicorn.Config(app, port=0, log_config=None, lifespan="on", http="h11"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert server.listens.wait(60)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(60)


class Client:
    """A caller with a token."""

    def __init__(self, address: str, secret: str) -> None:
        self.address, self.secret = address, secret

    def get(self, path: str, **query: Any) -> requests.Response:
        return requests.get(self.address + path, params=query, headers=self._headers(), timeout=60)

    def post(self, path: str, **body: Any) -> requests.Response:
        return requests.post(self.address + path, json=body, headers=self._headers(), timeout=60)

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.secret}"} if self.secret else {}


def client(store: ArtifactStore, address: str, name: str, *scopes: Scope) -> Client:
    """A caller with a new token. Servers learn of it within a second, so tests create it before they serve."""
    return Client(address, create_token(store, name, scopes, 1))
