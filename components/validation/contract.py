"""The data contract: what the tables of a snapshot promise, rule by rule, with severity and owner."""

import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from gatehouse.errors import ConfigurationError

Severity = Literal["fail", "warn"]
ColumnType = Literal["int64", "double", "string", "bool", "timestamp"]
Bound = int | float | datetime
_VOLATILE = re.compile(
    r"\b(?:now|today|random|uuid|gen_random_uuid|get_current_time(?:stamp)?|getvariable|nextval)\s*\("
    r"|\bcurrent_(?:date|time|timestamp)\b|\blocaltime(?:stamp)?\b",
    re.IGNORECASE,
)


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class ColumnRules(_Part):
    """Rules on the values of one column. Nulls keep every rule but `completeness`; NaN breaks `min` and `max`."""

    completeness: float | None = Field(None, ge=0, le=1, description="Least share of rows that are not null.")
    min: Bound | None = Field(None, description="Least value, inclusive: a number, or a time for a timestamp.")
    max: Bound | None = Field(None, description="Greatest value, inclusive.")
    allowed: tuple[str | int | bool, ...] | None = Field(
        None, min_length=1, description="The only values there may be."
    )
    pattern: str | None = Field(None, description="Regular expression (RE2) that the whole text must match.")
    unique: bool = Field(False, description="No value twice; nulls do not count.")
    psi: float | None = Field(
        None, gt=0, description="Greatest population stability index against the baseline; not judged without one."
    )

    @field_validator("min", "max", mode="after")
    @classmethod
    def _finite_and_in_utc(cls, bound: Bound | None) -> Bound | None:
        if isinstance(bound, datetime):
            return bound.replace(tzinfo=UTC) if bound.tzinfo is None else bound.astimezone(UTC)
        if isinstance(bound, float) and not math.isfinite(bound):
            raise ValueError("expected a finite number")
        return bound

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ValueError(f"is not a regular expression: {error}") from None
        return pattern

    @model_validator(mode="after")
    def _min_below_max(self) -> "ColumnRules":
        low, high = self.min, self.max
        if low is not None and high is not None:
            if isinstance(low, datetime) != isinstance(high, datetime):
                raise ValueError("expected min and max to be two numbers or two times")
            if low > high:  # type: ignore[operator]  # both are numbers or both times here
                raise ValueError(f"expected min <= max, found {low} > {high}")
        return self


class ColumnContract(ColumnRules):
    """What one column promises. Rules under `warn` are judged too, but cannot break the contract."""

    type: ColumnType
    nullable: bool = Field(True, description="Whether any value may be null.")
    sensitive: bool = Field(False, description="Show no value of it in anomalies, statistics or reports.")
    warn: ColumnRules | None = None
    owner: str = Field("", description="Who is asked when it breaks; empty for the table's owner.")

    @model_validator(mode="after")
    def _rules_suit_the_type(self) -> "ColumnContract":
        for label, rules in self.graded():
            for name, value in (("min", rules.min), ("max", rules.max)):
                if value is not None and not _suits(value, self.type):
                    raise ValueError(f"{label}{name}: {value!r} cannot bound a column of type {self.type}")
            if rules.pattern is not None and self.type != "string":
                raise ValueError(f"{label}pattern: expected a column of type string, found {self.type}")
            wrong = [value for value in rules.allowed or () if not _is_of(value, self.type)]
            if wrong:
                raise ValueError(f"{label}allowed: {wrong!r} cannot be values of a column of type {self.type}")
            if rules.psi is not None and self.type == "timestamp":
                raise ValueError(f"{label}psi: a timestamp moves on by nature; expected another type")
        if self.sensitive and any(rules.psi is not None for _, rules in self.graded()):
            raise ValueError("psi: needs a histogram, and none is kept of a sensitive column")
        if not self.nullable and self.completeness is not None:
            raise ValueError("completeness: says nothing beside nullable: false; keep one of the two")
        return self

    def graded(self) -> Iterator[tuple[str, ColumnRules]]:
        """The rules whose breach fails, and those under `warn.`, with the prefix that names them."""
        yield "", self
        if self.warn is not None:
            yield "warn.", self.warn


def _suits(bound: Bound, kind: str) -> bool:
    return kind == "timestamp" if isinstance(bound, datetime) else kind in ("int64", "double")


def _is_of(value: str | int | bool, kind: str) -> bool:
    wanted: dict[str, type] = {"string": str, "int64": int, "bool": bool}
    return kind in wanted and type(value) is wanted[kind]


class Graded(_Part):
    """A rule with its own severity and owner."""

    severity: Severity = "fail"
    owner: str = Field("", description="Who is asked when it breaks; empty for the table's owner.")


class Freshness(Graded):
    """The newest value of a column may be at most `within` older than the snapshot's `as_of`."""

    column: str
    within: timedelta = Field(ge=timedelta(0), description="ISO 8601 duration, e.g. P2D or PT6H.")


class Expression(Graded):
    """A SQL expression over the columns of one row. As in SQL, a row where it is null keeps it."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    sql: str = Field(min_length=1)
    tolerance: float = Field(0.0, ge=0, lt=1, description="Share of rows that may break it.")

    @field_validator("sql")
    @classmethod
    def _same_on_every_run(cls, sql: str) -> str:
        found = _VOLATILE.search(sql)
        if found:
            raise ValueError(f"{found[0].strip()!r} differs from run to run; judge age by `freshness`, against as_of")
        return sql


class ForeignKey(Graded):
    """Values of `columns`, where none is null, must be found in columns `to` of another table."""

    columns: tuple[str, ...] = Field(min_length=1)
    table: str
    to: tuple[str, ...] = Field((), description="Columns of that table; empty for the same names.")
    tolerance: float = Field(0.0, ge=0, lt=1, description="Share of rows that may have no match.")

    @model_validator(mode="after")
    def _as_many(self) -> "ForeignKey":
        if self.to and len(self.to) != len(self.columns):
            raise ValueError(f"to: expected {len(self.columns)} columns, as many as in `columns`, found {len(self.to)}")
        return self


class TableContract(_Part):
    """What one table promises."""

    owner: str = Field("", description="Who is asked when one of its rules breaks.")
    min_rows: int = Field(1, ge=0)
    max_rows: int | None = Field(None, ge=0)
    columns: dict[str, ColumnContract] = Field(min_length=1)
    extra_columns: Literal["fail", "warn", "allow"] = Field("warn", description="For columns that are not listed.")
    unique: tuple[tuple[str, ...], ...] = Field((), description="Sets of columns whose values no two rows share.")
    freshness: Freshness | None = None
    expressions: tuple[Expression, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()

    @model_validator(mode="after")
    def _names_are_known(self) -> "TableContract":
        named = [("unique", column) for key in self.unique for column in key]
        named += [("foreign_keys", column) for key in self.foreign_keys for column in key.columns]
        if self.freshness:
            named.append(("freshness", self.freshness.column))
            if self.freshness.column in self.columns and self.columns[self.freshness.column].type != "timestamp":
                raise ValueError(f"freshness: expected a timestamp column, found {self.freshness.column!r}")
        unknown = sorted({f"{rule}: {column!r}" for rule, column in named if column not in self.columns})
        if unknown:
            raise ValueError(f"columns that the contract does not list: {', '.join(unknown)}")
        names = [expression.name for expression in self.expressions]
        if len(set(names)) < len(names):
            raise ValueError(f"expressions: expected different names, found {', '.join(names)}")
        if any(not key for key in self.unique):
            raise ValueError("unique: expected at least one column in every set")
        if self.max_rows is not None and self.min_rows > self.max_rows:
            raise ValueError(f"expected min_rows <= max_rows, found {self.min_rows} > {self.max_rows}")
        return self


class Contract(_Part):
    """A versioned contract over the tables of a snapshot."""

    version: int = Field(ge=1, description="Raised by the team whenever a rule changes.")
    description: str = ""
    examples: int = Field(5, ge=0, le=20, description="Most offending rows that an anomaly shows.")
    tables: dict[str, TableContract] = Field(min_length=1)

    @model_validator(mode="after")
    def _foreign_keys_lead_somewhere(self) -> "Contract":
        for name, table in self.tables.items():
            for key in table.foreign_keys:
                target = self.tables.get(key.table)
                if target is None:
                    raise ValueError(f"{name}.foreign_keys: the contract has no table {key.table!r}")
                missing = [column for column in key.to or key.columns if column not in target.columns]
                if missing:
                    raise ValueError(f"{name}.foreign_keys: table {key.table} lists no column {', '.join(missing)}")
        return self

    def sensitive(self, table: str) -> frozenset[str]:
        """The columns of a table of which no value may be shown."""
        columns = self.tables[table].columns if table in self.tables else {}
        return frozenset(column for column, promised in columns.items() if promised.sensitive)


def parse_contract(text: str, name: str = "contract.yaml") -> Contract:
    """Read a contract from YAML.

    Raises:
        ConfigurationError: listing every problem at once, each with file and path of the key.
    """
    import yaml

    try:
        body: Any = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{name} is not YAML: {' '.join(str(error).split())}") from None
    try:
        return Contract.model_validate(body)
    except ValidationError as error:
        listed = "".join(f"\n  - {name}: {_path(detail['loc'])}: {detail['msg']}" for detail in error.errors())
        raise ConfigurationError(f"{error.error_count()} problems in the contract:{listed}") from None


def _path(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location) or "the file"
