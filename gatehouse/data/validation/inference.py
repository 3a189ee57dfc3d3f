"""Infers a data contract from a snapshot: rules that it keeps with some room, with the observed values as comments."""

import math
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb

from gatehouse.configuration.yaml_lines import yaml_text
from gatehouse.data.snapshot.deliveries import delivered_tables
from gatehouse.data.validation.tables import Table, alike, opened, scan, tables_of
from gatehouse.errors import ConfigurationError
from gatehouse.runtime.plural import counted
from gatehouse.store.database import quoted
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore

_STYLE: dict[str, Any] = {"default_flow_style": None, "width": 110}  # a rule or a column on a line where it fits
_ENOUGH_FOR_BOUNDS, _ENOUGH_FOR_SHARES, _ENOUGH_FOR_DRIFT = 20, 100, 1000
"""Rows from which on a bound, a share and a comparison of distributions are written."""
_FEW_VALUES, _ROWS_PER_VALUE, _LONGEST_VALUE = 20, 20, 60
"""A text is a category if it has few values, each in many rows."""
_MOST_VALUES_FOR_DRIFT = 200
_PERSONAL = re.compile(
    "address|birth|birthday|birthdate|dob|email|fax|firstname|fullname|iban|ip|lastname|mail|mobile|name|passport"
    "|password|phone|postcode|ssn|street|surname|tel|telephone|username|zip|zipcode"
)
_CLOSED = {(0, 1), (1, 7), (0, 6), (1, 12), (0, 11), (0, 23), (1, 24), (1, 31), (1, 53), (0, 59), (1, 366)}
"""Ranges that cannot grow: flags, weekdays, months, hours, days, weeks, minutes."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class _Column:
    """The measurements of a column; times in microseconds since 1970, and `low` to `high` of finite values alone."""

    name: str
    kind: str
    rows: int
    present: int
    distinct: int
    low: Any = None
    high: Any = None
    not_finite: int = 0
    nan: int = 0
    longest: int | None = None
    unique: bool = False
    values: Mapping[str, int] | None = None

    @property
    def nulls(self) -> int:
        return self.rows - self.present


def infer_contract(store: ArtifactStore, snapshot: Reference | str) -> str:
    """A contract as commented YAML that the snapshot keeps; the same text for the same snapshot.

    It is a proposal for a person to edit. For a column that the source declares sensitive, or whose name looks
    personal, no value is written. Raises ConfigurationError if it is not a snapshot, or has no table that a contract
    can describe.
    """
    reference = Reference.parse(snapshot)
    tables = tables_of(store, str(reference)) if reference.kind == "snapshots" else {}
    if not tables:
        raise ConfigurationError(
            f"{reference.short}: expected a snapshot with tables, found none. See `gatehouse data list snapshots`."
        )
    delivered = delivered_tables(store, reference)
    lines = [
        f"# Inferred from {reference.short}. Each rule leaves some room beyond what was seen, which stands",
        "# above it: read them, set owners, and loosen or tighten before it is relied on. Rules under `warn` are",
        "# bounds of this first sample, and fail nothing until you move them up.",
        "version: 1",
        "tables:",
    ]
    described = False
    with store.workspace() as workspace, opened(tuple(tables.values()), workspace) as connection:
        for table in tables.values():
            order = delivered[table.name].columns
            columns = sorted(_measured(connection, table), key=lambda column: order.index(column.name))
            if columns:
                described = True
                lines += _table(table, columns)
    if not described:
        raise ConfigurationError(f"{reference.short}: no table has a column of a type that a contract can state.")
    return "\n".join(lines) + "\n"


def looks_personal(column: str) -> bool:
    """Whether a column's name says that it may identify a person, such as an address."""
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", column)
    return any(_PERSONAL.fullmatch(word.lower()) for word in (*words, column))


def _left_out(table: Table) -> dict[str, str]:
    """Columns that no contract can state, and why."""
    same = alike(table.types())
    reasons = {}
    for column, kind in table.types().items():
        if kind not in ("int64", "double", "string", "bool", "timestamp"):
            reasons[column] = f"a contract has no type for {kind}"
        elif not column or "\0" in column or column in same:
            reasons[column] = "SQL does not tell its name from another's"
    return reasons


def _measured(connection: duckdb.DuckDBPyConnection, table: Table) -> Iterator[_Column]:
    """Measure every column in two passes over the table, and count the values of those that have few."""
    left_out = _left_out(table)
    kinds = {column: kind for column, kind in table.types().items() if column not in left_out}
    aggregates = {}
    for column, kind in kinds.items():
        cell = quoted(column)
        aggregates[column, "present"] = f"count({cell})"
        aggregates[column, "distinct"] = f"approx_count_distinct({cell})"
        if kind == "string":
            aggregates[column, "longest"] = f"max(length({cell}))"
        elif kind == "int64":
            aggregates |= {(column, "low"): f"min({cell})", (column, "high"): f"max({cell})"}
        elif kind in ("double", "timestamp"):
            finite, number = f"FILTER (isfinite({cell}))", cell if kind == "double" else f"epoch_us({cell})"
            aggregates |= {(column, "low"): f"min({number}) {finite}", (column, "high"): f"max({number}) {finite}"}
        if kind == "double":
            aggregates[column, "not_finite"] = f"count(*) FILTER (NOT isfinite({cell}))"
            aggregates[column, "nan"] = f"count(*) FILTER (isnan({cell}))"
    places = {f"{index}": place for index, place in enumerate(aggregates)}
    scanned = scan(connection, table.name, {index: aggregates[place] for index, place in places.items()})
    facts: dict[str, dict[str, Any]] = {column: {} for column in kinds}
    for index, (column, fact) in places.items():
        facts[column][fact] = scanned[index]
    likely = [
        column
        for column, kind in kinds.items()
        if kind in ("int64", "string") and facts[column]["distinct"] >= 0.7 * facts[column]["present"] > 0.7
    ]
    exact = scan(connection, table.name, {column: f"count(DISTINCT {quoted(column)})" for column in likely})
    for column, kind in kinds.items():
        measured = _Column(
            column, kind, table.rows, **facts[column], unique=exact.get(column) == facts[column]["present"]
        )
        if kind == "string" and measured.present >= _ENOUGH_FOR_SHARES and measured.distinct <= 4 * _FEW_VALUES:
            cell = quoted(column)
            counts = f"SELECT {cell}, count(*) FROM {quoted(table.name)} WHERE {cell} IS NOT NULL GROUP BY 1"
            values = dict(sorted(connection.execute(counts).fetchall()))
            yield _Column(**(vars(measured) | {"values": values}))
        else:
            yield measured


def _table(table: Table, columns: list[_Column]) -> Iterator[str]:
    yield textwrap.indent(yaml_text({table.name: {}}, **_STYLE).removesuffix(" {}"), "  ")
    yield f"    # {counted(table.rows, 'row')}"
    half = table.rows // 2
    digit = 10 ** (len(str(half)) - 1)
    rules: dict[str, Any] = {"min_rows": half // digit * digit if half else min(table.rows, 1)}
    if table.rows >= _ENOUGH_FOR_SHARES:  # Against the baseline of a validation, where there is one.
        rules |= {
            f"{bound}_rows_ratio": {"value": value, "severity": "warn"} for bound, value in (("min", 0.5), ("max", 2))
        }
    for left_out, reason in _left_out(table).items():
        yield f"    # {left_out!a} is not described: {reason}."
        rules["extra_columns"] = "allow"
    yield textwrap.indent(yaml_text(rules | {"columns": {}}, **_STYLE).removesuffix(" {}"), "    ")
    for column in columns:
        hidden = ""
        if column.name in table.sensitive:
            hidden = "The source declares it sensitive, so no value of it is shown."
        elif looks_personal(column.name):
            hidden = "Its name looks personal, so no value of it is shown: check, and remove `sensitive` if it is not."
        rules, notes = _rules(column, bool(hidden))
        if hidden:
            yield f"      # {hidden}"
        yield f"      # {'; '.join(notes)}"
        yield textwrap.indent(yaml_text({column.name: rules}, **_STYLE), "      ")


def _rules(column: _Column, hidden: bool) -> tuple[dict[str, Any], list[str]]:
    """The rules of a column, and what was seen of it."""
    nulls = counted(column.nulls, "null") if column.nulls else "no nulls"
    rules: dict[str, Any] = {"type": column.kind}
    warn: dict[str, Any] = {}
    notes = [f"{nulls} in {counted(column.rows, 'row')}"]
    if hidden:
        rules["sensitive"] = True
    if column.rows >= _ENOUGH_FOR_SHARES:
        complete = 1 - 1.5 * column.nulls / column.rows - 0.01
        if not column.nulls:
            rules["nullable"] = False
        elif complete >= 0.01:
            rules["completeness"] = math.floor(100 * complete) / 100
    if column.low is not None and not hidden:
        low, high = column.low, column.high
        if column.kind == "timestamp":
            years = [moment.year for bound in (low, high) if (moment := _moment(bound))]
            notes.append(" to ".join(str(_moment(bound) or "no date of the calendar") for bound in (low, high)))
            if column.present >= _ENOUGH_FOR_BOUNDS and len(years) == 2:
                # No clock that works shows a time ten years after the newest one.
                rules["min"] = datetime(max(years[0] - 1, 1), 1, 1, tzinfo=UTC).isoformat()
                rules["max"] = datetime(min(years[1] + 10, 9999), 1, 1, tzinfo=UTC).isoformat()
        else:
            notes.append(f"{low:,} to {high:,}" if column.kind == "int64" else f"{low:,.6g} to {high:,.6g}")
            if column.not_finite:
                notes.append(f"NaN or infinite in {counted(column.not_finite, 'row')}")
            if column.present >= _ENOUGH_FOR_BOUNDS and not column.nan:  # NaN breaks every bound.
                closed = column.kind == "int64" and (low, high) in _CLOSED
                least, greatest = (low, high) if closed else _round_bounds(low, high)
                if column.unique and column.kind == "int64":
                    greatest = None
                # An infinity breaks a bound, and the next delivery may exceed what a first one has: that only warns.
                for key, bound in (("min", least), ("max", greatest)):
                    if bound is not None:
                        (rules if closed or (bound == 0 and not column.not_finite) else warn)[key] = bound
    if column.longest is not None:
        notes.append(f"at most {counted(column.longest, 'character')}")
        values = {} if hidden else column.values or {}
        few = 0 < len(values) <= min(_FEW_VALUES, column.present // _ROWS_PER_VALUE)
        if few and all(len(value) <= _LONGEST_VALUE and "\0" not in value for value in values):
            rarest = min(values.values())
            notes.append(f"{counted(len(values), 'value')}, the rarest in {counted(rarest, 'row')}")
            warn["allowed"] = sorted(values)
        elif column.present >= _ENOUGH_FOR_SHARES:
            warn["max_length"] = max(10, math.ceil(column.longest * 1.5 / 10) * 10)
    if column.unique and column.present >= _ENOUGH_FOR_SHARES:
        notes.append("every value differs")
        rules["unique"] = True
    compared = column.kind in ("int64", "double", "bool") or column.distinct <= _MOST_VALUES_FOR_DRIFT
    repeated = not column.unique and column.distinct > 1 and not re.search(r"(?:^|_)id$|Id$", column.name)
    if compared and repeated and not hidden and column.present >= _ENOUGH_FOR_DRIFT and column.kind != "timestamp":
        warn["psi"] = 0.25
    return rules | ({"warn": warn} if warn else {}), notes


def _moment(microseconds: int) -> datetime | None:
    """A time from microseconds since 1970; None outside the years 1 to 9999."""
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return None


def _round_bounds(low: float, high: float) -> tuple[float | None, float | None]:
    """Bounds a tenth of the span outside of `low` and `high`, rounded outwards to two digits of the span.

    Zero stays a bound where no value lies beyond it. None stands for a bound that the type cannot hold. One value alone
    gets a fifth of its size as span.
    """
    least, greatest = Decimal(low), Decimal(high)
    span = greatest - least or abs(greatest) / 5 or Decimal(1)
    step = Decimal(10) ** (span.adjusted() - 1)
    if isinstance(low, int):
        step = max(step, Decimal(1))
    below = math.floor((least - span / 10) / step) * step
    above = math.ceil((greatest + span / 10) / step) * step
    below = Decimal(0) if below < 0 <= least else below
    above = Decimal(0) if above > 0 >= greatest else above
    if isinstance(low, int):
        return int(below) if below >= -(2**63) else None, int(above) if above < 2**63 else None
    lower, upper = (
        int(bound) if bound == bound.to_integral_value() and abs(bound) < 2**53 else float(bound)
        for bound in (below, above)
    )
    return lower if math.isfinite(lower) else None, upper if math.isfinite(upper) else None
