"""A store passes if of racing writers exactly one wins, and fails if two can."""

import time
from collections.abc import Mapping

import pytest

from gatehouse.operations.diagnosing.reach import store_finding
from gatehouse.store.store import ArtifactStore
from tests.stand_ins.servers import BUCKET, Answer, Proxy, s3_server

ADDRESS = f"s3://{BUCKET}/store"


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
