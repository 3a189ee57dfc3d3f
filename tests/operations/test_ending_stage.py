"""The end of a run: its record decides, and one notice tells of it and of the verdicts, once and without secrets."""

import json
import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gatehouse.kfp.local_run import LocalRun, record_own_end
from gatehouse.operations import notice
from gatehouse.operations.ending_stage import EndRequest, EndResult, outcome_in_kfp, outcome_of, report_end, summary_of
from gatehouse.operations.notice import ADDRESS
from gatehouse.store.run import Attempt, Event, end_of, events
from gatehouse.store.store import ArtifactStore
from tests.data.validation.conftest import Validate
from tests.data.validation.conftest import judge as judge
from tests.operations.conftest import RUN
from tests.operations.hook import Hook, hooked

HOUR = 3600.0


def record_of(*texts: str) -> list[Event]:
    """Events written as `stage.attempt.event`, with a request after a slash if it matters, a second apart."""
    record = []
    for at, text in enumerate(texts):
        name, _, digest = text.partition("/")
        stage, attempt, event = name.split(".")
        error = {"error": "StoreError", "message": "away"} if event in ("failed", "stopped") else {}
        body: dict[str, Any] = {"at": 100.0 + at, "seconds": 0.0, "request_digest": digest} | error
        record.append(Event(stage, int(attempt), event, body))
    return record


def record(store: ArtifactStore, *texts: str) -> None:
    for event in record_of(*texts):
        store.record(f"runs/{RUN}/{event.stage}.{event.attempt}.{event.event}.json", event.body)


def end(store: ArtifactStore, kfp_state: str) -> None:
    report_end(EndRequest(project="flights", pipeline="training", kfp_state=kfp_state), store)


@pytest.mark.parametrize(
    ("texts", "kfp_state", "state", "stage"),
    [
        (["snapshot.1.started", "snapshot.1.finished"], "SUCCEEDED", "succeeded", ""),
        (["snapshot.1.started", "snapshot.1.hit"], "FAILED", "failed", ""),
        (["snapshot.1.started", "snapshot.1.hit"], "CANCELED", "stopped", ""),
        (
            ["train.1.started", "train.1.failed", "integrate.1.started", "integrate.1.finished"],
            "SUCCEEDED",
            "failed",
            "train",
        ),
        (["train.1.started", "train.1.failed", "train.2.started", "train.2.finished"], "", "succeeded", ""),
        (["train.1.started", "train.2.started", "train.2.finished"], "", "succeeded", ""),
        (["train.1.started/a", "train.2.started/b", "train.2.finished/b"], "", "succeeded", ""),
        (["train.1.started"], "SUCCEEDED", "failed", "train"),
        (["train.1.started"], "CANCELED", "stopped", "train"),
        (["train.1.started"], "KILLED", "failed", "train"),
        (["snapshot.1.started", "snapshot.1.hit"], "KILLED", "stopped", ""),
        (["train.1.started", "integrate.1.started", "integrate.1.failed"], "CANCELED", "failed", "integrate"),
        (["train.1.started", "train.1.stopped"], "FAILED", "stopped", "train"),
        (["train.1.started", "train.1.tolerated"], "", "succeeded", ""),
        (["tune.1.started", "tune:train.1.started", "tune:train.1.failed", "tune.1.finished"], "", "succeeded", ""),
        (["require.1.failed/a", "require.2.started/b", "require.2.finished/b"], "", "failed", "require"),
        (["require.1.failed/a", "require.2.finished/b", "require.3.finished/a"], "", "succeeded", ""),
        (["report_end.1.started"], "SUCCEEDED", "succeeded", ""),
        (["snapshot.1.started", "snapshot.1.finished"], "RUNNING", "stopped", ""),
        (["snapshot.1.started"], "RUNNING", "stopped", "snapshot"),
        (["train.1.started", "train.1.failed"], "RUNNING", "failed", "train"),
        (["snapshot.1.started", "snapshot.1.finished"], "PERHAPS", "unknown", ""),
    ],
)
def test_the_record_and_kfp_decide_the_outcome(texts: list[str], kfp_state: str, state: str, stage: str) -> None:
    outcome = outcome_of(record_of(*texts), kfp_state)
    assert (outcome.state, outcome.stage) == (state, stage)
    assert (outcome.error == "KilledError") == (state == "failed" and texts[-1] == "train.1.started")


def test_an_end_is_recorded_once_and_success_that_kfp_reports_wrongly_as_a_failure(store: ArtifactStore) -> None:
    record(store, "train.1.started", "train.1.failed", "split.1.started", "split.1.finished")
    for kfp_state in ("SUCCEEDED", "CANCELED"):
        end(store, kfp_state)
    recorded = end_of(store, RUN) or {}
    names = ("state", "stage", "project", "pipeline", "began", "seconds", "number")
    assert [recorded[name] for name in names] == ["failed", "train", "flights", "training", 100.0, 3.0, 1]


@pytest.mark.parametrize(("code", "state"), [(0, "succeeded"), (1, "failed"), (143, "stopped")])
def test_a_run_of_this_machine_records_the_end_that_its_last_task_could_not(
    store: ArtifactStore, code: int, state: str
) -> None:
    store.record(f"runs/{RUN}/plan.json", {"project": "flights", "pipeline": "training"})
    run = LocalRun(RUN, Path("log"), events=record_of("split.1.started", "split.1.finished"), exit_code=code)
    record_own_end(run, store)
    recorded = end_of(store, RUN) or {}
    assert (recorded["state"], recorded["by"]) == (state, "gatehouse run")


GOOD, BAD = ("train.1.started", "train.1.finished"), ("train.1.started", "train.1.failed")
AGAIN = ("-.1.x", "-.1.x", "train.2.started", "train.2.finished")


def test_a_run_that_is_tried_again_ends_again_and_its_last_end_counts(store: ArtifactStore) -> None:
    record(store, *BAD)
    end(store, "FAILED")
    record(store, *AGAIN)
    for _ in range(2):
        end(store, "SUCCEEDED")
    last = end_of(store, RUN) or {}
    assert (last["state"], last["number"]) == ("succeeded", 2)


@pytest.mark.parametrize(
    ("texts", "recorded", "later", "kfp_state", "state"),
    [
        (GOOD, "COMPLETE", (), "SUCCEEDED", "succeeded"),
        (GOOD, "", (), "SUCCEEDED", "failed"),  # The task that records the end could not run.
        (GOOD, "FAILED", (), "SUCCEEDED", "failed"),
        (GOOD, "COMPLETE", (), "FAILED", "failed"),
        (GOOD, "PERHAPS", (), "SUCCEEDED", "succeeded"),  # An unknown word is no failure.
        (("train.1.started", "train.1.stopped"), "FAILED", (), "FAILED", "failed"),
        (("train.1.started", "train.1.stopped"), "FAILED", (), "CANCELED", "stopped"),
        (BAD, "FAILED", (), "FAILED", "failed"),
        (BAD, "FAILED", (), "SUCCEEDED", "failed"),
        (BAD, "FAILED", AGAIN, "SUCCEEDED", "succeeded"),  # It was tried again, which nobody recorded.
        (GOOD, "RUNNING", (), "CANCELED", "stopped"),
        (GOOD, "RUNNING", (), "SUCCEEDED", "succeeded"),  # The last task came from KFP's cache.
    ],
)
def test_a_run_has_succeeded_only_if_kfp_and_its_record_say_so(
    store: ArtifactStore, texts: tuple[str, ...], recorded: str, later: tuple[str, ...], kfp_state: str, state: str
) -> None:
    record(store, *texts)
    if recorded:
        end(store, recorded)
    record(store, *later)
    assert outcome_in_kfp(store, RUN, kfp_state).state == state


def happen(store: ArtifactStore, stage: str, event: str, seconds: float, **body: Any) -> None:
    times = {"at": 1000.0 + seconds, "seconds": seconds}
    store.record(f"runs/{RUN}/{stage}.1.{event}.json", body | times)


def shown(store: ArtifactStore, name: str, kind: str = "validations") -> str:
    """An artifact with a page that holds its name."""
    reference = str(store.publish(kind, name, {"x.json": "{}"}))
    store.objects.put_bytes(f"reports/{reference}/0.html", name.encode())
    return reference


def break_contract(store: ArtifactStore, message: str = "why") -> None:
    """A run whose contract is broken after an hour."""
    result = {"validation": shown(store, "v"), "verdict": "fail", "reasons": [message], "warnings": []}
    happen(store, "validate", "started", 0.0)
    happen(store, "validate", "finished", HOUR, result=result)
    happen(store, "require_contract", "failed", HOUR, error="ContractBreachError", message=message)


def report(store: ArtifactStore, **more: Any) -> EndResult:
    body = {"project": "flights", "pipeline": "training", "kfp_state": "SUCCEEDED", "when": "fail"}
    return report_end(EndRequest.model_validate(body | more), store)


def test_a_failure_is_posted_once_with_cause_owner_links_duration_and_cost(
    store: ArtifactStore, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEHOUSE_PRICES", '{"per_hour": {"default": 1.5}}')
    monkeypatch.setenv("GATEHOUSE_KFP_UI", "https://ann:s3cret@kubeflow.example/pipeline/")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://ann:s3cret@mlflow.example")
    monkeypatch.setenv("SOURCE_PASSWORD", "hunter22")
    break_contract(store, "origin: expected JFK, found XXX\npassword hunter22")
    happen(store, "champion", "finished", HOUR, result={"model": shown(store, "m", "models")}, machine="default")
    first = report(store, owners={"": "ml@acme", "require_contract": "data@acme"})
    again = report(store, owners={"": "ml@acme"})
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
    assert Path(body["links"]["report"]).read_text() == "v", "not the page of a stage that passed"


JUDGED: dict[str, tuple[str, dict[str, Any]]] = {
    "breach": ("validate", {"verdict": "fail", "reasons": ["why"], "warnings": ["old"]}),
    "warning": ("validate", {"verdict": "pass", "reasons": [], "warnings": ["why"]}),
    "stale": ("freshness", {"verdict": "fail", "reasons": ["why"]}),
    "drift": ("monitor", {"verdict": "fail", "reasons": ["why"], "warnings": ["rows were not checked"]}),
    "change": ("monitor", {"verdict": "warn", "reasons": [], "warnings": ["why"]}),
    "quiet": ("monitor", {"verdict": "pass", "reasons": [], "warnings": ["rows were not checked"]}),
    "online": ("compare_online", {"verdict": "fail", "reasons": ["the gate judges it"]}),
    "waits": ("register", {"verdict": "awaiting approval", "decision": "awaiting approval", "reasons": ["why"]}),
    "refused": ("register", {"verdict": "refused", "decision": "refused", "reasons": ["why"]}),
    "approved": ("register", {"verdict": "pass", "decision": "approved", "reasons": []}),
}


@pytest.mark.parametrize(
    ("when", "kfp_state", "judged", "posted"),
    [
        ("fail", "SUCCEEDED", "warned", False),
        ("fail", "FAILED", "", True),
        ("fail", "CANCELED", "", True),
        ("warn", "SUCCEEDED", "warned", True),
        ("warn", "SUCCEEDED", "", False),
        ("always", "SUCCEEDED", "", True),
        ("never", "FAILED", "warned", False),
        *[("fail", "SUCCEEDED", name, name in ("breach", "stale", "drift", "waits")) for name in JUDGED],
        *[("warn", "SUCCEEDED", name, name not in ("quiet", "online", "approved")) for name in JUDGED],
        *[("never", "SUCCEEDED", name, False) for name in ("breach", "waits")],
    ],
)
def test_ends_are_posted_as_asked_for_with_the_verdicts_that_a_person_should_see(
    store: ArtifactStore, hook: Hook, when: str, kfp_state: str, judged: str, posted: bool
) -> None:
    if judged == "warned":
        happen(store, "validate", "warned", 1.0, message="old rows")
    elif judged:
        stage, result = JUDGED[judged]
        happen(store, stage, "hit", 1.0, result=result)
    report(store, when=when, kfp_state=kfp_state)
    assert len(hook.posts) == posted
    if posted and judged in JUDGED:
        assert f"{'the gate' if stage == 'register' else stage}" in hook.bodies[0]["message"]
        assert "why" in hook.bodies[0]["message"] and "not checked" not in hook.bodies[0]["message"]


def test_a_verdict_has_its_own_page_and_bounded_reasons_that_mention_nobody(store: ArtifactStore, hook: Hook) -> None:
    reasons = ["found <!channel> & <http://evil|here>", *(f"{at} " + "x" * 5000 for at in range(999))]
    result = {"drift": shown(store, "d", "drift-reports"), "verdict": "fail", "reasons": reasons}
    happen(store, "monitor", "finished", 1.0, result=result)
    report(store)
    (body,) = hook.bodies
    ((verdict),) = body["verdicts"]
    assert (verdict["stage"], verdict["verdict"], verdict["report"]) == ("monitor", "fail", result["drift"])
    assert Path(verdict["page"]).read_text() == Path(body["links"]["monitor"]).read_text() == "d"
    assert len(verdict["reasons"]) == 21 and verdict["reasons"][-1].startswith("and 980 more")
    assert "and 995 more" in body["message"] and len(body["text"]) < 4000
    assert "found &lt;!channel&gt; &amp; &lt;http://evil|here&gt;" in body["text"]


def test_no_value_of_a_sensitive_column_is_posted(judge: Validate, store: ArtifactStore, hook: Hook) -> None:
    columns = {"a": {"type": "string", "sensitive": True, "unique": True, "pattern": "x"}}
    judge({"t": pa.table({"a": ["secret-one", "secret-one"]})}, {"t": {"columns": columns}})
    report(store)
    assert len(hook.bodies[0]["verdicts"][0]["reasons"]) == 2 and "secret" not in json.dumps(hook.bodies)


def test_a_refusal_of_the_gate_is_posted_with_advice_and_the_order_of_monitoring(
    store: ArtifactStore, hook: Hook
) -> None:
    happen(store, "prepare", "finished", 1.0, result={"ordered": ["the model decays"]})
    happen(store, "register", "finished", 2.0, result={"decision": "refused", "reasons": ["latency: slow"]})
    report(store, when="warn")
    (body,) = hook.bodies
    assert "refused by the gate" in body["text"]
    refused, reason, order = body["message"].splitlines()
    assert (refused, order) == ("the gate: refused", "ordered by monitoring: the model decays")
    assert reason.startswith("the gate: latency: slow. Train a smaller model")


@pytest.mark.parametrize("answer", [500, 404, 0, -1, None], ids=["500", "404", "reset", "hang", "not set"])
def test_a_webhook_that_is_down_fails_nothing_and_the_next_attempt_posts_under_the_same_key(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, answer: int | None
) -> None:
    monkeypatch.setattr(notice, "_ATTEMPTS", 1)
    monkeypatch.setattr(notice, "_TIMEOUT", 0.5)
    break_contract(store)
    with hooked(answer or 0, 200) as hook:
        monkeypatch.setenv(ADDRESS, "" if answer is None else hook.url)
        down = report(store)
        monkeypatch.setenv(ADDRESS, hook.url)
        if answer is None:
            hook.answers.pop(0)
        assert (down.state, down.posted, report(store).posted) == ("failed", False, True)
    assert len({headers["Idempotency-Key"] for headers, _ in hook.posts}) == 1
    (warned,) = [event for _, event in events(store, RUN) if event.event == "warned"]
    assert warned.body["message"].startswith("The notice that training failed was not posted: the webhook ")
    assert "was not posted" in caplog.text


def test_the_address_is_written_nowhere(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    break_contract(store)
    for answer in (500, 404, 200):
        with hooked(answer) as hook:
            monkeypatch.setenv(ADDRESS, hook.url)
            report(store)
    written = "".join(path.read_text(errors="replace") for path in Path(store.address).rglob("*") if path.is_file())
    assert "was not posted" in written
    assert [part for part in ("s3cr3t", "T0TEAM") if part in written + caplog.text] == []


def test_the_ui_shows_every_stage_and_the_cause(store: ArtifactStore) -> None:
    break_contract(store, "origin: expected JFK, found <script>")
    pieces = [{"pieces": 7, "seconds": 9.0, "slowest": 2.5, "processor": 9.0, "memory": 1_500_000_000}]
    happen(store, "score", "finished", HOUR, result={"summary": "9 rows"}, pieces=pieces)
    lines = summary_of(store, report(store, when="never")).splitlines()
    assert lines[0] == r"# Run failed in require\_contract"
    assert {"| validate | 1 | finished | 1 h | fail |", "    origin: expected JFK, found <script>"} <= {*lines}
    assert "| score | 1 | finished | 1 h | 9 rows; 7 pieces, the slowest 2.5 s, workers of up to 1.5 GB |" in lines
    assert r"| require\_contract | 1 | failed | 1 h | ContractBreachError |" in lines
    assert lines[-1] == "The notice was not posted: `alerts: never` asks for none."


def test_every_warning_is_recorded_and_posted_without_secrets(
    store: ArtifactStore, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_PASSWORD", "hunter22")
    attempt = Attempt(store, "validate")
    attempt.warn("first hunter22")
    attempt.note("warned", message="second hunter22")
    attempt.note("finished", result={})
    happen(store, "split", "warned", 1.0, message="third hunter22")
    recorded = [event.body["message"] for _, event in events(store, RUN) if event.event == "warned"]
    assert sorted(recorded) == ["first ***", "second ***", "third hunter22"]
    report(store, when="warn")
    assert "hunter22" not in str(hook.bodies) and "third ***" in hook.bodies[0]["message"]
