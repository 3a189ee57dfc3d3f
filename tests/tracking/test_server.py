"""A real MLflow server that is slow, down, loses answers, or is shared with Kubeflow Pipelines.

The loop never waits, every point arrives once, and KFP alone ends the runs that it began.
"""

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gatehouse.launchers.launch_stage import CommandRequest, launch
from gatehouse.launchers.spec import CommandSpec, LocalLaunch
from gatehouse.store.reference import Reference
from gatehouse.store.run import RUN_ID, Attempt
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.metrics_file import MetricsFile
from gatehouse.tracking.mlflow_client import PARENT, REFERENCE, quiet_client, tracking_of
from gatehouse.tracking.projection import show_training, track_run, track_training
from gatehouse.tracking.sending import open_job, send_rest, tracked_job
from tests.tracking.servers import Proxy, mlflow_server, proxied

MODEL = "models/flights/sha256-" + "0" * 64


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with mlflow_server(tmp_path_factory.mktemp("server")) as port:
        yield port


@pytest.fixture
def proxy(server: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    with proxied(server) as made:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", made.url)
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR", "1")
        yield made


def _steps(proxy: Proxy, experiment: str, name: str = "loss") -> list[int]:
    client = quiet_client(proxy.url)
    entry = client.get_experiment_by_name(experiment)
    runs = client.search_runs([entry.experiment_id]) if entry else []
    return sorted(point.step for run in runs for point in client.get_metric_history(run.info.run_id, name))


def test_the_loop_does_not_wait_for_a_slow_server_that_loses_answers(
    store: ArtifactStore, tmp_path: Path, proxy: Proxy
) -> None:
    longest = 0.0
    with tracked_job(store, "job-1", "slow", tmp_path / "link", params={"lr": 0.01}, live=True) as job:
        metrics = MetricsFile(job.metrics)
        for step in range(3000):
            began = time.perf_counter()
            metrics.log({"loss": 1.0 / (step + 1)}, step)
            longest = max(longest, time.perf_counter() - began)
            if step == 1000:
                deadline = time.monotonic() + 120
                while not any("log-batch" in path for path in proxy.requests):
                    assert time.monotonic() < deadline, "nothing was sent while the job ran"
                    time.sleep(0.05)
                proxy.delay, proxy.lost = 10.0, 2
            time.sleep(0.0005)
        metrics.close()
        job.model, began = MODEL, time.monotonic()
    assert longest < 5 and time.monotonic() - began < 5, "the end of the job does not wait for an answer"
    proxy.delay = 0.1
    deadline = time.monotonic() + 120
    while job.folder.exists() and time.monotonic() < deadline:
        send_rest(store)  # A lost answer leaves the rest to the next time.
    assert _steps(proxy, "slow") == list(range(3000)) and not job.folder.exists()


def test_points_logged_while_the_server_was_down_are_there_later(
    store: ArtifactStore, tmp_path: Path, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.down = True
    folder = _ended(store, tmp_path / "link", "job-2", "away", range(1500))
    send_rest(store)
    assert folder.exists() and "MLflow could not be written" in caplog.text
    proxy.down = False
    send_rest(store)
    assert _steps(proxy, "away") == list(range(1500))


def _ended(
    store: ArtifactStore, link: Path, job: str, experiment: str, steps: Iterable[int], model: str = MODEL
) -> Path:
    """The folder of a job that has ended with a model, or with an error; nothing of it was sent."""
    opened = open_job(store, job, experiment, link, {"lr": 0.1}, {})
    with closing(MetricsFile(opened.metrics)) as metrics:
        for step in steps:
            metrics.log({"loss": 1.0 / (step + 1), f"since {min(steps)}": 1.0}, step)
    opened.model = model
    opened.close("" if model else "TrainingFailedError")
    return opened.folder


def test_a_job_that_resumes_from_a_checkpoint_shows_each_step_once(
    store: ArtifactStore, tmp_path: Path, proxy: Proxy
) -> None:
    """Killed after step 59, then after 79, each time resumed from step 40: also where its rest was delivered."""
    for begin, end in ((0, 60), (40, 80), (40, 100)):
        _ended(store, tmp_path / "link", "job-3", "resumed", range(begin, end), MODEL if end == 100 else "")
        if end != 80:
            send_rest(store)
    assert _steps(proxy, "resumed") == list(range(100))
    assert _steps(proxy, "resumed", "since 40") == list(range(40, 100)), "of each metric by itself"


@dataclass(frozen=True)
class KfpRun:
    """A pipeline run in MLflow, as KFP's API server, driver and launcher keep it."""

    client: Any
    uri: str
    experiment: str
    id: str

    @classmethod
    def create(cls, client: Any, uri: str, name: str) -> "KfpRun":
        entry = client.get_experiment_by_name("KFP")
        experiment = str(entry.experiment_id) if entry else client.create_experiment("KFP")
        run = client.create_run(experiment, tags={"kfp.pipeline_run_id": name}, run_name=name)
        return cls(client, uri, experiment, run.info.run_id)

    def begin(self, task: str) -> str:
        run = self.client.create_run(self.experiment, tags={PARENT: self.id}, run_name=task)
        return str(run.info.run_id)

    def enter(self, task: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MLFLOW_RUN_ID", task)
        monkeypatch.setenv("MLFLOW_TRACKING_URI", self.uri)
        monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", self.experiment)

    def end(self, task: str, status: str = "FINISHED") -> None:
        """End the run of a task, as the launcher does, and the open runs directly below it."""
        assert self.client.get_run(task).info.status == "RUNNING", "nobody ended it before KFP did"
        self.client.update_run(task, status=status)
        for run in self.below(task):
            if run.info.status in ("RUNNING", "SCHEDULED"):
                self.client.update_run(run.info.run_id, status=status)

    def below(self, run: str) -> list[Any]:
        return list(self.client.search_runs([self.experiment], f"tags.`{PARENT}` = '{run}'"))


@pytest.fixture
def kfp(proxy: Proxy) -> KfpRun:
    return KfpRun.create(quiet_client(proxy.url), proxy.url, "run-1")


def _trained(store: ArtifactStore, link: Path, job: str) -> str:
    model = str(store.publish("models", "flights", {"model.json": job}))
    _ended(store, link, job, "flights", [1], model)
    track_training(store, model)
    return model


def test_in_a_pod_of_kfp_a_training_is_below_the_run_of_its_task_which_kfp_ends(
    store: ArtifactStore, tmp_path: Path, kfp: KfpRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RUN_ID, "run-1")
    train = kfp.begin("train")
    kfp.enter(train, monkeypatch)
    model = _trained(store, tmp_path / "link", "job-a")
    kfp.end(train)
    (run,) = kfp.below(train)
    assert (run.data.tags[REFERENCE], run.info.status, run.data.metrics["loss"]) == (model, "FINISHED", 0.5)
    # A pod that recalls the model from the memo adds nothing, and neither does one that shows it from another task.
    track_training(store, model)
    other = KfpRun.create(kfp.client, kfp.uri, "run-2")
    register = other.begin("register")
    other.enter(register, monkeypatch)
    tracking = tracking_of(store)
    assert tracking is not None
    with tracking.client() as client:
        assert show_training(tracking, client, Reference.parse(model)).info.run_id == run.info.run_id
    other.end(register)
    assert [shown.info.run_id for shown in kfp.below(train)] == [run.info.run_id] and not other.below(register)


def test_a_retried_pod_continues_the_run_of_the_first_attempt(
    store: ArtifactStore, tmp_path: Path, kfp: KfpRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = kfp.begin("train")
    kfp.enter(train, monkeypatch)
    _ended(store, tmp_path / "link", "job-b", "flights", [1], "")
    send_rest(store)
    kfp.end(train, "FAILED")
    assert [run.info.status for run in kfp.below(train)] == ["FAILED"]
    kfp.client.update_run(train, status="RUNNING")
    _trained(store, tmp_path / "link", "job-b")
    kfp.end(train)
    assert [run.info.status for run in kfp.below(train)] == ["FINISHED"]


def test_metrics_of_a_lost_pod_are_delivered_by_another_task_below_its_own_run(
    store: ArtifactStore, tmp_path: Path, kfp: KfpRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = kfp.begin("train")
    kfp.enter(train, monkeypatch)
    _ended(store, tmp_path / "link", "job-c", "flights", [3], "")
    later = KfpRun.create(kfp.client, kfp.uri, "run-3")
    later.enter(later.begin("tune"), monkeypatch)
    send_rest(store)
    assert [run.data.metrics["loss"] for run in kfp.below(train)] == [0.25]


def test_kfp_s_workspace_and_token_are_used_and_not_sent_to_the_project_s_own_server(
    store: ArtifactStore, server: int, kfp: KfpRun, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    kfp.client.create_workspace("team-a")
    access = {"MLFLOW_WORKSPACE": "team-a", "MLFLOW_TRACKING_TOKEN": "kfp-token"}
    for name, value in access.items():
        monkeypatch.setenv(name, value)
    inside = KfpRun.create(quiet_client(proxy.url), proxy.url, "run-4")
    task = inside.begin("evaluate")
    inside.enter(task, monkeypatch)
    proxy.access.clear()
    monkeypatch.setenv(RUN_ID, "run-4")
    Attempt(store, "evaluate").note("finished", memo="key", result={"rows": 7})
    track_run(store, "run-4")
    assert proxy.access == {("Bearer kfp-token", "team-a")}
    assert [shown.data.metrics["rows"] for shown in inside.below(task)] == [7]
    inside.end(task)

    with proxied(server) as own:
        monkeypatch.setenv("GATEHOUSE_MLFLOW_TRACKING_URI", own.url)
        track_run(store, "run-4")
        assert own.access == {("", "")} and own.requests
        monkeypatch.setenv("GATEHOUSE_MLFLOW_TRACKING_TOKEN", "own-token")
        tracking = tracking_of(store)
        assert tracking is not None and tracking.task is None
        own.access.clear()
        with tracking.client() as client:
            client.search_experiments()
        assert own.access == {("Bearer own-token", "")}
    assert {name: os.environ[name] for name in access} == access


LOGGING = """
import mlflow, os, pathlib
saved = pathlib.Path(os.environ["GATEHOUSE_CHECKPOINTS"]) / "begun"
with mlflow.start_run():
    mlflow.log_metric("loss", 0.25 if saved.exists() else 0.5, step=int(saved.exists()))
    print("accuracy=0.75")
    if not saved.exists():
        saved.touch()
        os.kill(os.getpid(), 9)
(pathlib.Path(os.environ["GATEHOUSE_OUTPUT"]) / "weights").touch()
"""


def test_metrics_of_a_launched_command_are_also_those_that_it_logs_in_its_run(
    store: ArtifactStore, tmp_path: Path, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEHOUSE_MLFLOW_TRACKING_URI", proxy.url)
    monkeypatch.setenv("GATEHOUSE_MLFLOW_TRACKING_TOKEN", "ours")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://of-kfp")
    (tmp_path / "script.py").write_text(LOGGING)
    command = CommandSpec(command=("python", "script.py"), launch=LocalLaunch(), restarts=1)
    request = CommandRequest(name="own", command=command, files={"code": str(tmp_path / "script.py")})
    assert launch(request, store).metrics == {"loss": 0.25, "accuracy": 0.75}
    assert {access[0] for access in proxy.access} == {"Bearer ours"}
    assert _steps(proxy, "own") == [0, 1], "the second attempt goes on in the run of the first"
    assert _steps(proxy, "own", "accuracy") == [0, 1], "what it prints is there too, a step for each line"
    client = quiet_client(proxy.url)
    entry = client.get_experiment_by_name("own")
    assert entry and [run.info.status for run in client.search_runs([entry.experiment_id])] == ["FINISHED"]


def test_metrics_that_a_command_prints_while_the_server_is_away_are_sent_later(
    store: ArtifactStore, tmp_path: Path, proxy: Proxy
) -> None:
    script = "import os; print('accuracy=0.75'); open(os.environ['GATEHOUSE_OUTPUT'] + '/weights', 'w').close()"
    command = CommandSpec(command=("python", "-c", script), launch=LocalLaunch())
    proxy.down = True
    assert launch(CommandRequest(name="printed", command=command), store).metrics == {"accuracy": 0.75}
    proxy.down = False
    send_rest(store)
    assert _steps(proxy, "printed", "accuracy") == [0]
