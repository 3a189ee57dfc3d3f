"""What every launcher does, with the real program: one suite for all, also against a real cluster.

`GATEHOUSE_TEST_KUBECONFIG` names a kubeconfig; then `GATEHOUSE_TEST_STORE` is the address of a store that its pods
reach, and `GATEHOUSE_TEST_LAUNCH` holds launch settings as JSON (image, secrets). Else pods are processes of this
machine, and the API is a stand-in.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gatehouse.launchers.launcher import TrainingFailedError
from gatehouse.launchers.ranks import FAULT
from gatehouse.runtime.process import descendants
from gatehouse.runtime.variables import LAUNCH
from gatehouse.store.store import ArtifactStore
from gatehouse.training.stage import TrainRequest, TrainResult, train
from tests.conftest import Once
from tests.stand_ins.kubernetes_api import Cluster, kubernetes
from tests.stand_ins.kubernetes_pods import run_pods
from tests.training.specs import vary
from tests.training.trained import SPEC, log_of, request, train_once

REAL = os.environ.get("GATEHOUSE_TEST_KUBECONFIG", "")
MARK = "GATEHOUSE_TEST_PLACE"
POD_PLACES = ["local", "pytorchjob", "trainjob"] if REAL else ["local", "pytorchjob"]
"""For what pods do: those of both operators are the same processes here, and `kubernetes/` has both.

So the real program runs once for each operator: restarted on one node of a PyTorchJob, and on two nodes of a TrainJob.
"""
OWNER = """
import sys
from gatehouse.store.store import ArtifactStore
from gatehouse.training.stage import TrainRequest, train
train(TrainRequest.model_validate_json(sys.argv[2]), ArtifactStore.open(sys.argv[1]))
"""


@dataclass
class Place:
    """Where jobs run, and how a test finds what is left there."""

    kind: str
    store: ArtifactStore
    patch: pytest.MonkeyPatch
    cluster: Cluster | None = None
    settings: dict[str, object] = field(
        default_factory=lambda: json.loads(os.environ.get("GATEHOUSE_TEST_LAUNCH", "{}"))
    )

    def launch(self, fault: str = "", **settings: object) -> None:
        """Let the next launcher run jobs here, with a fault in their program."""
        self.patch.setenv(FAULT, fault)
        if self.kind != "local":
            chosen = {"kind": self.kind} | self.settings | settings
            self.patch.setenv(LAUNCH, json.dumps(chosen | {"env": {FAULT: fault}}))

    def request(self, **changes: object) -> TrainRequest:
        """A training run, of one process unless told otherwise."""
        return request(self.store, vary(SPEC, **{"processes": 1} | changes))

    def left(self) -> list[str]:
        if self.cluster:
            alive = [process for process in self.cluster.processes if process.poll() is None]
            return [*self.cluster.jobs, *map(str, alive)]
        if REAL and self.kind != "local":
            return []
        return [line for process in descendants(os.getpid()) if (line := _started_here(process))]

    def runs(self, owner: int) -> bool:
        """Whether the job that the process `owner` launched has begun."""
        return len(descendants(owner)) > 1 if self.cluster is None else bool(self.cluster.processes)


@pytest.fixture(params=["local", "pytorchjob", "trainjob"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    with ExitStack() as stack:
        monkeypatch.setenv(MARK, str(tmp_path))
        if request.param == "local":
            yield Place("local", ArtifactStore.open(tmp_path / "store"), monkeypatch)
        elif REAL:
            monkeypatch.setenv("KUBECONFIG", REAL)
            yield Place(request.param, ArtifactStore.open(os.environ["GATEHOUSE_TEST_STORE"]), monkeypatch)
        else:
            cluster = stack.enter_context(kubernetes(run_pods))
            monkeypatch.setenv("KUBECONFIG", cluster.kubeconfig(tmp_path))
            yield Place(request.param, ArtifactStore.open(tmp_path / "store"), monkeypatch, cluster)


@pytest.fixture(scope="session")
def trained(once: Once) -> tuple[ArtifactStore, TrainResult]:
    return train_once(once)


@pytest.mark.parametrize("place", POD_PLACES, indirect=True)
def test_the_model_is_the_same_wherever_it_was_trained(
    place: Place, trained: tuple[ArtifactStore, TrainResult]
) -> None:
    store, result = trained
    if place.kind != "local":
        # A worker of one of the operators is killed once, and comes back.
        place.launch("kill!:0" if place.kind == "pytorchjob" else "")
        store, result = place.store, train(place.request(processes=2), place.store)
    assert result == trained[1]
    log = log_of(store, result.model)
    logged = [sum(f"epoch {epoch}/4" in line for line in log) for epoch in (1, 2, 3, 4)]
    # On a busy machine the kill comes after the first epoch was logged, and before it was saved.
    assert logged == [1, 1, 1, 1] or (place.kind == "pytorchjob" and sorted(logged) == [1, 1, 1, 2])
    failed = [line for line in log if "failed (exitcode:" in line]
    assert len(failed) == (place.kind == "pytorchjob"), "it did not come back at the first attempt"
    # The log is of the machine that has rank 0 in the end: its worker was killed, or lost the one that was.
    assert all(re.search(r"exitcode: (-9|1)\)", line) for line in failed)
    _wait_until_none_is_left(place)


@pytest.mark.parametrize("place", ["pytorchjob", "trainjob"] if REAL else ["trainjob"], indirect=True)
def test_two_nodes_train_the_model_of_one(place: Place, trained: tuple[ArtifactStore, TrainResult]) -> None:
    place.launch(nodes=2)
    result = train(place.request(processes=2), place.store)
    assert result == trained[1]
    log = log_of(place.store, result.model)
    assert sum("epoch 4/4" in line for line in log) == 1
    assert list(place.store.objects.list("scratch/checkpoints")) == [], "checkpoints of a finished job"
    assert all(line.startswith("[gatehouse-") for line in log), "lines do not name their node"
    _wait_until_none_is_left(place)


@pytest.mark.parametrize("place", POD_PLACES, indirect=True)
def test_an_error_of_the_program_is_the_first_line_and_its_log_follows(place: Place) -> None:
    place.launch("raise:0")
    with pytest.raises(TrainingFailedError) as caught:
        train(place.request(), place.store)
    first, *rest = str(caught.value).splitlines()
    assert first.startswith("Training failed: ValueError: injected fault, step ") and caught.value.repeats
    assert any("injected fault" in line for line in rest), rest
    _wait_until_none_is_left(place)


@pytest.mark.parametrize("place", POD_PLACES[1:], indirect=True)
def test_a_launcher_that_is_told_to_end_leaves_nothing_behind(place: Place) -> None:
    place.launch()
    arguments = [place.store.address, place.request().model_dump_json()]
    owner = subprocess.Popen([sys.executable, "-c", OWNER, *arguments])
    deadline = time.monotonic() + 60
    while not place.runs(owner.pid):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    owner.send_signal(signal.SIGTERM)
    assert owner.wait(timeout=120) == 128 + signal.SIGTERM
    _wait_until_none_is_left(place)


def _started_here(process: int) -> str:
    """The command of a living process that this test started, for servers of other tests have children of their own."""
    folder = Path(f"/proc/{process}")
    try:
        mark = f"{MARK}={os.environ[MARK]}".encode()
        is_ours = mark in (folder / "environ").read_bytes().split(b"\0")
        return f"{process} {(folder / 'cmdline').read_bytes().decode().replace(chr(0), ' ')}" if is_ours else ""
    except OSError:
        return ""


def _wait_until_none_is_left(place: Place) -> None:
    deadline = time.monotonic() + 60
    while left := place.left():
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
