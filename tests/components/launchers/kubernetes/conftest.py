"""A job with nothing to train, for launchers whose pods are scripted."""

import hashlib
import json
from pathlib import Path

import pytest

from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.launchers.kubernetes.api import ApiTimeouts
from gatehouse.components.launchers.kubernetes.transfer import fetch_inputs, report_success
from gatehouse.components.launchers.launcher import JOB, RESULT, WEIGHTS, TrainingJob
from tests.kubernetes_api import Cluster, Object, container_of

TIMEOUTS = ApiTimeouts(
    request=5.0, retry=1.5, first_pause=0.005, longest_pause=0.05, resync=0.1, min_interval=0.005, cleanup=1.5
)


@pytest.fixture
def job(tmp_path: Path) -> TrainingJob:
    directory = tmp_path / "job"
    (directory / "train").mkdir(parents=True)
    (directory / JOB).write_text("{}")
    (directory / "train" / "labels.npy").write_bytes(b"labels")
    return TrainingJob(directory, "tests.components.training.stand_in", processes=1, timeout_minutes=1)


def train(job: Object, folder: Path, weights: bytes = b"weights", named: bytes = b"weights") -> None:
    """Do what a pod does that trains: fetch, and send a result that names the weights `named`."""
    _, container = container_of(job)
    address, at, record = container["command"][3:6]
    store = ArtifactStore.open(address)
    fetch_inputs(store, at, record, folder)
    assert (folder / "train" / "labels.npy").read_bytes() == b"labels"
    store.append(f"{at}/pods", {"environment": {"gatehouse.hardware": "of the pod"}})
    (folder / WEIGHTS).write_bytes(weights)
    (folder / RESULT).write_text(json.dumps({"weights_sha256": hashlib.sha256(named).hexdigest()}))
    report_success(store, at, folder)


def succeed(cluster: Cluster, job: Object) -> None:
    """The scenario in which all goes well."""
    pod = cluster.add_pod(job)
    cluster.start(job, pod)
    cluster.say(pod, "epoch 1/1")
    folder = Path(container_of(job)[1]["command"][3]).parent / f"pod-{pod['metadata']['uid']}"
    folder.mkdir()
    train(job, folder)
    cluster.end(job, pod, 0)
    cluster.conclude(job, succeeded=True)
