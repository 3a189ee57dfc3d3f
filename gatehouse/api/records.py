"""Typed results as records: their fields, and the search by ranges that all doors have.

A condition is `NAME=VALUE`, `NAME!=VALUE`, `NAME<VALUE`, `NAME<=VALUE`, `NAME>VALUE`, `NAME>=VALUE`, or the range
`NAME=LOW..HIGH`, which includes both ends and may leave one out. DuckDB compares numbers as numbers, however they are
written, and times as times. A record that lacks a name meets no condition on it, and comes last in every order.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from gatehouse.configuration.yaml_lines import nearest
from gatehouse.errors import ConfigurationError

T = TypeVar("T")
_CONDITION = re.compile(r"(?P<name>[^=<>!]+?)\s*(?P<sign>!=|<=|>=|=|<|>)\s*(?P<value>(?!\.\.$).*)", re.DOTALL)
_GROUPS = {"params": 1, "settings": 1, "metrics": 2, "tags": 3}
"""Where a name is looked for after the fields: `learning_rate` is a setting, and may be a metric as well."""


class Size(int):
    """A number of bytes."""


def fields_of(record: Any, shown: bool = False) -> dict[str, Any]:
    """The fields of a record by name; with `shown` as people read them, without those of `repr=False`."""
    if isinstance(record, Mapping):
        return {str(name): value for name, value in record.items()}
    if is_dataclass(record):
        names = [field.name for field in fields(record) if field.repr or not shown]
    else:
        names = [name for name, field in type(record).model_fields.items() if field.repr or not shown]
    return {name.replace("_", " ") if shown else name: getattr(record, name) for name in names}


def flat(record: Any) -> dict[str, Any]:
    """The values of a record and of its mappings, by dotted name: `status`, `metrics.log_loss`."""
    return dict(_flat("", fields_of(record)))


def _flat(head: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(f"{head}{name}.", value)
        else:
            yield head + name, value


def is_number(text: Any) -> bool:
    """Whether a value is a number, or its whole text spells one; NaN is none."""
    try:
        return not isinstance(text, bool) and float(text) == float(text)
    except (TypeError, ValueError):
        return False


@dataclass(frozen=True)
class Selection(Generic[T]):
    """The records that meet all conditions, in the order asked for; `columns` are the values that were compared."""

    records: list[T]
    columns: dict[str, list[Any]]


def select(
    records: Iterable[T],
    where: Sequence[str] = (),
    sort: str = "",
    most: int = 0,
    values: Callable[[T], Mapping[str, Any]] = flat,
) -> Selection[T]:
    """The records that meet every condition, sorted by a name; `-NAME` sorts the largest first.

    A name may leave out its beginning: `learning_rate` is `params.optimizer.learning_rate`. It is a field, else a
    parameter or setting, else a metric, else a tag; of these the one with the shortest name. Raises
    ConfigurationError if a condition has another form, no record has its name, or several names fit.
    """
    import duckdb
    import pyarrow as pa

    from gatehouse.store.database import connect, quoted

    records = list(records)
    tables = [dict(values(record)) for record in records]
    kinds: dict[str, str] = {}
    conditions, arguments, order = ["true"], list[Any](), ""

    def cell(name: str, kind: str) -> str:
        """A value in SQL; NaN is no number, as DuckDB has it above all others."""
        cast = f"TRY_CAST({quoted(name)} AS {kind})"
        return f"nullif({cast}, 'nan'::DOUBLE)" if kind == "DOUBLE" else cast

    for text in where:
        match = _CONDITION.fullmatch(text.strip())
        if match is None:
            raise ConfigurationError(f"where: expected NAME=VALUE, NAME=LOW..HIGH or NAME<VALUE, found {text!r}.")
        name, sign, value = _name(match["name"], tables, kinds), match["sign"], match["value"]
        low, dots, high = value.partition("..") if sign == "=" else (value, "", "")
        for operator, bound in [(">=", low), ("<=", high)] if dots else [(sign, value)]:
            if bound.strip() or not dots:
                kind = "DOUBLE" if kinds[name] == "VARCHAR" and is_number(bound) else kinds[name]
                conditions.append(f"{cell(name, kind)} {operator} CAST(? AS {kind})")
                arguments.append(bound.strip())
    if sort:
        name, direction = _name(sort.removeprefix("-"), tables, kinds), "DESC" if sort[0] == "-" else "ASC"
        keys = [cell(name, kind) for kind in (("DOUBLE", "VARCHAR") if kinds[name] == "VARCHAR" else (kinds[name],))]
        order = "".join(f"{key} {direction} NULLS LAST, " for key in keys)
    columns: dict[str, Any] = {"record number": pa.array(range(len(records)), pa.int64())}
    for name, kind in kinds.items():
        cells = [table.get(name) for table in tables]
        texts = [str(value) if value is not None and kind == "VARCHAR" else value for value in cells]
        columns[name] = pa.array(texts, pa.string() if kind == "VARCHAR" else pa.timestamp("us", "UTC"))
    with connect(threads=1) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("records", pa.table(columns))
        limit = f" LIMIT {most}" if most else ""
        sql = f'SELECT "record number" FROM records WHERE {" AND ".join(conditions)} ORDER BY {order}1{limit}'
        try:
            numbers = [number for (number,) in connection.execute(sql, arguments).fetchall()]
        except duckdb.ConversionException as error:
            raise ConfigurationError(f"where: {str(error).partition(chr(10))[0]}") from error
    selected = {name: [tables[number].get(name) for number in numbers] for name in kinds}
    return Selection([records[number] for number in numbers], selected)


def _name(text: str, tables: Sequence[Mapping[str, Any]], kinds: dict[str, str]) -> str:
    """The whole name that `text` is the end of; its type in DuckDB is added to `kinds`."""
    known = {name for table in tables for name in table}
    fitting = [text] if text in known else sorted(name for name in known if name.endswith(f".{text}"))
    ranks = {name: (_GROUPS.get(name.partition(".")[0], 0), name.count(".")) for name in fitting}
    fitting = [name for name in fitting if ranks[name] == min(ranks.values())]
    if len(fitting) > 1:
        raise ConfigurationError(f"where: {text} may be {' or '.join(fitting)}: name one of them.")
    if not fitting and known:
        ends = sorted({name[place:] for name in known for place in (0, name.find(".") + 1, name.rfind(".") + 1)})
        raise ConfigurationError(f"where: nothing has the name {text!r}{nearest(text, ends)}.")
    name = fitting[0] if fitting else text
    cells = [table[name] for table in tables if table.get(name) is not None]
    kinds[name] = "TIMESTAMPTZ" if cells and all(isinstance(cell, datetime) for cell in cells) else "VARCHAR"
    return name
