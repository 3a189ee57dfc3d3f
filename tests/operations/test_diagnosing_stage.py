"""A pod that lacks something names it, a job resumes after a killed worker, and of racing writers one must win."""

import json
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from gatehouse import __version__
from gatehouse.operations.diagnosing_stage import (
    ReachRequest,
    RecoverRequest,
    UnfitPlaceError,
    reach,
    recover,
    store_finding,
)
from gatehouse.operations.recovery_program import KILLED_AT
from gatehouse.runtime.variables import LAUNCH
from gatehouse.store.store import ArtifactStore
from tests.stand_ins.kubernetes_api import kubernetes
from tests.stand_ins.kubernetes_kinds import container_of
from tests.stand_ins.kubernetes_pods import run_pods
from tests.stand_ins.servers import BUCKET, Answer, Proxy, s3_server

ADDRESS = f"s3://{BUCKET}/store"


def test_a_pod_with_everything_says_what_it_found(store: ArtifactStore) -> None:
    findings = reach(ReachRequest(version=__version__), store).checks
    assert findings[0] == f"image: holds Gatehouse {__version__}" and "racing writers one won" in findings[1]


def test_a_pod_names_everything_that_it_lacks(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    with pytest.raises(UnfitPlaceError) as caught:
        reach(ReachRequest(version="0.0.0"), store)
    assert "expected 0.0.0" in str(caught.value) and "refuses connections" in str(caught.value)


@pytest.mark.parametrize("kind", ["local", "pytorchjob"])
def test_a_job_of_two_workers_comes_back_after_a_kill(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    if kind == "local":
        assert recover(RecoverRequest(), store).resumed_at == KILLED_AT
        return
    with kubernetes(run_pods) as cluster:
        monkeypatch.setenv("KUBECONFIG", cluster.kubeconfig(tmp_path))
        monkeypatch.setenv(LAUNCH, json.dumps({"kind": kind, "image": "gatehouse/gatehouse:test"}))
        assert recover(RecoverRequest(), store).resumed_at == KILLED_AT
        assert container_of(cluster.created[0])[0] == 2, "a worker on each of two nodes"
        assert not cluster.jobs


def _unconditional(proxy: Proxy, method: str, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
    """The answer of a server that ignores `If-None-Match`."""
    return proxy._ask(method, url, body, {name: value for name, value in headers.items() if name != "If-None-Match"})


def _apart(proxy: Proxy, method: str, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
    """The answer of a server that checks `If-None-Match` and writes in two steps: only a later write is refused."""
    if "If-None-Match" in headers:
        signature = {"Authorization": headers["Authorization"]}
        if proxy._ask("HEAD", url, b"", signature).status == 200:
            return Answer(412, [("Content-Type", "application/xml")], b"<Error><Code>PreconditionFailed</Code></Error>")
        time.sleep(0.1)
    return _unconditional(proxy, method, url, body, headers)


@pytest.mark.parametrize(("answer", "outcome"), [(Proxy.ask, "passed"), (_unconditional, "failed"), (_apart, "failed")])
def test_a_store_passes_only_if_one_of_several_writers_wins(
    monkeypatch: pytest.MonkeyPatch, answer: object, outcome: str
) -> None:
    with s3_server() as proxy:
        for name, value in proxy.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(Proxy, "ask", answer)
        finding = store_finding(ADDRESS)
        assert finding.outcome == outcome, finding.observed
        later = "later write was refused" in finding.observed
        assert later == (answer is _apart) and bool(finding.advice) == (outcome == "failed")
        if outcome == "passed":
            assert not list(ArtifactStore.open(ADDRESS).objects.list("doctor")), "what was written is removed"
