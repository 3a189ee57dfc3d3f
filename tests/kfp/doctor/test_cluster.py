"""What the doctor sees of a cluster: each thing that can be wrong is found, and said with what to do about it."""

import base64
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from typer.testing import CliRunner

import gatehouse
from gatehouse.cli.main import app, register
from gatehouse.kfp.compilation.compiling import compile_pipeline
from gatehouse.kfp.compilation.policy import breaches
from gatehouse.kfp.compilation.specification import read_spec
from gatehouse.kfp.doctor import cluster as doctor
from gatehouse.kfp.doctor.images import image_finding
from gatehouse.kfp_api.answers import Run
from gatehouse.kfp_api.client import KfpApi
from gatehouse.launchers.spec import PyTorchJobLaunch, TrainJobLaunch
from gatehouse.operations import diagnosing_stage
from gatehouse.operations.diagnosing_stage import Finding
from gatehouse.operations.ending_stage import outcome_of, record_end
from gatehouse.project.platforms import Platform
from gatehouse.project.project import Project, load_project
from gatehouse.runtime.images import LOCKS
from gatehouse.store.store import ArtifactStore
from tests.stand_ins.http_server import Handler, listening
from tests.stand_ins.kfp_api import KfpServer
from tests.stand_ins.kubernetes_api import NAMESPACE, Cluster, kubernetes
from tests.stand_ins.model_registry_api import ModelRegistry, model_registry

EXAMPLE = Path(gatehouse.__file__).parent / "pipelines" / "projects" / "flights"
DIGEST = "sha256:" + "a" * 64
_CORE = f"/api/v1/namespaces/{NAMESPACE}"


@dataclass
class Images:
    """A container registry with one image, `ml/gatehouse`, which may want a login: `Basic`, or `Bearer` for a token."""

    wants: str = ""
    login: str = "Basic " + base64.b64encode(b"ada:planted:word").decode()
    address: str = ""


class _Images(Handler):
    state: Images

    def do_HEAD(self) -> None:
        sent = self.headers.get("Authorization", "")
        path = urlsplit(self.path).path
        if self.state.wants and sent != (self.state.login if self.state.wants == "Basic" else "Bearer of ml/gatehouse"):
            self.send_response(401)
            details = ',service="images, all",scope="repository:ml/gatehouse:pull"' * (self.state.wants == "Bearer")
            realm = f"http://{self.state.address}/token"
            self.send_header("WWW-Authenticate", f'{self.state.wants} realm="{realm}"{details}')
        elif path == f"/v2/ml/gatehouse/manifests/{DIGEST}" and "oci.image.index" in self.headers["Accept"]:
            self.send_response(200)
        else:
            self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        granted = query == {"service": ["images, all"], "scope": ["repository:ml/gatehouse:pull"]}
        if granted and self.headers.get("Authorization") == self.state.login:
            self.answer(200, {"access_token": "of ml/gatehouse"})
        else:
            self.answer(401, {})


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Images]:
    for variable in ("DOCKER_CONFIG", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.delenv("REGISTRY_AUTH_FILE", raising=False)
    state = Images()
    with listening(_Images, state=state) as port:
        state.address = f"127.0.0.1:{port}"
        yield state


@dataclass
class Patient:
    """A cluster that has everything, which a test takes something from."""

    cluster: Cluster
    kfp: KfpServer
    registry: ModelRegistry
    profile: dict[str, Any]
    project: Project

    def findings(self) -> dict[str, Finding]:
        """What the doctor finds, by what was looked at."""
        platform = Platform.model_validate(self.profile)
        return {finding.check: finding for finding in doctor.examine(self.project, platform)}


def _group(cluster: Cluster, group: str, version: str, plural: str) -> None:
    cluster.objects[f"/apis/{group}"] = {"preferredVersion": {"groupVersion": f"{group}/{version}"}}
    cluster.objects[f"/apis/{group}/{version}"] = {"resources": [{"name": plural}, {"name": f"{plural}/status"}]}


@pytest.fixture(scope="module")
def example() -> Project:
    return load_project(EXAMPLE)


@pytest.fixture
def patient(
    example: Project, kfp_server: KfpServer, images: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Patient]:
    monkeypatch.setattr(doctor, "_TIMEOUTS", replace(doctor._TIMEOUTS, request=2.0, retry=0.2))
    monkeypatch.setattr(doctor, "_PATIENCE", replace(doctor._PATIENCE, request=2.0, retry=0.2, first_pause=0.05))
    with kubernetes(lambda *_: None) as cluster, model_registry() as registry:
        monkeypatch.setenv("KUBECONFIG", cluster.kubeconfig(tmp_path))
        cluster.granted = set(doctor.RIGHTS)
        cluster.objects |= {
            "/version": {"gitVersion": "v1.33.1"},
            f"{_CORE}/configmaps/gatehouse-settings": {"data": {"aws-region": "eu-west-1"}},
            f"{_CORE}/secrets/gatehouse-credentials": {"data": {"alert-webhook": "aHR0cA=="}},
            f"{_CORE}/secrets/registry": {"data": {".dockerconfigjson": "e30="}},
            f"{_CORE}/serviceaccounts/pipeline-runner": {"metadata": {}},
            f"/apis/kueue.x-k8s.io/v1beta1/namespaces/{NAMESPACE}/localqueues/flights": {"spec": {"clusterQueue": "q"}},
        }
        _group(cluster, "kubeflow.org", "v1", "pytorchjobs")
        _group(cluster, "kueue.x-k8s.io", "v1beta1", "localqueues")
        profile = {
            "name": "cluster",
            "store": str(tmp_path / "store"),
            "endpoint": kfp_server.endpoint,
            "service_account": "pipeline-runner",
            "images": dict.fromkeys(LOCKS, f"{images.address}/ml/gatehouse@{DIGEST}"),
            "queue": "flights",
            "pods": {"image_pull_secrets": ["registry"], "volumes": [{"claim": "shared", "path": str(tmp_path)}]},
            "model_registry": {"server": registry.url},
        }
        cluster.objects[f"{_CORE}/persistentvolumeclaims/shared"] = {"metadata": {}}
        launched = example.file.model_copy(update={"launch": PyTorchJobLaunch(kind="pytorchjob")})
        yield Patient(cluster, kfp_server, registry, profile, replace(example, file=launched))


def test_a_cluster_that_has_everything_is_well(patient: Patient) -> None:
    findings = patient.findings()
    assert [check for check, finding in findings.items() if not finding.well] == ["store"], "a folder of the pods"
    assert findings["Kubeflow Pipelines"].observed.endswith("answers, 2.17.0")
    assert findings["pytorchjobs.kubeflow.org"].observed == "served as kubeflow.org/v1"
    assert findings["trainjobs.trainer.kubeflow.org"].outcome == "not checked"
    assert findings["secret gatehouse-credentials"].observed == "it has alert-webhook"
    whom = {review["spec"]["user"] for review in patient.cluster.reviews}
    assert whom == {f"system:serviceaccount:{NAMESPACE}:pipeline-runner"}
    assert len(patient.cluster.reviews) == 9


def test_an_operator_that_lacks_fields_of_the_launcher_is_named(patient: Patient) -> None:
    launched = patient.project.file.model_copy(update={"launch": TrainJobLaunch()})
    patient.project = replace(patient.project, file=launched)
    _group(patient.cluster, "trainer.kubeflow.org", "v1alpha1", "trainjobs")
    assert patient.findings()["trainjobs.trainer.kubeflow.org"].well
    for fields, is_well in (("activeDeadlineSeconds", "runtimePatches"), True), (("activeDeadlineSeconds",), False):
        spec = {"properties": {"spec": {"properties": {key: {} for key in fields}}}}
        schemas = {"components": {"schemas": {"org.kubeflow.trainer.v1alpha1.TrainJob": spec}}}
        patient.cluster.objects["/openapi/v3/apis/trainer.kubeflow.org/v1alpha1"] = schemas
        finding = patient.findings()["trainjobs.trainer.kubeflow.org"]
        assert finding.well is is_well and ("runtimePatches" in finding.observed) is not is_well


def test_an_engine_needs_kuberay_with_tokens_and_the_right_to_create_its_jobs(patient: Patient) -> None:
    patient.profile["engine"] = {"kind": "ray", "workers": 2}
    assert patient.findings()["rayjobs.ray.io"].observed == "the cluster does not know it"
    _group(patient.cluster, "ray.io", "v1", "rayjobs")
    for cluster_spec, is_well in ({"properties": {"authOptions": {}}}, True), ({"properties": {}}, False):
        spec = {"properties": {"spec": {"properties": {"backoffLimit": {}, "rayClusterSpec": cluster_spec}}}}
        schemas = {"components": {"schemas": {"io.ray.v1.RayJob": spec}}}
        patient.cluster.objects["/openapi/v3/apis/ray.io/v1"] = schemas
        assert patient.findings()["rayjobs.ray.io"].well is is_well
    patient.cluster.granted.discard(("ray.io", "rayjobs", "create"))
    assert "create rayjobs.ray.io" in patient.findings()["rights"].observed
    patient.profile["engine"] = {"kind": "ray", "address": "http://ray-head:8265"}
    assert patient.findings()["rayjobs.ray.io"].well


def _lose(path: str) -> Callable[[Patient], None]:
    return lambda patient: patient.cluster.objects.pop(path) and None


def _say(path: str, **data: str) -> Callable[[Patient], None]:
    return lambda patient: patient.cluster.objects.update({path: {"data": data}})


def _profile(**changes: Any) -> Callable[[Patient], None]:
    return lambda patient: patient.profile.update(changes)


@pytest.mark.parametrize(
    ("harm", "check", "outcome", "result", "advice"),
    [
        (_profile(images={}), "image training", "failed", "found none", "make images"),
        (lambda patient: setattr(patient.kfp, "down", True), "Kubeflow Pipelines", "failed", "", "Check `endpoint`"),
        (
            lambda patient: setattr(patient.kfp, "version", "3.0.1"),
            "Kubeflow Pipelines",
            "failed",
            "is 3.0.1",
            "endpoint",
        ),
        (_profile(endpoint=""), "Kubeflow Pipelines", "not checked", "names an endpoint", "Set `endpoint`"),
        (_lose("/apis/kubeflow.org"), "pytorchjobs.kubeflow.org", "failed", "does not know it", "Install its operator"),
        (_lose("/apis/kueue.x-k8s.io"), "queue flights", "failed", "no local queue", "LocalQueue"),
        (
            lambda patient: patient.cluster.granted.discard(("", "pods/log", "get")),
            "rights",
            "failed",
            "may not get pods/log",
            "kubectl apply -n ml -f docs/launcher-role.yaml",
        ),
        (
            _lose(f"{_CORE}/serviceaccounts/pipeline-runner"),
            "serviceaccount pipeline-runner",
            "failed",
            "not in ml",
            "Create it",
        ),
        (
            _say(f"{_CORE}/configmaps/gatehouse-settings", **{"mlflow-tracking-url": "http://x"}),
            "configmap gatehouse-settings",
            "failed",
            "nothing reads mlflow-tracking-url",
            "mlflow-tracking-uri",
        ),
        (
            _say(f"{_CORE}/configmaps/gatehouse-settings", **{"mlflow-tracking-uri": "http://127.0.0.1:9"}),
            "MLflow",
            "failed",
            "refuses connections",
            "Start the server",
        ),
        (lambda patient: setattr(patient.cluster, "token", "other"), "Kubernetes", "failed", "401", "log in again"),
        (lambda patient: setattr(patient.registry, "token", "t"), "Model Registry", "failed", "answered 401", "TOKEN"),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else None,
)
def test_what_is_wrong_is_found_and_told_with_what_to_do(
    patient: Patient, harm: Callable[[Patient], None], check: str, outcome: str, result: str, advice: str
) -> None:
    harm(patient)
    seen = patient.findings()[check]
    assert (seen.outcome, seen.well) == (outcome, False)
    assert result in seen.observed and advice in seen.advice


@pytest.mark.parametrize(
    ("policy", "one_key", "place"),
    [
        ("OnError", True, "kubeflow"),
        (None, True, NAMESPACE),
        ("Always", False, "kubeflow"),
        ("Sometimes", False, NAMESPACE),
    ],
)
def test_the_doctor_says_by_which_policy_this_cluster_starts_tasks_again(
    patient: Patient, policy: str | None, one_key: bool, place: str
) -> None:
    strategy: Any = {"retryStrategy": {"limit": "2"} | ({"retryPolicy": policy} if policy else {})}
    data: Any = {"executor": "{}", "workflowDefaults": {"spec": {"templateDefaults": strategy}}}
    settings = {"config": yaml.safe_dump(data)} if one_key else {key: yaml.safe_dump(data[key]) for key in data}
    path = f"/api/v1/namespaces/{place}/configmaps/workflow-controller-configmap"
    patient.cluster.objects[path] = {"data": settings}
    finding = patient.findings()["restarts"]
    if policy == "Sometimes":
        assert (finding.outcome, finding.well) == ("not checked", True)
    else:
        assert finding.outcome == "passed" and f"policy is {policy or 'OnFailure'}" in finding.observed


@pytest.mark.parametrize("place", ["auths", "part", "podman", "credHelpers", "credsStore"])
@pytest.mark.parametrize("wants", ["Basic", "Bearer"])
def test_a_registry_is_asked_with_the_login_of_this_machine(
    images: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wants: str, place: str
) -> None:
    images.wants = wants
    reference = f"{images.address}/ml/gatehouse:1@{DIGEST}"
    assert image_finding("control", reference).outcome == "not checked"
    encoded = images.login.partition(" ")[2]
    config = {
        "auths": {"auths": {images.address: {"auth": encoded}}},
        "part": {"auths": {f"{images.address}/ml": {"auth": encoded}}, "credsStore": "missing"},
        "podman": {"auths": {images.address: {"auth": encoded}}},
        "credHelpers": {"auths": {images.address: {}}, "credHelpers": {images.address: "planted"}},
        "credsStore": {"credsStore": "planted"},
    }[place]
    path = tmp_path / ("containers/auth.json" if place == "podman" else "config.json")
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(config))
    helper = tmp_path / "docker-credential-planted"
    answer = json.dumps({"Username": "ada", "Secret": "planted:word"})
    helper.write_text(f"#!/bin/sh\n[ $(cat) = {images.address} ] && echo '{answer}'\n")
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert image_finding("control", reference).outcome == "passed"
    images.login = "another"
    refused = image_finding("control", reference)
    assert (refused.outcome, refused.well) == ("not checked", False)
    assert "401" in refused.observed and "planted" not in str(refused)


@pytest.mark.parametrize(
    ("reference", "outcome", "result"),
    [
        ("{}/ml/gatehouse@sha256:" + "b" * 64, "failed", "has no"),
        ("127.0.0.1:9/ml/gatehouse@" + DIGEST, "not checked", "ConnectionError"),
        ("{}/ml/gatehouse:1", "failed", "found {}/ml/gatehouse:1"),
    ],
)
def test_an_image_that_no_registry_shows_is_not_passed(
    images: Images, reference: str, outcome: str, result: str
) -> None:
    finding = image_finding("control", reference.format(images.address))
    assert (finding.outcome, finding.well) == (outcome, False)
    assert result.format(images.address) in finding.observed


def test_a_secret_is_looked_at_by_its_keys_and_its_words_are_not_told(patient: Patient) -> None:
    patient.cluster.objects[f"{_CORE}/secrets/gatehouse-credentials"] = {"data": {"source-url": "cGxhbnRlZA=="}}
    assert "cGxhbnRlZA" not in json.dumps([vars(finding) for finding in patient.findings().values()])


def test_a_store_that_writes_over_what_is_there_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gatehouse.store.objects.local import LocalObjects

    assert diagnosing_stage.store_finding(str(tmp_path / "store")).outcome == "passed"
    assert not list((tmp_path / "store" / "doctor").rglob("*.json")), "what was written is removed"

    def overwrite(self: LocalObjects, key: str, data: bytes) -> bool:
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return True

    monkeypatch.setattr(LocalObjects, "put_bytes", overwrite)
    seen = diagnosing_stage.store_finding(str(tmp_path / "store"))
    assert seen.outcome == "failed" and "a later write was taken" in seen.observed


def test_the_rights_are_those_of_the_role() -> None:
    role = next(yaml.safe_load_all((Path(__file__).parents[3] / "docs" / "launcher-role.yaml").read_text()))
    granted = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert granted == doctor.RIGHTS


@pytest.fixture
def profile(patient: Patient, tmp_path: Path) -> str:
    """The profile as a file, for the command line."""
    register("doctor")
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump(patient.profile))
    return str(path)


@pytest.mark.parametrize("state", ["SUCCEEDED", "FAILED"])
def test_a_run_of_the_diagnosis_says_what_pods_find(
    patient: Patient, profile: str, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    wait = KfpApi.wait

    def ended(api: KfpApi, run: str, timeout: float) -> Run:
        patient.kfp.objects.set_state(run, state)
        store = ArtifactStore.open(patient.profile["store"])
        record_end(store, run, outcome_of([], "COMPLETE" if state == "SUCCEEDED" else state), "report_end")
        return wait(api, run, timeout)

    monkeypatch.setattr(KfpApi, "wait", ended)
    output = CliRunner().invoke(app, ["doctor", "cluster", str(EXAMPLE), "--platform", profile, "--run", "--json"])
    result = {finding["check"]: finding for finding in json.loads(output.stdout)}
    assert output.exit_code == (state != "SUCCEEDED"), output.stdout
    assert ("store" in result) == (state != "SUCCEEDED"), "a pod has seen the store"
    (run,) = patient.kfp.objects.runs.values()
    assert re.fullmatch(r"[\d-]{10}, [0-9a-f]{12}", run["display_name"])
    assert result["pods"]["outcome"] == ("passed" if state == "SUCCEEDED" else "failed")
    assert run["run_id"] in result["pods"]["advice"] or state == "SUCCEEDED"


def test_the_diagnosis_keeps_the_policy_and_launches_as_the_project_does(patient: Patient, tmp_path: Path) -> None:
    patient.profile["store"] = "s3://bucket/gatehouse"
    path = compile_pipeline("diagnosis", patient.project, tmp_path, Platform.model_validate(patient.profile))
    spec = read_spec(path)
    assert list(breaches(spec)) == []
    task = spec.task("diagnose")
    (arguments,) = [item["value"] for item in task.container["env"] if item["name"] == "GATEHOUSE_LAUNCH"]
    launch = json.loads(arguments)
    assert (launch["kind"], launch["image"]) == ("pytorchjob", patient.profile["images"]["training"])
