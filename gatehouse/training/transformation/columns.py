"""Feature columns as they arrive, from a table or as online rows: the right names, types and values, or an error."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.errors import GatehouseError
from gatehouse.metrics.arithmetic.finite import told_not_finite
from gatehouse.runtime.counting import counted
from gatehouse.store.hidden_values import said_by

_TEXT, _NUMBERS, _BOOLEANS, _NOTHING = "text", "numbers", "booleans", "nothing"
_NARROW = ("float", "halffloat")


class FeatureError(GatehouseError):
    """The feature columns of a table are not those that a model was trained on, or cannot be used.

    `feature` is the one that cannot be used; empty where it is not a single one.
    """

    permanent = True
    exit_code = 4

    def __init__(self, told: str, *, feature: str = "") -> None:
        super().__init__(told)
        self.feature = feature


class Columns(Protocol):
    """Columns by name: a table in memory, or one part of a split, which reads a column when it is asked for."""

    @property
    def column_names(self) -> list[str]:
        """All columns there are."""

    @property
    def num_rows(self) -> int:
        """Of every column."""

    def __getitem__(self, name: str) -> pa.ChunkedArray:
        """One column."""


def require_columns(table: Columns, wanted: Iterable[str]) -> None:
    """Refuse a table that lacks a feature.

    Raises:
        FeatureError: naming every column that is missing.
    """
    there = set(table.column_names)
    missing = [name for name in wanted if name not in there]
    if missing:
        raise FeatureError(
            f"Feature columns {', '.join(missing)} are missing: the table has {', '.join(table.column_names)}. "
            "Give the features that the model was trained on."
        )


def table_of_rows(rows: Sequence[Mapping[str, object]], wanted: Iterable[str]) -> pa.Table:
    """Online rows as a table: one column for each feature in `wanted`; None and NaN are missing values.

    Raises:
        FeatureError: if a row lacks a feature, or values of one feature are of different types.
    """
    columns: dict[str, pa.Array] = {}
    for name in wanted:
        for number, row in enumerate(rows):
            if name not in row:
                told = (
                    f"Row {number}: feature {name} is missing, found {', '.join(row)}. Give None where it is not known."
                )
                raise FeatureError(told, feature=name)
        try:
            columns[name] = pa.array([row[name] for row in rows], from_pandas=True)
        except (pa.ArrowException, OverflowError) as error:
            told = f"expected values of one type in all rows: {said_by(error)}"
            raise FeatureError(f"Feature {name}: {told}.", feature=name) from error
    return pa.table(columns)


def type_of(column: pa.ChunkedArray) -> str:
    """The type of a column, by which a transformation knows it again; empty for any, where it holds nothing."""
    unknown = _family(column) == _NOTHING or pa.types.is_decimal(column.type)
    return "" if unknown else str(_plain(column.type))


def numbers_of(
    name: str, column: pa.ChunkedArray, wanted: str = "", table: Columns | None = None
) -> npt.NDArray[np.float64]:
    """A numeric column as it was in training, NaN where a value is missing, shape (rows,).

    Args:
        name: Of the feature.
        column: Integers, floating-point numbers, decimals or booleans.
        wanted: Type that it had in training. Numbers are rounded to it, so that a feature that was kept in single
            precision has the same value when it comes in double precision.
        table: The rows of the column, whose first column says in the error which row it is.

    Raises:
        FeatureError: if the column holds no numbers, or an infinity.
    """
    family = _family(column)
    if family == _NOTHING:
        return np.full(len(column), np.nan)
    if family not in (_NUMBERS, _BOOLEANS):
        told = f"Feature {name}: expected numbers, found {column.type}. Declare it categorical."
        raise FeatureError(told, feature=name)
    # Each cast costs more than the value of a single row.
    plain = pc.cast(column, column.type.value_type) if pa.types.is_dictionary(column.type) else column
    if wanted in _NARROW and plain.type != (narrow := pa.type_for_alias(wanted)) and family != _BOOLEANS:
        plain = pc.cast(plain, pa.float64(), safe=False).cast(narrow, safe=False)
    values: npt.NDArray[np.float64] = pc.cast(plain, pa.float64(), safe=False).to_numpy()
    if np.isinf(values).any():
        raise FeatureError(f"Feature {_endless(name, values, table)}.", feature=name)
    return values


def _endless(name: str, values: npt.NDArray[np.float64], table: Columns | None) -> str:
    wrong = np.flatnonzero(np.isinf(values))
    if table is None:
        return f"{name}: {len(wrong):,} values are infinite; expected finite numbers or nulls"
    key, first = table.column_names[0], int(wrong[0])
    return told_not_finite(name, wrong, counted(len(values), "row"), key, table[key][first], values[first])


def texts_of(name: str, column: pa.ChunkedArray, wanted: str = "") -> pa.ChunkedArray:
    """A categorical column as text, null where a value is missing, shape (rows,).

    Args:
        name: Of the feature.
        column: Text, numbers or booleans.
        wanted: Type that it had in training; empty for any.

    Raises:
        FeatureError: if the column holds neither, or something else than in training.
    """
    family = _family(column)
    if family == _NOTHING:
        return pa.chunked_array([pa.nulls(len(column), pa.string())])
    expected = _family_of(pa.type_for_alias(wanted)) if wanted else family
    if family != expected or family not in (_TEXT, _NUMBERS, _BOOLEANS):
        found = expected if family != expected else "text, whole numbers or booleans"
        told = f"Feature {name}: expected {found}, found {column.type}. Cast it where it is computed."
        raise FeatureError(told, feature=name)
    plain = pc.cast(column, _plain(column.type))
    if pa.types.is_floating(plain.type):
        plain = pc.if_else(pc.is_nan(plain), pa.scalar(None, plain.type), plain)
    try:
        return pc.cast(plain.cast(pa.type_for_alias(wanted)) if wanted else plain, pa.string())
    except pa.ArrowInvalid as error:
        told = f"expected categories of type {wanted}: {said_by(error)}"
        raise FeatureError(f"Feature {name}: {told}.", feature=name) from error


def _family(column: pa.ChunkedArray) -> str:
    return _NOTHING if column.null_count == len(column) else _family_of(column.type)


def _family_of(kind: pa.DataType) -> str:
    plain, types = _plain(kind), pa.types
    if types.is_string(plain) or types.is_large_string(plain) or types.is_string_view(plain):
        return _TEXT
    if types.is_integer(plain) or types.is_floating(plain) or types.is_decimal(plain):
        return _NUMBERS
    return _BOOLEANS if types.is_boolean(plain) else str(plain)


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind
