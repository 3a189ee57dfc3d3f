"""The notice of a run's end: whom it names, what it says and hides, and that an end is told once."""

from pathlib import Path
from typing import Any

import pytest

from gatehouse.operations.alerting import webhook
from gatehouse.operations.alerting.notice import ADDRESS
from gatehouse.operations.ending.stage import EndRequest, EndResult, report_end, summary_of
from gatehouse.store.run import RUN_ID, Attempt, events
from gatehouse.store.store import ArtifactStore
from tests.operations.alerting.hook import Hook, hooked

RUN = "20240110-000000-abcd"
HOUR = 3600.0


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ArtifactStore:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv(RUN_ID, RUN)
    monkeypatch.delenv(ADDRESS, raising=False)
    monkeypatch.setattr(webhook, "_BACKOFF", 0.001)
    store = ArtifactStore.open(tmp_path)
    reference = str(store.publish("validations", "v", {"x.json": "{}"}))
    store.objects.put_bytes(f"reports/{reference}/0.html", b"x")
    happen(store, "validate", "started", 0.0)
    happen(store, "validate", "finished", HOUR, result={"validation": reference, "verdict": "fail"})
    return store


def happen(store: ArtifactStore, stage: str, event: str, seconds: float, **body: Any) -> None:
    times = {"at": 1000.0 + seconds, "seconds": seconds}
    store.record(f"runs/{RUN}/{stage}.1.{event}.json", body | times)


def fail(store: ArtifactStore, message: str) -> None:
    happen(store, "require_contract", "failed", HOUR, error="ContractBreachError", message=message)


def report(store: ArtifactStore, **more: Any) -> EndResult:
    body = {"project": "flights", "pipeline": "training", "said": "SUCCEEDED", "when": "fail"}
    return report_end(EndRequest.model_validate(body | more), store)


def told(hook: Hook) -> list[Any]:
    return [body for _, body in hook.posts]


def test_a_failure_is_told_with_cause_owner_links_duration_and_cost(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEHOUSE_PRICES", '{"per_hour": {"default": 1.5}}')
    monkeypatch.setenv("GATEHOUSE_KFP_UI", "https://kubeflow.example/pipeline/")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://ann:s3cret@mlflow.example")
    monkeypatch.setenv("SOURCE_PASSWORD", "hunter22")
    fail(store, "origin: expected JFK, found XXX\npassword hunter22")
    with hooked(200) as hook:
        monkeypatch.setenv(ADDRESS, hook.url)
        first = report(store, owners={"": "ml@acme", "require_contract": "data@acme"})
        again = report(store, owners={"": "ml@acme"})
    assert (first.state, first.failed_stage, first.told, again.told) == ("failed", "require_contract", True, True)
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
        "cost": "3.00 USD",
    }
    assert body["message"].splitlines() == ["origin: expected JFK, found XXX", "password ***"]
    assert body["links"]["KFP"] == f"https://kubeflow.example/pipeline/#/runs/details/{RUN}"
    assert body["links"]["MLflow"] == "https://mlflow.example"
    assert Path(body["links"]["report"]).read_text() == "x"


@pytest.mark.parametrize("form", ["slack", "teams"])
def test_other_forms_hold_nothing_of_the_generic_one(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    fail(store, "why")
    with hooked(200) as hook:
        monkeypatch.setenv(ADDRESS, hook.url)
        report(store, form=form)
    assert set(told(hook)[0]) == ({"text", "blocks"} if form == "slack" else {"type", "attachments"})


@pytest.mark.parametrize(
    ("when", "said", "warned", "heard"),
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
def test_ends_are_told_as_asked_for(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, when: str, said: str, warned: bool, heard: bool
) -> None:
    if warned:
        happen(store, "validate", "warned", 1.0, message="old rows")
    with hooked(200) as hook:
        monkeypatch.setenv(ADDRESS, hook.url)
        report(store, when=when, said=said)
    assert bool(told(hook)) == heard


def test_a_training_that_the_gate_refused_says_so_and_why_it_was_ordered(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    happen(store, "prepare", "finished", 1.0, result={"ordered": ["the model decays"]})
    happen(store, "register", "finished", 2.0, result={"decision": "refused", "reasons": ["latency: slow"]})
    with hooked(200) as hook:
        monkeypatch.setenv(ADDRESS, hook.url)
        report(store, when="always")
    (body,) = told(hook)
    assert "refused by the gate" in body["text"] and "✓" not in body["text"]
    lines = body["message"].splitlines()
    assert lines == [
        "the gate: refused",
        "the gate: latency: slow. Train a smaller model, or change the limits under `cost` in the policy",
        "ordered by monitoring: the model decays",
    ]


def test_a_failed_stage_links_no_page_of_a_stage_that_said_yes(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    champion = str(store.publish("models", "m", {"x.json": "{}"}))
    store.objects.put_bytes(f"reports/{champion}/0.html", b"old")
    happen(store, "champion", "finished", HOUR + 1, result={"model": champion})
    fail(store, "why")
    with hooked(200) as hook:
        monkeypatch.setenv(ADDRESS, hook.url)
        report(store)
    assert Path(told(hook)[0]["links"]["report"]).read_text() == "x"


def test_a_webhook_that_is_down_fails_nothing_is_recorded_and_is_told_by_the_next(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(store, "why")
    with hooked(404, 200) as hook:
        monkeypatch.setenv(ADDRESS, hook.url)
        assert not report(store).told
        assert report(store).told and len(hook.posts) == 2
    (warned,) = [event for _, event in events(store, RUN) if event.event == "warned"]
    assert warned.body["message"] == "Nobody was told that training failed: the webhook answered 404"


def test_the_ui_shows_every_stage_and_the_cause(store: ArtifactStore) -> None:
    fail(store, "origin: expected JFK, found <script>")
    shown = summary_of(store, report(store, when="never"))
    assert shown.splitlines()[0] == "# Run failed in require_contract"
    assert "| validate | 1 | finished | 1 h | fail |" in shown
    assert "    origin: expected JFK, found <script>" in shown
    assert "| require_contract | 1 | failed | 1 h | ContractBreachError |" in shown


def test_warnings_and_links_leave_without_secrets(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_PASSWORD", "hunter22")
    monkeypatch.setenv("GATEHOUSE_KFP_UI", "https://ann:s3cret@kubeflow.example")
    attempt = Attempt(store, "validate")
    attempt.warn("first hunter22")
    attempt.note("warned", message="second hunter22")
    happen(store, "split", "warned", 1.0, message="third hunter22")
    recorded = [event.body["message"] for _, event in events(store, RUN) if event.event == "warned"]
    assert sorted(recorded) == ["first ***", "second ***", "third hunter22"]
    with hooked(200) as hook:
        monkeypatch.setenv(ADDRESS, hook.url)
        report(store, when="warn")
    (body,) = told(hook)
    assert "hunter22" not in str(body) and "third ***" in body["message"]
    assert body["links"]["KFP"].startswith("https://kubeflow.example/")
