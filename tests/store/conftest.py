"""What tests of stores share: servers behind their proxies, and an empty place of each kind."""

import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gatehouse.store.objects import base
from gatehouse.store.objects.base import ObjectStore
from gatehouse.store.objects.opening import open_objects
from tests.stand_ins.servers import BUCKET, Proxy, gcs_server, s3_server


@pytest.fixture(scope="session")
def gcs() -> Iterator[Proxy]:
    with gcs_server() as proxy:
        yield proxy


@pytest.fixture(scope="session")
def s3() -> Iterator[Proxy]:
    with s3_server() as proxy:
        yield proxy


def refuse_listing(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Have the system refuse to list `folder`, as it refuses users without the permission; root has it."""
    listed = os.scandir

    def scandir(path: Path) -> "os._ScandirIterator[str]":
        if Path(path) == folder:
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)


@dataclass
class Place:
    """An address to open stores at, and the server behind it, where there is one."""

    address: str
    proxy: Proxy | None = None

    def open(self) -> ObjectStore:
        return open_objects(self.address)

    @property
    def server(self) -> Proxy:
        assert self.proxy is not None
        return self.proxy


@pytest.fixture
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Place]:
    """An empty place of the kind that the parameter names: `local`, `gs` or `s3`. Retries hardly wait."""
    kind: str = request.param
    monkeypatch.setattr(base, "FIRST_WAIT", 0.001)
    monkeypatch.setenv("GATEHOUSE_CACHE", str(tmp_path / "cache"))
    if kind == "local":
        yield Place(str(tmp_path / "store"))
        return
    proxy: Proxy = request.getfixturevalue("gcs" if kind == "gs" else "s3")
    for name, value in proxy.environment.items():
        monkeypatch.setenv(name, value)
    proxy.reset()
    yield Place(f"{kind}://{BUCKET}/{uuid.uuid4().hex}", proxy)
    proxy.reset()
