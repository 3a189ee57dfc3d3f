"""Events: what the store records is announced once, each webhook gets what it asked for, and misses nothing."""

import base64
import hashlib
import hmac
import json
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from pydantic import ValidationError

from gatehouse.operations import notice
from gatehouse.operations.announcing import announce_ledger
from gatehouse.operations.ending_stage import EndRequest, EndResult, report_end
from gatehouse.operations.outbox import Destination, Outbox
from gatehouse.operations.reconciling_stage import ReconcileRequest, reconcile
from gatehouse.registry.promotion import promote, rollback
from gatehouse.store.announcement import TYPES, Announcement, announce
from gatehouse.store.run import Attempt
from gatehouse.store.store import ArtifactStore
from tests.kills import killed_at, was_killed
from tests.operations.conftest import RUN
from tests.operations.hook import Hook, hooked
from tests.registry.gate import MANUAL, NAME, make_gate

ADDRESS, SECRET = "GATEHOUSE_EVENTS_OPS_WEBHOOK", "GATEHOUSE_EVENTS_OPS_SECRET"
KEY = "whsec_" + base64.b64encode(b"an example of 24 bytes..").decode()
OPS: dict[str, Any] = {"ops": {}}


@pytest.fixture
def ops(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> Hook:
    """The webhook of the destination `ops`."""
    monkeypatch.setenv(ADDRESS, hook.url)
    return hook


def end(store: ArtifactStore, run: str = RUN, **more: Any) -> EndResult:
    """The end of a run, with a snapshot that it made, as its last task reports it."""
    body = {"project": "flights", "pipeline": "training", "kfp_state": "SUCCEEDED", "events": OPS, "model_name": NAME}
    return report_end(EndRequest.model_validate(body | more), store)


def look(store: ArtifactStore, events: dict[str, Any] = OPS) -> None:
    body = {"project": "flights", "pipelines": ("training",), "events": events, "model_name": NAME}
    reconcile(ReconcileRequest.model_validate(body), store)


def finish(store: ArtifactStore, stage: str, made: str, **result: Any) -> None:
    """A stage of this run ended, and made an artifact."""
    attempt = Attempt(store, stage)
    attempt.provenance([made])
    attempt.note("finished", result=result)


def say(store: ArtifactStore, word: str, type_: str = "rollout.stepped", at: float = 0.0, **more: Any) -> None:
    about = {"type": type_, "key": word, "at": at or time.time(), "subject": word, "what": word, "title": word}
    announce(store, "flights", Announcement(**(about | {"tone": "good"} | more)))


def types(hook: Hook) -> list[str]:
    return [str(body["type"]).removeprefix("gatehouse.") for body in hook.bodies]


def test_a_run_tells_what_it_delivered_found_and_decided_once(
    store: ArtifactStore, ops: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gatehouse.registry.projection.tracking_of", lambda store: None)
    gate = make_gate(store)
    snapshot, drift = (str(store.publish(kind, "x", {"x": b"x"})) for kind in ("snapshots", "drift-reports"))
    finish(store, "snapshot", snapshot, snapshot=snapshot, rows={"flights": 3}, as_of="2013-01-15T00:00:00Z")
    finish(store, "monitor", drift, drift=drift, verdict="fail", reasons=["dep_delay moved"], decision="drift")
    gate.run(gate.model(1))
    gate.run(gate.model(2), good=False)
    gate.run(gate.model(3), policy=MANUAL)
    promote(store, NAME, 2, to="canary", share=0.25, override=True, reason="a trial")
    promote(store, NAME, 2, override=True, reason="it is better")
    rollback(store, NAME, 2, reason="it is not")
    for _ in range(2):
        assert end(store).posted
    look(store)
    assert sorted(types(ops)) == sorted(
        [
            *("run.ended", "data.delivered", "drift.found", "model.refused", "model.awaiting-approval"),
            *("model.registered", "model.registered", "model.promoted", "model.promoted"),
            *("rollout.stepped", "model.rolled-back"),
        ]
    )
    assert {*types(ops)} | {"schedule.late"} == {*TYPES}
    said = {body["type"].removeprefix("gatehouse."): body["data"] for body in ops.bodies}
    assert (said["data.delivered"]["reference"], said["data.delivered"]["rows"]) == (snapshot, {"flights": 3})
    assert (said["drift.found"]["state"], said["drift.found"]["reasons"]) == ("fail", ["dep_delay moved"])
    assert (said["rollout.stepped"]["alias"], said["rollout.stepped"]["share"]) == ("canary", 0.25)
    assert (said["model.rolled-back"]["model_version"], said["model.rolled-back"]["reason"]) == (1, "it is not")
    assert said["model.awaiting-approval"]["verdict_digest"] == gate.verdict_digest(2)
    assert said["run.ended"]["state"] == "succeeded" and said["run.ended"]["run"] == RUN
    assert len({body["id"] for body in ops.bodies}) == len(ops.bodies)


def test_events_of_one_second_are_sent_in_the_order_of_their_causes(store: ArtifactStore, ops: Hook) -> None:
    now = float(int(time.time())) - 5
    for type_ in sorted(TYPES):
        say(store, f"later {type_}", type_, now + 1)
        say(store, type_, type_, now)
    end(store, kfp_state="FAILED")
    assert types(ops)[: 2 * len(TYPES)] == [*TYPES, *TYPES]
    assert [list(TYPES).index(f"model.{name}") for name in ("registered", "promoted", "rolled-back")] == [3, 6, 7]


def test_a_destination_may_be_named_json(store: ArtifactStore, hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEHOUSE_EVENTS_JSON_WEBHOOK", hook.url)
    for _ in range(2):
        assert end(store, events={"json": {}}).posted
    assert types(hook) == ["run.ended"]


def test_the_snapshot_of_an_earlier_run_is_not_new(store: ArtifactStore, ops: Hook) -> None:
    snapshot = str(store.publish("snapshots", "x", {"x": b"x"}))
    store.append(f"provenance/{snapshot}", {"run": "earlier"})
    finish(store, "snapshot", snapshot, snapshot=snapshot)
    end(store)
    assert types(ops) == ["run.ended"]


def test_an_event_is_a_cloudevent_that_its_signature_vouches_for(
    store: ArtifactStore, ops: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SECRET, KEY)
    end(store)
    ((headers, _),) = ops.posts
    (sent,) = ops.raw
    event = from_http_event(HTTPMessage(headers, sent))
    assert (event.get_type(), event.get_source()) == ("gatehouse.run.ended", "urn:gatehouse:flights")
    assert event.get_subject() == RUN and abs((event.get_time() or 0).timestamp() - time.time()) < 60  # type: ignore[union-attr]
    assert headers["Content-Type"] == "application/cloudevents+json" and headers["webhook-id"] == event.get_id()
    # As docs/events.md has it.
    secret = base64.b64decode(KEY.removeprefix("whsec_"))
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + sent
    expected = "v1," + base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == expected and abs(int(headers["webhook-timestamp"]) - time.time()) < 60


@pytest.mark.parametrize("secret", ["hunter2 hunter2", "whsec_", "whsec_é"])
def test_a_secret_that_is_none_sends_nothing_and_is_shown_nowhere(
    store: ArtifactStore, ops: Hook, monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    monkeypatch.setenv(SECRET, secret)
    result = end(store)
    assert not result.posted and not ops.posts and "hunter2" not in result.why + _written(store)


def _written(store: ArtifactStore) -> str:
    return "".join(path.read_text(errors="replace") for path in Path(store.address).rglob("*") if path.is_file())


@pytest.mark.parametrize("answer", [500, 404, 0, -1], ids=["500", "404", "reset", "hang"])
@pytest.mark.parametrize("later", ["run", "reconcile"])
def test_what_a_webhook_missed_comes_with_the_next_run_or_by_reconcile_under_the_same_id(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, answer: int, later: str
) -> None:
    monkeypatch.setattr(notice, "_ATTEMPTS", 1)
    monkeypatch.setattr(notice, "_TIMEOUT", 0.5)
    say(store, "first")
    say(store, "second")
    with hooked(answer) as down:
        monkeypatch.setenv(ADDRESS, down.url)
        assert not end(store).posted
        assert len(down.posts) == 1, "a webhook that is down gets no more of this pass"
    with hooked(200) as up:
        monkeypatch.setenv(ADDRESS, up.url)
        monkeypatch.setenv("GATEHOUSE_RUN_ID", "another")
        end(store, "another") if later == "run" else look(store)
        own = {"run": 1, "reconcile": 0}[later]
        assert sorted(types(up)) == sorted(["rollout.stepped"] * 2 + ["run.ended"] * (1 + own))
        assert down.bodies[0] in up.bodies, "the same event, to the byte"
        assert "s3cr3t" not in _written(store)


def test_the_warning_of_a_webhook_does_not_change_the_end_that_it_gets_later(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hooked(404, 200) as hook:
        monkeypatch.setenv(ADDRESS, hook.url)
        assert (end(store).posted, end(store).posted) == (False, True)
        assert hook.bodies[0] == hook.bodies[1] and len(hook.bodies) == 2


def test_an_event_that_a_webhook_does_not_take_holds_up_no_other(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        say(store, f"{number}", at=time.time() - 60 + number)
    with hooked(200, 422, 200, 200) as hook:
        monkeypatch.setenv(ADDRESS, hook.url)
        look(store)
        assert [body["subject"] for body in hook.bodies] == ["0", "1", "2"]
        look(store)
        assert [body["subject"] for body in hook.bodies] == ["0", "1", "2", "1"]


@pytest.mark.parametrize(
    ("destination", "expected"),
    [
        ({}, ["bad", "good", "urgent", "warn"]),
        ({"when": "warn"}, ["bad", "urgent", "warn"]),
        ({"when": "fail"}, ["bad", "urgent"]),
        ({"types": ["gatehouse.model.*"]}, ["good", "urgent"]),
        ({"types": ["gatehouse.drift.found"], "when": "fail"}, ["bad"]),
        ({"days": 1}, ["good", "urgent", "warn"]),
    ],
)
def test_a_destination_gets_the_types_that_it_asks_for_as_grave_and_as_new(
    store: ArtifactStore, ops: Hook, destination: dict[str, Any], expected: list[str]
) -> None:
    say(store, "bad", "drift.found", at=time.time() - 2 * 86_400, tone="bad")
    say(store, "warn", "rollout.stepped", tone="warn")
    say(store, "good", "model.promoted")
    say(store, "urgent", "model.awaiting-approval", urgent=True)
    Outbox(store, "flights", {"ops": destination}).send()
    assert sorted(body["subject"] for body in ops.bodies) == expected


@pytest.mark.parametrize("body", [{"types": ["run.ended"]}, {"form": "xml"}, {"days": 0}, {"url": "https://x"}])
def test_a_destination_that_cannot_be_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Destination.model_validate(body)


@pytest.mark.parametrize(("form", "field"), [("slack", "blocks"), ("teams", "attachments"), ("generic", "facts")])
def test_each_form_shows_each_event(store: ArtifactStore, ops: Hook, form: str, field: str) -> None:
    say(store, "canary at 5 %", lines=["why"], about={"share": 0.05})
    Outbox(store, "flights", {"ops": {"form": form}}).send()
    (body,) = ops.bodies
    assert field in body and "canary at 5 %" in json.dumps(body)


def test_killed_at_any_step_an_event_arrives_and_again_only_if_it_had_arrived(
    tmp_path: Path, ops: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gatehouse.operations.outbox._LAPSES", -1.0)
    for number in range(100):
        store = ArtifactStore.open(tmp_path / f"{number}")
        ops.posts.clear()
        say(store, "first")

        def work(store: ArtifactStore = store, now: float = time.time()) -> None:
            say(store, "second", at=now)
            Outbox(store, "flights", OPS).send()

        with killed_at(store, number + 1, changes=("put_bytes", "delete")):
            killed = was_killed(work)
        posted = [body["id"] for body in ops.bodies]
        for _ in range(2):
            work()
        again = [body["id"] for body in ops.bodies][len(posted) :]
        assert {*posted, *again} == {*_ids(store)} and len({*_ids(store)}) == 2
        # Between the answer and the mark there is one moment.
        assert len(posted) + len(again) <= 3
        if not killed:
            assert number > 6 and len(again) == 0
            return
    pytest.fail("it did not end")


def _ids(store: ArtifactStore) -> list[str]:
    keys = [key for key in store.objects.list("events") if key.endswith(".json")]
    return [re.sub(r".*_|\.json", "", key) for key in keys]


def test_several_processes_that_send_at_once_send_once(store: ArtifactStore, ops: Hook) -> None:
    for number in range(5):
        say(store, f"{number}")
    threads = [threading.Thread(target=Outbox(store, "flights", OPS).send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    look(store)
    assert sorted(body["subject"] for body in ops.bodies) == [*"01234"]


def test_without_a_destination_nothing_is_written(store: ArtifactStore) -> None:
    end(store, events={})
    look(store, {})
    assert not list(store.objects.list("events"))


def test_an_end_that_its_run_could_not_announce_is_announced_by_reconcile(store: ArtifactStore, ops: Hook) -> None:
    end(store, events={})
    look(store)
    assert types(ops) == ["run.ended"]


def test_the_ledger_is_announced_as_far_back_as_somebody_gets_it(store: ArtifactStore, ops: Hook) -> None:
    gate = make_gate(store)
    gate.run(gate.model(1))
    announce_ledger(store, "flights", NAME, days=-1)
    assert not _ids(store)
    announce_ledger(store, "flights", "", days=7)
    assert not _ids(store)
    announce_ledger(store, "flights", NAME, days=7)
    assert len(_ids(store)) == 2
