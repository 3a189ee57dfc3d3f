"""A schedule is late once its hours are over without a success, and that is posted once for each due time."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gatehouse.configuration.schedule import Schedule
from gatehouse.operations.ending.outcome import Outcome, State, record_end
from gatehouse.operations.metrics.table import read, update
from gatehouse.operations.reconciling import lateness
from gatehouse.operations.reconciling.lateness import last_due, late_schedules
from gatehouse.operations.reconciling.stage import ReconcileRequest, reconcile
from gatehouse.store.store import ArtifactStore
from tests.operations.alerting.hook import Hook

NIGHTLY: dict[str, Any] = {"cron": "0 0 4 * * *", "sla_hours": 3.0}
MONDAY = datetime(2030, 1, 7, tzinfo=UTC)
"""Later than any record is written, so that what these tests record counts as newer than what was due before."""


def late(store: ArtifactStore, at: datetime, **schedules: dict[str, Any]) -> list[str]:
    update(store)
    return [schedule.message for schedule in late_schedules(store, read(store), "flights", schedules, at.timestamp())]


@pytest.mark.parametrize(
    ("body", "until", "due"),
    [
        (NIGHTLY, MONDAY + timedelta(hours=4), MONDAY + timedelta(hours=4)),
        (NIGHTLY, MONDAY + timedelta(hours=3), MONDAY - timedelta(hours=20)),
        ({"cron": "0 0 4 1 * *"}, MONDAY, MONDAY - timedelta(days=6) + timedelta(hours=4)),
        ({"interval": "PT30M"}, MONDAY, MONDAY),
        ({"cron": "* * * * * *"}, MONDAY, MONDAY),
        (NIGHTLY, MONDAY - timedelta(days=59, hours=21), None),  # Nothing was due since the schedule was seen.
    ],
)
def test_the_last_time_that_was_due_is_found(body: dict[str, Any], until: datetime, due: datetime | None) -> None:
    assert last_due(Schedule.model_validate(body), MONDAY - timedelta(days=60), until) == due


def test_a_schedule_is_late_when_its_hours_are_over_and_not_before(store: ArtifactStore) -> None:
    assert late(store, MONDAY, training=NIGHTLY) == []
    assert late(store, MONDAY + timedelta(hours=6, minutes=59), training=NIGHTLY) == []
    (message,) = late(store, MONDAY + timedelta(hours=7), training=NIGHTLY)
    assert message.startswith("schedule training: training was due at 2030-01-07 04:00 UTC")


@pytest.mark.parametrize(
    ("project", "pipeline", "state", "began", "is_late"),
    [
        ("flights", "training", "succeeded", 4.5, False),
        ("flights", "training", "failed", 4.5, True),
        ("flights", "training", "succeeded", 3.5, True),
        ("flights", "monitoring", "succeeded", 4.5, True),
        ("shop", "training", "succeeded", 4.5, True),
    ],
)
def test_only_a_success_of_a_run_since_it_was_due_counts(
    store: ArtifactStore, project: str, pipeline: str, state: State, began: float, is_late: bool
) -> None:
    late(store, MONDAY, nightly=NIGHTLY | {"pipeline": "training"})
    at = (MONDAY + timedelta(hours=began)).timestamp()
    record_end(store, "run", Outcome(state, began=at), "test", project=project, pipeline=pipeline)
    assert bool(late(store, MONDAY + timedelta(hours=8), nightly=NIGHTLY | {"pipeline": "training"})) == is_late


def test_a_schedule_without_hours_or_switched_off_is_never_late(store: ArtifactStore) -> None:
    for body in ({"cron": NIGHTLY["cron"]}, NIGHTLY | {"enabled": False}):
        assert late(store, MONDAY, training=body) == []
        assert late(store, MONDAY + timedelta(days=9), training=body) == []


def test_a_late_schedule_is_posted_once_for_each_due_time(
    store: ArtifactStore, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lateness, "_first_seen", lambda *_: datetime.now(UTC) - timedelta(days=3))
    body = {"project": "flights", "pipelines": ("training",), "schedules": {"training": NIGHTLY}}
    for more in ({"when": "never"}, *[{"when": "fail", "owners": {"": "ml@acme"}}] * 2):
        result = reconcile(ReconcileRequest.model_validate(body | more), store)
        assert "1 schedules are late" in result.summary and "was due at" in result.warnings[0]
    (posted,) = hook.bodies
    assert posted["event"] == "schedule-late" and "owner: ml@acme" in posted["text"]


def test_a_first_run_that_began_before_its_interval_was_seen_is_in_time(store: ArtifactStore) -> None:
    schedule = {"interval": "PT6H", "sla_hours": 2.0}
    late(store, MONDAY, monitoring=schedule)
    for hours in (0, 6):
        outcome = Outcome("succeeded", began=(MONDAY + timedelta(hours=hours, minutes=-20)).timestamp())
        record_end(store, f"run-{hours}", outcome, "test", project="flights", pipeline="monitoring")
    assert late(store, MONDAY + timedelta(hours=8), monitoring=schedule) == []
