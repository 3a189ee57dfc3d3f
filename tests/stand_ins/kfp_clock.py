"""When the stand-in for Kubeflow Pipelines starts what recurs, as the controller of scheduled workflows does."""

from datetime import UTC, datetime
from typing import Any

from gatehouse.configuration.cron import times_after

Body = dict[str, Any]


def six_fields(expression: str) -> str:
    """A cron expression as KFP reads it: five fields are all but the day of the week."""
    return f"{expression} *" if len(expression.split()) == 5 else expression


def due(schedule: Body, now: float) -> list[float]:
    """When a recurring run should have started runs since the last, and did not; never where it has no trigger."""
    trigger = schedule["trigger"]
    if (times := trigger.get("cron_schedule") or trigger.get("periodic_schedule")) is None:
        return []
    created = datetime.fromisoformat(schedule["created_at"]).timestamp()
    start, end = (
        datetime.fromisoformat(times[key]).timestamp() if key in times else None for key in ("start_time", "end_time")
    )
    last = schedule.get("last", created if start is None else start)
    if start is not None:
        last = max(last, start)
    found = []
    while True:
        if "cron" in times:
            last = next(times_after(six_fields(times["cron"]), datetime.fromtimestamp(last, UTC))).timestamp()
        else:
            last += int(times["interval_second"])
        if last > now or (end is not None and last > end):
            return found[-1:] if schedule["no_catchup"] else found
        found.append(last)


def written(seconds: float) -> str:
    """A time as the server writes it."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
