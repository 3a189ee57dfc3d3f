"""Files in a bucket: told by what the store says of them, and read only where that changed."""

from collections.abc import Callable, Iterator
from typing import Any

import fsspec
import pytest
from moto.server import ThreadedMotoServer

from gatehouse.data.sources.raw_file import RawFile
from tests.data.snapshot.conftest import HEADER, Events, rows


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of an empty bucket on a real S3 server."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    files = fsspec.filesystem("s3", skip_instance_cache=True)
    fsspec.filesystem("s3").clear_instance_cache()
    files.mkdir("raw")
    yield "s3://raw/events"
    server.stop()


def test_only_what_changed_in_a_bucket_is_opened(
    events: Events, bucket: str, reads: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    really = RawFile.open

    def noted(file: RawFile) -> Any:
        opened.append(file.name)
        return really(file)

    monkeypatch.setattr(RawFile, "open", noted)
    files = fsspec.filesystem("s3", skip_instance_cache=True)
    for day in range(3):
        files.pipe_file(f"raw/events/{day}.csv", (HEADER + rows(day * 200, day * 200 + 200)).encode())
    events.table = {"member": "*.csv"}
    here = events.take(location=bucket)
    assert here.rows == {"events": 600} and reads() > 15
    opened.clear()
    files.pipe_file("raw/events/3.csv", (HEADER + rows(600, 640)).encode())
    assert events.read(events.take(location=bucket))["id"].to_pylist() == list(range(640))
    assert opened == ["3.csv"] and reads() == 2
