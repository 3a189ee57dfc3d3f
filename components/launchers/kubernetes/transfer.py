"""How a job's files travel through the store: data to the pods, and weights and result back to the launcher.

A pod does not see the launcher's directory. The launcher keeps the files as blobs and writes one record,
`jobs/<name>/<launch>/job.json`, that lists them: it is the job's identity, written before the job exists. Pods append
`jobs/<name>/<launch>/ended/<n>.json`. No manifest lists these blobs, so the collector takes them when the launcher's
lease on them has ended; the weights stay, because the model lists the same blob.
"""

import json
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gatehouse.components.artifacts.builder_code import builder_code
from gatehouse.components.artifacts.canonical import canonical_json, digest_of, sha256_bytes
from gatehouse.components.artifacts.code import code_digest
from gatehouse.components.artifacts.leases import Lease, leased
from gatehouse.components.artifacts.manifest import FileEntry, Manifest
from gatehouse.components.artifacts.records import remove_record
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.launchers.launcher import FAILURE, LOG, METRICS, PLACE, RESULT, WEIGHTS, TrainingJob
from gatehouse.errors import CorruptArtifactError

_OUTPUTS = (RESULT, WEIGHTS, FAILURE, METRICS, LOG, PLACE, "torchrun")


@dataclass(frozen=True)
class Inputs:
    """The files of a job's directory as the store holds them; `digest` tells two jobs apart."""

    entries: tuple[FileEntry, ...]

    @property
    def digest(self) -> str:
        """SHA-256 over paths and contents."""
        return sha256_bytes(canonical_json([asdict(entry) for entry in self.entries]).encode())


@contextmanager
def kept_inputs(store: ArtifactStore, directory: Path) -> Iterator[Inputs]:
    """Keep what a job needs in the store, safe from the collector for as long as the launcher lives.

    What a run of the job itself leaves (checkpoints, weights, logs) stays here.
    """
    inputs = [path for path in sorted(directory.rglob("*")) if path.is_file() and not _made(path, directory)]

    def keep(path: Path) -> FileEntry:
        return store.keep(path.relative_to(directory).as_posix(), path)

    entries = tuple(_side_by_side(store, keep, inputs))
    with Lease(store.objects, [entry.blob for entry in entries]):
        # A collector may have been at work between the two lines.
        found = store.objects.stats(entry.blob for entry in entries)
        _side_by_side(store, keep, [directory / entry.path for entry in entries if found[entry.blob] is None])
        yield Inputs(entries)


def _made(path: Path, directory: Path) -> bool:
    first = path.relative_to(directory).parts[0]
    return first in _OUTPUTS or first.startswith(("checkpoint", "preempted", "stacks-")) or first.endswith(".tmp")


@dataclass(frozen=True)
class Expected:
    """What a job is to be.

    Attributes:
        program: Module that the workers run.
        builder: Of a model of one's own; empty for none.
        code: Digest of both.
        digest: Of code and files together.
    """

    program: str
    builder: str
    code: str
    digest: str


def job_digest(inputs: Inputs, code: str) -> str:
    """Names what is trained: equal for two launches of the same job, which share their checkpoints."""
    return digest_of([inputs.digest, code])


def program_code(program: str, builder: str) -> str:
    """Digest of a job's program as it is here, and of the builder that the job names.

    A pod whose image holds another one would train another model.

    Raises:
        BuilderError: if the builder's package is not here.
    """
    return digest_of([code_digest(program), builder_code(builder)])


def write_identity(store: ArtifactStore, folder: str, inputs: Inputs, job: TrainingJob, **about: Any) -> str:
    """Write what the job is, before it exists; returns the SHA-256 of the record, which the pods are given.

    Args:
        store: Where.
        folder: `jobs/<name>/<launch>`.
        inputs: Files of the job.
        job: Names the program.
        **about: Kind, namespace and name on the cluster, for people who look for what is left of a launcher.
    """
    program = {"program": job.program, "builder": job.builder, "code": program_code(job.program, job.builder)}
    body = {"inputs": [asdict(entry) for entry in inputs.entries], "about": about} | program
    data = canonical_json(body).encode()
    store.objects.put_bytes(f"{folder}/job.json", data)
    return sha256_bytes(data)


def fetch_inputs(store: ArtifactStore, folder: str, digest: str, directory: Path) -> "Expected":
    """Lay the files of a job into `directory`, each verified.

    Returns:
        What the job is to be.

    Raises:
        MissingArtifactError, CorruptArtifactError: if record or files are not what the launcher wrote.
    """
    data = store.objects.get_bytes(f"{folder}/job.json")
    if sha256_bytes(data) != digest:
        raise CorruptArtifactError(
            f"{folder}/job.json was altered: expected SHA-256 {digest}, found {sha256_bytes(data)}. Start the job anew."
        )
    body = json.loads(data)
    entries = [FileEntry(**entry) for entry in body["inputs"]]
    _fetch(store, folder, entries, directory)
    code = str(body["code"])
    return Expected(str(body["program"]), str(body["builder"]), code, job_digest(Inputs(tuple(entries)), code))


def report_success(store: ArtifactStore, folder: str, directory: Path) -> None:
    """Keep result and weights, and say that they are the job's."""
    paths = [directory / RESULT, directory / WEIGHTS]
    entries = _side_by_side(store, lambda path: store.keep(path.relative_to(directory).as_posix(), path), paths)
    store.append(f"{folder}/ended", {"outcome": "succeeded", "files": [asdict(entry) for entry in entries]})


def report_failure(store: ArtifactStore, folder: str, message: str) -> None:
    """Say that the job failed in a way that another attempt would only repeat."""
    store.append(f"{folder}/ended", {"outcome": "failed", "message": message})


def outcome(store: ArtifactStore, folder: str) -> dict[str, Any]:
    """What a pod said last about the end of the job; empty where none did."""
    keys = list(store.objects.list(f"{folder}/ended"))
    body: dict[str, Any] = json.loads(store.objects.get_bytes(keys[-1])) if keys else {}
    return body


def fetch_outputs(store: ArtifactStore, folder: str, ended: dict[str, Any], directory: Path) -> None:
    """Lay result and weights into `directory`, each verified; raises as `fetch_inputs` does."""
    _fetch(store, folder, [FileEntry(**entry) for entry in ended["files"]], directory)


def launches(store: ArtifactStore, name: str) -> list[str]:
    """The folders of a job's launches that have ended."""
    keys = store.objects.list(f"jobs/{name}")
    return sorted({key.partition("/ended/")[0] for key in keys if "/ended/" in key})


def checkpoints_in_use(store: ArtifactStore, digest: str) -> Lease:
    """In this context nobody removes the checkpoints of a job: two runs of the same job share them."""
    return Lease(store.objects, [_checkpoints(digest)])


def forget(store: ArtifactStore, name: str, digest: str) -> None:
    """Remove what a job that has a model now would go on with; what the job was stays in its `job.json`.

    Checkpoints stay while another run of the same job goes on: that one removes them.
    """
    keys = list(store.objects.list(f"jobs/{name}"))
    if not _in_use(store, _checkpoints(digest)):
        keys += store.objects.list(_checkpoints(digest))
    for key in keys:
        if not key.endswith("/job.json"):
            remove_record(store.objects, key)


def _checkpoints(digest: str) -> str:
    return f"scratch/checkpoints/{digest}"


def _in_use(store: ArtifactStore, key: str) -> bool:
    with Lease(store.objects, []) as now:
        return key in leased(store.objects, now.raised)


def _fetch(store: ArtifactStore, folder: str, entries: Sequence[FileEntry], directory: Path) -> None:
    kind, name, _ = folder.split("/")
    origin = Manifest(kind, name, tuple(entries)).reference

    def fetch(entry: FileEntry) -> None:
        target = directory / entry.path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(store.verified_path(origin, entry), target)

    _side_by_side(store, fetch, entries)


def _side_by_side(store: ArtifactStore, work: Any, items: Sequence[Any]) -> list[Any]:
    with ThreadPoolExecutor(max(1, store.objects.parallel)) as pool:
        return list(pool.map(work, items))
