"""Writes a contract from what a snapshot holds: rules that it keeps with room to spare, and beside each what was seen.

It is a proposal for a person to edit, so a rule is left out where too few rows speak for it. Of a column that the
source declares sensitive, or whose name looks personal, no value is written.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any

import yaml

from gatehouse.data.snapshot.deliveries import delivered_tables
from gatehouse.data.validation.inference.profile import FEW_VALUES, MANY, Seen, SeenTable, profile
from gatehouse.data.validation.inference.rounding import moment, round_bounds, year_before, years_after
from gatehouse.data.validation.tables import opened, tables_of
from gatehouse.errors import ConfigurationError
from gatehouse.runtime.counting import counted
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore

_LINE = 112
_FEW_ROWS = 20
_ROWS_TO_A_VALUE = 20
_LONGEST_VALUE = 60
_OFTEN = 5
_ROWS_FOR_DRIFT = 1000
_MOST_VALUES_OF_TEXT = 200
_PERSONAL = re.compile(
    "address|birth|birthday|birthdate|dob|email|fax|firstname|fullname|iban|ip|lastname|mail|mobile|name|passport"
    "|password|phone|postcode|ssn|street|surname|tel|telephone|username|zip|zipcode"
)
_CLOSED = {(0, 1), (1, 7), (0, 6), (1, 12), (0, 11), (0, 23), (1, 24), (1, 31), (1, 53), (0, 59), (1, 366)}
"""Ranges that have an end: flags, weekdays, months, hours, days, weeks, minutes."""
_OF_KEYS = ("int64", "string")
_HOURS = (1, 6, 12, 24, 48, 4 * 24, 7 * 24, 14 * 24, 31 * 24, 92 * 24, 366 * 24)


def infer_contract(store: ArtifactStore, snapshot: Reference | str) -> str:
    """A contract, as commented YAML, that the snapshot keeps; the same text for the same snapshot.

    Raises:
        ConfigurationError: if it is not a snapshot, or has no table that a contract can describe.
    """
    reference = Reference.parse(snapshot)
    tables = tables_of(store, str(reference)) if reference.kind == "snapshots" else {}
    if not tables:
        raise ConfigurationError(
            f"{reference.short}: expected a snapshot with tables, found none. See `gatehouse data list snapshots`."
        )
    as_of, delivered = store.manifest(reference).details.get("as_of"), delivered_tables(store, reference)
    with store.workspace() as workspace, opened(tuple(tables.values()), workspace) as connection:
        seen = profile(connection, tables)
    described = [_in_order(table, delivered[name].columns) for name, table in seen.items() if table.columns]
    if not described:
        raise ConfigurationError(f"{reference.short}: no table has a column of a type that a contract can state.")
    lines = [
        f"# Inferred from {reference.short}. Each rule leaves some room beyond what was seen, which stands",
        "# above it: read them, set owners, and loosen or tighten before it is relied on.",
        "version: 1",
        "tables:",
    ]
    for table in described:
        lines += _table(table, datetime.fromisoformat(as_of) if isinstance(as_of, str) else None)
    return "\n".join(lines) + "\n"


def _in_order(seen: SeenTable, order: Sequence[str]) -> SeenTable:
    """The table with its columns as the source has them, where a person looks for them."""
    return replace(seen, columns={column: seen.columns[column] for column in order if column in seen.columns})


def _table(seen: SeenTable, as_of: datetime | None) -> Iterator[str]:
    yield f"  {_flow(seen.table.name)}:"
    yield f"    # {counted(seen.rows, 'row')}"
    yield f"    min_rows: {_least_rows(seen.rows)}"
    if seen.rows >= MANY:
        yield "    # Against the baseline of a validation, where there is one."
        yield "    min_rows_ratio: {value: 0.5, severity: warn}"
        yield "    max_rows_ratio: {value: 2, severity: warn}"
    for column, why in seen.left_out.items():
        yield f"    # {_inline(ascii(column))} is not described: {why}."
    if seen.left_out:
        yield "    extra_columns: allow"
    if seen.key:
        yield f"    # The smallest of the likely keys that no two of {seen.rows:,} rows share."
        yield f"    unique: [{_flow(list(seen.key))}]"
    if seen.ordered:
        yield f"    # All {seen.rows:,} rows stand in this order."
        falling = ", descending: true" if seen.descending else ""
        yield (
            f"    ordered: {{by: {_flow([seen.ordered])}{falling}}}"
            if falling
            else (f"    ordered: {_flow([seen.ordered])}")
        )
    yield from _freshness(seen, as_of)
    yield from _foreign_keys(seen)
    yield "    columns:"
    keys = (column for column, one in seen.columns.items() if one.unique and not one.nulls and one.kind in _OF_KEYS)
    first_key = next(keys, "")
    for column, one in seen.columns.items():
        yield from _column(one, column == first_key, _hidden(seen, column))


def _least_rows(rows: int) -> int:
    """Half of the rows, rounded down to one digit."""
    half = rows // 2
    digit = 10 ** (len(str(half)) - 1)
    return half // digit * digit if half else min(rows, 1)


def _freshness(seen: SeenTable, as_of: datetime | None) -> Iterator[str]:
    """On the column whose times come nearest to the snapshot's time."""
    if as_of is None or seen.rows < _FEW_ROWS:
        return
    newest: list[tuple[datetime, str]] = []
    for column, one in seen.columns.items():
        found = moment(one.high) if one.kind == "timestamp" and one.zoned and one.high is not None else None
        if found is not None and not one.nulls and found <= as_of and not _hidden(seen, column):
            newest.append((found, column))
    if not newest:
        return
    last, column = max(newest, key=lambda one: one[0])
    age = as_of - last
    hours = next((hours for hours in _HOURS if timedelta(hours=hours) >= 2 * age), None)
    yield f"    # The newest {_inline(_flow(column))} is {f'{age} older than' if age else 'that of'} the snapshot."
    if hours is not None:
        within = f"P{hours // 24}D" if hours % 24 == 0 else f"PT{hours}H"
        yield f"    freshness: {{column: {_flow(column)}, within: {within}}}"


def _foreign_keys(seen: SeenTable) -> Iterator[str]:
    if seen.matches:
        yield "    foreign_keys:"
    for match in seen.matches:
        key: dict[str, Any] = {"columns": [match.column], "table": match.table}
        if match.to != match.column:
            key["to"] = [match.to]
        held = seen.columns[match.column].held
        if match.unmatched:
            # Half as many again, in per mille.
            key["tolerance"] = math.ceil(1500 * match.unmatched / seen.rows) / 1000
        yield f"      # {counted(match.unmatched, 'row')} of {held:,} without a match"
        yield f"      - {_flow(key)}"


# Columns


def _column(seen: Seen, is_key: bool, hidden: str) -> Iterator[str]:
    notes: list[str] = []
    rules: dict[str, Any] = {"type": seen.kind}
    if hidden:
        rules["sensitive"] = True
    notes.append(_nulls(seen, rules))
    if seen.kind in ("int64", "double") and not hidden:
        _numeric(seen, rules, notes)
    elif seen.kind == "timestamp" and not hidden:
        _times(seen, rules, notes)
    elif seen.kind == "string":
        _texts(seen, bool(hidden), rules, notes)
    if seen.unique and seen.held >= 2:
        notes.append("every value differs")
        # Times and measurements differ by chance.
        if seen.kind in _OF_KEYS and (seen.held >= MANY * 10 or (is_key and seen.held >= _FEW_ROWS // 2)):
            rules["unique"] = True
    if not hidden and _is_compared(seen):
        rules["warn"] = rules.pop("warn", {}) | {"psi": 0.25}
    if hidden:
        yield f"      # {hidden}"
    yield f"      # {'; '.join(note for note in notes if note)}"
    yield from _mapping(seen.column, rules)


def _hidden(seen: SeenTable, column: str) -> str:
    """Why no value of a column is shown; empty where values are."""
    if column in seen.table.sensitive:
        return "The source declares it sensitive, so no value of it is shown."
    if looks_personal(column):
        return "Its name looks personal, so no value of it is shown: check, and remove `sensitive` if it is not."
    return ""


def looks_personal(column: str) -> bool:
    """Whether a column's name says that it may hold what tells a person, such as an address."""
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", column)
    return any(_PERSONAL.fullmatch(word.lower()) for word in (*words, column))


def _nulls(seen: Seen, rules: dict[str, Any]) -> str:
    if seen.rows >= MANY:
        room = 1 - 1.5 * seen.nulls / seen.rows - 0.01
        if not seen.nulls:
            rules["nullable"] = False
        elif room >= 0.01:
            rules["completeness"] = math.floor(100 * room) / 100
    return f"{counted(seen.nulls, 'null') if seen.nulls else 'no nulls'} in {counted(seen.rows, 'row')}"


def _numeric(seen: Seen, rules: dict[str, Any], notes: list[str]) -> None:
    odd = [(seen.nan, "NaN"), (seen.below, "-infinity"), (seen.above, "infinity")]
    notes.extend(f"{word} in {counted(count, 'row')}" for count, word in odd if count)
    if seen.low is None:
        return
    notes.append(f"{_number(seen.low)} to {_number(seen.high)}")
    if seen.held < _FEW_ROWS or seen.nan:
        # NaN breaks any bound.
        return
    low, high = round_bounds(seen.low, seen.high, whole=seen.kind == "int64")
    counted_on = _is_counted(seen) and (seen.low, seen.high) not in _CLOSED
    if _is_counted(seen):
        low, high = seen.low, seen.high
        notes.append(f"each of the {len(seen.values)} whole numbers between")
    # Rows with an infinity break a bound, so it only warns of them; and of a seventh item, where six were the most.
    if low is not None:
        (rules.setdefault("warn", {}) if seen.below else rules)["min"] = low
    # A key of whole numbers counts on: a bound would break with the next rows.
    if high is not None and not (seen.unique and seen.kind == "int64"):
        (rules.setdefault("warn", {}) if seen.above or counted_on else rules)["max"] = high


def _is_counted(seen: Seen) -> bool:
    """Whether it counts from 0 or 1 through all numbers to its end, as months, flags and items do."""
    every = len(seen.values)
    return 1 < every == seen.high - seen.low + 1 and seen.low in (0, 1) and seen.held >= _ROWS_TO_A_VALUE * every


def _times(seen: Seen, rules: dict[str, Any], notes: list[str]) -> None:
    if seen.low is None:
        return
    first, last = moment(seen.low), moment(seen.high)
    notes.append(f"{first or 'before any calendar'} to {last or 'after any calendar'}")
    if seen.held < _FEW_ROWS:
        return
    for key, bound in (("min", year_before(seen.low)), ("max", years_after(seen.high))):
        if bound is not None:
            rules[key] = bound.isoformat()


def _texts(seen: Seen, hidden: bool, rules: dict[str, Any], notes: list[str]) -> None:
    if seen.longest is None:
        return
    shortest = f"{seen.shortest:,} to " if seen.shortest != seen.longest else ""
    notes.append(shortest + counted(seen.longest, "character"))
    if not hidden and _is_category(seen):
        allowed = sorted(value for value, _ in seen.values)
        least = min(count for _, count in seen.values)
        # Where a value is that rare, others may not have been seen yet.
        rules |= {"allowed": allowed} if least >= _OFTEN else {"warn": {"allowed": allowed}}
        notes.append(f"{counted(len(seen.values), 'value')}, the rarest in {counted(least, 'row')}")
    elif not hidden and seen.pattern and (seen.distinct > 1 or seen.unique):
        rules["pattern"] = seen.pattern
        notes.append("all of one form")
    elif seen.held >= MANY:
        if seen.shortest:
            rules["min_length"] = 1
        rules["max_length"] = max(10, math.ceil(seen.longest * 1.5 / 10) * 10)


def _is_category(seen: Seen) -> bool:
    values = [value for value, _ in seen.values]
    return (
        0 < len(values) <= FEW_VALUES
        and seen.held >= _ROWS_TO_A_VALUE * len(values)
        # SQL cannot write a NUL, and no list of long texts is kept.
        and all(len(value) <= _LONGEST_VALUE and "\0" not in value for value in values)
    )


def _is_compared(seen: Seen) -> bool:
    """Whether a change of its distribution says something: not of keys, constants, and texts of many values."""
    if seen.held < _ROWS_FOR_DRIFT or seen.unique or seen.distinct < 2 or re.search(r"(?:^|_)id$|Id$", seen.column):
        return False
    return seen.kind in ("int64", "double", "bool") or (seen.kind == "string" and seen.distinct <= _MOST_VALUES_OF_TEXT)


# Text


def _mapping(column: str, rules: Mapping[str, Any]) -> Iterator[str]:
    """A column on one line, or with a line to each rule where that is too long."""
    line = f"{_flow(column)}: {_flow(rules)}"
    if len(line) <= _LINE:
        yield f"      {line}"
        return
    yield f"      {_flow(column)}:"
    for key, value in rules.items():
        yield f"        {key}: {_flow(value)}"


def _flow(value: Any) -> str:
    """A value as YAML on one line, quoted where a bare word would be read as something else."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_flow(key)}: {_flow(each)}' for key, each in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_flow, value))}]"
    return _written(value) if isinstance(value, str) else _dumped(value)


@cache
def _written(text: str) -> str:
    """A text as YAML on one line; the names of rules, and many of values, are the same in all columns."""
    for options in ({"allow_unicode": True}, {"allow_unicode": True, "default_style": '"'}, {"default_style": '"'}):
        # Within a list, so that what a list or mapping would read otherwise is quoted too.
        written = _dumped(text, **options)
        if "\n" not in written and _reads_as(written, text):
            return written
    raise ConfigurationError(f"{text!r} cannot be written as YAML.")


def _dumped(value: Any, **options: Any) -> str:
    return str(yaml.safe_dump([value], stream=None, width=math.inf, default_flow_style=True, **options)).strip()[1:-1]


def _reads_as(written: str, text: str) -> bool:
    try:
        return bool(yaml.safe_load(f"{{{written}: [{written}]}}") == {text: [text]})
    except yaml.YAMLError:
        return False


def _inline(text: str) -> str:
    """Text that a comment may hold."""
    return text if text.isprintable() else ascii(text)


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"
