"""Infers a data contract from a snapshot: rules that it keeps with some room, with the observed values as comments."""

import math
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from gatehouse.configuration.yaml_lines import yaml_text
from gatehouse.data.snapshot.deliveries import delivered_tables
from gatehouse.data.statistics import Statistics
from gatehouse.data.statistics.stage import MeasureRequest, measure, measurement
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


@dataclass(frozen=True)
class _Column:
    """A column: its type in the contract's words, its statistics, and whether every value differs.

    `hidden` says why no value of it may be written; empty if values may be.
    """

    name: str
    kind: str
    rows: int
    statistics: Statistics
    unique: bool
    hidden: str

    @property
    def nulls(self) -> int:
        return int(self.statistics["nulls"])

    @property
    def present(self) -> int:
        return self.rows - self.nulls

    @property
    def distinct(self) -> int:
        return int(self.statistics["distinct"])


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
    for name, columns in _measured(store, reference, tables).items():
        order = delivered[name].columns
        if columns:
            described = True
            lines += _table(tables[name], sorted(columns, key=lambda column: order.index(column.name)))
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


def _hidden(table: Table, column: str) -> str:
    if column in table.sensitive:
        return "The source declares it sensitive, so no value of it is shown."
    if looks_personal(column):
        return "Its name looks personal, so no value of it is shown: check, and remove `sensitive` if it is not."
    return ""


def _measured(store: ArtifactStore, snapshot: Reference, tables: Mapping[str, Table]) -> dict[str, list[_Column]]:
    """The columns of each table that a contract can state.

    The statistics are those by which a validation judges the contract afterwards.
    """
    hidden = {name: {column for column in table.types() if _hidden(table, column)} for name, table in tables.items()}
    sensitive = {name: tuple(columns | _left_out(tables[name]).keys()) for name, columns in hidden.items() if columns}
    datasets = store.manifest(snapshot).derived_from
    measuring = MeasureRequest(name=snapshot.name, datasets=datasets, sensitive=dict.fromkeys(tables, ()) | sensitive)
    statistics = measurement(store, measure(measuring, store).statistics).statistics
    columns: dict[str, list[_Column]] = {}
    with store.workspace() as workspace, opened(tuple(tables.values()), workspace) as connection:
        for name, table in tables.items():
            left_out, measured = _left_out(table), statistics[name]
            kinds = {column: kind for column, kind in table.types().items() if column not in left_out}
            present = {column: table.rows - measured[column]["nulls"] for column in kinds}
            # A sketch does not tell whether every value differs.
            likely = [
                column
                for column, kind in kinds.items()
                if kind in ("int64", "string") and measured[column]["distinct"] >= 0.7 * present[column] > 0.7
            ]
            distinct = scan(connection, table.name, {column: f"count(DISTINCT {quoted(column)})" for column in likely})
            columns[name] = [
                _Column(column, kind, table.rows, measured[column], distinct.get(column) == present[column], why)
                for column, kind in kinds.items()
                for why in [_hidden(table, column)]
            ]
    return columns


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
        rules, notes = _rules(column)
        if column.hidden:
            yield f"      # {column.hidden}"
        yield f"      # {'; '.join(notes)}"
        yield textwrap.indent(yaml_text({column.name: rules}, **_STYLE), "      ")


def _rules(column: _Column) -> tuple[dict[str, Any], list[str]]:
    """The rules of a column, and what was seen of it."""
    nulls = counted(column.nulls, "null") if column.nulls else "no nulls"
    rules: dict[str, Any] = {"type": column.kind}
    warn: dict[str, Any] = {}
    notes = [f"{nulls} in {counted(column.rows, 'row')}"]
    if column.hidden:
        rules["sensitive"] = True
    if column.rows >= _ENOUGH_FOR_SHARES:
        complete = 1 - 1.5 * column.nulls / column.rows - 0.01
        if not column.nulls:
            rules["nullable"] = False
        elif complete >= 0.01:
            rules["completeness"] = math.floor(100 * complete) / 100
    seen = column.statistics
    if column.kind == "timestamp" and "min" in seen:
        bounds = [_moment(seen["min"]), _moment(seen["max"])]
        notes.append(" to ".join(str(bound or "no date of the calendar") for bound in bounds))
        years = [bound.year for bound in bounds if bound]
        if column.present >= _ENOUGH_FOR_BOUNDS and len(years) == 2:
            # No clock that works shows a time ten years after the newest one.
            rules["min"] = datetime(max(years[0] - 1, 1), 1, 1, tzinfo=UTC).isoformat()
            rules["max"] = datetime(min(years[1] + 10, 9999), 1, 1, tzinfo=UTC).isoformat()
    elif column.kind in ("int64", "double") and "min" in seen:
        low, high = seen["min"], seen["max"]
        notes.append(f"{low:,} to {high:,}" if column.kind == "int64" else f"{low:,.6g} to {high:,.6g}")
        if seen.get("not_finite"):  # NaN and infinities break every bound.
            notes.append(f"NaN or infinite in {counted(seen['not_finite'], 'row')}")
        elif column.present >= _ENOUGH_FOR_BOUNDS:
            closed = column.kind == "int64" and (low, high) in _CLOSED
            least, greatest = (low, high) if closed else _round_bounds(low, high)
            if column.unique and column.kind == "int64":
                greatest = None
            # The next delivery may exceed what a first one has: that only warns.
            for key, bound in (("min", least), ("max", greatest)):
                if bound is not None:
                    (rules if closed or bound == 0 else warn)[key] = bound
    elif column.kind == "string" and "max_length" in seen:
        notes.append(f"at most {counted(seen['max_length'], 'character')}")
        values = dict(seen["values"]) if not seen["other"] else {}
        few = 0 < len(values) <= min(_FEW_VALUES, column.present // _ROWS_PER_VALUE)
        if few and all(len(value) <= _LONGEST_VALUE and "\0" not in value for value in values):
            rarest = min(values.values())
            notes.append(f"{counted(len(values), 'value')}, the rarest in {counted(rarest, 'row')}")
            warn["allowed"] = sorted(values)
        elif column.present >= _ENOUGH_FOR_SHARES:
            warn["max_length"] = max(10, math.ceil(seen["max_length"] * 1.5 / 10) * 10)
    if column.unique and column.present >= _ENOUGH_FOR_SHARES:
        notes.append("every value differs")
        rules["unique"] = True
    compared = column.kind in ("int64", "double", "bool") or column.distinct <= _MOST_VALUES_FOR_DRIFT
    repeated = not column.unique and column.distinct > 1 and not re.search(r"(?:^|_)id$|Id$", column.name)
    many = column.present >= _ENOUGH_FOR_DRIFT and column.kind != "timestamp"
    if compared and repeated and many and not column.hidden:
        warn["psi"] = 0.25
    return rules | ({"warn": warn} if warn else {}), notes


def _moment(text: str) -> datetime | None:
    """A time of the statistics; None outside the years 1 to 9999."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
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
