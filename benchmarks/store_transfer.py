"""Transfers to a store behind a network, beside the plain loop over the same client's calls.

The servers are those of the tests, in a process of their own, with the round trip of a store in the same region. Prints
seconds up and down, what publishing again with 1 % new costs in requests and bytes, and fails above the limits. The GCS
emulator writes one object at a time, so its time up is printed and not judged.
"""

import argparse
import multiprocessing
import os
import sys
import tempfile
import uuid
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from _race import seconds_of

from gatehouse.store.objects.remote import FOLDER
from gatehouse.store.store import ArtifactStore
from tests.stand_ins.servers import BUCKET, gcs_server, s3_server

TIME_LIMIT = 0.9  # Of the plain loop's seconds.
BYTES_LIMIT = 0.05  # Of the first publication's bytes, where 1 % is new.


def main() -> int:
    """Measure both protocols; 0 where every ratio keeps its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--bytes", type=int, default=1_000_000, help="of each file")
    parser.add_argument("--delay", type=float, default=0.02, help="seconds of a round trip")
    options = parser.parse_args()
    kept = True
    with tempfile.TemporaryDirectory() as directory:
        files = _files(Path(directory) / "files", options.files, options.bytes)
        for scheme, plain in (("gs", _Gcs), ("s3", _S3)):
            os.environ[FOLDER] = f"{directory}/cache-{scheme}"
            kept &= _measure(scheme, plain, files, options.delay, Path(directory))
    return 0 if kept else 1


def _files(folder: Path, count: int, size: int) -> dict[str, Path]:
    folder.mkdir()
    for number in range(count):
        (folder / f"{number:05d}.bin").write_bytes(os.urandom(size))
    return {path.name: path for path in sorted(folder.iterdir())}


def _measure(scheme: str, plain: type["_Gcs | _S3"], files: dict[str, Path], delay: float, scratch: Path) -> bool:
    parent_end, child_end = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=_serve, args=(scheme, delay, child_end), daemon=True)
    server.start()
    os.environ.update(parent_end.recv())

    def counted() -> tuple[int, int, int]:
        parent_end.send("count")
        return parent_end.recv()

    size = sum(path.stat().st_size for path in files.values())
    print(f"{scheme}: {len(files)} files of {size / len(files) / 1e6:.1f} MB, a round trip of {delay * 1000:.0f} ms")
    client = plain()
    address = f"{scheme}://{BUCKET}/{uuid.uuid4().hex}"
    store = ArtifactStore.open(address)
    loop_up = seconds_of(lambda: [client.put(name, path) for name, path in files.items()])
    counted()
    up = seconds_of(lambda: store.publish("datasets", "d", files))
    requests, first_bytes, _ = counted()
    (reference,) = store.references()
    (scratch / "loop").mkdir(exist_ok=True)
    loop_down = seconds_of(lambda: [client.get(name, scratch / "loop" / name) for name in files])
    down = seconds_of(lambda: ArtifactStore.open(address).paths(reference))
    print(f"  up: loop {loop_up:.2f} s, publish {up:.2f} s, ratio {up / loop_up:.2f}, {requests} requests")
    print(f"  down: loop {loop_down:.2f} s, paths {down:.2f} s, ratio {down / loop_down:.2f}")
    again = seconds_of(lambda: ArtifactStore.open(address).paths(reference))
    print(f"  down again, from the cache: {again:.2f} s")
    for name in list(files)[: max(1, len(files) // 100)]:
        files[name].write_bytes(os.urandom(files[name].stat().st_size))
    counted()
    renewed = seconds_of(lambda: ArtifactStore.open(address).publish("datasets", "d", files))
    requests, sent, _ = counted()
    share = sent / first_bytes
    print(f"  up again with 1 % new: {renewed:.2f} s, {requests} requests, {sent:,} bytes, {share:.3f} of the first")
    server.terminate()
    server.join()
    ratio = max(up / loop_up if scheme == "s3" else 0.0, down / loop_down)
    print(f"  time ratio {ratio:.2f}, limit {TIME_LIMIT}; bytes ratio {share:.3f}, limit {BYTES_LIMIT}")
    return ratio <= TIME_LIMIT and share <= BYTES_LIMIT


def _serve(scheme: str, delay: float, pipe: Connection) -> None:
    with (gcs_server if scheme == "gs" else s3_server)() as proxy:
        proxy.delay = delay
        pipe.send(proxy.environment)
        while pipe.recv():
            seen = proxy.exchanges[:]
            proxy.exchanges.clear()
            pipe.send((len(seen), sum(client.sent for client in seen), sum(client.received for client in seen)))


class _Gcs:
    def __init__(self) -> None:
        from google.cloud import storage

        self.bucket: Any = storage.Client().bucket(BUCKET)

    def put(self, name: str, path: Path) -> None:
        self.bucket.blob(f"loop/{name}").upload_from_filename(str(path), if_generation_match=0)

    def get(self, name: str, path: Path) -> None:
        self.bucket.blob(f"loop/{name}").download_to_filename(str(path))


class _S3:
    def __init__(self) -> None:
        from botocore.session import get_session

        self.client: Any = get_session().create_client("s3")

    def put(self, name: str, path: Path) -> None:
        self.client.put_object(Bucket=BUCKET, Key=f"loop/{name}", Body=path.read_bytes(), IfNoneMatch="*")

    def get(self, name: str, path: Path) -> None:
        path.write_bytes(self.client.get_object(Bucket=BUCKET, Key=f"loop/{name}")["Body"].read())


if __name__ == "__main__":
    sys.exit(main())
