"""Copies the files of a job through the store: data to the pods, and weights and result back to the launcher.

Before the launcher creates the job, it stores the files as blobs, and a record that lists them,
`jobs/<name>/<launch>/job.json`. Pods append how the job ended to `jobs/<name>/<launch>/ended`. No manifest lists the
blobs, so the launcher keeps them young, and garbage collection removes them later; those of the weights stay.
"""

import json
import logging
import re
import shutil
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gatehouse.errors import CorruptArtifactError, GatehouseError
from gatehouse.launchers.launcher import (
    ATTEMPTS,
    FAILURE,
    LOCATION,
    LOG,
    METRICS,
    OUTPUT,
    PRINTED,
    RESULT,
    WEIGHTS,
    TrainingJob,
)
from gatehouse.store.age import DAY, DAYS, store_time, touch
from gatehouse.store.builder_code import builder_code
from gatehouse.store.canonical import canonical_json, digest_of, sha256_bytes
from gatehouse.store.code import code_digest
from gatehouse.store.manifest import FileEntry, Manifest
from gatehouse.store.objects.base import side_by_side
from gatehouse.store.records import author, create_record, read_record, remove_record
from gatehouse.store.store import ArtifactStore

logger = logging.getLogger(__name__)

_OUTPUTS = (RESULT, WEIGHTS, FAILURE, METRICS, LOG, LOCATION, PRINTED, OUTPUT, ATTEMPTS, "torchrun")
_SHARD = re.compile(r".+/([0-9]+)/[^/]+")
_REST = "shards.json"  # file of a pod's directory: where the shards of the job are
Inputs = tuple[FileEntry, ...]  # the files of a job's directory, as entries of the store's blobs


@contextmanager
def uploaded_inputs(store: ArtifactStore, directory: Path) -> Iterator[Inputs]:
    """In this context the store holds the files of a job's directory, and they stay too young to be collected.

    Files that the job itself creates (checkpoints, weights, logs) are not uploaded.
    """

    def is_output(path: Path) -> bool:
        first = path.relative_to(directory).parts[0]
        return first in _OUTPUTS or first.startswith(("checkpoint", "stacks-")) or first.endswith(".tmp")

    inputs = [path for path in sorted(directory.rglob("*")) if path.is_file() and not is_output(path)]

    def keep(path: Path) -> FileEntry:
        return store.keep(path.relative_to(directory).as_posix(), path)

    entries = tuple(side_by_side(store.objects, keep, inputs))
    ended = threading.Event()

    def stay_young() -> None:
        while not ended.wait(DAY):
            try:
                touch(store.objects, [entry.blob for entry in entries])
            except GatehouseError as error:
                logger.warning("The inputs of the job could not be touched: %s", error)

    threading.Thread(target=stay_young, name="inputs", daemon=True).start()
    try:
        yield entries
    finally:
        ended.set()


@dataclass(frozen=True)
class JobRecord:
    """A job as pods know it: program, names of user code, their digest `code`, and the digest of code and files."""

    program: str
    own: tuple[str, ...]
    code: str
    digest: str
    restarts: int


def job_digest(inputs: Inputs, code: str) -> str:
    """Identifies what is trained. Two launches with the same digest share their checkpoints."""
    return digest_of([[asdict(entry) for entry in inputs], code])


def program_code(program: str, own: Sequence[str]) -> str:
    """Digest on this machine of a job's program, and of the user's own code that it calls."""
    return digest_of([code_digest(program), builder_code(*own)])


def write_record(store: ArtifactStore, folder: str, inputs: Inputs, job: TrainingJob, **about: Any) -> str:
    """Write the record of a job; returns its SHA-256, by which pods verify it."""
    program = {"program": job.program, "own": job.own, "code": program_code(job.program, job.own)}
    body = {"inputs": [asdict(entry) for entry in inputs], "about": about, "restarts": job.restarts} | program
    body["divided"] = job.divided
    data = canonical_json(body).encode()
    store.objects.put_bytes(f"{folder}/job.json", data)
    return sha256_bytes(data)


def fetch_inputs(store: ArtifactStore, folder: str, digest: str, directory: Path, *, shards: bool = True) -> JobRecord:
    """Copy the files of a job into `directory`, and verify them; `digest` is the SHA-256 of the record.

    Without `shards`, those of a divided job are left to `fetch_shards`, which knows the ranks of this machine.
    """
    data = store.objects.get_bytes(f"{folder}/job.json")
    if sha256_bytes(data) != digest:
        raise CorruptArtifactError(
            f"{folder}/job.json was altered: expected SHA-256 {digest}, found {sha256_bytes(data)}. Start the job anew."
        )
    body = json.loads(data)
    inputs = tuple(FileEntry(**entry) for entry in body["inputs"])
    rest = [entry for entry in inputs if body.get("divided") and not shards and _SHARD.fullmatch(entry.path)]
    _fetch(store, folder, [entry for entry in inputs if entry not in rest], directory)
    if rest:
        place = {"store": store.address, "folder": folder, "inputs": [asdict(entry) for entry in rest]}
        (directory / _REST).write_text(json.dumps(place))
    digest = job_digest(inputs, body["code"])
    return JobRecord(body["program"], tuple(body["own"]), body["code"], digest, body["restarts"])


def fetch_shards(directory: Path, shards: Collection[int]) -> None:
    """Copy these shards of a divided job into the directory of a pod, verify them, and remove the other ones.

    Does nothing in a directory that has all files.
    """
    if not (directory / _REST).exists():
        return
    place = json.loads((directory / _REST).read_text())
    entries = [FileEntry(**entry) for entry in place["inputs"]]
    own = {entry for entry in entries if int(_SHARD.fullmatch(entry.path)[1]) in shards}  # type: ignore[index]  # They match.
    for entry in set(entries) - own:
        (directory / entry.path).unlink(missing_ok=True)
    missing = [entry for entry in entries if entry in own and not (directory / entry.path).exists()]
    _fetch(ArtifactStore.open(place["store"]), place["folder"], missing, directory)


def report_success(store: ArtifactStore, folder: str, directory: Path) -> None:
    """Send result and weights from the job's directory, and report that the job succeeded."""
    paths = [directory / RESULT, directory / WEIGHTS]
    entries = side_by_side(store.objects, lambda path: store.keep(path.relative_to(directory).as_posix(), path), paths)
    store.append(f"{folder}/ended", {"outcome": "succeeded", "files": [asdict(entry) for entry in entries]})


def report_failure(
    store: ArtifactStore, folder: str, message: str, *, repeats: bool = False, outcome: str = "failed"
) -> None:
    """Report that the job failed, and whether the program says that every attempt with its settings would fail so.

    The outcome `hung` is that of one attempt, after which an operator may start another.
    """
    store.append(f"{folder}/ended", {"outcome": outcome, "message": message, "repeats": repeats})


def reported_end(store: ArtifactStore, folder: str) -> dict[str, Any]:
    """The last report of a pod about the end of the job; empty if there is none."""
    keys = list(store.objects.list(f"{folder}/ended"))
    return (read_record(store.objects, keys[-1]) if keys else None) or {}


def fetch_outputs(store: ArtifactStore, folder: str, ended: dict[str, Any], directory: Path) -> None:
    """Copy result and weights into `directory`, by a pod's report of success, and verify them.

    Raises:
        MissingArtifactError, CorruptArtifactError: if a file is not in the store, or differs from what the pod sent.
    """
    _fetch(store, folder, [FileEntry(**entry) for entry in ended["files"]], directory)


def remove_remains(store: ArtifactStore, name: str, digest: str) -> None:
    """Remove checkpoints, metrics and reports of a job whose model is published; its record stays.

    Checkpoints stay while another run of the same job uses them; that run removes them.
    """
    keys = list(store.objects.list(f"jobs/{name}"))
    uses, now = store.objects.stats(store.objects.list(_uses_of(digest))), store_time(store.objects)
    if not any(use is not None and now - use.modified < DAYS * DAY for use in uses.values()):
        keys += [*uses, *store.objects.list(checkpoints_of(digest))]
    for key in keys:
        if not key.endswith("/job.json"):
            remove_record(store.objects, key)


def checkpoints_of(digest: str) -> str:
    """The folder of a job's checkpoints."""
    return f"scratch/checkpoints/{digest}"


def _uses_of(digest: str) -> str:
    return f"scratch/uses/{digest}"


@contextmanager
def using_checkpoints(store: ArtifactStore, name: str, digest: str) -> Iterator[None]:
    """In this context no other run of the same job removes its checkpoints; the record of a killed one counts a week.

    A launcher that starts again has the same `name` of its job, and so the same record.
    """
    key = f"{_uses_of(digest)}/{name}.json"
    create_record(store.objects, key, author())
    try:
        yield
    finally:
        remove_record(store.objects, key)


def _fetch(store: ArtifactStore, folder: str, entries: Sequence[FileEntry], directory: Path) -> None:
    kind, name, _ = folder.split("/")
    origin = Manifest(kind, name, tuple(entries)).reference

    def fetch(entry: FileEntry) -> None:
        target = directory / entry.path
        target.parent.mkdir(parents=True, exist_ok=True)
        half = target.with_name(f"{target.name}.tmp")
        shutil.copyfile(store.verified_path(origin, entry), half)
        half.replace(target)

    side_by_side(store.objects, fetch, entries)
