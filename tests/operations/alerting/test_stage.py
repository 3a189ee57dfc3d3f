"""The alert stage: which verdicts are posted, once each; a webhook that is down changes nothing but the record."""

import json
import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gatehouse.operations.alerting import notice
from gatehouse.operations.alerting.notice import ADDRESS
from gatehouse.operations.alerting.stage import AlertRequest, AlertResult, alert
from gatehouse.store.run import RUN_ID, events
from gatehouse.store.store import ArtifactStore
from tests.data.validation.conftest import Validate
from tests.operations.alerting.hook import Hook, hooked
from tests.operations.conftest import RUN


def validated(store: ArtifactStore, *severities: str) -> str:
    anomalies = [
        {"table": "t", "column": "a", "rule": "max", "expected": "at most 1", "observed": f"{at}", "severity": severity}
        for at, severity in enumerate(severities)
    ]
    reference = store.publish("validations", "v", {"anomalies.json": json.dumps(anomalies)})
    store.objects.put_bytes(f"reports/{reference}/0.html", b"x")
    return str(reference)


def judge_badly(store: ArtifactStore, **more: Any) -> AlertResult:
    body = {"project": "flights", "pipeline": "training", "stage": "validate", "verdict": "fail", "reasons": ("why",)}
    return alert(AlertRequest.model_validate(body | {"report": validated(store, "fail")} | more), store)


def test_a_breach_is_posted_with_reasons_report_and_run(store: ArtifactStore, hook: Hook) -> None:
    result = judge_badly(store, reasons=("t.a: max: expected at most 1, found 2", "second"))
    assert (result.requested, result.delivered, result.attempts) == (True, True, 1)
    ((headers, body),) = hook.posts
    assert body["idempotency_key"] == headers["Idempotency-Key"]
    names = ("project", "pipeline", "run", "stage", "verdict", "report")
    assert [body[name] for name in names] == ["flights", "training", RUN, "validate", "fail", validated(store, "fail")]
    assert Path(body["address"]).read_text() == "x"
    assert body["reasons"] == ["t.a: max: expected at most 1, found 2", "second"]
    assert body["text"].splitlines() == [
        "Gatehouse, flights: validate says fail",
        "• t.a: max: expected at most 1, found 2",
        "• second",
        f"report: {body['address']}",
        f"run: {RUN}",
    ]


def test_people_get_advice_with_a_refusal_and_programs_the_reason_alone(store: ArtifactStore, hook: Hook) -> None:
    tables = str(store.publish("feature-tables", "t", {}))
    judge_badly(store, stage="register", verdict="refused", reasons=("latency: slow",))
    judge_badly(store, stage="freshness", reasons=("latency: stale",), report=tables)
    register, freshness = hook.bodies
    assert "• latency: slow. Train a smaller model" in register["text"] and register["reasons"] == ["latency: slow"]
    assert "• latency: stale\n" in freshness["text"], "a view may have the name of a rule"
    assert f"\nartifact: {store.address}/{tables}\n" in freshness["text"], "it has no report"


@pytest.mark.parametrize(
    ("when", "verdict", "severities", "posted"),
    [
        ("fail", "fail", ("fail",), "fail"),
        ("fail", "refused", (), "refused"),
        ("fail", "pass", ("warn",), ""),
        ("warn", "fail", ("fail", "warn"), "fail"),
        ("warn", "pass", ("warn",), "warn"),
        ("warn", "warn", (), "warn"),
        ("warn", "pass", (), ""),
        ("always", "pass", (), "pass"),
        ("always", "pass", ("warn",), "warn"),
        ("never", "fail", ("fail",), ""),
    ],
)
def test_verdicts_are_posted_as_asked_for(
    store: ArtifactStore, hook: Hook, when: str, verdict: str, severities: tuple[str, ...], posted: str
) -> None:
    reasons = ("why",) if verdict != "pass" else ()
    result = judge_badly(store, when=when, verdict=verdict, reasons=reasons, report=validated(store, *severities))
    assert [body["verdict"] for body in hook.bodies] == ([posted] if posted else [])
    if verdict == "pass" and posted == "warn":
        assert hook.bodies[0]["reasons"] == ["t.a: max: expected at most 1, found 0"], "those of the warning"
    assert (result.requested, result.delivered) == (bool(posted), bool(posted))


@pytest.mark.parametrize("answer", [500, 404, 0, -1, None], ids=["500", "404", "reset", "hang", "not set"])
def test_a_webhook_that_is_down_fails_nothing_and_is_recorded(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, answer: int | None
) -> None:
    if answer == -1:
        monkeypatch.setattr(notice, "_ATTEMPTS", 2)
        monkeypatch.setattr(notice, "_TIMEOUT", 0.2)
    with hooked(answer or 0) as hook:
        monkeypatch.setenv(ADDRESS, "" if answer is None else hook.url)
        result = judge_badly(store)
    assert (result.requested, result.delivered) == (True, False)
    recorded = {event.event: event.body for _, event in events(store, RUN)}
    assert recorded["warned"]["message"].startswith("The notice that validate says fail was not posted: the webhook ")
    assert recorded["finished"]["result"] == result.model_dump() and "was not posted" in caplog.text


def test_a_verdict_is_delivered_once_a_run_and_after_a_failure_again_under_the_same_key(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hooked(404, 200) as hook:
        monkeypatch.setenv(ADDRESS, hook.url)
        results = [judge_badly(store) for _ in range(3)]
        assert [result.delivered for result in results] == [False, True, True] and len(hook.posts) == 2
        assert len({body["idempotency_key"] for body in hook.bodies}) == 1
        monkeypatch.setenv(RUN_ID, "20240111-000000-abcd")
        judge_badly(store)
    assert len({body["idempotency_key"] for body in hook.bodies}) == 2


def test_reasons_are_bounded_and_can_mention_nobody(store: ArtifactStore, hook: Hook) -> None:
    reasons = ("found <!channel> & <http://evil|here>", *(f"{at} " + "x" * 5000 for at in range(999)))
    judge_badly(store, reasons=reasons)
    (body,) = hook.bodies
    assert len(body["reasons"]) == 21 and body["reasons"][-1] == "and 980 more in the report"
    assert max(map(len, body["reasons"])) == 500 and len(body["text"]) < 3000
    assert "and 995 more in the report" in body["text"]
    assert "found &lt;!channel&gt; &amp; &lt;http://evil|here&gt;" in body["text"]


def test_no_value_of_a_sensitive_column_is_posted(judge: Validate, store: ArtifactStore, hook: Hook) -> None:
    columns = {"a": {"type": "string", "sensitive": True, "unique": True, "pattern": "x"}}
    judged = judge({"t": pa.table({"a": ["secret-one", "secret-one"]})}, {"t": {"columns": columns}})
    judge_badly(store, verdict=judged.verdict, reasons=judged.reasons, report=judged.validation)
    assert len(hook.bodies[0]["reasons"]) == 2 and "secret" not in json.dumps(hook.bodies)


def test_the_address_is_written_nowhere(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for answer in (500, 404, 200):
        with hooked(answer) as hook:
            monkeypatch.setenv(ADDRESS, hook.url)
            judge_badly(store, reasons=(str(answer),))
    monkeypatch.setenv(ADDRESS, "file:///services/T00/B00/s3cr3t-t0ken")
    judge_badly(store)
    written = "".join(path.read_text(errors="replace") for path in Path(store.address).rglob("*") if path.is_file())
    assert "was not posted" in written
    assert [part for part in ("s3cr3t", "T00") if part in written + caplog.text] == []
