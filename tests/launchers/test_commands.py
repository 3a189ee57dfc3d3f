"""Commands of a user's own as jobs: they go on from their checkpoints, and every end has its class of error."""

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gatehouse.errors import ConfigurationError, LaunchError
from gatehouse.launchers import checkpoint_copies
from gatehouse.launchers.checkpoint_copies import CheckpointCopies
from gatehouse.launchers.commands import command_of
from gatehouse.launchers.launch_stage import LaunchRequest, LaunchResult, launch
from gatehouse.launchers.launcher import (
    EvictedError,
    TrainingFailedError,
    TrainingTimeoutError,
)
from gatehouse.launchers.spec import CommandSpec
from gatehouse.runtime.process import descendants
from gatehouse.store.run import RUN_ID
from gatehouse.store.store import ArtifactStore
from tests.stand_ins.kubernetes_api import kubernetes
from tests.stand_ins.kubernetes_pods import run_pods

SCRIPT = """
import os, pathlib, signal, sys, time
what, output = sys.argv[1], pathlib.Path(os.environ["GATEHOUSE_OUTPUT"])
assert str(output) == sys.argv[2]
first, last = os.environ.get("RANK", "0") == "0", int(os.environ.get("WORLD_SIZE", "1")) - 1
saved = pathlib.Path(os.environ["GATEHOUSE_CHECKPOINTS"]) / "epoch"
killed = saved.with_name("killed")
begun = int(saved.read_text()) if saved.exists() else 0
print(pathlib.Path(os.environ["GATEHOUSE_INPUT_DATA"]).read_text(), os.environ["OWN"], "begins at", begun, flush=True)
for epoch in range(begun, 3):
    if first:
        saved.with_suffix(".new").write_text(str(epoch + 1))
        saved.with_suffix(".new").rename(saved)
    print(f"epoch={epoch + 1} loss={1 / (epoch + 1)}", flush=True)
    if what == "killed" and not killed.exists():
        while os.environ.get("RANK", "0") != str(last) or not saved.exists():
            time.sleep(0.01)
        killed.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if begun == 0 and what.isdigit():
        sys.exit(int(what))
    if what == "hangs":
        time.sleep(60)
if what != "empty" and first:
    (output / "nested").mkdir()
    (output / "nested" / "weights").write_text(f"resumed at {begun}")
"""


def _launch(store: ArtifactStore, folder: Path, what: str, **changes: Any) -> LaunchResult:
    (folder / "program.py").write_text(SCRIPT)
    (folder / "rows.csv").write_text("rows")
    command = ("python", "script.py", what, "${GATEHOUSE_OUTPUT}")
    spec = {"command": command, "environment": {"OWN": "variable"}, "timeout_minutes": 5} | changes
    files = {"code": str(folder / "program.py"), "data": str(folder / "rows.csv")}
    log = str(folder / "log")
    return launch(LaunchRequest(name="own", spec=CommandSpec.model_validate(spec), files=files, log=log), store)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_killed_process_goes_on_from_its_checkpoint(store: ArtifactStore, tmp_path: Path, processes: int) -> None:
    result = _launch(store, tmp_path, "killed", processes=processes)
    assert store.read_text(result.output, "nested/weights") == "resumed at 1"
    assert result.metrics == {"epoch": 3.0, "loss": 1 / 3}
    assert (tmp_path / "log").read_text().count("rows variable begins at") == 2 * processes
    assert not list((Path(store.address) / "scratch").iterdir())


@pytest.mark.parametrize(
    ("what", "changes", "error", "permanent"),
    [
        ("3", {}, TrainingFailedError, True),
        ("empty", {}, TrainingFailedError, True),
        ("killed", {"restarts": 0}, TrainingFailedError, False),
        ("hangs", {"timeout_minutes": 0.02}, TrainingTimeoutError, False),
    ],
)
def test_every_end_has_its_error_and_the_last_lines(
    store: ArtifactStore, tmp_path: Path, what: str, changes: dict[str, Any], error: type[Exception], permanent: bool
) -> None:
    before = descendants(os.getpid())
    with pytest.raises(error, match="epoch=1 loss=1") as caught:
        _launch(store, tmp_path, what, **changes)
    assert getattr(caught.value, "permanent") is permanent  # noqa: B009 - of every GatehouseError.
    assert descendants(os.getpid()) == before


def test_a_pod_goes_on_from_the_checkpoints_of_one_that_was_lost(
    store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RUN_ID, "run-1")
    with kubernetes(run_pods) as cluster:
        monkeypatch.setenv("KUBECONFIG", cluster.kubeconfig(tmp_path))
        settings = {"kind": "pytorchjob", "run_policy": {"backoff_limit": 0}}
        with pytest.raises(EvictedError, match="epoch=1 loss=1"):
            _launch(store, tmp_path, "143", launch=settings)
        result = _launch(store, tmp_path, "143", launch=settings)
        assert not cluster.jobs
    assert store.read_text(result.output, "nested/weights") == "resumed at 1" and result.metrics["epoch"] == 3
    assert not list(store.objects.list("scratch/checkpoints"))


def test_a_copy_holds_what_was_last_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_copies, "_LOOK_SECONDS", 1.0)
    folder, other = tmp_path / "here", tmp_path / "there"
    folder.mkdir()
    copies = CheckpointCopies(str(tmp_path / "store"), "job", folder)
    for second, text in enumerate(["a", "ab", "ab", "abc"]):  # It grows at each look but one.
        if second != 2:
            (folder / "last").write_text(text)
        copies.look(float(second))
    other.mkdir()
    CheckpointCopies(str(tmp_path / "store"), "job", other).restore()
    assert (other / "last").read_text() == "ab"
    copies.look(time.monotonic(), ended=True)
    (other / "last").unlink()
    CheckpointCopies(str(tmp_path / "store"), "job", other).restore()
    assert (other / "last").read_text() == "abc"
    assert len([path for path in (tmp_path / "store").rglob("*") if path.is_file() and "scratch" in str(path)]) == 2


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"image": "own"}, ConfigurationError),
        ({"nodes": 2.0}, ConfigurationError),
        ({"kind": "pytorchjob"}, ConfigurationError),  # Without a store.
        ({"kind": "trainjob", "store": "s3://store", "settings": {"queues": "a"}}, LaunchError),
        ({"code": SimpleNamespace(path="x")}, ConfigurationError),  # And a text.
    ],
)
def test_parameters_that_do_not_fit_together_are_refused(
    tmp_path: Path, changes: dict[str, Any], error: type[Exception]
) -> None:
    defaults = {"kind": "local", "settings": {}, "store": "", "script": "pass", "command": ["a"], "environment": {}}
    given = json.loads(
        json.dumps(defaults | {"timeout_minutes": 5.0} | {k: v for k, v in changes.items() if k != "code"})
    )
    with pytest.raises(error):
        command_of(given, {"code": changes.get("code")}, tmp_path / "script.py")
