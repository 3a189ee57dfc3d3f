"""Commands of a user's own as jobs: they go on from their checkpoints, and every end has its class of error."""

import math
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gatehouse import components
from gatehouse.errors import ConfigurationError, LaunchError
from gatehouse.launchers.command import CheckpointCopies
from gatehouse.launchers.launch_stage import (
    CommandRequest,
    LaunchResult,
    PrintedMetrics,
    command_of,
    finished_command,
    launch,
)
from gatehouse.launchers.launcher import METRICS, EvictedError, TrainingFailedError, TrainingTimeoutError
from gatehouse.reports.contents import rendered
from gatehouse.runtime.process import descendants
from gatehouse.store.run import RUN_ID
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.metrics_file import read_points
from tests.components import call
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
own = os.environ["OWN"], os.environ.get("HF_TOKEN")
print(pathlib.Path(os.environ["GATEHOUSE_INPUT_DATA"]).read_text(), *own, "begins at", begun, flush=True)
for epoch in range(begun, 3):
    if first:
        saved.with_suffix(".new").write_text(str(epoch + 1))
        saved.with_suffix(".new").rename(saved)
    print(f"epoch={epoch + 1} loss={1 / (epoch + 1)} diverged=nan", flush=True)
    if what == "killed" and not killed.exists():
        while os.environ.get("RANK", "0") != str(last) or not saved.exists():
            time.sleep(0.01)
        killed.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if begun == 0 and what.isdigit():
        sys.exit(int(what))
    if what == "hangs":
        time.sleep(60)
if what == "late" and not killed.exists():
    killed.touch()
    os.kill(os.getpid(), signal.SIGKILL)
if what != "empty" and first:
    (output / "nested").mkdir()
    (output / "nested" / "weights").write_text(f"resumed at {begun}")
if what.startswith("link"):
    (output / "best").symlink_to("nested" if what == "links" else "gone")
"""


PARAMETERS: dict[str, Any] = {
    "name": "own",
    "command": ["python", "script.py"],
    "script": SCRIPT,
    "environment": {"OWN": "variable"},
    "settings": {},
    "timeout_minutes": 5.0,
    "store": "",
}


def _launch(store: ArtifactStore, folder: Path, what: str, task: str = "", **changes: Any) -> LaunchResult:
    (folder / "rows.csv").write_text(changes.pop("data", "rows"))
    given = (
        PARAMETERS | {"command": ["python", "script.py", what, "${GATEHOUSE_OUTPUT}"], "store": store.address} | changes
    )
    request = command_of(given, {"data": SimpleNamespace(path=folder / "rows.csv")}, folder / "script.py")
    return launch(CommandRequest(**request, task=task, log=str(folder / "log")), store)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_killed_process_goes_on_from_its_checkpoint(
    store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    monkeypatch.setenv("HF_TOKEN", "of-the-task")
    result = _launch(store, tmp_path, "killed", processes=processes)
    assert store.read_text(result.output, "nested/weights") == "resumed at 1"
    assert result.metrics == {"epoch": 3.0, "loss": 1 / 3}
    assert (tmp_path / "log").read_text().count("rows variable of-the-task begins at") == 2 * processes
    assert not list((Path(store.address) / "scratch").iterdir())
    page = rendered(store, result.output).read_text()
    assert "Restarts" in page and "SIGKILL" in page


def test_a_linked_folder_of_the_output_is_in_the_model(store: ArtifactStore, tmp_path: Path) -> None:
    assert store.read_text(_launch(store, tmp_path, "links").output, "best/weights") == "resumed at 0"


@pytest.mark.parametrize(
    ("what", "changes", "error", "permanent"),
    [
        ("3", {}, TrainingFailedError, True),
        ("empty", {}, TrainingFailedError, True),
        ("link-dangles", {}, TrainingFailedError, True),
        ("killed", {"settings": {"restarts": 0}}, TrainingFailedError, False),
        ("hangs", {"timeout_minutes": 0.1}, TrainingTimeoutError, False),
        ("hangs", {"settings": {"hang_seconds": 3.0}}, TrainingFailedError, False),
    ],
)
def test_every_end_has_its_error_and_the_last_lines(
    store: ArtifactStore, tmp_path: Path, what: str, changes: dict[str, Any], error: type[Exception], permanent: bool
) -> None:
    before = descendants(os.getpid())
    with pytest.raises(error, match="epoch=1 loss=1") as caught:
        _launch(store, tmp_path, what, **changes)
    assert ('script.py", line ' in str(caught.value)) == (what == "hangs"), "the stacks are not in the error"
    assert getattr(caught.value, "permanent") is permanent  # noqa: B009 - of every GatehouseError.
    assert descendants(os.getpid()) == before


def test_a_pod_goes_on_from_the_checkpoints_of_one_that_was_lost(
    store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RUN_ID, "run-1")
    with kubernetes(run_pods) as cluster:
        monkeypatch.setenv("KUBECONFIG", cluster.kubeconfig(tmp_path))
        settings = {"run_policy": {"backoff_limit": 0}}
        job = {"kind": "pytorchjob", "settings": settings}
        for task in ("run-1 seed", "run-2 seed"):  # Another run does not go on with the checkpoints of the first.
            with pytest.raises(EvictedError, match="epoch=1 loss=1"):
                _launch(store, tmp_path, "143", task, **job)
        results = [_launch(store, tmp_path, "143", task, **job) for task in ("run-1 seed", "run-2 seed")]
        assert not cluster.jobs
    for result in results:
        assert store.read_text(result.output, "nested/weights") == "resumed at 1" and result.metrics["epoch"] == 3
    assert not list(store.objects.list("scratch/checkpoints"))


def test_equal_tasks_and_other_data_share_no_checkpoints(store: ArtifactStore, tmp_path: Path) -> None:
    once: dict[str, Any] = {"settings": {"restarts": 0}}
    for task, data in (("run-1 a", "rows"), ("run-1 b", "rows"), ("run-1 a", "more")):  # Each kills itself once.
        with pytest.raises(TrainingFailedError):
            _launch(store, tmp_path, "killed", task, data=data, **once)
    for task in ("run-1 a", "run-1 b"):
        result = _launch(store, tmp_path, "killed", task, **once)
        assert store.read_text(result.output, "nested/weights") == "resumed at 1"


def test_a_command_that_goes_on_at_its_end_keeps_its_metrics(
    store: ArtifactStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    once: dict[str, Any] = {"settings": {"restarts": 0}}
    for _ in range(2):
        with pytest.raises(TrainingFailedError):
            _launch(store, tmp_path, "late", **once)
        (marker,) = (Path(store.address) / "scratch").glob("*/checkpoints/killed")
        marker.unlink()  # It prints nothing in its second and third attempt.
    marker.touch()
    assert _launch(store, tmp_path, "late", **once).metrics == {"epoch": 3.0, "loss": 1 / 3}
    assert "epoch" not in (tmp_path / "log").read_text()
    assert "The metric diverged is left out" in caplog.text


STEPS = """
import os, pathlib, sys
saved = pathlib.Path(os.environ["GATEHOUSE_CHECKPOINTS"]) / "epoch"
begun = int(saved.read_text()) if saved.exists() else 0
for epoch in range(begun, 3):
    saved.write_text(str(epoch))
    for step in range(1, 4):
        print(f"epoch={epoch} step={step} loss=1", flush=True)
        if (epoch, step, begun) == (1, 2, 0):
            sys.exit(3)
"""


def test_steps_that_begin_anew_in_each_epoch_follow_each_other(store: ArtifactStore, tmp_path: Path) -> None:
    given = PARAMETERS | {"script": STEPS, "store": store.address}
    request = CommandRequest(**command_of(given, {}, tmp_path / "script.py"))
    with pytest.raises(TrainingFailedError), finished_command(store, "steps", request, parameters={}):
        pass
    with finished_command(store, "steps", request, parameters={}) as (directory, _):
        points, _ = read_points(directory / METRICS)
        steps = [point.step for point in points if point.name == "loss"]
    assert steps == [1, 2, 3, 4, 5, *range(4, 10)], "the second attempt repeats what the first printed after the copy"


def test_steps_that_begin_anew_without_an_epoch_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    steps = PrintedMetrics()
    assert [steps.step_of({"step": step, "loss": 1.0}) for step in (0.0, 0.0, 2.0)] == [0, 0, 2] and not caplog.text
    assert steps.step_of({"step": 0.0}) == 0 and "print epoch" in caplog.text


def test_a_copy_holds_what_was_last_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, other, copyfile = tmp_path / "here", tmp_path / "there", shutil.copyfile
    folder.mkdir()
    other.mkdir()
    copies = CheckpointCopies(str(tmp_path / "store"), "job", folder)

    def restored(look: float = 0.0) -> dict[str, str]:
        copies.look(look) if look else copies.close(0.0)
        CheckpointCopies(str(tmp_path / "store"), "job", other).restore()
        files = list(other.iterdir())
        texts = {file.name: file.read_text() for file in files}
        for file in files:
            file.unlink()
        return texts

    copies.begin()
    for look in range(1, 4):  # It is replaced before each look.
        (folder / "new").write_text(f"epoch {look}")
        (folder / "new").rename(folder / "last")
        assert restored(look * 10.0) == {"last": f"epoch {look}"}

    def while_written(path: Path, target: str) -> None:
        copyfile(path, target)
        path.unlink() if path.name == "gone" else path.write_text("epoch 4, half of it")

    monkeypatch.setattr(shutil, "copyfile", while_written)
    (folder / "last").write_text("epoch 4, ha")
    (folder / "gone").write_text("renamed while it is copied")
    assert restored(40.0) == {"last": "epoch 3"}
    monkeypatch.undo()
    assert restored() == {"last": "epoch 4, half of it"}
    assert len([path for path in (tmp_path / "store").rglob("*") if path.is_file() and "scratch" in str(path)]) == 2


def test_metrics_end_where_a_sentence_or_a_unit_does() -> None:
    assert read("loss=0.25. n=5s best=0.5.") == [{"loss": 0.25, "best": 0.5}]
    assert read("file=3.txt version=1.2.3 path=1/2") == [{}]


def test_a_metric_that_is_not_known_for_sure_is_nan() -> None:
    assert repr(read("loss=1,234.5, acc=0.9")) == repr([{"loss": math.nan, "acc": 0.9}])
    assert repr(read("acc=0.9%, f1 = 90 % loss=0.5")) == repr([{"acc": math.nan, "f1": math.nan, "loss": 0.5}])
    assert read("time=12:30 loss=0.2", "epoch=1: loss=0.1") == [{"loss": 0.2}, {"epoch": 1, "loss": 0.1}]
    known = read("epoch 1 val accuracy=0.9 loss=1", "INFO val accuracy=0.8, INFO loss=2")
    assert known == [{"accuracy": 0.9, "loss": 1}, {"accuracy": 0.8, "loss": 2}]
    assert read("Training epoch=1 a=1", "Validation epoch=1 b=1") == [{"epoch": 1, "a": 1}, {"epoch": 1, "b": 1}]
    for lines in (["train loss=0.1 val loss=0.3"], ["train loss=0.1", "val loss=0.3", "train loss=0.1"]):
        assert math.isnan(read(*lines)[-1]["loss"]), lines


def test_a_metric_of_two_meanings_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    read(*["train loss=0.1", "val loss=0.3"] * 3)
    assert len(caplog.records) == 1


def test_of_several_processes_rank_0_speaks() -> None:
    assert read("[default0]:loss=0.2", "[default1]:loss=0.9", "[default10]:loss=0.8") == [{"loss": 0.2}, {}, {}]


def read(*lines: str) -> list[dict[str, float]]:
    """The metrics of each line of one log."""
    reader = PrintedMetrics()
    return [reader.read(line) for line in lines]


def test_the_task_that_makes_a_pickle_warns_of_it(tmp_path: Path) -> None:
    script = "import os, pickle; pickle.dump([1.0], open(os.environ['GATEHOUSE_OUTPUT'] + '/model.pkl', 'wb'))"
    made = call(components.launch, tmp_path, command=["python", "script.py"], script=script)
    assert ["model.pkl" in warning for warning in made.warnings] == [True]


def test_texts_of_a_user_reach_the_command_as_they_are(tmp_path: Path) -> None:
    odd = {"command": ["python", "(none)", '"\\u00e9"'], "environment": {"N": 5.0, "RATE": 0.1, "S": "(none)"}}
    spec = command_of(PARAMETERS | odd, {}, tmp_path / "script.py")["command"]
    assert spec.command == ("python", "(none)", '"\\u00e9"')
    assert spec.environment == {"N": "5", "RATE": "0.1", "S": "(none)"}


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"image": "own"}, ConfigurationError),
        ({"nodes": 2.0}, ConfigurationError),
        ({"kind": "pytorchjob"}, ConfigurationError),  # Without a store.
        ({"kind": "trainjob", "store": "s3://store", "settings": {"queues": "a"}}, LaunchError),
        ({"code": SimpleNamespace(path="x")}, ConfigurationError),  # And a text.
        ({"command": []}, ConfigurationError),
        ({"command": ["python", 2.0]}, ConfigurationError),
        ({"processes": 1, "settings": {"processes": 8.0}}, ConfigurationError),
        ({"environment": {"HF_TOKEN": "hf_abc"}}, ConfigurationError),
        ({"kind": "trainjob", "store": "s3://store", "settings": {"env": {"DB_PASSWORD": "a"}}}, ConfigurationError),
        ({"environment": {"DB": "postgresql://u:pw@h/db"}}, ConfigurationError),
        ({"command": ["python", "script.py", "--token", "hf_abc"]}, ConfigurationError),
        ({"command": ["python", "script.py", "$GATEHOUSE_OUTPT"]}, ConfigurationError),
        ({"command": ["python", "script.py", "${GATEHOUSE_INPUT_DATA}"]}, ConfigurationError),  # Without data.
        ({"script": "ddp.py"}, ConfigurationError),
        ({"settings": {"machine": "sk-" + "a" * 40}}, ConfigurationError),
        ({"kind": "trainjob", "store": "s3://store", "nodes": 2, "min_nodes": 3}, LaunchError),
        ({"min_nodes": 1}, ConfigurationError),  # Of a local one.
    ],
)
def test_parameters_that_do_not_fit_together_are_refused(
    tmp_path: Path, changes: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        command_of(PARAMETERS | {"kind": "local"} | changes, {"code": changes.get("code")}, tmp_path / "script.py")


def test_names_that_only_a_shell_replaces_reach_it(tmp_path: Path) -> None:
    shell = {
        "command": ["bash", "-c", "$GATEHOUSE_OWN ${GATEHOUSE_INPUT_DATA:-none}"],
        "environment": {"GATEHOUSE_OWN": "a"},
    }
    assert command_of(PARAMETERS | shell, {}, tmp_path / "script.py")["command"].command == tuple(shell["command"])
