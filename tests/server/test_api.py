"""The routes for programs: what they answer, who may call them, and what is written down of it."""

import json
from typing import Any

import pytest
import requests

from gatehouse.errors import StoreError
from gatehouse.registry.ledger import Ledger
from gatehouse.server.access import AUDIT, revoke_token
from tests.registry.gate import NAME
from tests.server.conftest import Served


def _problem(answer: requests.Response, status: int) -> str:
    body = answer.json()
    assert (answer.status_code, body["status"]) == (status, status), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    detail: str = body["detail"]
    return detail


def test_a_version_goes_from_staging_to_champion_and_back(served: Served) -> None:
    paul, ros = served.promoter, served.reader
    assert ros.get(f"/v1/resolve/{NAME}@champion").json()["version"] == 1
    assert "expected an approval" in _problem(paul.post(f"/v1/models/{NAME}/promote"), 409)
    other = paul.post(f"/v1/models/{NAME}/approve", reason="looks right", verdict="sha256-" + "0" * 12)
    assert "digest of its last verdict" in _problem(other, 409)
    assert "body.verdict" in _problem(paul.post(f"/v1/models/{NAME}/approve", reason="looks right"), 422)
    (_, read) = (version["verdict_digest"] for version in ros.get(f"/v1/versions?model={NAME}").json())
    signed = paul.post(f"/v1/models/{NAME}/approve", reason="looks right", verdict=read).json()
    assert (signed["decision"], signed["version"], signed["by"]) == ("approved", 2, "paul")
    assert paul.post(f"/v1/models/{NAME}/promote", reason="now").json()["decision"] == "promoted"
    result = ros.get(f"/v1/resolve/{NAME}@champion").json()
    assert (result["version"], result["stage"]) == (2, "champion")
    assert result["address"] == served.gate.store.address_of(result["model"])
    assert paul.post(f"/v1/models/{NAME}/rollback", version=2, reason="it is slow").json()["decision"] == "rolled back"
    assert ros.get(f"/v1/resolve/{NAME}@champion").json()["version"] == 1
    assert paul.post(f"/v1/models/{NAME}/archive", version=2).json()["decision"] == "archived"
    assert "archived" in _problem(paul.post(f"/v1/models/{NAME}/reject", version=2, reason="no", verdict=read), 409)
    acts = ros.get(f"/v1/models/{NAME}/ledger").json()
    assert [act["by"] for act in acts[-4:]] == ["paul"] * 4
    assert [item["reason"] for item in acts[-4:]] == ["looks right", "now", "it is slow", ""]


READS = ["models", f"models/{NAME}", f"models/{NAME}/ledger", f"resolve/{NAME}:1"]
READS += [f"explain/{NAME}:1", f"compare?first={NAME}:1&second={NAME}:2", "runs", "runs/20130101-000000-abcd"]
READS += [f"versions?model={NAME}", "tracked-runs", "curves?run=a", "artifacts", "experiments"]
PROMOTES = [f"models/{NAME}/{act}" for act in ("approve", "reject", "promote", "rollback", "archive")]
RUNS = [f"models/{NAME}/register", "runs", "events"]


def test_every_route_asks_for_its_scope(served: Served) -> None:
    for path in READS:
        assert served.nobody.get(f"/v1/{path}").status_code == 401, path
        assert served.reader.get(f"/v1/{path}").status_code in (200, 404, 422), path
    for path, allowed, refused in [
        *((path, served.promoter, (served.reader, served.runner)) for path in PROMOTES),
        *((path, served.runner, (served.reader, served.promoter)) for path in RUNS),
    ]:
        assert served.nobody.post(f"/v1/{path}").status_code == 401, path
        for other in refused:
            assert "Expected a token with the scope" in _problem(other.post(f"/v1/{path}", version=9, reason="x"), 403)
        body = {"evaluation": "x"} if path.endswith("register") else {} if path == "runs" else {"version": 9}
        assert allowed.post(f"/v1/{path}", **body, **({"reason": "x"} if "models" in path else {})).status_code in (
            404,
            409,
            422,
        ), path
    listed = requests.get(f"{served.address}/openapi.json", timeout=60).json()["paths"]
    assert len([item for item in listed if item.startswith("/v1/")]) == len(READS) + len(PROMOTES) + len(RUNS) - 1


def test_a_change_is_recorded_before_it_is_made_with_its_outcome_and_also_where_it_is_refused(served: Served) -> None:
    served.promoter.post(f"/v1/models/{NAME}/approve", reason="looks right", verdict=served.gate.verdict_digest())
    served.reader.post(f"/v1/models/{NAME}/approve", reason="let me", verdict="")
    served.reader.get("/v1/models")
    served.promoter.post(f"/v1/models/{NAME}/promote", version=9)
    records = _audited(served)
    result = [
        (record["by"], record["method"], record["path"].rpartition("/")[2], record["allowed"])
        for record in records[::2]
    ]
    assert result == [
        ("paul", "POST", "approve", True),
        ("ros", "POST", "approve", False),
        ("paul", "POST", "promote", True),
    ]
    assert records[1::2] == [{"status": 200}, {"status": 403}, {"status": 404}]


def _audited(served: Served) -> list[dict[str, Any]]:
    """The records of calls in their order, each followed by that of its outcome."""
    objects = served.gate.store.objects
    return [json.loads(objects.get_bytes(key)) for key in sorted(objects.list(AUDIT))]


def test_the_pipeline_that_promotes_asks_for_the_scope_to_promote(served: Served) -> None:
    assert "with the scope promote" in _problem(served.runner.post("/v1/runs", pipeline="promotion"), 403)
    assert "with the scope run" in _problem(served.promoter.post("/v1/runs", pipeline="promotion"), 403)
    for who, pipeline in ((served.anybody, "promotion"), (served.runner, "materialization")):
        assert "runs no project" in _problem(who.post("/v1/runs", pipeline=pipeline), 422)
    records = _audited(served)
    assert [item["allowed"] for item in records if item.get("by") == "rune"] == [True, False, True]
    assert [record["status"] for record in records[1::2]] == [403, 403, 403, 422, 422, 422]


def test_without_an_audit_nothing_is_changed(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any) -> bool:
        raise StoreError("the disk is full")

    monkeypatch.setattr(type(served.gate.store), "record", away)
    answer = served.promoter.post(
        f"/v1/models/{NAME}/approve", reason="looks right", verdict=served.gate.verdict_digest()
    )
    assert _problem(answer, 503) == "the disk is full"
    assert answer.headers["Retry-After"] == "5"
    assert not Ledger(served.gate.store, NAME).state().approvals


def test_resolve_answers_while_the_store_does_not(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    before = served.reader.get(f"/v1/resolve/{NAME}@champion").json()

    def away(*_: Any) -> Any:
        raise StoreError("the store is away")

    objects = type(served.gate.store.objects)
    monkeypatch.setattr("gatehouse.server.cache._FRESH", 0.0)
    monkeypatch.setattr(objects, "get_bytes", away)
    monkeypatch.setattr(objects, "list", away)
    monkeypatch.setattr(objects, "folders", away)
    after = served.reader.get(f"/v1/resolve/{NAME}@champion").json()
    assert after.pop("age_seconds") >= 0.0
    before.pop("age_seconds")
    assert after == before
    assert _problem(served.reader.get("/v1/models"), 503) == "the store is away"
    assert _problem(served.nobody.get("/health/ready"), 503) == "The store does not answer."
    assert served.nobody.get("/health/live").json() == {"status": "live"}


def test_what_is_wrong_is_told_in_the_words_of_the_project(served: Served) -> None:
    ros, rune = served.reader, served.runner
    assert "has no version 7" in _problem(ros.get(f"/v1/resolve/{NAME}:7"), 404)
    assert "runs no project" in _problem(rune.post("/v1/runs"), 422)
    assert "expected `gatehouse serve --project`" in _problem(
        rune.post(f"/v1/models/{NAME}/register", evaluation="x"), 422
    )
    assert "body.reason" in _problem(served.promoter.post(f"/v1/models/{NAME}/approve"), 422)
    for act, more in (("approve", {"verdict": "sha256-0"}), ("promote", {}), ("archive", {})):
        answer = served.promoter.post(f"/v1/models/{NAME}/{act}", version=99, reason="x", **more)
        assert "has no version 99" in _problem(answer, 404)
    assert "body.reason" in _problem(served.promoter.post(f"/v1/models/{NAME}/approve", reason="  "), 422)
    assert "at most 65,536 bytes" in _problem(rune.post("/v1/runs", reason="x" * 70_000), 413)
    headers = {"Authorization": f"Bearer {rune.secret}", "Content-Type": "application/json"}
    in_chunks = requests.post(f"{rune.address}/v1/runs", data=iter([b"{}"]), headers=headers, timeout=60)
    assert "a stated length" in _problem(in_chunks, 413)
    headers |= {"Content-Length": "2", "Transfer-Encoding": "chunked"}
    in_both = requests.post(f"{rune.address}/v1/runs", data=b"2\r\n{}\r\n0\r\n\r\n", headers=headers, timeout=60)
    assert "a stated length" in _problem(in_both, 413)


def test_a_revoked_token_and_a_forged_one_are_refused(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gatehouse.server.cache._FRESH", 0.0)
    secret = served.reader.secret
    assert served.reader.get("/v1/models").status_code == 200
    served.reader.secret = secret[:-1] + ("A" if secret[-1] != "A" else "B")
    assert served.reader.get("/v1/models").status_code == 401
    served.reader.secret = secret
    revoke_token(served.gate.store, secret.split("_")[1])
    answer = served.reader.get("/v1/models")
    assert "revoked" in _problem(answer, 401)
    assert answer.headers["WWW-Authenticate"] == "Bearer"


def test_a_fault_is_counted_guarded_and_told_as_a_problem(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr("gatehouse.api.models.models", broken)
    answer = served.reader.get("/v1/models")
    assert _problem(answer, 500) == "The server failed; its log says why."
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    text = served.nobody.get("/metrics").text
    assert 'gatehouse_calls_total{method="GET",route="/v1/models",status="500"} 1.0' in text


def test_no_secret_is_written_or_answered(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    secrets = [item.secret for item in (served.reader, served.runner, served.promoter)]
    planted = secrets[0] + "-planted"
    caplog.set_level("DEBUG")
    texts = [served.promoter.post(f"/v1/models/{NAME}/approve", reason={"token": planted}).text]
    texts += [served.reader.get(path).text for path in ("/v1/models", "/v1/nothing", "/metrics", "/openapi.json")]
    texts += [requests.get(f"{served.address}/v1/models", headers={"Authorization": planted}, timeout=60).text]
    store = served.gate.store
    texts += [store.objects.get_bytes(key).decode("latin-1") for key in store.objects.list("")]
    texts += [caplog.text]
    assert len(texts) > 20
    for secret in (*secrets, planted):
        assert not [text for text in texts if secret in text]
