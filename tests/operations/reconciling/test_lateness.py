"""The dead-man's switch: a schedule is late once its hours are over without a good end, and is told once a time."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gatehouse.configuration.schedule import Schedule
from gatehouse.operations.alerting.notice import ADDRESS
from gatehouse.operations.ending.outcome import Outcome, State, record_end
from gatehouse.operations.metrics.table import read, update
from gatehouse.operations.reconciling import lateness
from gatehouse.operations.reconciling.lateness import last_due, late_schedules
from gatehouse.operations.reconciling.stage import ReconcileRequest, reconcile
from gatehouse.store.run import RUN_ID
from gatehouse.store.store import ArtifactStore
from tests.operations.alerting.hook import hooked

NIGHTLY: dict[str, Any] = {"cron": "0 0 4 * * *", "sla_hours": 3.0}
MONDAY = datetime(2030, 1, 7, tzinfo=UTC)
"""Later than any record is written, so that what these tests record counts as newer than what was due before."""


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore.open(tmp_path)


def late(store: ArtifactStore, at: datetime, **schedules: dict[str, Any]) -> list[str]:
    update(store)
    return [each.said for each in late_schedules(store, read(store), "flights", schedules, at.timestamp())]


@pytest.mark.parametrize(
    ("body", "until", "due"),
    [
        (NIGHTLY, MONDAY + timedelta(hours=4), MONDAY + timedelta(hours=4)),
        (NIGHTLY, MONDAY + timedelta(hours=3), MONDAY - timedelta(hours=20)),
        ({"cron": "0 0 4 1 * *"}, MONDAY, MONDAY - timedelta(days=6) + timedelta(hours=4)),
        ({"interval": "PT30M"}, MONDAY, MONDAY),
        ({"cron": "* * * * * *"}, MONDAY, MONDAY),
    ],
)
def test_the_last_time_that_was_due_is_found(body: dict[str, Any], until: datetime, due: datetime) -> None:
    assert last_due(Schedule.model_validate(body), MONDAY - timedelta(days=60), until) == due


def test_nothing_was_due_before_the_schedule_was_there() -> None:
    schedule = Schedule.model_validate(NIGHTLY)
    assert last_due(schedule, MONDAY, MONDAY + timedelta(hours=3)) is None


def test_a_schedule_is_late_when_its_hours_are_over_and_not_before(store: ArtifactStore) -> None:
    assert late(store, MONDAY, training=NIGHTLY) == []
    assert late(store, MONDAY + timedelta(hours=6, minutes=59), training=NIGHTLY) == []
    (said,) = late(store, MONDAY + timedelta(hours=7), training=NIGHTLY)
    assert said == (
        "schedule training: training was due at 2030-01-07 04:00 UTC, and no run since has ended well within 3 h"
    )


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
def test_only_a_good_end_of_a_run_since_it_was_due_counts(
    store: ArtifactStore,
    project: str,
    pipeline: str,
    state: State,
    began: float,
    is_late: bool,
) -> None:
    late(store, MONDAY, nightly=NIGHTLY | {"pipeline": "training"})
    at = (MONDAY + timedelta(hours=began)).timestamp()
    record_end(store, "run", Outcome(state, began=at), "test", project=project, pipeline=pipeline)
    assert bool(late(store, MONDAY + timedelta(hours=8), nightly=NIGHTLY | {"pipeline": "training"})) == is_late


def test_a_schedule_without_hours_or_switched_off_is_never_late(store: ArtifactStore) -> None:
    for body in ({"cron": NIGHTLY["cron"]}, NIGHTLY | {"enabled": False}):
        assert late(store, MONDAY, training=body) == []
        assert late(store, MONDAY + timedelta(days=9), training=body) == []


def test_what_is_late_is_told_once_for_each_time(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("GATEHOUSE_KFP_ENDPOINT", raising=False)
    monkeypatch.delenv(RUN_ID, raising=False)
    monkeypatch.setattr(lateness, "_first_seen", lambda *_: datetime.now(UTC) - timedelta(days=3))
    body = {"project": "flights", "pipelines": ("training",), "schedules": {"training": NIGHTLY}}
    with hooked(200) as hook:
        monkeypatch.setenv(ADDRESS, hook.url)
        quiet = reconcile(ReconcileRequest.model_validate(body | {"when": "never"}), store)
        asked = ReconcileRequest.model_validate(body | {"when": "fail", "owners": {"": "ml@acme"}})
        first, second = reconcile(asked, store), reconcile(asked, store)
    for result in (quiet, first, second):
        assert "1 schedules are late" in result.summary and "was due at" in result.warnings[0]
    ((_, told),) = hook.posts
    assert told["text"].splitlines()[0] == "Gatehouse, flights: schedule training is late"
    assert "owner: ml@acme" in told["text"]


def test_a_schedule_of_intervals_is_seen_within_its_own_first_run_and_is_not_late_for_that(
    store: ArtifactStore,
) -> None:
    body = {"interval": "PT6H", "sla_hours": 2.0}
    began = MONDAY - timedelta(minutes=20)
    late(store, MONDAY, monitoring=body)
    for hours in (0, 6):
        at = (began + timedelta(hours=hours)).timestamp()
        record_end(
            store, f"run-{hours}", Outcome("succeeded", began=at), "test", project="flights", pipeline="monitoring"
        )
    assert late(store, MONDAY + timedelta(hours=8), monitoring=body) == []
