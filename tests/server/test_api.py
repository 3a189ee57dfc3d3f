"""The routes for programs: what they answer, who may call them, and what is written down of it."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import requests

from gatehouse.errors import StoreError
from gatehouse.registry.ledger import Ledger
from gatehouse.server.access import AUDIT
from gatehouse.server.tokens import revoke_token
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
    signed = paul.post(f"/v1/models/{NAME}/approve", reason="looks right").json()
    assert (signed["decision"], signed["version"], signed["by"]) == ("approved", 2, "paul")
    assert paul.post(f"/v1/models/{NAME}/promote", reason="now").json()["decision"] == "promoted"
    found = ros.get(f"/v1/resolve/{NAME}@champion").json()
    assert (found["version"], found["stage"]) == (2, "champion")
    assert found["address"] == served.gate.store.address_of(found["model"])
    assert paul.post(f"/v1/models/{NAME}/rollback", version=2, reason="it is slow").json()["decision"] == "rolled back"
    assert ros.get(f"/v1/resolve/{NAME}@champion").json()["version"] == 1
    assert paul.post(f"/v1/models/{NAME}/archive", version=2).json()["decision"] == "archived"
    assert "archived" in _problem(paul.post(f"/v1/models/{NAME}/reject", version=2, reason="no"), 409)
    acts = ros.get(f"/v1/models/{NAME}/ledger").json()
    assert [each["by"] for each in acts[-4:]] == ["paul"] * 4
    assert [each["reason"] for each in acts[-4:]] == ["looks right", "now", "it is slow", ""]


def test_reading_gives_what_the_functions_give(served: Served) -> None:
    ros = served.reader
    assert ros.get("/v1/models").json() == [{"name": NAME, "versions": 2, "aliases": {"staging": 2, "champion": 1}}]
    assert ros.get(f"/v1/models/{NAME}").json() == ros.get("/v1/models").json()[0]
    versions = ros.get(f"/v1/models/{NAME}/versions").json()
    assert [each["stage"] for each in versions] == ["champion", "staging"]
    assert {each["name"]: each["value"] for each in versions[0]["numbers"]} == {"roc_auc": 0.73, "log_loss": 0.49}
    assert [each["version"] for each in ros.get("/v1/search", query="seed = 2").json()] == [2]
    assert len(ros.get("/v1/search", trained_on="snapshots/raw").json()) == 2
    explained = ros.get(f"/v1/explain/{NAME}:1").json()
    assert explained["answers"][0]["question"] == "which data"
    compared = ros.get("/v1/compare", first=f"{NAME}:1", second=f"{NAME}@staging").json()
    assert {"part": "configuration", "name": "seed", "first": "1", "second": "2"} in compared["changes"]


READS = ["models", f"models/{NAME}", f"models/{NAME}/versions", f"models/{NAME}/ledger", f"resolve/{NAME}:1"]
READS += [f"explain/{NAME}:1", f"compare?first={NAME}:1&second={NAME}:2", "search", "runs", "runs/20130101-000000-abcd"]
PROMOTES = [f"models/{NAME}/{act}" for act in ("approve", "reject", "promote", "rollback", "archive")]
RUNS = [f"models/{NAME}/register", "runs"]


def test_every_route_asks_for_its_scope(served: Served) -> None:
    for path in READS:
        assert served.nobody.get(f"/v1/{path}").status_code == 401, path
        assert served.reader.get(f"/v1/{path}").status_code in (200, 404), path
    for path, allowed, others in [
        *((path, served.promoter, (served.reader, served.runner)) for path in PROMOTES),
        *((path, served.runner, (served.reader, served.promoter)) for path in RUNS),
    ]:
        assert served.nobody.post(f"/v1/{path}").status_code == 401, path
        for each in others:
            assert "Expected a token with the scope" in _problem(each.post(f"/v1/{path}", version=9, reason="x"), 403)
        body = {"evaluation": "x"} if path.endswith("register") else {} if path == "runs" else {"version": 9}
        assert allowed.post(f"/v1/{path}", **body, **({"reason": "x"} if "models" in path else {})).status_code in (
            404,
            409,
            422,
        ), path
    listed = requests.get(f"{served.address}/openapi.json", timeout=60).json()["paths"]
    assert len([each for each in listed if each.startswith("/v1/")]) == len(READS) + len(PROMOTES) + len(RUNS) - 1


def test_a_change_is_recorded_before_it_is_made_with_its_outcome_and_also_where_it_is_refused(served: Served) -> None:
    served.promoter.post(f"/v1/models/{NAME}/approve", reason="looks right")
    served.reader.post(f"/v1/models/{NAME}/approve", reason="let me")
    served.reader.get("/v1/models")
    served.promoter.post(f"/v1/models/{NAME}/promote", version=9)
    records = _audited(served)
    found = [(each["by"], each["method"], each["path"].rpartition("/")[2], each["allowed"]) for each in records[::2]]
    assert found == [
        ("paul", "POST", "approve", True),
        ("ros", "POST", "approve", False),
        ("paul", "POST", "promote", True),
    ]
    assert records[1::2] == [{"status": 200}, {"status": 403}, {"status": 404}]


def _audited(served: Served) -> list[dict[str, Any]]:
    """The records of calls in their order, each followed by that of its outcome."""
    objects = served.gate.store.objects
    return [json.loads(objects.get_bytes(key)) for key in sorted(objects.list(AUDIT))]


def test_an_outcome_that_cannot_be_recorded_keeps_no_answer_back(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = type(served.gate.store).record

    def full(store: Any, key: str, body: Any) -> bool:
        if key.endswith(".outcome.json"):
            raise StoreError("the disk is full")
        return record(store, key, body)

    monkeypatch.setattr(type(served.gate.store), "record", full)
    assert served.promoter.post(f"/v1/models/{NAME}/approve", reason="looks right").status_code == 200
    (called,) = _audited(served)
    assert called["by"] == "paul"


def test_the_pipeline_that_promotes_asks_for_the_scope_to_promote(served: Served) -> None:
    assert "with the scope promote" in _problem(served.runner.post("/v1/runs", pipeline="promotion"), 403)
    assert "with the scope run" in _problem(served.promoter.post("/v1/runs", pipeline="promotion"), 403)
    for who, pipeline in ((served.anybody, "promotion"), (served.runner, "materialization")):
        assert "runs no project" in _problem(who.post("/v1/runs", pipeline=pipeline), 422)
    records = _audited(served)
    assert [each["allowed"] for each in records if each.get("by") == "rune"] == [True, False, True]
    assert [each["status"] for each in records[1::2]] == [403, 403, 403, 422, 422, 422]


def test_a_repeat_takes_out_no_second_champion(served: Served) -> None:
    paul = served.promoter
    paul.post(f"/v1/models/{NAME}/approve", reason="looks right")
    paul.post(f"/v1/models/{NAME}/promote")
    for act in ("rollback", "archive"):
        for body in ({}, {"version": 0}):
            assert "body.version" in _problem(paul.post(f"/v1/models/{NAME}/{act}", **body), 422)
    for _ in range(2):
        paul.post(f"/v1/models/{NAME}/rollback", version=2)
        assert served.reader.get(f"/v1/resolve/{NAME}@champion").json()["version"] == 1


def test_the_ledger_tells_by_which_exemption_a_version_passed(served: Served) -> None:
    gate = served.gate
    gate.run(gate.model(3), good=False)
    gate.exempt(gate.model(3))
    gate.run(gate.model(3), good=False)
    acts = served.reader.get(f"/v1/models/{NAME}/ledger").json()
    (registered,) = [each for each in acts if each["what"] == "registered as version 3"]
    assert "exempted from bar roc_auc until" in registered["reason"]
    assert "by grace: a pilot" in registered["reason"]


def test_without_an_audit_nothing_is_changed(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any) -> bool:
        raise StoreError("the disk is full")

    monkeypatch.setattr(type(served.gate.store), "record", away)
    answer = served.promoter.post(f"/v1/models/{NAME}/approve", reason="looks right")
    assert _problem(answer, 503) == "the disk is full"
    assert answer.headers["Retry-After"] == "5"
    assert not Ledger(served.gate.store, NAME).state().approvals


def test_a_name_and_an_alias_lead_to_files_that_their_digests_verify(served: Served) -> None:
    for text, version in ((f"{NAME}@champion", 1), (f"{NAME}@staging", 2), (f"{NAME}:2", 2)):
        found = served.reader.get(f"/v1/resolve/{text}").json()
        assert (found["version"], found["model"]) == (version, served.gate.model(version))
        manifest = (Path(found["address"]) / "manifest.json").read_bytes()
        assert hashlib.sha256(manifest).hexdigest() == found["model"].rpartition("sha256-")[2]
        files = {each["path"]: each["sha256"] for each in json.loads(manifest)["files"]}
        assert files
        for path, digest in files.items():
            blob = served.gate.store.path(found["model"], path).read_bytes()
            assert hashlib.sha256(blob).hexdigest() == digest


def test_resolve_answers_while_the_store_does_not(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    before = served.reader.get(f"/v1/resolve/{NAME}@champion").json()

    def away(*_: Any) -> Any:
        raise StoreError("the store is away")

    objects = type(served.gate.store.objects)
    monkeypatch.setattr("gatehouse.server.known._FRESH", 0.0)
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
    assert "found 'rains'" in _problem(ros.get("/v1/models/rains"), 404)
    assert "query, column" in _problem(ros.get("/v1/search", query="roc_auc >"), 422)
    assert "runs no project" in _problem(rune.post("/v1/runs"), 422)
    assert "expected `gatehouse serve --project`" in _problem(
        rune.post(f"/v1/models/{NAME}/register", evaluation="x"), 422
    )
    assert "body.reason" in _problem(served.promoter.post(f"/v1/models/{NAME}/approve"), 422)
    assert _problem(ros.get("/v1/nothing"), 404)
    for act in ("approve", "promote", "archive"):
        answer = served.promoter.post(f"/v1/models/{NAME}/{act}", version=99, reason="x")
        assert "has no version 99" in _problem(answer, 404)
    assert "body.reason" in _problem(served.promoter.post(f"/v1/models/{NAME}/approve", reason="  "), 422)
    assert "at most 65,536 bytes" in _problem(rune.post("/v1/runs", reason="x" * 70_000), 413)


def test_a_revoked_token_and_a_forged_one_are_refused(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gatehouse.server.known._FRESH", 0.0)
    secret = served.reader.secret
    assert served.reader.get("/v1/models").status_code == 200
    served.reader.secret = secret[:-1] + ("A" if secret[-1] != "A" else "B")
    assert served.reader.get("/v1/models").status_code == 401
    served.reader.secret = secret
    revoke_token(served.gate.store, secret.split("_")[1])
    answer = served.reader.get("/v1/models")
    assert "revoked" in _problem(answer, 401)
    assert answer.headers["WWW-Authenticate"] == "Bearer"


def test_metrics_count_calls_by_route(served: Served) -> None:
    counted = []
    for _ in range(2):
        assert served.reader.get(f"/v1/resolve/{NAME}:1").status_code == 200
        counted.append(_calls(served, "GET", "/v1/resolve/{model}", 200))
    assert counted[1] == counted[0] + 1


def test_metrics_know_a_fixed_set_of_methods(served: Served) -> None:
    counted = []
    for method in ("PROPFIND", "MKCOL"):
        requests.request(method, f"{served.address}/health/live", timeout=60)
        counted.append(_calls(served, "other", "/health/live", 405))
    assert counted[1] == counted[0] + 1
    assert "PROPFIND" not in served.nobody.get("/metrics").text


def _calls(served: Served, method: str, route: str, status: int) -> float:
    """How many were counted, with those of other tests: Feast makes prometheus_client count by process."""
    line = f'gatehouse_calls_total{{method="{method}",route="{route}",status="{status}"}} '
    (found,) = (each for each in served.nobody.get("/metrics").text.splitlines() if each.startswith(line))
    return float(found.removeprefix(line))


def test_a_fault_is_counted_guarded_and_told_as_a_problem(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr("gatehouse.server.registry.models", broken)
    answer = served.reader.get("/v1/models")
    assert _problem(answer, 500) == "The server failed; its log says why."
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    text = served.nobody.get("/metrics").text
    assert 'gatehouse_calls_total{method="GET",route="/v1/models",status="500"} 1.0' in text


def test_no_secret_is_written_or_answered(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    secrets = [each.secret for each in (served.reader, served.runner, served.promoter)]
    planted = secrets[0] + "-planted"
    caplog.set_level("DEBUG")
    said = [served.promoter.post(f"/v1/models/{NAME}/approve", reason={"token": planted}).text]
    said += [served.reader.get(path).text for path in ("/v1/models", "/v1/nothing", "/metrics", "/openapi.json")]
    said += [requests.get(f"{served.address}/v1/models", headers={"Authorization": planted}, timeout=60).text]
    store = served.gate.store
    said += [store.objects.get_bytes(key).decode("latin-1") for key in store.objects.list("")]
    said += [caplog.text]
    assert len(said) > 20
    for secret in (*secrets, planted):
        assert not [text for text in said if secret in text]
