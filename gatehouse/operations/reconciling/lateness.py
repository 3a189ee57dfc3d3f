"""Finds late schedules: no run has succeeded within the allowed hours since the schedule was due."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from gatehouse.configuration.schedule import Schedule
from gatehouse.operations.alerting.notice import Form, Notice, body_of
from gatehouse.operations.alerting.webhook import tell
from gatehouse.operations.metrics.rows import Row
from gatehouse.store.canonical import canonical_json, sha256_bytes
from gatehouse.store.records import read_record
from gatehouse.store.store import ArtifactStore

SEEN = "operations/schedules"
_WINDOWS = (timedelta(hours=1), timedelta(days=1), timedelta(days=8), timedelta(days=32), timedelta(days=370))


@dataclass(frozen=True)
class Late:
    """A schedule that is late.

    Attributes:
        schedule: Its name.
        pipeline: The pipeline that it runs.
        due: When it was due.
        hours: Within how many hours a run had to succeed.
    """

    schedule: str
    pipeline: str
    due: datetime
    hours: float

    @property
    def said(self) -> str:
        """The problem in one sentence."""
        return (
            f"schedule {self.schedule}: {self.pipeline} was due at {self.due:%Y-%m-%d %H:%M} UTC, "
            f"and no run since has ended well within {self.hours:g} h"
        )


def late_schedules(
    store: ArtifactStore, rows: Iterable[Row], project: str, schedules: Mapping[str, Mapping[str, Any]], now: float
) -> list[Late]:
    """The schedules that are late.

    A schedule counts from when it was first seen here, so that a new schedule is not late for earlier times.

    Args:
        store: The artifact store, which records when each schedule was first seen.
        rows: Rows of the operations table.
        project: The project.
        schedules: Schedules with `sla_hours`, as in project.yaml, by name.
        now: Seconds since 1970.
    """
    moment = datetime.fromtimestamp(now, UTC)
    due_now: list[tuple[Late, float]] = []
    for name, body in sorted(schedules.items()):
        schedule = Schedule.model_validate(body)
        if schedule.sla_hours is None or not schedule.enabled:
            continue
        pipeline, since = schedule.pipeline or name, _first_seen(store, project, name, body, moment)
        due = last_due(schedule, since, moment - timedelta(hours=schedule.sla_hours))
        if due is not None:
            # The time starts when the schedule was first seen, which a run of the schedule itself does after it began.
            earliest = due - (schedule.interval or timedelta())
            due_now.append((Late(name, pipeline, due.astimezone(UTC), schedule.sla_hours), earliest.timestamp()))
    good = [row for row in rows if (row.project, row.stage, row.state) == (project, "", "succeeded")]
    return [
        late
        for late, earliest in due_now
        if not any(row.pipeline == late.pipeline and row.began >= earliest for row in good)
    ]


def last_due(schedule: Schedule, since: datetime, until: datetime) -> datetime | None:
    """The last time in (since, until] at which a schedule was due; None if there is none."""
    for window in _WINDOWS:
        at = schedule.following(max(since, until - window), since)
        if at is None or at > until:
            continue
        while (following := schedule.following(at, since)) is not None and following <= until:
            at = following
        return at
    return None


def tell_late(store: ArtifactStore, project: str, late: Late, owners: Mapping[str, str], form: Form) -> bool:
    """Report a late schedule to the webhook, once for each time that it was due."""
    about = {"schedule": late.schedule, "pipeline": late.pipeline, "due": late.due.isoformat()}
    key = sha256_bytes(canonical_json([project, about]).encode())
    facts = {**about, "owner": owners.get("", "")}
    title = f"Gatehouse, {project}: schedule {late.schedule} is late"
    body = body_of(
        Notice(title, "bad", [late.said], facts), form, about | {"event": "schedule-late", "project": project}
    )
    return tell(store, late.said, body, key, f"operations/late/{key}.json").delivered


def _first_seen(store: ArtifactStore, project: str, name: str, body: Mapping[str, Any], now: datetime) -> datetime:
    """When this schedule, with this definition, was first seen here."""
    key = f"{SEEN}/{project}-{name}-{sha256_bytes(canonical_json(dict(body)).encode())[:12]}.json"
    if store.record(key, {"schedule": name, "since": now.isoformat()}):
        return now
    known = read_record(store.objects, key) or {}
    return datetime.fromisoformat(str(known["since"]))
