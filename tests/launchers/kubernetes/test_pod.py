"""What a pod runs: it heeds SIGTERM from its first moment on."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from gatehouse.launchers.kubernetes.api import KubernetesApi
from gatehouse.launchers.kubernetes.pod import rendezvous_options
from gatehouse.launchers.kubernetes.pods import PodLogs
from gatehouse.store.store import ArtifactStore


def test_a_pod_that_is_told_to_end_while_it_fetches_ends_at_once(store: ArtifactStore) -> None:
    folder = Path(store.address) / "jobs" / "gatehouse-1" / "first"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "job.json")
    arguments = [store.address, "jobs/gatehouse-1/first", "0" * 64, "1", "30", "900"]
    # As the first process of a container does, it ignores what it does not ask for.
    pod = subprocess.Popen(
        [sys.executable, "-m", "gatehouse.launchers.kubernetes.pod", *arguments],
        preexec_fn=lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN) and None,
    )
    with open(folder / "job.json", "wb"):  # Returns when the pod reads it.
        pod.send_signal(signal.SIGTERM)
        assert pod.wait(timeout=200) == 143


ONE_NODE = {"PET_NNODES": "1", "PET_NODE_RANK": "0", "PET_MASTER_ADDR": "job-master-0", "PET_MASTER_PORT": "23456"}


@pytest.mark.parametrize(
    ("environment", "options"),
    [
        ({}, []),
        (ONE_NODE, []),
        (ONE_NODE | {"PET_NNODES": "2"}, ["--nodes=2", "--rendezvous=job-master-0:23456", "--run-id=launch"]),
    ],
    ids=["no operator", "one node", "two nodes"],
)
def test_only_a_fixed_number_of_nodes_is_told_where_to_meet(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], options: list[str]
) -> None:
    for name in ONE_NODE:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert rendezvous_options("launch") == options


def test_lines_of_pods_are_kept_once_whatever_the_zone_of_their_node(tmp_path: Path) -> None:
    logs = PodLogs(cast(KubernetesApi, None), "ml", "pytorch", tmp_path / "log", named=False)
    first, second = ("2026-01-01T14:00:00.123456789+02:00 one", "2026-01-01T14:00:00.123456789+02:00 other")
    for line in (first, second, first, "no time", "2026-01-01T12:00:00.13Z later", second):
        logs._write("p", "u", line)
    assert logs._query("u")["sinceTime"] == "2026-01-01T12:00:00Z"
    logs.finish()
    assert (tmp_path / "log").read_text().splitlines() == ["one", "other", "no time", "later"]
