"""The alert stage: who is told what, once, and that a webhook that is down changes nothing but what is recorded."""

import json
import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gatehouse.operations.alerting import webhook
from gatehouse.operations.alerting.notice import ADDRESS
from gatehouse.operations.alerting.stage import AlertRequest, AlertResult, alert, payload
from gatehouse.pipelines.interfaces import component_of
from gatehouse.store.run import RUN_ID, events
from gatehouse.store.store import ArtifactStore
from tests.data.validation.conftest import Validate
from tests.operations.alerting.hook import Hook, hooked

RUN = "20240110-000000-abcd"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv(RUN_ID, RUN)
    monkeypatch.delenv(ADDRESS, raising=False)
    monkeypatch.setattr(webhook, "_BACKOFF", 0.001)


def validated(store: ArtifactStore, *severities: str) -> str:
    """A validation with anomalies of these severities."""
    anomalies = [
        {"table": "t", "column": "a", "rule": "max", "expected": "at most 1", "observed": f"{at}", "severity": severity}
        for at, severity in enumerate(severities)
    ]
    reference = store.publish("validations", "v", {"anomalies.json": json.dumps(anomalies)})
    store.objects.put_bytes(f"reports/{reference}/0.html", b"x")
    return str(reference)


def tell(store: ArtifactStore, **more: Any) -> AlertResult:
    body = {"project": "flights", "pipeline": "training", "stage": "validate", "verdict": "fail", "reasons": ("why",)}
    return alert(AlertRequest.model_validate(body | {"report": validated(store, "fail")} | more), store)


def told(hook: Hook) -> list[Any]:
    return [body for _, body in hook.posts]


def test_a_breach_is_told_with_all_that_helps(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with hooked(200) as hook:
        monkeypatch.setenv(ADDRESS, f" {hook.url}\n")
        result = tell(store, reasons=("t.a: max: expected at most 1, found 2", "second"))
    assert (result.wanted, result.delivered, result.attempts) == (True, True, 1)
    ((headers, body),) = hook.posts
    reference = validated(store, "fail")
    assert body["idempotency_key"] == headers["Idempotency-Key"]
    assert {name: body[name] for name in ("project", "pipeline", "run", "stage", "verdict")} == {
        "project": "flights",
        "pipeline": "training",
        "run": RUN,
        "stage": "validate",
        "verdict": "fail",
    }
    assert body["report"] == reference
    assert Path(body["address"]).read_text() == "x"
    assert body["reasons"] == ["t.a: max: expected at most 1, found 2", "second"]
    assert body["text"].splitlines() == [
        "Gatehouse, flights: validate says fail",
        "• t.a: max: expected at most 1, found 2",
        "• second",
        f"report: {body['address']}",
        f"run: {RUN}",
    ]


def test_a_refusal_is_told_with_what_a_person_can_do_and_a_program_gets_the_reason_alone(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hooked(200) as hook:
        monkeypatch.setenv(ADDRESS, hook.url)
        tell(store, stage="register", verdict="refused", reasons=("latency: slow",))
        tell(store, stage="freshness", reasons=("latency: stale",))
    register, freshness = told(hook)
    assert "• latency: slow. Train a smaller model" in register["text"] and register["reasons"] == ["latency: slow"]
    assert "• latency: stale\n" in freshness["text"], "a view may have the name of a rule"


def test_an_artifact_without_a_report_is_not_called_one(store: ArtifactStore) -> None:
    tables = str(store.publish("feature-tables", "t", {}))
    request = AlertRequest(project="shop", pipeline="training", stage="freshness", verdict="fail", report=tables)
    assert f"\nartifact: {store.address}/{tables}\n" in str(payload(request, "fail", (), store)["text"])


@pytest.mark.parametrize(
    ("when", "verdict", "severities", "said"),
    [
        ("fail", "fail", ("fail",), "fail"),
        ("fail", "refused", (), "refused"),
        ("fail", "pass", ("warn",), ""),
        ("fail", "pass", (), ""),
        ("warn", "fail", ("fail", "warn"), "fail"),
        ("warn", "pass", ("warn",), "warn"),
        ("warn", "warn", (), "warn"),
        ("warn", "pass", (), ""),
        ("always", "pass", (), "pass"),
        ("always", "pass", ("warn",), "warn"),
        ("never", "fail", ("fail",), ""),
    ],
)
def test_what_is_told_is_what_was_asked_for(
    store: ArtifactStore,
    monkeypatch: pytest.MonkeyPatch,
    when: str,
    verdict: str,
    severities: tuple[str, ...],
    said: str,
) -> None:
    with hooked(200) as hook:
        monkeypatch.setenv(ADDRESS, hook.url)
        result = tell(store, when=when, verdict=verdict, report=validated(store, *severities))
    assert [body["verdict"] for body in told(hook)] == ([said] if said else [])
    assert (result.wanted, result.delivered) == (bool(said), bool(said))


def test_a_warning_is_told_with_its_own_reasons(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with hooked(200) as hook:
        monkeypatch.setenv(ADDRESS, hook.url)
        tell(store, when="warn", verdict="pass", reasons=(), report=validated(store, "warn", "warn"))
    (body,) = told(hook)
    assert body["reasons"] == ["t.a: max: expected at most 1, found 0", "t.a: max: expected at most 1, found 1"]


@pytest.mark.parametrize("answer", [500, 404, 0, -1], ids=["500", "404", "reset", "hang"])
@pytest.mark.parametrize("verdict", ["pass", "fail"])
def test_a_webhook_that_is_down_fails_nothing_and_is_recorded(
    store: ArtifactStore,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    answer: int,
    verdict: str,
) -> None:
    if answer == -1:
        monkeypatch.setattr(webhook, "_ATTEMPTS", 2)
        monkeypatch.setattr(webhook, "_TIMEOUT", 0.2)
    with hooked(answer) as hook:
        monkeypatch.setenv(ADDRESS, hook.url)
        result = tell(store, when="always", verdict=verdict, report=validated(store))
    assert (result.wanted, result.delivered) == (True, False)
    recorded = [event for _, event in events(store, RUN)]
    (warned,) = [event for event in recorded if event.event == "warned"]
    assert warned.body["message"].startswith(f"Nobody was told that validate says {verdict}: the webhook ")
    (finished,) = [event for event in recorded if event.event == "finished"]
    assert finished.body["result"] == result.model_dump()
    assert "Nobody was told" in caplog.text


def test_without_a_webhook_the_result_says_so(store: ArtifactStore, caplog: pytest.LogCaptureFixture) -> None:
    result = tell(store)
    assert (result.wanted, result.delivered, result.attempts) == (True, False, 0)
    assert result.why == "is not set: GATEHOUSE_ALERT_WEBHOOK is empty"
    assert "Nobody was told that validate says fail" in caplog.text


def test_a_repeat_in_the_same_run_posts_nothing_and_another_run_does(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hooked(200) as hook:
        monkeypatch.setenv(ADDRESS, hook.url)
        results = [tell(store), tell(store)]
        monkeypatch.setenv(RUN_ID, "20240111-000000-abcd")
        results.append(tell(store))
    assert [result.delivered for result in results] == [True, True, True]
    assert results[1].why == "was delivered by an earlier attempt"
    assert len({body["idempotency_key"] for body in told(hook)}) == len(hook.posts) == 2


def test_after_a_failure_the_repeat_posts_under_the_same_key(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook, "_ATTEMPTS", 3)
    with hooked(500, 500, 500, 200) as hook:
        monkeypatch.setenv(ADDRESS, hook.url)
        assert [tell(store).delivered, tell(store).delivered] == [False, True]
    assert len({body["idempotency_key"] for body in told(hook)}) == 1


def test_reasons_are_bounded_and_can_mention_nobody(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    reasons = ("found <!channel> & <http://evil|here>", *(f"{at} " + "x" * 5000 for at in range(999)))
    with hooked(200) as hook:
        monkeypatch.setenv(ADDRESS, hook.url)
        tell(store, reasons=reasons)
    (body,) = told(hook)
    assert len(body["reasons"]) == 21
    assert body["reasons"][-1] == "and 980 more in the report"
    assert max(map(len, body["reasons"])) == 500
    assert len(body["text"]) < 3000
    assert "and 995 more in the report" in body["text"]
    assert "found &lt;!channel&gt; &amp; &lt;http://evil|here&gt;" in body["text"]


def test_nothing_of_a_sensitive_column_is_told(
    judge: Validate, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = {"a": {"type": "string", "sensitive": True, "unique": True, "pattern": "x"}}
    found = judge({"t": pa.table({"a": ["secret-one", "secret-one"]})}, {"t": {"columns": columns}})
    with hooked(200) as hook:
        monkeypatch.setenv(ADDRESS, hook.url)
        tell(store, verdict=found.verdict, reasons=found.reasons, report=found.validation)
    (body,) = told(hook)
    assert len(body["reasons"]) == 2
    assert "secret" not in json.dumps(body)


def test_the_address_is_written_nowhere(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for answer in (500, 404, 200):
        with hooked(answer) as hook:
            monkeypatch.setenv(ADDRESS, hook.url)
            tell(store, reasons=(str(answer),))
    monkeypatch.setenv(ADDRESS, "file:///services/T00/B00/s3cr3t-t0ken")
    tell(store)
    written = "".join(path.read_text(errors="replace") for path in Path(store.address).rglob("*") if path.is_file())
    assert "Nobody was told" in written
    assert [part for part in ("s3cr3t", "T00") if part in written + caplog.text] == []


def test_the_component_hands_on_whether_it_arrived(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with hooked(200) as hook:
        monkeypatch.setenv(ADDRESS, hook.url)
        outputs = component_of("alert").python_func(
            store=store.address,
            project="flights",
            pipeline="training",
            stage="validate",
            verdict="fail",
            reasons=["why"],
            report=store.address_of(validated(store, "fail")),
            when="fail",
        )
    assert outputs == (True, True, 1, "answered 200")
    assert told(hook)[0]["report"] == validated(store, "fail")
