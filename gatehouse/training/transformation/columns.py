"""Feature columns as they arrive, from a table or as online rows: the right names, types and values, or an error."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.errors import GatehouseError
from gatehouse.store.hidden_values import said_by

_TEXT, _NUMBERS, _BOOLEANS, _NOTHING = "text", "numbers", "booleans", "nothing"
_NARROW = ("float", "halffloat")


class FeatureError(GatehouseError):
    """A feature column is missing or cannot be used; `feature` is its name, or empty if it is not a single one."""

    permanent = True
    exit_code = 4

    def __init__(self, message: str, *, feature: str = "") -> None:
        super().__init__(message)
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


def require_columns(table: Columns, features: Iterable[str]) -> None:
    """Check that a table has all features; a `FeatureError` names every missing column."""
    present = set(table.column_names)
    if missing := [name for name in features if name not in present]:
        raise FeatureError(
            f"Feature columns {', '.join(missing)} are missing: the table has {', '.join(table.column_names)}. "
            "Give the features that the model was trained on."
        )


def table_of_rows(rows: Sequence[Mapping[str, object]], features: Iterable[str]) -> pa.Table:
    """Online rows as a table of the features; None and NaN are missing values."""
    columns: dict[str, pa.Array] = {}
    for name in features:
        for number, row in enumerate(rows):
            if name not in row:
                raise FeatureError(
                    f"Row {number}: feature {name} is missing, found {', '.join(row)}. Give None for an unknown value.",
                    feature=name,
                )
        try:
            columns[name] = pa.array([row[name] for row in rows], from_pandas=True)
        except (pa.ArrowException, OverflowError) as error:
            raise FeatureError(
                f"Feature {name}: expected values of one type in all rows: {said_by(error)}.", feature=name
            ) from error
    return pa.table(columns)


def type_of(column: pa.ChunkedArray) -> str:
    """The Arrow type that a transformation records for a column; empty for any."""
    unknown = _family(column) == _NOTHING or pa.types.is_decimal(column.type)
    return "" if unknown else str(_plain(column.type))


def numbers_of(name: str, column: pa.ChunkedArray, kind: str = "") -> npt.NDArray[np.float64]:
    """A column of numbers or booleans as it was in training, NaN where a value is missing, shape (rows,).

    Numbers are rounded to `kind`, their type in training, so that a feature that was kept in single precision has the
    same value when it comes in double precision. Raises `FeatureError` for other values and for an infinity.
    """
    family = _family(column)
    if family == _NOTHING:
        return np.full(len(column), np.nan)
    if family not in (_NUMBERS, _BOOLEANS):
        raise FeatureError(
            f"Feature {name}: expected numbers, found {column.type}. Declare it categorical.", feature=name
        )
    # Each cast costs more than the value of a single row.
    plain = pc.cast(column, column.type.value_type) if pa.types.is_dictionary(column.type) else column
    if kind in _NARROW and plain.type != (narrow := pa.type_for_alias(kind)) and family != _BOOLEANS:
        plain = pc.cast(plain, pa.float64(), safe=False).cast(narrow, safe=False)
    values: npt.NDArray[np.float64] = pc.cast(plain, pa.float64(), safe=False).to_numpy()
    if np.isinf(values).any():
        problem = f"{np.isinf(values).sum():,} values are infinite; expected finite numbers or nulls"
        raise FeatureError(f"Feature {name}: {problem}.", feature=name)
    return values


def texts_of(name: str, column: pa.ChunkedArray, kind: str = "") -> pa.ChunkedArray:
    """A categorical column as text, null where a value is missing, shape (rows,).

    Raises `FeatureError` if the column is of another family of types than in training.
    """
    family = _family(column)
    if family == _NOTHING:
        return pa.chunked_array([pa.nulls(len(column), pa.string())])
    trained = _family_of(pa.type_for_alias(kind)) if kind else family
    if family != trained or family not in (_TEXT, _NUMBERS, _BOOLEANS):
        expected = trained if family != trained else "text, whole numbers or booleans"
        raise FeatureError(
            f"Feature {name}: expected {expected}, found {column.type}. Cast it where it is computed.", feature=name
        )
    plain = pc.cast(column, _plain(column.type))
    if pa.types.is_floating(plain.type):
        plain = pc.if_else(pc.is_nan(plain), pa.scalar(None, plain.type), plain)
    try:
        return pc.cast(plain.cast(pa.type_for_alias(kind)) if kind else plain, pa.string())
    except pa.ArrowInvalid as error:
        raise FeatureError(
            f"Feature {name}: expected categories of type {kind}: {said_by(error)}.", feature=name
        ) from error


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
