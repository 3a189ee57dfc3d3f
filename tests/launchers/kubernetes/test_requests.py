"""What a launcher asks of the API: through faults and refusals, seldom, and no more than its role grants."""

from pathlib import Path

import pytest
import yaml

from gatehouse.errors import LauncherError
from gatehouse.launchers import launcher as ends
from gatehouse.launchers.launcher import LOG, TrainingJob
from gatehouse.store.store import ArtifactStore
from tests.launchers.kubernetes.conftest import Clock
from tests.launchers.kubernetes.scenarios import IMPATIENT, launcher_on, run, run_and_die, succeed
from tests.stand_ins.kubernetes_api import Cluster, kubernetes
from tests.stand_ins.kubernetes_kinds import Object

ROLE = Path(__file__).parents[3] / "docs" / "launcher-role.yaml"


def granted() -> set[tuple[str, str, str]]:
    """The rights of the documentation's role: group, resource and verb."""
    role, _ = yaml.safe_load_all(ROLE.read_text())
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


FLAPPING: list[int | str | None] = [429, 500, "reset", 401, None, 503, 504, "reset", None, "gone", 429, None, "close"]


def test_an_api_that_flaps_does_not_harm_the_job(store: ArtifactStore, job: TrainingJob, kind: str) -> None:
    with kubernetes(succeed) as cluster:
        cluster.faults.extend(FLAPPING)
        launcher_on(cluster, store, kind).run(job)
        assert cluster.jobs == {}
        assert len(cluster.created) == 1
    assert (job.directory / LOG).read_text() == "epoch 1/1\n"


def test_an_answer_that_is_lost_does_not_create_a_second_job(store: ArtifactStore, job: TrainingJob) -> None:
    with kubernetes(succeed) as cluster:
        launcher = launcher_on(cluster, store, "pytorchjob")
        send, answers = launcher._api._send, iter([ConnectionResetError("after the request was served")])

        def lose(method: str, path: str, **arguments: object) -> object:
            answer = send(method, path, **arguments)
            if method == "POST" and (lost := next(answers, None)):
                raise lost
            return answer

        launcher._api._send = lose  # type: ignore[method-assign]
        launcher.run(job)
        assert len(cluster.created) == 1


def test_a_token_that_expires_is_read_again(store: ArtifactStore, job: TrainingJob) -> None:
    def renew(cluster: Cluster, made: Object) -> None:
        cluster.token = "another"
        cluster.kubeconfig(Path(store.address).parent)
        succeed(cluster, made)

    run(renew, store, job, "pytorchjob")


def test_an_api_that_stays_away_ends_in_an_error_that_says_so(store: ArtifactStore, job: TrainingJob) -> None:
    with kubernetes(succeed) as cluster:
        launcher = launcher_on(cluster, store, "pytorchjob", IMPATIENT)
        cluster.faults.extend([503] * 2000)
        with pytest.raises(ends.ClusterError, match="does not answer, or answers with errors only") as caught:
            launcher.run(job)
        assert "HTTP 503" in str(caught.value)


@pytest.mark.parametrize("status", [403, 422])
def test_a_request_that_is_refused_is_not_repeated(store: ArtifactStore, job: TrainingJob, status: int) -> None:
    with kubernetes(succeed) as cluster:
        cluster.faults.extend([None, status])
        with pytest.raises(ends.ClusterError, match=f"with HTTP {status}: a scripted fault"):
            launcher_on(cluster, store, "pytorchjob").run(job)
        assert sum(request.startswith("POST") for request in cluster.requests) == 1


def test_a_field_that_the_operator_does_not_know_is_refused(store: ArtifactStore, job: TrainingJob) -> None:
    """As before Trainer 2.2: without the patches, pods lack the store's volume and their grace period."""
    with kubernetes(succeed) as cluster:
        cluster.lacks = ("runtimePatches",)
        with pytest.raises(ends.ClusterError, match=r'HTTP 400: .*unknown field "spec\.runtimePatches"'):
            launcher_on(cluster, store, "trainjob").run(job)
        assert not cluster.jobs


def test_the_log_of_a_container_that_waits_in_a_running_pod_is_asked_for_again(
    store: ArtifactStore, job: TrainingJob, kind: str
) -> None:
    def wait_first(cluster: Cluster, made: Object) -> None:
        pod = cluster.add_pod(made, "waits")
        cluster.set_pod(made, pod, "Running", {"waiting": {"reason": "CrashLoopBackOff"}})
        cluster.await_requests("/log", 2)  # Each is answered with HTTP 400.
        cluster.start(made, pod)
        cluster.say(pod, "here I am")
        cluster.await_log("here I am")
        cluster.end(made, pod, 0)
        succeed(cluster, made)

    run(wait_first, store, job, kind)
    assert (job.directory / LOG).read_text().count("here I am") == 1


def test_the_role_of_the_documentation_is_what_the_launcher_asks_for_and_no_more(
    store: ArtifactStore, job: TrainingJob, monkeypatch: pytest.MonkeyPatch, kind: str, clock: Clock
) -> None:
    monkeypatch.setenv("KFP_POD_NAME", "launcher")
    monkeypatch.setenv("KFP_POD_UID", "uid")

    def never_admitted(cluster: Cluster, made: Object) -> None:
        while cluster.jobs:  # The first launcher is killed before it looks.
            cluster.await_looks(1)
            clock.pass_minutes(31)

    def runs_on(cluster: Cluster, made: Object) -> None:
        pod = cluster.add_pod(made)
        cluster.start(made, pod)
        cluster.say(pod, "epoch 1/2")
        cluster.await_log("epoch 1/2")
        while cluster.jobs:
            cluster.await_looks(1)
            clock.pass_minutes(61)

    requests = set()
    for scenario in (never_admitted, runs_on):
        with kubernetes(scenario) as cluster:
            cluster.log = job.directory / LOG
            if scenario is never_admitted:
                run_and_die(store, job, cluster, kind)
            with pytest.raises(LauncherError):
                launcher_on(cluster, store, kind).run(job)
            requests |= cluster.permissions
    others = {"pytorchjobs", "trainjobs", "rayjobs", "jobs"} - {f"{kind}s"}
    assert requests == {right for right in granted() if right[1] not in others}
