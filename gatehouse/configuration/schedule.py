"""A schedule of a project: when a pipeline recurs, in cron expressions of KFP, and with which parameters.

KFP's cron expressions (robfig/cron, version 1) have six fields, seconds first, or are descriptors such as @daily. KFP
also accepts five fields, but reads them as all fields except the day of the week: `30 4 * * 1` then starts 30 seconds
past minute 4 of every hour in January. So five fields are refused here.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field, field_validator, model_validator

from gatehouse.configuration.strict import Duration, Strict

_DESCRIPTORS = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
}
_FIELD = re.compile(r"[0-9A-Z*?,/-]+", re.IGNORECASE)


def require_cron(expression: str) -> None:
    """Check an expression. Raises ValueError if KFP would not read it, or it names a day that no year has."""
    next(times_after(expression, datetime(2024, 1, 1)))


def times_after(expression: str, moment: datetime) -> Iterator[datetime]:
    """The times of an expression after a moment, in the moment's time zone. Raises ValueError as `require_cron`."""
    from cronsim import CronSim, CronSimError

    fields = _DESCRIPTORS.get(expression, expression).split()
    if len(fields) != 6:
        descriptors = ", ".join(_DESCRIPTORS)
        more = f"; put the seconds before it: 0 {expression}" if len(fields) == 5 else ""
        raise ValueError(f"expected six fields, seconds first, or one of {descriptors}, found {expression!r}{more}")
    # cronsim also reads `L`, `#` and 7 for Sunday, which KFP does not.
    days = re.sub(r"/\d+", "", fields[5])
    if not all(map(_FIELD.fullmatch, fields)) or re.search(r"7|L\b", days, re.IGNORECASE) or "L" in fields[3].upper():
        raise ValueError(f"expected fields such as 0, MON-FRI, */15 or 1,15, found {expression!r}")
    try:
        return iter(CronSim(" ".join(field.replace("?", "*") for field in fields), moment))
    except CronSimError as error:
        raise ValueError(f"{error} in {expression!r}") from error


class Schedule(Strict):
    """When a pipeline recurs, as `gatehouse schedule apply` tells KFP. A text alone is `cron`; an empty one is none."""

    pipeline: str = Field(
        "", pattern=r"^[a-z_]*$", description="The pipeline; empty for the one with the schedule's name."
    )
    description: str = Field("", max_length=100, description="What it is for.")
    cron: str = Field("", description="When: six fields, the first is seconds, as 0 0 4 * * 1; or @daily and the like.")
    interval: Duration | None = Field(None, description="Instead of `cron`: a duration of whole seconds, such as PT6H.")
    time_zone: str = Field("UTC", description="Time zone of `cron`; KFP must use the same.")
    start: datetime | None = Field(None, description="Earliest time of the first run; null to begin at once.")
    end: datetime | None = Field(None, description="Latest time of the last run; null for no end.")
    catch_up: bool = Field(
        False, description="Whether every missed time gets its run later; otherwise only the last one."
    )
    max_concurrency: int = Field(1, ge=1, le=10, description="How many of its runs may run at once.")
    parameters: dict[str, Any] = Field({}, description="Values of the pipeline's parameters; others keep defaults.")
    cache: bool = Field(True, description="Whether KFP may take results of its earlier runs.")
    enabled: bool = Field(True, description="Whether the schedule is on.")
    sla_hours: float | None = Field(
        None, gt=0, description="Alert if a run has not succeeded this long after it was due; null for no alert."
    )

    @model_validator(mode="before")
    @classmethod
    def _read_short_form(cls, body: Any) -> Any:
        return {"cron": body} if isinstance(body, str) else body

    @field_validator("cron")
    @classmethod
    def _check_cron(cls, cron: str) -> str:
        if cron:
            require_cron(cron)
        return cron

    @field_validator("interval")
    @classmethod
    def _check_interval(cls, interval: timedelta | None) -> timedelta | None:
        if interval is not None and (interval < timedelta(seconds=1) or interval % timedelta(seconds=1)):
            raise ValueError(f"expected whole seconds, at least one, found {interval}")
        return interval

    @field_validator("time_zone")
    @classmethod
    def _check_time_zone(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(f"expected the name of a time zone, as Europe/Berlin, found {name!r}") from None
        return name

    @field_validator("start", "end")
    @classmethod
    def _in_utc(cls, moment: datetime | None) -> datetime | None:
        if moment is not None and moment.microsecond:
            raise ValueError(f"expected whole seconds, found {moment}")
        return moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC) if moment else None

    @model_validator(mode="after")
    def _check_times(self) -> "Schedule":
        if bool(self.cron) == (self.interval is not None):
            raise ValueError(f"expected either cron or interval, found {'both' if self.cron else 'neither'}")
        if self.start and self.end and self.start >= self.end:
            raise ValueError(f"end: expected a time after start, {self.start}, found {self.end}")
        return self

    def changing_clocks(self, now: datetime) -> Iterator[str]:
        """A sentence for each of its times in the year after `now` that the clocks of its zone skip, or show twice.

        Every expression without fixed hours has such times, and loses nothing by them.
        """
        zone, step = ZoneInfo(self.time_zone), timedelta(minutes=30)
        if not self.cron or "*" in _DESCRIPTORS.get(self.cron, self.cron).split()[2]:
            return
        moment = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
        for _ in range(timedelta(days=366) // step):
            before, moment = moment.astimezone(zone).replace(tzinfo=None), moment + step
            end, start = moment.astimezone(zone).replace(tzinfo=None), before + step
            low, high = sorted((start, end))
            if low < high and (due := next(times_after(self.cron, low - timedelta(seconds=1)))) < high:
                what = "skip: KFP starts no run then" if start < end else "show twice: KFP may start two runs"
                yield f"it is due at {due} in {self.time_zone}, which the clocks {what}"

    def following(self, moment: datetime, created: datetime) -> datetime | None:
        """The first due time after `moment`; None if there is none.

        Args:
            moment: A time with a time zone.
            created: When KFP created it; intervals count from there.
        """
        after = max(moment, self.start) if self.start else moment
        if self.interval is None:
            due = next(times_after(self.cron, after.astimezone(ZoneInfo(self.time_zone))))
        else:
            begin = max(created, self.start) if self.start else created
            due = begin + self.interval * max(1, (after - begin) // self.interval + 1)
        return None if self.end and due > self.end else due
