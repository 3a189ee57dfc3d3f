"""A schedule of a project: when a pipeline recurs, and with which parameters."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field, field_validator, model_validator

from gatehouse.configuration.cron import Cron
from gatehouse.configuration.duration import Duration
from gatehouse.configuration.strict import Strict

_MOST_AT_ONCE = 10


class Schedule(Strict):
    """When a pipeline recurs, as `gatehouse schedule apply` tells KFP. A text alone is `cron`; an empty one is none."""

    pipeline: str = Field(
        "", pattern=r"^[a-z_]*$", description="The pipeline; empty for the one with the schedule's name."
    )
    description: str = Field("", max_length=100, description="What it is for.")
    cron: str = Field("", description="When: six fields, the first is seconds, as 0 0 4 * * 1; or @daily and the like.")
    interval: Duration | None = Field(None, description="Instead of `cron`: a duration of whole seconds, such as PT6H.")
    time_zone: str = Field("UTC", description="Time zone of `cron`; KFP must use the same.")
    start: datetime | None = Field(None, description="Earliest time of the first run; null for now.")
    end: datetime | None = Field(None, description="Latest time of the last run; null for no end.")
    catch_up: bool = Field(
        False, description="Whether every missed time gets its run later; otherwise only the last one."
    )
    max_concurrency: int = Field(1, ge=1, le=_MOST_AT_ONCE, description="How many of its runs may run at once.")
    parameters: dict[str, Any] = Field({}, description="Values of the pipeline's parameters; others keep defaults.")
    cache: bool = Field(True, description="Whether KFP may take results of its earlier runs.")
    enabled: bool = Field(True, description="Whether the schedule is on.")
    sla_hours: float | None = Field(
        None, gt=0, description="Alert if a run has not succeeded this long after it was due; null for no alert."
    )

    @model_validator(mode="before")
    @classmethod
    def _short(cls, given: Any) -> Any:
        return {"cron": given} if isinstance(given, str) else given

    @field_validator("cron")
    @classmethod
    def _read(cls, given: str) -> str:
        if given:
            Cron.parse(given)
        return given

    @field_validator("interval")
    @classmethod
    def _whole(cls, given: timedelta | None) -> timedelta | None:
        if given is not None and (given < timedelta(seconds=1) or given % timedelta(seconds=1)):
            raise ValueError(f"expected a whole number of seconds, one at least, found {given}")
        return given

    @field_validator("time_zone")
    @classmethod
    def _known(cls, given: str) -> str:
        try:
            ZoneInfo(given)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(f"expected the name of a time zone, as Europe/Berlin, found {given!r}") from None
        return given

    @field_validator("start", "end")
    @classmethod
    def _in_utc(cls, given: datetime | None) -> datetime | None:
        if given is not None and given.microsecond:
            raise ValueError(f"expected whole seconds, found {given}")
        return given.replace(tzinfo=given.tzinfo or UTC).astimezone(UTC) if given else None

    @model_validator(mode="after")
    def _one_rhythm(self) -> "Schedule":
        if bool(self.cron) == (self.interval is not None):
            raise ValueError(f"expected either cron or interval, found {'both' if self.cron else 'neither'}")
        if self.start and self.end and self.start >= self.end:
            raise ValueError(f"end: expected a time after start, {self.start}, found {self.end}")
        return self

    def following(self, moment: datetime, created: datetime) -> datetime | None:
        """The first due time after `moment`; None if there is none.

        Args:
            moment: A time with a time zone.
            created: When KFP created it; intervals count from there.
        """
        after = max(moment, self.start) if self.start else moment
        if self.interval is None:
            due = Cron.parse(self.cron).following(after.astimezone(ZoneInfo(self.time_zone)))
        else:
            begin = max(created, self.start) if self.start else created
            due = begin + self.interval * max(1, (after - begin) // self.interval + 1)
        return None if self.end and due > self.end else due
