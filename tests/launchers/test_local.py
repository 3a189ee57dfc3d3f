"""The local launcher: real torchrun jobs that fail, hang, are killed, or only look as if they had succeeded."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from gatehouse.kfp.compilation.compiling import compile_pipeline
from gatehouse.launchers import local
from gatehouse.launchers.launcher import EVICTED, LOG, EvictedError, TrainingFailedError, TrainingJob
from gatehouse.launchers.spec import LocalLaunch, TrainJobLaunch
from gatehouse.project.project import load_project
from gatehouse.project.project_file import ProjectFile
from gatehouse.runtime.images import TRAINING, image
from gatehouse.runtime.process import descendants, start_time
from gatehouse.runtime.variables import LAUNCH
from gatehouse.store.canonical import canonical_json
from gatehouse.tracking.provenance import Prices
from gatehouse.training.spec import changed
from gatehouse.training.stage import PROGRAM

OWNER = """
import sys
from pathlib import Path
from gatehouse.store.failures import end_on_sigterm
from gatehouse.launchers.launcher import TrainingJob
from gatehouse.launchers.local import LocalLauncher
end_on_sigterm()
LocalLauncher().run(TrainingJob(Path(sys.argv[1]), "tests.training.stand_in", 1, 5))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_process_outlives_the_owner_of_the_job(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "action").write_text(json.dumps({"what": "train", "steps": 100_000}))
    (tmp_path / "job.json").write_text("{}")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], env=environment)
    deadline = time.monotonic() + 600
    while not (tmp_path / "world-1-0-0").exists():
        assert time.monotonic() < deadline and owner.poll() is None
        time.sleep(0.05)
    below = descendants(owner.pid)
    assert len(below) >= 3, "the wrapper, torchrun and a worker"
    owner.send_signal(number)
    owner.wait(timeout=60)
    deadline = time.monotonic() + 60
    while any(start_time(pid) for pid in below):
        assert time.monotonic() < deadline, "processes are left behind"
        time.sleep(0.05)


STAND_IN = """
import sys
from pathlib import Path
attempts = Path(sys.argv[3]) / "attempts"
attempts.write_text(attempts.read_text() + "." if attempts.exists() else ".")
print("attempt", len(attempts.read_text()), flush=True)
sys.exit(143)
"""


def test_a_preempted_job_goes_on_and_says_so_when_it_may_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = _wrapper(tmp_path, STAND_IN, monkeypatch)
    with pytest.raises(EvictedError) as caught:
        local.LocalLauncher(LocalLaunch(max_restarts=2)).run(job)
    assert str(caught.value).splitlines()[0] == EVICTED
    assert "3 times" in str(caught.value)
    assert (job.directory / LOG).read_text().split() == ["attempt", "1", "attempt", "2", "attempt", "3"]


def _wrapper(folder: Path, program: str, monkeypatch: pytest.MonkeyPatch) -> TrainingJob:
    (folder / "stand_in_wrapper.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setattr(local, "_WRAPPER", "stand_in_wrapper")
    return TrainingJob(folder, PROGRAM, 1, 5)


LEAVES = """
import sys
from pathlib import Path
folder = Path(sys.argv[3])
(folder / "result.json").write_text('{{"weights_sha256": "%s"}}' % ("0" * 64))
(folder / "weights").write_bytes(b"other bytes")
sys.exit({})
"""


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        ("pass", "reports success, but there is no result"),
        (LEAVES.format(0), "the weights have SHA-256"),
        (LEAVES.format(3), "exit code 3"),
    ],
)
def test_only_weights_that_the_result_names_are_a_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, problem: str
) -> None:
    (tmp_path / "result.json").write_text(json.dumps({"weights_sha256": "of an attempt before"}))
    with pytest.raises(TrainingFailedError, match=problem):
        local.LocalLauncher().run(_wrapper(tmp_path, program, monkeypatch))


PROJECT = Path(__file__).parents[2] / "pipelines" / "projects" / "flights" / "project.yaml"


def test_a_project_whose_nodes_cannot_share_the_processes_is_refused() -> None:
    body = yaml.safe_load(PROJECT.read_text())
    body["launch"] = {"kind": "pytorchjob", "nodes": 7}
    with pytest.raises(ValidationError, match=r"nodes=7: expected a divisor of training\.parallelism\.processes"):
        ProjectFile.model_validate(body)


def test_where_training_runs_reaches_its_tasks_and_is_no_parameter(tmp_path: Path) -> None:
    project = load_project(PROJECT.parent)
    training = changed(project.file.training, {"operation.timeout_minutes": 600})
    launch = TrainJobLaunch(kind="trainjob", queue="team", scheduling_minutes=90)
    paid = Prices(per_hour={"default": 1.5})
    prices = canonical_json(paid.model_dump())
    file = project.file.model_copy(update={"launch": launch, "training": training, "prices": paid})
    spec = compile_pipeline("training", replace(project, file=file), tmp_path / "specs")
    body, platform = yaml.load_all(spec.read_text(), Loader=yaml.CSafeLoader)
    environments = {
        name: executor["container"].get("env", [])
        for name, executor in body["deploymentSpec"]["executors"].items()
        if LAUNCH in json.dumps(executor)
    }
    assert sorted(environments) == ["exec-train"]
    for env in environments.values():
        (setting,) = [executor["value"] for executor in env if executor["name"] == LAUNCH]
        assert {"name": "GATEHOUSE_PRICES", "value": prices} in env
        chosen = {"kind": "trainjob", "queue": "team", "scheduling_minutes": 90.0, "image": image(TRAINING)}
        assert json.loads(setting) == chosen
    assert "team" not in json.dumps(body["root"])
    settings = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    seconds = int(settings["exec-train"]["activeDeadlineSeconds"])
    assert seconds >= (1 + file.tuning.max_trial_count) * 43200, "KFP would end the task before the last job may end"
