"""The example of every component that stands alone, on a real cluster, and how `launch` and `search` end there."""

import json
import re
import runpy
from collections.abc import Callable
from typing import Any

import pytest
from kfp import dsl

from gatehouse import components as gh
from gatehouse.store.run import events
from tests.cluster.conftest import MINUTES, Cluster, start
from tests.kfp.test_examples import ELSEWHERE, EXAMPLES

pytestmark = pytest.mark.timeout(3600)
JOB: dict[str, Any] = {"kind": "trainjob", "nodes": 2, "resources": {"cpu": "250m", "memory": "512Mi"}}
LATE = {"scheduling_minutes": 1.0}
FAILURES: dict[str, tuple[str, dict[str, Any]]] = {
    "TrainingFailedError": ("raise SystemExit('no rows')", {}),
    "TrainingTimeoutError": ("import time; time.sleep(600)", {"timeout_minutes": 0.3}),
    "UnschedulableError": ("", JOB | {"resources": {"cpu": "900", "memory": "1Gi"}, "settings": LATE}),
}
"""What ends a launched script, by the error: the script, and inputs of `launch`."""
SEARCHED = """
import sys, time
for step in range(1, 5):
    time.sleep(2)
    print(f"step={step} loss={(float(sys.argv[1]) - 0.3) ** 2 + 1 / step}", flush=True)
"""
SPACE = {
    "objective": {"metric": "loss", "direction": "minimize"},
    "parameters": [{"name": "rate", "type": "double", "min": 0.0, "max": 1.0}],
    "max_trial_count": 8,
}


@pytest.fixture(scope="module")
def runs(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A run of every example, by its name, and of each failure, by its error."""
    folder = tmp_path_factory.mktemp("examples")
    ids = {}
    for name in sorted(EXAMPLES.keys() - ELSEWHERE):
        own = cluster.images["data" if name == "retrieve_features" else "training"]
        base = f'base_image="{own}", packages_to_install=[], install_kfp_package=False'
        (folder / name).mkdir()
        (folder / name / "example.py").write_text(
            re.sub(r"packages_to_install=\[.*?\]", base, EXAMPLES[name].read_text())
        )
        example = runpy.run_path(str(folder / name / "example.py"))["example"]
        inputs = (
            {"store": cluster.store.address}
            if "store" in example.pipeline_spec.root.input_definitions.parameters
            else {}
        )
        ids[name] = start(cluster, example, f"example-{name}".replace("_", "-"), **inputs)
    for error, (script, inputs) in FAILURES.items():
        ids[error] = started(cluster, gh.launch, error.lower(), script=script, **inputs)
    return ids


def started(cluster: Cluster, task: Callable[..., Any], name: str, **inputs: Any) -> str:
    """Start a run of one task with the store of the tests; returns its id."""

    @dsl.pipeline(name=name)
    def built() -> None:
        task(store=cluster.store.address, name=name, **inputs)

    return start(cluster, built, name)


@pytest.mark.parametrize("name", sorted(EXAMPLES.keys() - ELSEWHERE))
def test_an_example_runs(cluster: Cluster, runs: dict[str, str], name: str) -> None:
    cluster.require_success(runs[name])


def errors(cluster: Cluster, run: str) -> set[str]:
    return {event.body["error"] for _, event in events(cluster.store, run) if event.event == "failed"}


@pytest.mark.parametrize("error", FAILURES)
def test_each_end_of_a_script_has_its_error(cluster: Cluster, runs: dict[str, str], error: str) -> None:
    assert cluster.api.wait(runs[error], MINUTES * 60).state == "FAILED"
    assert errors(cluster, runs[error]) == {error}


def test_a_job_that_may_not_start_again_tells_of_its_eviction(cluster: Cluster) -> None:
    settings = {"run_policy": {"backoff_limit": 0}, "labels": {"gatehouse-test": "evicted"}}
    run = started(
        cluster,
        gh.launch,
        "evicted",
        script="import time; time.sleep(600)",
        **JOB | {"kind": "pytorchjob"},
        image=cluster.images["training"],
        settings=settings,
    )
    words = ("get", "pods", "-l", "gatehouse-test=evicted", "--field-selector=status.phase=Running", "-o", "json")
    pods = cluster.until("a pod", lambda: json.loads(cluster.kubectl(*words))["items"])
    about = {key: pods[0]["metadata"][key] for key in ("name", "namespace")}
    eviction = cluster.folder / "eviction.json"
    eviction.write_text(json.dumps({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": about}))
    path = "/api/v1/namespaces/{namespace}/pods/{name}/eviction".format(**about)
    cluster.kubectl("create", "--raw", path, "-f", str(eviction))
    assert cluster.api.wait(run, MINUTES * 60).state == "FAILED"
    assert errors(cluster, run) == {"EvictedError"}


def test_a_search_goes_on_after_its_pod_was_deleted(cluster: Cluster) -> None:
    command = ["python", "script.py", "{rate}"]
    run = started(cluster, gh.search, "searched", script=SEARCHED, command=command, spec=SPACE)

    def trials() -> list[int]:
        return [event.attempt for _, event in events(cluster.store, run, trials=True) if event.event == "trial"]

    cluster.until("three trials", lambda: len(trials()) > 2)
    pods = json.loads(cluster.kubectl("get", "pods", "-l", f"pipeline/runid={run}", "-o", "json"))["items"]
    names = [pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") == "Running"]
    cluster.kubectl("delete", "pod", *(name for name in names if "-impl-" in name), "--wait=false")
    cluster.require_success(run)
    assert {*trials()} == {1, 2} and len(trials()) == SPACE["max_trial_count"], "each trial ended once"
