"""Green means green: our pipelines on a real Kubeflow Pipelines 2, where stages, pods and jobs of them fail.

All runs are started at the beginning, side by side, as each takes minutes that are spent waiting for pods.
"""

import json
import os
import runpy
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from kfp import dsl

from gatehouse import components
from gatehouse.monitoring.live_log import live_files, live_tables
from gatehouse.operations import reconciling_stage
from gatehouse.operations.ending_stage import announce_end
from gatehouse.operations.outbox import Outbox
from gatehouse.operations.reconciling_stage import ReconcileRequest, reconcile
from gatehouse.project.project import load_project
from gatehouse.registry.ledger import Ledger, State
from gatehouse.registry.live_stage import published_outcomes
from gatehouse.runtime.variables import ENDPOINT
from gatehouse.server.app import create_app
from gatehouse.store.run import end_of
from gatehouse.store.store import ArtifactStore
from tests.cluster.conftest import Cluster, Started, ends, start
from tests.kfp.test_examples import EXAMPLES
from tests.operations.hook import hooked
from tests.registry.gate import NAME, make_gate
from tests.server import serving as servers
from tests.server.replay import Client, write_outcomes
from tests.server.test_live_rollout import POLICY, enter
from tests.small_example import MODEL, WINDOW
from tests.stand_ins.kubernetes_kinds import CRDS
from tests.training.synthetic import publish_split, publish_training_set, table

pytestmark = pytest.mark.timeout(3600)
PIPELINE_ROOT = "GATEHOUSE_CLUSTER_PIPELINE_ROOT"
"""Environment variable: KFP's pipeline root as this machine reaches it, where it is not that of KFP's manifests."""
SECONDS_BEFORE_DELETION = 360
"""With a longest duration of 300 s, Argo killed the second attempt of a pod that was deleted after that time."""
JOB = {"resources": {"cpu": "250m", "memory": "1500Mi"}, "nodes": 2, "scheduling_minutes": 5.0}
JOBS: dict[str, dict[str, Any]] = {
    "failing": JOB | {"resources": {"cpu": "250m", "memory": "128Mi"}, "run_policy": {"backoff_limit": 1}},
    "no-image": JOB | {"image": "gatehouse/none:0", "image_pull_minutes": 0.5},
    "unschedulable": JOB | {"resources": {"cpu": "900", "memory": "1Gi"}, "scheduling_minutes": 1.0},
}
"""Launches of jobs that cannot succeed."""


@pytest.fixture(scope="session")
def started(cluster: Cluster, green: Started) -> Started:
    """All other runs, as they start."""
    project, runs = green.project, dict(green.runs)
    runs["deleted"] = cluster.start(project, fault="split:start:pause")
    runs["cancelled"] = cluster.start(project, fault="compute_features:start:pause")
    for stage in ("snapshot", "split", "register", "report_end"):
        runs[stage] = cluster.start(project, fault=f"{stage}:start:raise")
    runs["again"] = cluster.start(project)
    runs["scoring"] = cluster.start(project, "scoring")
    for name, launch in JOBS.items():
        labels = {"gatehouse-test": name}
        failing = cluster.project(name, 2, launch={"kind": "pytorchjob", "labels": labels} | launch, tuning=None)
        runs[name] = cluster.start(failing, seed=11)
    return Started(project, runs)


def test_a_run_is_green_and_gives_a_champion(cluster: Cluster, green: Started) -> None:
    run = green.runs["green"]
    assert ends(cluster, run) == ("SUCCEEDED", "succeeded", "", "")
    results = {event.stage: event.body["result"] for event in cluster.events(run) if event.event == "finished"}
    assert results["register"]["decision"] == "approved"
    assert cluster.store.exists(results["train"]["model"])
    shown = cluster.gatehouse("models", "list", "--store", cluster.store.address)
    assert "champion" in shown


def test_the_champion_scores_rows_in_a_pipeline_of_ones_own(cluster: Cluster, green: Started) -> None:
    events = [event for event in cluster.events(green.runs["green"]) if event.event == "finished"]
    results = {event.stage: event.body["result"] for event in events}
    training_set = results["retrieve_training_set"]["training_set"]
    rows = next(path for path in cluster.store.paths(training_set) if path.suffix == ".parquet")
    cluster.store.objects.put_file("rows.parquet", rows)
    # KFP has credentials for its own bucket by this scheme.
    address = f"{cluster.store.address}/rows.parquet".replace("s3://mlpipeline", "minio://mlpipeline")
    inputs = {"store": cluster.store.address, "rows": address, "model_name": MODEL}
    run = start(cluster, runpy.run_path(str(EXAMPLES["score"]))["example"], "scored", **inputs)
    cluster.require_success(run)


def test_a_second_run_has_everything_from_the_memo(cluster: Cluster, started: Started) -> None:
    run = started.runs["again"]
    assert ends(cluster, run) == ("SUCCEEDED", "succeeded", "", "")
    output = {event.stage: event for event in cluster.events(run) if event.event in ("hit", "finished")}
    first = {event.stage: event for event in cluster.events(started.runs["green"]) if event.event == "finished"}
    output = {name: event for name, event in output.items() if ":" not in name}
    memoised = {name for name, event in first.items() if event.body.get("memo") and ":" not in name}
    hits = {name for name, event in output.items() if event.event == "hit"}
    # Where KFP's cache answers the task `split`, it has no pod, and leaves no event.
    assert hits <= memoised and memoised - hits <= {"split"}
    assert {"validate", "train", "evaluate"} <= memoised
    assert output["train"].body["result"]["model"] == first["train"].body["result"]["model"]
    # Stages that meet the world are asked again: none of their tasks comes from KFP's cache.
    assert {"snapshot", "resolve", "register", "report_end"} <= output.keys()


@pytest.mark.parametrize("stage", ["snapshot", "split", "register"])
def test_a_run_is_red_whichever_stage_fails(cluster: Cluster, started: Started, stage: str) -> None:
    assert ends(cluster, started.runs[stage]) == ("FAILED", "failed", stage, "RuntimeError")
    (message,) = [
        event.body["result"]
        for event in cluster.events(started.runs[stage])
        if (event.stage, event.event) == ("report_end", "finished")
    ]
    assert (message["state"], message["failed_stage"]) == ("failed", stage)


def test_a_green_run_whose_end_nobody_recorded_counts_as_failed(cluster: Cluster, started: Started) -> None:
    state, outcome, _, error = ends(cluster, started.runs["report_end"])
    assert (state, outcome, error) == ("SUCCEEDED", "failed", "NoRecordError")


def test_a_cancelled_run_is_stopped(cluster: Cluster, started: Started) -> None:
    run = started.runs["cancelled"]
    cluster.until("the pause", lambda: [item for item in cluster.events(run) if item.event == "paused"])
    cluster.api.terminate(run.id)
    state, outcome, stage, _ = ends(cluster, run)
    assert (state in ("CANCELED", "FAILED"), outcome, stage) == (True, "stopped", "compute_features")


def test_a_pod_that_is_deleted_after_minutes_starts_again(cluster: Cluster, started: Started) -> None:
    run = started.runs["deleted"]
    (pause,) = cluster.until("the pause", lambda: [item for item in cluster.events(run) if item.event == "paused"])
    time.sleep(max(0.0, pause.body["at"] + SECONDS_BEFORE_DELETION - time.time()))
    running = [pod for pod in cluster.pods(run) if pod["status"].get("phase") == "Running"]
    assert running
    cluster.kubectl("delete", "pod", *(pod["metadata"]["name"] for pod in running), "--wait=false")
    assert ends(cluster, run) == ("SUCCEEDED", "succeeded", "", "")
    second = {event.event for event in cluster.events(run) if (event.stage, event.attempt) == ("split", 2)}
    assert second & {"hit", "finished"}


def test_a_failed_run_that_is_retried_ends_well_and_reconcile_records_it(
    cluster: Cluster, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KFP starts the failed tasks again and not the exit task, which had succeeded."""
    run = started.runs["split"]
    assert ends(cluster, run)[0] == "FAILED"
    cluster.api._connection.call_api(f"/apis/v2beta1/runs/{run.id}:retry", "POST", header_params={})
    cluster.until("the second attempt", lambda: [item for item in cluster.events(run) if item.attempt == 2])
    assert ends(cluster, run) == ("SUCCEEDED", "succeeded", "", "")
    ends_recorded = [event for event in cluster.events(run) if event.stage == "report_end" and event.event == "started"]
    assert len(ends_recorded) == 1
    first = end_of(cluster.store, run.id)
    assert first is not None and (first["state"], first["number"]) == ("failed", 1)
    monkeypatch.setattr(
        reconciling_stage, "_GRACE", timedelta(0)
    )  # Ten minutes are left to the exit task, which is not run.
    monkeypatch.setenv(ENDPOINT, cluster.api.endpoint)
    reconcile.function(ReconcileRequest(project=started.project.name, pipelines=("training",)), cluster.store)
    last = end_of(cluster.store, run.id)
    assert last is not None and (last["state"], last["number"], last["by"]) == ("succeeded", 2, "reconcile")


@pytest.mark.parametrize(
    ("name", "errors"),
    [
        ("failing", {"TrainingFailedError"}),
        ("no-image", {"ImagePullError"}),
        ("unschedulable", {"UnschedulableError", "SchedulingTimeoutError"}),
    ],
)
def test_a_job_that_cannot_succeed_fails_the_run(
    cluster: Cluster, started: Started, name: str, errors: set[str]
) -> None:
    state, outcome, stage, error = ends(cluster, started.runs[name])
    assert (state, outcome, stage) == ("FAILED", "failed", "train")
    assert error in errors
    assert not cluster.kubectl("get", "pytorchjobs", "-l", f"gatehouse-test={name}", "-o", "name")


def test_artifacts_are_there_for_the_ui(cluster: Cluster, green: Started) -> None:
    """Pages have a file below KFP's pipeline root; metrics, curves and the model have metadata alone."""
    run = cluster.api.run(green.runs["green"].id)
    root = os.environ.get(PIPELINE_ROOT, "s3://mlpipeline/v2/artifacts")
    kept = ArtifactStore.open(f"{root}/{green.project.name}-training/{run.id}")
    files = {key.rsplit("/", 1)[1] for key in kept.objects.list("")}
    assert {"report", "trials", "summary"} <= files


def test_kfp_caches_no_task_of_scoring(cluster: Cluster, started: Started) -> None:
    assert ends(cluster, started.runs["scoring"])[:2] == ("SUCCEEDED", "succeeded")
    again = cluster.start(started.project, "scoring")
    assert ends(cluster, again)[:2] == ("SUCCEEDED", "succeeded")
    first, second = (
        {event.stage for event in cluster.events(run) if ":" not in event.stage}
        for run in (started.runs["scoring"], again)
    )
    assert first == second, "what KFP's cache answers has no pod, and leaves no event"


def test_waiting_ends_with_the_code_of_the_run(cluster: Cluster) -> None:
    project = cluster.project("waiting")
    where = (str(project), "--platform", str(cluster.profile), "--pipeline", "promotion", "--wait")
    shown = cluster.gatehouse("submit", *where, "--param", "version=9", code=4)
    assert "failed in promote" in shown


def test_an_event_starts_one_run_whose_end_is_pushed(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods reach no webhook of this machine, so the end that they recorded is sent from here."""
    parameters = {"source": cluster.source, "window": WINDOW, "backfill": "{subject}"}
    trigger = {"pipeline": "training", "type": "object.*", "parameters": parameters}
    project = cluster.project("told", triggers={"new-data": trigger})
    caller = servers.client(cluster.store, "", "sensor", "run", "read")
    with servers.serving(create_app(cluster.store, load_project(project), profile=cluster.profile)) as caller.address:
        event = {"specversion": "1.0", "id": "1", "source": "s3", "type": "object.created", "subject": "flights.csv"}
        ((order),) = caller.post("/v1/events", **event).json()
        assert caller.post("/v1/events", **event).json() == [order] and order["run"]
        cluster.adopt(order["run"])
        assert cluster.wait(cluster.api.run(order["run"])).state == "SUCCEEDED"
        run = caller.get(f"/v1/runs/{order['run']}").json()
        assert (run["state"], run["by"]) == ("succeeded", "sensor")
    with hooked(200) as hook:
        monkeypatch.setenv("GATEHOUSE_EVENTS_OPS_WEBHOOK", hook.url)
        name = load_project(project).name
        announce_end(cluster.store, order["run"], {})
        Outbox(cluster.store, name, {"ops": {}}).send()
    ended = [body for body in hook.bodies if body["type"] == "gatehouse.run.ended"]
    assert [(body["subject"], body["data"]["state"]) for body in ended] == [(order["run"], "succeeded")]


def test_a_schedule_is_made_once_paused_and_deleted(cluster: Cluster) -> None:
    project = cluster.project("timed", schedules={"yearly": {"cron": "0 0 3 1 1 *", "pipeline": "promotion"}})
    where = ("--project", str(project), "--platform", str(cluster.profile))
    assert "1 to add" in cluster.gatehouse("schedule", "apply", *where)
    assert "Nothing to change" in cluster.gatehouse("schedule", "apply", *where)
    cluster.gatehouse("schedule", "pause", "yearly", *where)
    assert "paused" in cluster.gatehouse("schedule", "list", *where)
    assert "Nothing to change" in cluster.gatehouse("schedule", "apply", *where)
    cluster.gatehouse("schedule", "delete", "yearly", *where)
    assert "yearly" not in cluster.gatehouse("schedule", "list", *where)


@pytest.mark.parametrize("kind", ["pytorchjob", "trainjob"])
def test_a_job_goes_on_where_its_worker_was_killed(cluster: Cluster, kind: str) -> None:
    project = cluster.project(kind, 2, launch={"kind": kind} | JOB)
    run = cluster.start(project, "diagnosis")
    assert ends(cluster, run) == ("SUCCEEDED", "succeeded", "", "")
    results = {event.stage: event.body["result"] for event in cluster.events(run) if event.event == "finished"}
    assert results["recover"]["resumed_at"] > 0
    assert len(results["recover"]["machines"]) == 2


@dataclass
class Serving:
    """Deployments of the champion: the section `deploy` of a profile, and the service that `kubectl` asks."""

    cluster: Cluster
    section: dict[str, Any]
    model: str = MODEL

    @property
    def name(self) -> str:
        """Name of the objects."""
        return str(self.section["service"])

    def deploy(self, *words: str, code: int = 0, **settings: Any) -> str:
        """What `gatehouse deploy` prints with more settings, which must end with the code."""
        profile = self.cluster.folder / "serving.yaml"
        body = yaml.safe_load(self.cluster.profile.read_text()) | {"deploy": self.section | settings}
        profile.write_text(yaml.safe_dump(body))
        return self.cluster.gatehouse("deploy", self.model, "--platform", str(profile), *words, code=code)

    def changed(self, *words: str) -> list[str]:
        """The kinds that a deployment of version 1 changes."""
        result = json.loads(self.deploy("--json", *words))
        assert result["version"] == 1
        kinds: list[str] = result["changed"]
        return kinds

    @contextmanager
    def address(self, service: str) -> Iterator[str]:
        """Address of a service as this machine reaches it."""
        words = ("kubectl", "proxy", "--port=0")
        # `kubectl create --raw` sends bodies in chunks, without a length, which our servers refuse.
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as proxy:
            try:
                assert proxy.stdout is not None
                address = proxy.stdout.readline().split()[-1]  # Starting to serve on 127.0.0.1:40000
                yield f"http://{address}/api/v1/namespaces/{self.cluster.namespace}/services/{service}/proxy"
            finally:
                proxy.terminate()

    def require_answer(self, service: str) -> None:
        """Ask a service for a score, with a row of missing values."""
        with self.address(service) as address:
            path = f"{address}/v2/models/{self.model}"
            inputs = requests.get(path, timeout=60).json()["inputs"]
            rows = {"inputs": [column | {"shape": [1], "data": [None]} for column in inputs]}
            answer = requests.post(f"{path}/infer", json=rows, timeout=60).json()
        assert answer["model_version"] == "1" and 0 < answer["outputs"][0]["data"][0] < 1


@pytest.fixture
def serving(cluster: Cluster) -> Iterator[Serving]:
    """Deployments whose objects are removed at the end; the cluster has KServe's CRD."""
    service, crd = f"served-{os.getpid()}", "inferenceservices.serving.kserve.io"
    lacks = not cluster.kubectl("get", "crd", crd, "--ignore-not-found", "-o", "name")
    if lacks:
        cluster.kubectl("apply", "--server-side", "-f", str(CRDS / "serving.kserve.io_inferenceservices.yaml"))
        cluster.kubectl("wait", "--for", "condition=established", f"crd/{crd}")
    section = {"service": service, "namespace": cluster.namespace, "cpu": "250m", "memory": "1500Mi", "replicas": 2}
    yield Serving(cluster, section)
    cluster.kubectl("delete", "deployment,service,hpa,inferenceservice", service, "--ignore-not-found")
    if lacks:
        cluster.kubectl("delete", "crd", crd)


def test_the_champion_is_deployed_answers_and_a_failure_is_taken_back(
    cluster: Cluster, green: Started, serving: Serving
) -> None:
    first = json.loads(serving.deploy("--json"))
    assert (first["version"], first["changed"]) == (1, ["Service", "Deployment"])
    service = f"{serving.name}:http"
    serving.require_answer(service)
    # Its resourceVersion counts the pods that end, too.
    about = ("get", "deployment", serving.name, "-o", "jsonpath={.metadata.generation} {.metadata.annotations}")
    assert serving.changed() == []
    cluster.kubectl("scale", "deployment", serving.name, "--replicas=1")
    scaled = cluster.kubectl(*about)
    assert "replicas" in serving.deploy(code=1) and cluster.kubectl(*about) == scaled
    assert serving.changed("--force") == ["Deployment"]
    failed = serving.deploy(code=1, image="127.0.0.1:1/none:0")
    assert "cannot be pulled" in failed and first["deployment"] in failed
    serving.require_answer(service)
    serving.changed()
    serving.deploy("--kind", "kserve", "--dry-run")

    @dsl.pipeline(name="deploying")  # type: ignore[untyped-decorator]  # kfp has no types
    def deploying(store: str) -> None:
        settings = serving.section | {"image": cluster.images["training"], "max_replicas": 2}
        components.deploy(store=store, model=MODEL, settings=settings)

    cluster.require_success(start(cluster, deploying, "deploying", store=cluster.store.address))
    assert serving.name in cluster.kubectl("get", "hpa", "-o", "name")


def test_the_champion_is_deployed_by_kserve(cluster: Cluster, green: Started, serving: Serving) -> None:
    if "serving.kserve.io" not in cluster.kubectl("get", "mutatingwebhookconfigurations", "-o", "name"):
        # Its controller makes the pods, and the CRD alone makes none.
        pytest.skip("needs KServe in the cluster")
    kind = ("--kind", "kserve")
    assert serving.changed(*kind) == ["InferenceService"]
    ready = '{.status.conditions[?(@.type=="Ready")].status} {.status.deploymentMode}'
    shown = ("get", "inferenceservice", serving.name, "-o", f"jsonpath={ready}")
    assert cluster.kubectl(*shown) == "True Standard"
    service = f"{serving.name}-predictor:80"
    serving.require_answer(service)
    assert serving.changed(*kind) == []
    assert "cannot be pulled" in serving.deploy(*kind, code=1, image="127.0.0.1:1/none:0")
    serving.require_answer(service)
    serving.changed(*kind)


def test_runs_of_the_rollout_bring_a_canary_to_champion(cluster: Cluster, serving: Serving, tmp_path: Path) -> None:
    own = cluster.beside("rollout")
    gate, rows = make_gate(own.store), table(4500, seed=11)
    training_set = publish_training_set(
        own.store, table(), task="binary", snapshot=str(next(iter(own.store.references("snapshots"))))
    )
    data = training_set, publish_split(own.store, training_set)
    assert [enter(gate, data, 150, seed) for seed in (0, 1)] == ["approved", "awaiting promotion"]
    project = own.project("rolled", model=NAME)
    rules = POLICY.model_dump(mode="json", exclude_defaults=True) | {"rollout": {"shares": [0.5], "min_hours": 0}}
    (project / "policy.yaml").write_text(yaml.safe_dump(rules))
    predictors = replace(serving, cluster=own, model=NAME)
    predictors.deploy(arguments=["--log", "none"])

    def look(**outcomes: str) -> State:
        """The ledger after a run of the rollout."""
        assert ends(own, own.start(project, "rollout", **outcomes)) == ("SUCCEEDED", "succeeded", "", "")
        return Ledger(own.store, NAME).state()

    assert (look().canary_share, look().canary) == (0.5, 2)
    with predictors.address(f"{predictors.name}:http") as address:
        client = Client(own.store, NAME, address)
        client.follows()
        client.send(rows)
    own.until(
        "all rows in the log",
        lambda: sum(part.num_rows for part in live_tables(own.store, live_files(own.store, NAME, None))) == 4500,
    )
    write_outcomes(rows, ["flight_id"], "label", tmp_path / "outcomes.parquet")
    outcomes = published_outcomes(own.store, str(tmp_path / "outcomes.parquet"))
    assert look(outcomes=outcomes).champion == 2
