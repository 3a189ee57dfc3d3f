"""Typed results as records: their fields, and the search by ranges that all doors have.

A condition is `NAME=VALUE`, `NAME!=VALUE`, `NAME<VALUE`, `NAME<=VALUE`, `NAME>VALUE`, `NAME>=VALUE`, or the range
`NAME=LOW..HIGH`, which includes both ends and may leave one out. Numbers compare as numbers, however they are written,
and times as times. A record that lacks a name meets no condition on it, and comes last in every order.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Generic, TypeVar

from gatehouse.configuration.yaml_lines import nearest
from gatehouse.errors import ConfigurationError
from gatehouse.store.records import flat

T = TypeVar("T")
_CONDITION = re.compile(r"(?P<name>[^=<>!]+?)\s*(?P<sign>!=|<=|>=|=|<|>)\s*(?P<value>(?!\.\.$).*)", re.DOTALL)
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {"=": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
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


def dotted(record: Any) -> dict[str, Any]:
    """The values of a record and of its mappings, by dotted name: `status`, `metrics.log_loss`."""
    return flat(fields_of(record))


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
    values: Callable[[T], Mapping[str, Any]] = dotted,
) -> Selection[T]:
    """The records that meet every condition, sorted by a name; `-NAME` sorts the largest first.

    A name may leave out its beginning: `learning_rate` is `params.optimizer.learning_rate`. It is a field, else a
    parameter or setting, else a metric, else a tag; of these the one with the shortest name. Raises
    ConfigurationError if a condition has another form, no record has its name, or several names fit.
    """
    records = list(records)
    tables = [dict(values(record)) for record in records]
    columns: dict[str, list[Any]] = {}
    chosen: Sequence[int] = range(len(records))
    read: Callable[[Any], Any]
    for text in where:
        match = _CONDITION.fullmatch(text.strip())
        if match is None:
            raise ConfigurationError(f"where: expected NAME=VALUE, NAME=LOW..HIGH or NAME<VALUE, found {text!r}.")
        cells, sign, value = _column(match["name"], tables, columns), match["sign"], match["value"]
        low, dots, high = value.partition("..") if sign == "=" else (value, "", "")
        for operator, bound in [(">=", low.strip()), ("<=", high.strip())] if dots else [(sign, value.strip())]:
            if bound or not dots:
                read = _time if _are_times(cells) else _number if is_number(bound) else _text
                meets, limit = _OPERATORS[operator], read(bound)
                chosen = [row for row in chosen if (cell := read(cells[row])) is not None and meets(cell, limit)]
    if sort:
        cells = _column(sort.removeprefix("-"), tables, columns)
        for read in (_time,) if _are_times(cells) else (_text, _number):
            keys: dict[int, Any] = {row: read(cells[row]) for row in chosen}
            known = [row for row in chosen if keys[row] is not None]
            known.sort(key=keys.__getitem__, reverse=sort[0] == "-")
            chosen = [*known, *(row for row in chosen if keys[row] is None)]
    chosen = chosen[: most or None]
    return Selection(
        [records[row] for row in chosen], {name: [cells[row] for row in chosen] for name, cells in columns.items()}
    )


def _column(text: str, tables: Sequence[Mapping[str, Any]], columns: dict[str, list[Any]]) -> list[Any]:
    """The values of the whole name that `text` is the end of; they are added to `columns`."""
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
    return columns.setdefault(name, [table.get(name) for table in tables])


def _are_times(cells: Iterable[Any]) -> bool:
    return {type(cell) for cell in cells if cell is not None} == {datetime}


def _time(value: Any) -> datetime | None:
    try:
        time = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        raise ConfigurationError(f"where: {value!r} is no time, such as 2013-01-31 or 2013-01-31T12:00Z.") from None
    return time if time is None or time.tzinfo else time.replace(tzinfo=UTC)


def _number(value: Any) -> float | None:
    return float(value) if is_number(value) else None


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
