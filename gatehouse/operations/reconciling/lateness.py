"""Finds late schedules: no run has succeeded within the allowed hours since the schedule was due."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from gatehouse.configuration.schedule import Schedule
from gatehouse.operations.alerting.notice import Form, Notice, body_of, deliver
from gatehouse.operations.metrics.table import Row
from gatehouse.store.canonical import canonical_json, sha256_bytes
from gatehouse.store.records import read_record
from gatehouse.store.store import ArtifactStore

SEEN = "operations/schedules"
_WINDOWS = (timedelta(hours=1), timedelta(days=1), timedelta(days=8), timedelta(days=32), timedelta(days=370))


@dataclass(frozen=True)
class Late:
    """A schedule that is late: its pipeline was `due` and had to succeed within some `hours`."""

    schedule: str
    pipeline: str
    due: datetime
    hours: float

    @property
    def message(self) -> str:
        """The problem in one sentence."""
        return (
            f"schedule {self.schedule}: {self.pipeline} was due at {self.due:%Y-%m-%d %H:%M} UTC, "
            f"and no run since has ended well within {self.hours:g} h"
        )


def late_schedules(
    store: ArtifactStore, rows: Iterable[Row], project: str, schedules: Mapping[str, Mapping[str, Any]], now: float
) -> list[Late]:
    """The schedules (as in project.yaml, by name) that are late at `now`, in seconds since 1970.

    A schedule counts from when it was first seen here, which the store records, so that a new schedule is not late for
    earlier times.
    """
    moment = datetime.fromtimestamp(now, UTC)
    successes = [row for row in rows if (row.project, row.stage, row.state) == (project, "", "succeeded")]
    late = []
    for name, body in sorted(schedules.items()):
        schedule = Schedule.model_validate(body)
        if schedule.sla_hours is None or not schedule.enabled:
            continue
        pipeline, since = schedule.pipeline or name, _first_seen(store, project, name, body, moment)
        due = last_due(schedule, since, moment - timedelta(hours=schedule.sla_hours))
        if due is None:
            continue
        # Intervals count from when the schedule was first seen, which its own first run does after that run began.
        earliest = (due - (schedule.interval or timedelta())).timestamp()
        if not any(row.pipeline == pipeline and row.began >= earliest for row in successes):
            late.append(Late(name, pipeline, due.astimezone(UTC), schedule.sla_hours))
    return late


def last_due(schedule: Schedule, since: datetime, until: datetime) -> datetime | None:
    """The last time in (since, until] at which a schedule was due; None if there is none."""
    for window in _WINDOWS:
        due = schedule.following(max(since, until - window), since)
        if due is not None and due <= until:
            while (following := schedule.following(due, since)) is not None and following <= until:
                due = following
            return due
    return None


def post_late(store: ArtifactStore, project: str, late: Late, owners: Mapping[str, str], form: Form) -> None:
    """Post a late schedule to the webhook, once for each time that it was due."""
    about = {"schedule": late.schedule, "pipeline": late.pipeline, "due": late.due.isoformat()}
    key = sha256_bytes(canonical_json([project, about]).encode())
    title = f"Gatehouse, {project}: schedule {late.schedule} is late"
    notice = Notice(title, "bad", [late.message], {**about, "owner": owners.get("", "")})
    body = body_of(notice, form, about | {"event": "schedule-late", "project": project})
    deliver(store, late.message, body, key, f"operations/late/{key}.json")


def _first_seen(store: ArtifactStore, project: str, name: str, body: Mapping[str, Any], now: datetime) -> datetime:
    """When this schedule, with this definition, was first seen here."""
    key = f"{SEEN}/{project}-{name}-{sha256_bytes(canonical_json(dict(body)).encode())[:12]}.json"
    if store.record(key, {"schedule": name, "since": now.isoformat()}):
        return now
    recorded = read_record(store.objects, key) or {}
    return datetime.fromisoformat(str(recorded["since"]))
