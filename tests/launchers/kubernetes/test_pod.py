"""What a pod runs: it heeds SIGTERM from its first moment on."""

import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gatehouse.errors import StoreError
from gatehouse.launchers.kubernetes import pod as pod_metrics
from gatehouse.launchers.kubernetes.pod import PodMetrics, rendezvous_options, sending_metrics
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.metrics_file import MetricsFile, read_points


def test_a_pod_that_is_told_to_end_while_it_fetches_ends_at_once(store: ArtifactStore) -> None:
    folder = Path(store.address) / "jobs" / "gatehouse-1" / "first"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "job.json")
    arguments = [store.address, "jobs/gatehouse-1/first", "0" * 64, "1", "30", "900", "0"]
    # As the first process of a container does, it ignores what it does not ask for.
    pod = subprocess.Popen(
        [sys.executable, "-m", "gatehouse.launchers.kubernetes.pod", *arguments],
        preexec_fn=lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN) and None,
    )
    with open(folder / "job.json", "wb"):  # Returns when the pod reads it.
        pod.send_signal(signal.SIGTERM)
        assert pod.wait(timeout=200) == 143


ONE_NODE = {"PET_NNODES": "1", "PET_NODE_RANK": "0", "PET_MASTER_ADDR": "job-master-0", "PET_MASTER_PORT": "23456"}
MEET = ["--rendezvous=job-master-0:23456", "--run-id=launch"]


@pytest.mark.parametrize(
    ("environment", "fewest", "options"),
    [
        ({}, 0, []),
        (ONE_NODE, 0, []),
        (ONE_NODE | {"PET_NNODES": "2"}, 0, ["--nodes=2", "--min-nodes=0", *MEET]),
        (ONE_NODE | {"PET_NNODES": "8"}, 6, ["--nodes=8", "--min-nodes=6", *MEET]),  # Of a TrainJob.
        (ONE_NODE | {"PET_NNODES": "6:8"}, 6, ["--nodes=8", "--min-nodes=6", *MEET]),  # Of a PyTorchJob.
    ],
)
def test_several_nodes_are_told_where_to_meet_and_how_many_must(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], fewest: int, options: list[str]
) -> None:
    for name in ONE_NODE:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert rendezvous_options("launch", fewest) == options


FOLDER = "jobs/gatehouse-1/first"


def _steps(path: Path) -> list[int]:
    return sorted({point.step for point in read_points(path)[0] if point.name == "loss"})


def test_lines_that_the_store_does_not_take_are_sent_the_next_time(
    store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[str] = []

    def append(there: ArtifactStore, prefix: str, body: dict[str, str], append: Any = ArtifactStore.append) -> int:
        tries.extend([prefix] if "/metrics/" in prefix else [])
        if 0 < len(tries) < 3:
            raise StoreError("away")
        return int(append(there, prefix, body))

    monkeypatch.setattr(ArtifactStore, "append", append)  # A store on disk is never away.
    monkeypatch.setattr(pod_metrics, "_SEND_SECONDS", 0.01)
    with sending_metrics(store, FOLDER, tmp_path / "pod"), closing(MetricsFile(tmp_path / "pod")) as metrics:
        metrics.log({"loss": 1.0}, 1)
        metrics.flush()
        until = time.monotonic() + 60
        while len(tries) < 3 and time.monotonic() < until:
            time.sleep(0.01)
    for _ in range(2):  # A launcher that starts again receives everything again.
        PodMetrics(store, FOLDER, tmp_path / "launcher").close()
    assert _steps(tmp_path / "launcher") == [1]
