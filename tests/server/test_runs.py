"""Runs that are submitted: their process, their status, and what a new server knows of them."""

import os
import shutil
import socket
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gatehouse.api.pipelines import ENDED, PROCESS, SUBMITTED, Submission, TooManyRunsError, newest, submit
from gatehouse.api.pipelines import run as followed
from gatehouse.kfp.driver import PLAN
from gatehouse.runtime.process import start_time
from gatehouse.store.store import ArtifactStore

RUN = "20130115-081500-3fa2"


def test_a_run_that_fails_says_why_also_to_a_new_server(store: ArtifactStore, project: Path, tmp_path: Path) -> None:
    broken = shutil.copytree(project, tmp_path / "broken")
    (broken / "contract.yaml").unlink()
    run = submit(store, broken, Submission(reason="try"), "rune")
    assert (run.state, run.by, run.reason) == ("pending", "rune", "try")
    deadline = time.monotonic() + 200
    while followed(ArtifactStore.open(store.address), run.id).state in ("pending", "running"):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    ended = followed(ArtifactStore.open(store.address), run.id)
    assert (ended.state, ended.error) == ("failed", "ConfigurationError")
    assert "contract.yaml" in ended.message
    assert [submitted.id for submitted in newest(store)] == [run.id]


def _recorded(store: ArtifactStore, **records: dict[str, Any]) -> ArtifactStore:
    submitted = {"pipeline": "training", "arguments": {}, "reason": "", "until": "", "by": "a"}
    store.record(f"runs/{RUN}/{SUBMITTED}", submitted | {"at": "2013-01-15T08:15:00Z"})
    for name, body in records.items():
        store.record(f"runs/{RUN}/{name}.json", body)
    return store


def test_a_run_goes_from_pending_to_succeeded(store: ArtifactStore) -> None:
    here = {"host": socket.gethostname(), "pid": os.getpid(), "started": start_time(os.getpid())}
    assert followed(_recorded(store, process=here), RUN).state == "pending"
    store.record(
        f"runs/{RUN}/{PLAN}", {"tasks": [{"task": "t", "stage": "snapshot", "title": "Take it"}], "objective": ""}
    )
    running = followed(store, RUN)
    assert (running.state, running.stages[0].event) == ("running", "waiting")
    for event, body in (("started", {}), ("finished", {"result": {"rows": 3}})):
        store.record(f"runs/{RUN}/snapshot.1.{event}.json", body | {"seconds": 2.5, "at": 1.0})
    output = followed(store, RUN).stages[0]
    assert (output.title, output.event, output.seconds, output.result) == ("Take it", "finished", 2.5, {"rows": 3})
    store.record(f"runs/{RUN}/{ENDED}", {"exit_code": 0, "failure": None})
    assert followed(store, RUN).state == "succeeded"


@pytest.mark.parametrize(
    ("process", "status"),
    [
        (None, "failed"),
        ({"host": "HERE", "pid": 2**22 + 1, "started": "1"}, "failed"),
        ({"host": "elsewhere", "pid": 2**22 + 1, "started": "1"}, "pending"),
    ],
)
def test_a_run_whose_process_is_gone_has_failed(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, process: dict[str, Any] | None, status: str
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "HERE")
    result = followed(_recorded(store, **({PROCESS.removesuffix(".json"): process} if process else {})), RUN)
    assert result.state == status
    assert ("is gone" in result.message) == (status == "failed")


def test_so_many_runs_wait_and_no_more(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("gatehouse.api.pipelines.MOST_QUEUED", 1)
    monkeypatch.setattr("subprocess.Popen", lambda *_, **__: SimpleNamespace(pid=os.getpid()))
    here = {"host": socket.gethostname(), "pid": os.getpid(), "started": start_time(os.getpid())}
    elsewhere, gone = here | {"host": "elsewhere"}, here | {"started": "1"}
    for number, process in enumerate((elsewhere, gone)):
        store.record(f"runs/{RUN[:-1]}{number}/{SUBMITTED}", {})
        store.record(f"runs/{RUN[:-1]}{number}/{PROCESS}", process)
    assert submit(store, tmp_path, Submission(), "rune").state == "pending"
    with pytest.raises(TooManyRunsError):
        submit(store, tmp_path, Submission(), "rune")
