"""Shards of a job on several nodes: each has the rows of its own ranks, and the model is that of one node."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gatehouse.errors import CorruptArtifactError
from gatehouse.launchers.kubernetes.transfer import (
    fetch_inputs,
    fetch_outputs,
    fetch_shards,
    reported_end,
    uploaded_inputs,
    write_record,
)
from gatehouse.launchers.launcher import RESULT, TrainingJob
from gatehouse.launchers.ranks import FAULT
from gatehouse.store.manifest import FileEntry
from gatehouse.store.records import remove_record
from gatehouse.store.store import ArtifactStore
from gatehouse.training.job import prepare_job
from gatehouse.training.spec import TrainSpec
from gatehouse.training.stage import PROGRAM
from tests.ports import free_port
from tests.training import synthetic
from tests.training.specs import network, trees

NETWORK = network(hidden=(8,), dropout=0.2, batch_size=128, epochs=3, processes=2, patience=10)
TREES = trees(processes=2, rounds=4, loss="huber")


def _record(store: ArtifactStore, tmp_path: Path, spec: TrainSpec) -> str:
    """Prepare a job; returns the digest of its record in the folder `jobs/gatehouse-1/first`."""
    directory = tmp_path / "prepared"
    directory.mkdir()
    prepare_job(store, *synthetic.fitted_data(store), spec, directory)
    job = TrainingJob(directory, PROGRAM, spec.parallelism.processes, 5.0, divided=True)
    with uploaded_inputs(store, directory) as inputs:
        return write_record(store, "jobs/gatehouse-1/first", inputs, job)


def _files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*.npy")}


def test_a_node_has_the_shards_of_its_ranks_also_when_these_change(store: ArtifactStore, tmp_path: Path) -> None:
    record = _record(store, tmp_path, network(batch_size=128, processes=4))
    node = tmp_path / "node"
    node.mkdir()
    fetch_inputs(store, "jobs/gatehouse-1/first", record, node, shards=False)
    common = {"train/sizes.npy", "validation/labels.npy"}
    assert _files(node) == common
    whole = _files(tmp_path / "prepared")
    for shards in ({0, 1}, {1, 3}):
        fetch_shards(node, shards)
        assert _files(node) == {path for path in whole if path in common or int(path.split("/")[1]) in shards}
        for path in _files(node):
            assert (node / path).read_bytes() == (tmp_path / "prepared" / path).read_bytes()
    everything = tmp_path / "everything"
    everything.mkdir()
    fetch_inputs(store, "jobs/gatehouse-1/first", record, everything)
    fetch_shards(everything, {0})
    assert _files(everything) == whole


def test_a_shard_that_was_altered_is_refused(store: ArtifactStore, tmp_path: Path) -> None:
    record = _record(store, tmp_path, NETWORK)
    node = tmp_path / "node"
    node.mkdir()
    fetch_inputs(store, "jobs/gatehouse-1/first", record, node, shards=False)
    inputs = [FileEntry(**entry) for entry in json.loads((node / "shards.json").read_text())["inputs"]]
    (entry,) = (entry for entry in inputs if entry.path == "train/1/labels.npy")
    altered = Path(store.address) / entry.blob
    altered.chmod(0o600)
    altered.write_bytes(b"\0" * altered.stat().st_size)
    fetch_shards(node, {0})
    with pytest.raises(CorruptArtifactError):
        fetch_shards(node, {1})
    assert not (node / "train" / "1" / "labels.npy").exists()


def _trained(store: ArtifactStore, folder: str, record: str, target: Path, nodes: int, **environment: str) -> str:
    """Run the pods of a job with two processes; returns the digest of the weights."""
    port, target = free_port(), target / str(nodes)
    target.mkdir()
    pods = []
    for node in range(nodes):
        temporary = target / f"node-{node}"
        temporary.mkdir()
        place = {"PET_NNODES": str(nodes), "PET_NODE_RANK": str(node)}
        place |= {"PET_MASTER_ADDR": "localhost", "PET_MASTER_PORT": str(port), "TMPDIR": str(temporary)}
        arguments = [store.address, folder, record, str(2 // nodes), "30", "900", "0"]
        command = [sys.executable, "-m", "gatehouse.launchers.kubernetes.pod", *arguments]
        variables = os.environ | place | {"GLOO_SOCKET_IFNAME": "lo"} | environment
        pods.append(subprocess.Popen(command, env=variables))
        time.sleep(1.0)
    try:
        assert [pod.wait(300) for pod in pods] == [0] * nodes
    finally:
        for pod in pods:
            pod.kill()
    fetch_outputs(store, folder, reported_end(store, folder), target)
    return str(json.loads((target / RESULT).read_text())["weights_sha256"])


@pytest.mark.parametrize("spec", [NETWORK, TREES], ids=["network", "trees"])
def test_two_nodes_train_the_model_of_one_also_when_a_worker_is_killed(
    store: ArtifactStore, tmp_path: Path, spec: TrainSpec
) -> None:
    record = _record(store, tmp_path, spec)
    first, second = "jobs/gatehouse-1/first", "jobs/gatehouse-1/second"
    store.objects.put_bytes(f"{second}/job.json", store.objects.get_bytes(f"{first}/job.json"))
    one = _trained(store, first, record, tmp_path, 1)
    for key in list(store.objects.list("scratch")):  # Its checkpoints, from which the second would go on.
        remove_record(store.objects, key)
    assert _trained(store, second, record, tmp_path, 2, **{FAULT: "kill!:1"}) == one
