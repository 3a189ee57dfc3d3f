"""The declaration that all kinds of sources share: tables, their columns, and how each delivery is judged."""

import re
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal
from zoneinfo import ZoneInfo

from pydantic import Field, field_validator, model_validator

from gatehouse.configuration.strict import Duration
from gatehouse.configuration.times import interval
from gatehouse.store.identity import Spec, Unordered

Policy = Literal["fail", "warn", "accept"]
EPOCHS = {"seconds": 6, "milliseconds": 3, "microseconds": 0, "nanoseconds": -3}
"""Units of numbers since 1970; a microsecond is ten to the power of minus so many of them."""
_DIRECTIVES = "YymdbBHIpMSfz%"


class ColumnType(StrEnum):
    """The types that a raw column may be declared as; timestamps are UTC, to the microsecond."""

    int64 = "int64"
    double = "double"
    string = "string"
    bool = "bool"
    timestamp = "timestamp"


class Guards(Spec):
    """Guards compare a delivery with the declaration, and with the newest earlier snapshot of the source and window.

    `fail` ends the run before anything is published, `warn` keeps a warning beside the snapshot, `accept` says nothing.
    """

    new_column: Policy = Field("fail", description="A column is not declared; unless `fail`, it is left out.")
    missing_column: Policy = Field("fail", description="A declared column is absent; unless `fail`, it is null.")
    retyped_column: Policy = Field("fail", description="A column has another type than in the earlier snapshot.")
    row_count: Policy = Field("warn", description="The number of rows is outside the range of the two factors below.")
    shrink: float = Field(0.5, ge=0, le=1, description="Fewest rows, as a factor of the earlier number.")
    growth: float = Field(3.0, ge=1, description="Most rows, as a factor of the earlier number.")
    duplicate_part: Policy = Field("fail", description="The same rows were delivered twice: a file, or a whole part.")
    duplicate_rows: Policy = Field("warn", description="New rows are the same as rows of the earlier snapshot.")
    late: Policy = Field("warn", description="New rows are older than the earlier watermark minus `late_allowance`.")
    late_allowance: Duration = Field(timedelta(0), description="How late a row may arrive without counting as late.")
    stale_after: Duration | None = Field(
        None,
        ge=timedelta(0),
        description="Largest age of the newest row, by the clock of the machine that runs the stage; by default no "
        "limit.",
    )
    stale: Policy = Field("fail", description="The newest row is older than `stale_after`.")
    future: Policy = Field("warn", description="The newest row is of more than a day after the machine's clock.")
    nan: Policy = Field("warn", description="A number is NaN, which is read as a missing value.")
    rewrite: Policy = Field(
        "fail", description="Rows of the earlier snapshot changed or vanished; a reason as `backfill` lets it pass."
    )
    rewrite_allowance: Duration | None = Field(
        None, description="How long before the watermark rows may still change; by default the availability lag."
    )


class TableSpec(Spec):
    """The declaration of one raw table, for every kind of source."""

    columns: dict[str, ColumnType] = Field(min_length=1, description="Type of every column.")
    event_time: str = Field(
        "", description="Timestamp column that the time window selects by; empty for a static table."
    )
    times: dict[str, str] = Field(
        {},
        description="How timestamp columns are written, if not in ISO 8601: seconds, milliseconds, "
        "microseconds or nanoseconds since 1970, or a format such as %d.%m.%Y %H:%M.",
    )
    availability_lag: Duration = Field(
        timedelta(0), description="How long after its event time a row may become known."
    )
    order_by: tuple[str, ...] = Field((), description="Columns that order the rows.")
    sort_on_ingest: bool = Field(False, description="Sort the rows when they are read: by order_by, else by all.")
    on_invalid: Literal["fail", "reject"] = Field(
        "fail", description="A row that does not fit its declaration ends the run, or is set aside with its reason."
    )
    reject_limit: float = Field(0.01, gt=0, le=1, description="For reject: largest share of rows that is set aside.")
    sensitive: Unordered = Field(
        (),
        description="Columns whose values are never shown; compiling adds those that the contract marks as sensitive.",
    )
    keeps_nan: Unordered = Field(
        (), description="Double columns in which NaN is a value; in all others it is a missing value."
    )
    guards: Guards = Guards()
    shards: int = Field(
        0, ge=0, description="Number of shards: row ranges of equal size over the files; 0 for one per 1,048,576 rows."
    )

    @model_validator(mode="after")
    def _names_its_columns(self) -> "TableSpec":
        if self.event_time and self.columns.get(self.event_time) is not ColumnType.timestamp:
            raise ValueError(f"event_time: expected a column declared as timestamp, found {self.event_time!r}")
        unknown = [column for column in self.order_by if column not in self.columns]
        if unknown:
            raise ValueError(f"order_by: expected declared columns, found {', '.join(unknown)}")
        if others := [column for column in self.keeps_nan if self.columns.get(column) is not ColumnType.double]:
            raise ValueError(f"keeps_nan: expected columns declared as double, found {', '.join(others)}")
        for column in self.times:
            if self.columns.get(column) is not ColumnType.timestamp:
                raise ValueError(f"times: expected columns declared as timestamp, found {column!r}")
        return self

    def takes_nan_for_missing(self, column: str) -> bool:
        """Whether NaN in a column is a missing value."""
        return self.columns[column] is ColumnType.double and column not in self.keeps_nan

    @field_validator("times")
    @classmethod
    def _are_formats(cls, times: dict[str, str]) -> dict[str, str]:
        for column, form in times.items():
            directives = re.findall("%(.?)", form)
            day = "d" in directives and set(directives) & set("Yy") and set(directives) & set("mbB")
            twelve_hours = ("I" in directives) == ("p" in directives)
            if form not in EPOCHS and not (set(directives) <= set(_DIRECTIVES) and day and twelve_hours):
                raise ValueError(
                    f"{column}: expected {', '.join(EPOCHS)} or a format of year, month and day such as %d.%m.%Y %H:%M "
                    f"(%{' %'.join(_DIRECTIVES)}; %I with %p), found {form!r}"
                )
        return times


class SourceBase(Spec):
    """The fields of every kind of source."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="Name of the snapshots taken from it.")
    time_zone: str = Field(
        "", description="Time zone of times that state none, e.g. Europe/Rome or UTC; if empty, such times are refused."
    )

    @field_validator("time_zone")
    @classmethod
    def _is_a_zone(cls, name: str) -> str:
        try:
            ZoneInfo(name or "UTC")
        except (ValueError, OSError, KeyError):  # a path, a folder of the database, no such zone
            raise ValueError(f"expected a zone of the IANA database, e.g. Europe/Rome, found {name!r}") from None
        return name


def window_of(text: str) -> tuple[datetime, datetime] | None:
    """Start and end (exclusive) of a window of event time, `START/END` in ISO 8601; times without a zone are UTC.

    Raises ConfigurationError if it has another form, or ends before it starts.
    """
    return interval("window", text) if text else None
