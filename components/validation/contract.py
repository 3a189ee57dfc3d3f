"""The data contract: what a team promises about every table, column and row, and who answers for it."""

from datetime import date, datetime, timedelta, timezone
from enum import Enum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr
from pydantic import field_validator, model_validator

Value = StrictBool | StrictInt | StrictFloat | datetime | StrictStr

NAME = r"^[^\x00-\x1f]{1,120}$"


class Severity(str, Enum):
    """Whether a broken rule ends the run (`fail`) or is only reported (`warn`)."""

    fail = "fail"
    warn = "warn"


class Type(str, Enum):
    """The types of raw columns; timestamps are UTC."""

    int64 = "int64"
    double = "double"
    string = "string"
    bool = "bool"
    timestamp = "timestamp"


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ColumnContract(_Model):
    """What holds for one column. NaN counts as a missing value; every rule but the first two skips missing values."""

    type: Type
    nullable: bool = Field(True, description="Whether a value may be missing.")
    min_completeness: float = Field(0.0, ge=0, le=1, description="Least share of rows that have a value.")
    min: Value | None = Field(None, description="Least value.")
    max: Value | None = Field(None, description="Greatest value.")
    allowed: tuple[Value, ...] | None = Field(None, min_length=1, description="The only values.")
    pattern: str | None = Field(None, description="Regular expression (RE2) that the whole text matches.")
    unique: bool = Field(False, description="Whether no value occurs twice.")
    sensitive: bool = Field(False, description="Whether no value may appear in a report or in the statistics.")
    severity: Severity = Field(Severity.fail, description="Of all rules of this column.")
    owner: str = Field("", description="Who answers for it; by default the table's owner.")

    @field_validator("min", "max", "allowed", mode="before")
    @classmethod
    def _dates_are_midnights(cls, value: Any) -> Any:
        return [_moment(item) for item in value] if isinstance(value, list | tuple) else _moment(value)

    @model_validator(mode="after")
    def _rules_fit_the_type(self) -> "ColumnContract":
        for name, values in (("min", (self.min,)), ("max", (self.max,)), ("allowed", self.allowed or ())):
            for value in values:
                if value is not None and not _fits(value, self.type):
                    raise ValueError(f"{name}: expected a value of type {self.type.value}, found {value!r}")
        if self.type in (Type.string, Type.bool) and (self.min is not None or self.max is not None):
            raise ValueError(f"min and max: expected on a number or timestamp, found on a {self.type.value}")
        if self.pattern is not None and self.type is not Type.string:
            raise ValueError(f"pattern: expected on a string, found on a {self.type.value}")
        if self.min is not None and self.max is not None and self.min > self.max:  # type: ignore[operator]  # one type
            raise ValueError(f"expected min <= max, found {self.min!r} > {self.max!r}")
        return self


def _moment(value: Any) -> Any:
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if isinstance(value, datetime):
        return value.replace(tzinfo=timezone.utc) if value.tzinfo is None else value.astimezone(timezone.utc)
    return value


def _fits(value: Value, kind: Type) -> bool:
    if isinstance(value, bool):
        return kind is Type.bool
    wanted = {Type.int64: (int, float), Type.double: (int, float), Type.string: (str,), Type.timestamp: (datetime,)}
    return isinstance(value, wanted.get(kind, ()))


class Check(_Model):
    """A condition in DuckDB's SQL over one row. As in SQL's CHECK, a row for which it is null keeps it."""

    name: str = Field(pattern=NAME)
    expression: str = Field(min_length=1)
    severity: Severity = Severity.fail
    owner: str = ""


class ForeignKey(_Model):
    """Values that must occur in another table; rows where one of them is missing are skipped, as in SQL."""

    columns: tuple[str, ...] = Field(min_length=1)
    table: str
    references: tuple[str, ...] = Field((), description="Columns of the other table; empty for the same names.")
    min_share: float = Field(1.0, ge=0, le=1, description="Least share of rows with values that must be found there.")
    severity: Severity = Severity.fail
    owner: str = ""

    @model_validator(mode="after")
    def _as_many_columns(self) -> "ForeignKey":
        if self.references and len(self.references) != len(self.columns):
            raise ValueError(f"references: expected {len(self.columns)} columns, found {len(self.references)}")
        return self

    @property
    def targets(self) -> tuple[str, ...]:
        """The columns of the other table."""
        return self.references or self.columns


class Freshness(_Model):
    """How old the newest value of a timestamp column may be when the snapshot ends."""

    column: str
    within: timedelta = Field(gt=timedelta(0), description="Before the snapshot's `as_of`.")
    severity: Severity = Severity.fail


class Drift(_Model):
    """How far a column may move from the baseline; a first run has none, and skips this."""

    psi: float = Field(gt=0, description="Greatest population stability index.")
    severity: Severity = Severity.warn


class TableContract(_Model):
    """What holds for one table. `severity` is that of its own rules: presence, rows, keys, undeclared columns."""

    columns: dict[str, ColumnContract] = Field(min_length=1)
    unique: tuple[tuple[str, ...], ...] = Field((), description="Sets of columns whose values no two rows share.")
    min_rows: int = Field(0, ge=0)
    max_rows: int | None = Field(None, ge=0)
    freshness: Freshness | None = None
    checks: tuple[Check, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    drift: dict[str, Drift] = Field(default_factory=dict, description="By column, against the baseline.")
    severity: Severity = Severity.fail
    owner: str = ""

    @model_validator(mode="after")
    def _names_are_columns(self) -> "TableContract":
        named = {
            "unique": [name for key in self.unique for name in key],
            "freshness": [self.freshness.column] if self.freshness else [],
            "foreign_keys": [name for key in self.foreign_keys for name in key.columns],
            "drift": list(self.drift),
        }
        for rule, names in named.items():
            unknown = sorted(set(names) - set(self.columns))
            if unknown:
                raise ValueError(f"{rule}: expected columns of this table, found {', '.join(unknown)}")
        if self.freshness and self.columns[self.freshness.column].type is not Type.timestamp:
            raise ValueError(f"freshness: expected a timestamp column, found {self.freshness.column}")
        if any(not key for key in self.unique):
            raise ValueError("unique: expected at least one column in every key")
        if self.max_rows is not None and self.max_rows < self.min_rows:
            raise ValueError(f"expected min_rows <= max_rows, found {self.min_rows} > {self.max_rows}")
        labels = [check.name for check in self.checks]
        if len(labels) != len(set(labels)):
            raise ValueError(f"checks: expected different names, found {', '.join(labels)}")
        return self


class Contract(_Model):
    """The content of `contract.yaml`."""

    version: int = Field(ge=1, description="Raised by the team whenever a rule changes.")
    tables: dict[str, TableContract] = Field(min_length=1)

    @model_validator(mode="after")
    def _foreign_keys_meet_tables(self) -> "Contract":
        for name, table in self.tables.items():
            for key in table.foreign_keys:
                other = self.tables.get(key.table)
                unknown = [column for column in key.targets if other is None or column not in other.columns]
                if unknown:
                    raise ValueError(
                        f"{name}.foreign_keys: expected columns of table {key.table}, found {', '.join(unknown)}"
                    )
        return self
