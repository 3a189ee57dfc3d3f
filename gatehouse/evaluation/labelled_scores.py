"""Reads labels and scores from tables of any origin: numbers, classes by name, one column for each class or a list."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.errors import ConfigurationError
from gatehouse.metrics.metric import Array
from gatehouse.metrics.tasks import TASKS, TaskName
from gatehouse.store.identity import Spec

_SHOWN = 8


class LabelSpec(Spec):
    """What labels are: a column, and for classes the positive one, or their names in the order of probabilities."""

    label: str
    task: TaskName
    positive: str = ""
    classes: tuple[str, ...] = ()


def named_classes(spec: LabelSpec, table: pa.Table, scored: Mapping[str, tuple[pa.Table, str]]) -> tuple[str, ...]:
    """The names of the classes by number, from labels, and from what models answer besides; empty if there are none."""
    column, several = column_of(table, spec.label, "label"), spec.task == "multiclass"
    if not TASKS[spec.task].has_classes or (several and spec.classes):
        return spec.classes
    names = {*_texts(column, f"label: {spec.label}")}
    if several:
        for rows, score in scored.values():
            if score not in rows.column_names:
                columns = (name for name in rows.column_names if name.startswith(f"{score}_"))
                names |= {name.removeprefix(f"{score}_") for name in columns}
            elif not pa.types.is_nested(kind := rows[score].type) and not pa.types.is_floating(kind):
                names |= {*_texts(rows[score], f"score: {score}")}  # A class that a model made up is never right.
        by_text, by_value = sorted(names), sorted(names, key=_order)
        kinds = [rows[score].type for rows, score in scored.values() if score in rows.column_names]
        if _is_text(column.type) and by_text != by_value and any(map(pa.types.is_nested, kinds)):
            raise ConfigurationError(
                f"label: {spec.label}: expected the order of the probabilities in `classes`, as its texts have two: "
                f"{_some(by_text)} as scikit-learn sorts texts, and {_some(by_value)} by value."
            )
        return tuple(by_value)
    positive = spec.positive or ("1" if names <= {"0", "1"} else "")
    others = sorted(names - {positive})
    if not positive or len(others) > 1 or (spec.positive and positive not in names):
        raise ConfigurationError(
            f"label: {spec.label}: expected 0 and 1, or two others and one of them in `positive`, for the task binary; "
            f"found {_some(sorted(names, key=_order))}, positive {positive!r}. Or set task to multiclass or regression."
        )
    return (others[0] if others else f"not {positive}", positive)


def labels_of(spec: LabelSpec, table: pa.Table, classes: Sequence[str]) -> Array:
    """The label of each row: a number, or that of its class, shape (rows,)."""
    where = f"label: {spec.label}"
    return _numbered(table[spec.label], classes, where) if classes else numbers_of(table[spec.label], where)


def scores_of(spec: LabelSpec, table: pa.Table, score: str, role: str, classes: Sequence[str]) -> tuple[Array, bool]:
    """Scores, shape (rows,) or (rows, classes), and whether each names a class instead of giving probabilities.

    Raises ConfigurationError if there is no such column, or its values are not of the task.
    """
    where, several = f"score of the {role}: {score}", spec.task == "multiclass"
    if several and score not in table.column_names:
        parts = (column_of(table, f"{score}_{name}", where) for name in classes)
        return np.column_stack([numbers_of(part, where) for part in parts]), False
    column = column_of(table, score, where)
    if several and pa.types.is_nested(column.type):
        lengths = {*pc.list_value_length(column).to_pylist()}
        if lengths != {len(classes)}:
            raise ConfigurationError(
                f"{where}: expected lists of {len(classes)} probabilities, of {_some(classes)}; found lists of "
                f"{', '.join(map(str, lengths))}. Name all classes, in order, in `classes`."
            )
        return np.array(column.to_pylist(), np.float64), False
    if several or (classes and not pa.types.is_floating(column.type)):
        numbers = _numbered(column, classes, where)
        return (np.eye(len(classes))[numbers] if several else numbers.astype(np.float64)), True
    numbers = numbers_of(column, where)
    return numbers, bool(classes) and bool(np.isin(numbers, (0.0, 1.0)).all())


def column_of(table: pa.Table, name: str, where: str) -> pa.ChunkedArray:
    """The column of a table. Raises ConfigurationError, which lists the columns, if there is none."""
    if name not in table.column_names:
        raise ConfigurationError(f"{where}: expected a column ({', '.join(table.column_names)}), found {name!r}.")
    return table[name]


def require_same_rows(role: str, rows: pa.Table, table: pa.Table, label: str, *columns: str) -> None:
    """Raise ConfigurationError unless labels, keys, and the other columns if both have them, are equal row by row.

    A key is a column of both tables, of whole numbers, texts or times, with another value in each row of the first.
    """
    common = {*rows.column_names} & {*table.column_names}
    keys = {name for name in common if _is_key(table[name])}
    for name in (label, *sorted({*columns} & common | keys)):
        try:
            is_same = rows[name].cast(table[name].type).equals(table[name])
        except (KeyError, pa.ArrowException):
            is_same = False
        if not is_same:
            raise ConfigurationError(
                f"{role}_scores: expected the {len(table):,} rows of scores in their order with the same {name!r}, "
                f"which shows it; found {len(rows):,} rows with {'other' if name in rows.column_names else 'no'} "
                f"{name!r}. Put it there, sort both alike, or give them as a column of scores."
            )


def require_values(column: pa.ChunkedArray, where: str) -> None:
    """Raise ConfigurationError if a value is null or NaN."""
    if missing := pc.sum(pc.is_null(column, nan_is_null=True)).as_py():
        raise ConfigurationError(f"{where}: expected a value in each row, found {missing:,} nulls or NaN.")


def _is_key(column: pa.ChunkedArray) -> bool:
    if pa.types.is_floating(column.type) or pa.types.is_decimal(column.type) or pa.types.is_nested(column.type):
        return False
    return len(column) > 1 and pc.count_distinct(column, mode="all").as_py() == len(column)


def numbers_of(column: pa.ChunkedArray, where: str) -> Array:
    """Numbers, NaN for null, shape (rows,). Raises ConfigurationError if they are of another type."""
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise ConfigurationError(f"{where}: expected numbers, found {kind}. Name another column, or another task.")
    return np.asarray(pc.cast(column, pa.float64()).to_numpy())


def _numbered(column: pa.ChunkedArray, classes: Sequence[str], where: str) -> Array:
    texts, places = _texts(column, where), {name: number for number, name in enumerate(classes)}
    if unknown := sorted({*texts} - {*places}):
        hint = "" if len(classes) > 2 else " With the task multiclass other answers count as wrong."
        raise ConfigurationError(f"{where}: expected {_some(classes)}, found {_some(unknown)}.{hint}")
    return np.array([places[text] for text in texts], np.int64)


def _texts(column: pa.ChunkedArray, where: str) -> list[str]:
    """The name of each value; 1, 1.0 and true are all 1. Raises ConfigurationError if one is missing."""
    require_values(column, where)
    if pa.types.is_boolean(column.type):
        column = pc.cast(column, pa.int8())
    elif pa.types.is_floating(column.type) and pc.all(pc.equal(pc.round(column), column)).as_py():
        column = pc.cast(column, pa.int64())
    return [str(value) for value in column.to_pylist()]


def _is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _order(name: str) -> tuple[bool, float, str]:
    """Numbers first, by size."""
    try:
        value = float(name)
    except ValueError:
        value = math.inf
    return (not math.isfinite(value), value if math.isfinite(value) else 0.0, name)


def _some(names: Sequence[str]) -> str:
    return f"{', '.join(names[:_SHOWN])}{f' and {len(names) - _SHOWN} more' if len(names) > _SHOWN else ''}"
