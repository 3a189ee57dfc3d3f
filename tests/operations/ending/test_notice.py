"""The notice of a run's end: owner, reasons, links and no secrets; each end is posted once."""

from pathlib import Path
from typing import Any

import pytest

from gatehouse.operations.alerting.notice import ADDRESS
from gatehouse.operations.ending.stage import EndRequest, EndResult, report_end, summary_of
from gatehouse.store.run import Attempt, events
from gatehouse.store.store import ArtifactStore
from tests.operations.alerting.hook import Hook, hooked
from tests.operations.conftest import RUN

HOUR = 3600.0


@pytest.fixture
def store(store: ArtifactStore) -> ArtifactStore:
    """A store with the record of a run whose validation failed after an hour."""
    reference = str(store.publish("validations", "v", {"x.json": "{}"}))
    store.objects.put_bytes(f"reports/{reference}/0.html", b"x")
    happen(store, "validate", "started", 0.0)
    happen(store, "validate", "finished", HOUR, result={"validation": reference, "verdict": "fail"})
    return store


def happen(store: ArtifactStore, stage: str, event: str, seconds: float, **body: Any) -> None:
    times = {"at": 1000.0 + seconds, "seconds": seconds}
    store.record(f"runs/{RUN}/{stage}.1.{event}.json", body | times)


def fail(store: ArtifactStore, message: str = "why") -> None:
    happen(store, "require_contract", "failed", HOUR, error="ContractBreachError", message=message)


def end(store: ArtifactStore, **more: Any) -> EndResult:
    body = {"project": "flights", "pipeline": "training", "kfp_state": "SUCCEEDED", "when": "fail"}
    return report_end(EndRequest.model_validate(body | more), store)


def test_a_failure_is_posted_once_with_cause_owner_links_duration_and_cost(
    store: ArtifactStore, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEHOUSE_PRICES", '{"per_hour": {"default": 1.5}}')
    monkeypatch.setenv("GATEHOUSE_KFP_UI", "https://ann:s3cret@kubeflow.example/pipeline/")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://ann:s3cret@mlflow.example")
    monkeypatch.setenv("SOURCE_PASSWORD", "hunter22")
    fail(store, "origin: expected JFK, found XXX\npassword hunter22")
    champion = str(store.publish("models", "m", {"x.json": "{}"}))
    store.objects.put_bytes(f"reports/{champion}/0.html", b"of a stage that passed")
    happen(store, "champion", "finished", HOUR, result={"model": champion}, machine="default")
    first = end(store, owners={"": "ml@acme", "require_contract": "data@acme"})
    again = end(store, owners={"": "ml@acme"})
    assert (first.state, first.failed_stage, first.posted, again.posted) == ("failed", "require_contract", True, True)
    ((headers, body),) = hook.posts
    assert headers["Idempotency-Key"] == body["idempotency_key"]
    assert (body["state"], body["stage"], body["error"]) == ("failed", "require_contract", "ContractBreachError")
    assert body["facts"] == {
        "pipeline": "training",
        "run": RUN,
        "stage": "require_contract",
        "error": "ContractBreachError",
        "owner": "data@acme",
        "duration": "1 h",
        "cost": "4.50 USD",
    }
    assert body["message"].splitlines() == ["origin: expected JFK, found XXX", "password ***"]
    assert body["links"]["KFP"] == f"https://kubeflow.example/pipeline/#/runs/details/{RUN}"
    assert body["links"]["MLflow"] == "https://mlflow.example"
    assert Path(body["links"]["report"]).read_text() == "x"


@pytest.mark.parametrize(
    ("when", "kfp_state", "warned", "posted"),
    [
        ("fail", "SUCCEEDED", True, False),
        ("fail", "FAILED", False, True),
        ("fail", "CANCELED", False, True),
        ("warn", "SUCCEEDED", True, True),
        ("warn", "SUCCEEDED", False, False),
        ("always", "SUCCEEDED", False, True),
        ("never", "FAILED", True, False),
    ],
)
def test_ends_are_posted_as_asked_for(
    store: ArtifactStore, hook: Hook, when: str, kfp_state: str, warned: bool, posted: bool
) -> None:
    if warned:
        happen(store, "validate", "warned", 1.0, message="old rows")
    end(store, when=when, kfp_state=kfp_state)
    assert bool(hook.posts) == posted


def test_a_refusal_of_the_gate_is_posted_with_the_order_of_monitoring(store: ArtifactStore, hook: Hook) -> None:
    happen(store, "prepare", "finished", 1.0, result={"ordered": ["the model decays"]})
    happen(store, "register", "finished", 2.0, result={"decision": "refused", "reasons": ["latency: slow"]})
    end(store, when="warn")
    (body,) = hook.bodies
    assert "refused by the gate" in body["text"]
    refused, reason, order = body["message"].splitlines()
    assert (refused, order) == ("the gate: refused", "ordered by monitoring: the model decays")
    assert reason.startswith("the gate: latency: slow. Train a smaller model")


def test_a_webhook_that_is_down_fails_nothing_and_the_next_attempt_posts(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(store)
    with hooked(404, 200) as hook:
        monkeypatch.setenv(ADDRESS, hook.url)
        assert [end(store).posted, end(store).posted] == [False, True] and len(hook.posts) == 2
    (warned,) = [event for _, event in events(store, RUN) if event.event == "warned"]
    assert warned.body["message"] == "The notice that training failed was not posted: the webhook answered 404"


def test_the_ui_shows_every_stage_and_the_cause(store: ArtifactStore) -> None:
    fail(store, "origin: expected JFK, found <script>")
    lines = summary_of(store, end(store, when="never")).splitlines()
    assert lines[0] == "# Run failed in require_contract"
    assert {"| validate | 1 | finished | 1 h | fail |", "    origin: expected JFK, found <script>"} <= {*lines}
    assert "| require_contract | 1 | failed | 1 h | ContractBreachError |" in lines


def test_every_warning_is_recorded_and_posted_without_secrets(
    store: ArtifactStore, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_PASSWORD", "hunter22")
    attempt = Attempt(store, "validate")
    attempt.warn("first hunter22")
    attempt.note("warned", message="second hunter22")
    happen(store, "split", "warned", 1.0, message="third hunter22")
    recorded = [event.body["message"] for _, event in events(store, RUN) if event.event == "warned"]
    assert sorted(recorded) == ["first ***", "second ***", "third hunter22"]
    end(store, when="warn")
    assert "hunter22" not in str(hook.bodies) and "third ***" in hook.bodies[0]["message"]
