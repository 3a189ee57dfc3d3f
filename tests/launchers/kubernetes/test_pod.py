"""What a pod runs: it heeds SIGTERM from its first moment on."""

import os
import signal
import subprocess
import sys
import time
from argparse import Namespace
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

import gatehouse
from gatehouse.errors import StoreError
from gatehouse.launchers.kubernetes import pod as pod_metrics
from gatehouse.launchers.kubernetes.api import KubernetesApi
from gatehouse.launchers.kubernetes.pod import PodMetrics, rendezvous_options, sending_metrics
from gatehouse.launchers.kubernetes.pods import PodLogs
from gatehouse.launchers.kubernetes.transfer import write_record
from gatehouse.launchers.launcher import CHECKPOINT_NAME, CHECKPOINT_STORE, TrainingJob
from gatehouse.launchers.wrapper import COMMAND
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


LATE = """
import os, sys
from gatehouse.store.store import ArtifactStore
ArtifactStore.open(os.environ["STORE"]).append(os.environ["FOLDER"] + "/ended", {"outcome": os.environ["END"]})
sys.exit(129)
"""
"""A wrapper that meets no other node, while the end of the job is reported."""


@pytest.mark.parametrize(("end", "code"), [("succeeded", 0), ("hung", 129)])
def test_a_node_that_is_late_ends_well_where_the_others_have_finished(
    store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, code: int
) -> None:
    """A TrainJob succeeds when all its pods have succeeded, also those that came back after its end."""
    (tmp_path / "late.py").write_text(LATE)
    place = {"STORE": store.address, "FOLDER": FOLDER, "END": end}
    changed = dict.fromkeys((CHECKPOINT_STORE, CHECKPOINT_NAME), "")  # By the pod, which is this process.
    for name, value in (ONE_NODE | {"PET_NNODES": "2"} | place | changed).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(gatehouse.__file__).parents[1]}")
    monkeypatch.setattr(pod_metrics, "_WRAPPER", "late")
    record = write_record(store, FOLDER, (), TrainingJob(tmp_path, COMMAND, 2, 1.0))
    assert pod_metrics._run(store, _arguments(store, record), tmp_path) == code


def test_a_node_that_comes_back_after_the_end_does_nothing(
    store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PET_NNODES", "2")
    store.append(f"{FOLDER}/ended", {"outcome": "succeeded"})
    assert pod_metrics._run(store, _arguments(store, "no record"), tmp_path) == 0


def _arguments(store: ArtifactStore, record: str) -> Namespace:
    job = {"store": store.address, "folder": FOLDER, "record": record}
    return Namespace(**job, processes=1, grace=30.0, hang=900.0, min_nodes=1)


def test_lines_of_pods_are_kept_once_whatever_the_zone_of_their_node(tmp_path: Path) -> None:
    logs = PodLogs(cast(KubernetesApi, None), "ml", "pytorch", tmp_path / "log", named=False)
    first, second = ("2026-01-01T14:00:00.123456789+02:00 one", "2026-01-01T14:00:00.123456789+02:00 other")
    for line in (first, second, first, "no time", "2026-01-01T12:00:00.13Z later", second):
        logs._write("p", "u", line)
    assert logs._query("u")["sinceTime"] == "2026-01-01T12:00:00Z"
    logs.finish()
    assert (tmp_path / "log").read_text().splitlines() == ["one", "other", "no time", "later"]


FOLDER = "jobs/gatehouse-1/first"


def _pod(store: ArtifactStore, path: Path, step: int) -> None:
    with sending_metrics(store, FOLDER, path), closing(MetricsFile(path)) as metrics:
        metrics.log({"loss": 1.0}, step)


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


def test_a_pod_leaves_out_a_line_that_a_full_disk_has_cut(store: ArtifactStore, tmp_path: Path) -> None:
    (tmp_path / "pod").write_bytes('{"at": 1.0, "step": 0, "metrics": {"é'.encode()[:-1])
    _pod(store, tmp_path / "pod", 1)
    PodMetrics(store, FOLDER, tmp_path / "launcher").close()
    assert _steps(tmp_path / "launcher") == [1]


def test_hours_that_are_past_are_read_at_the_start_and_at_the_end_only(
    store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 3600.0 * 500_000

    def send(step: int, hour: int) -> None:
        monkeypatch.setattr(pod_metrics.time, "time", lambda: now + 3600 * hour)
        _pod(store, tmp_path / f"pod-{step}", step)

    for hour in range(4):
        send(hour, hour)
    there = PodMetrics(store, FOLDER, tmp_path / "launcher")
    there.receive()
    assert _steps(tmp_path / "launcher") == [0, 1, 2, 3]
    for step, hour in ((4, 0), (5, 2), (6, 3)):
        send(step, hour)
    there.receive()
    assert _steps(tmp_path / "launcher") == [0, 1, 2, 3, 5, 6]
    there.close()
    assert _steps(tmp_path / "launcher") == [0, 1, 2, 3, 4, 5, 6]
