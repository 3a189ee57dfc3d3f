"""Interim."""

from datetime import timedelta

from pydantic import BaseModel, ConfigDict, Field

from gatehouse.components.snapshot.spec import ColumnType


class TableBase(BaseModel):
    """Table."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    columns: dict[str, ColumnType] = Field(min_length=1)
    event_time: str = ""
    availability_lag: timedelta = timedelta(0)


class SourceBase(BaseModel):
    """Source."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
