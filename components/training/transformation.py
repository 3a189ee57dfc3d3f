"""Fitted transformations: raw feature columns to the arrays that a model reads, the same in training and serving."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.errors import GatehouseError

MISSING, UNKNOWN, FIRST_KNOWN = 0, 1, 2
RARE = 20
_CLIP = (0.001, 0.999)

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]


class FeatureError(GatehouseError):
    """The feature columns of a table are not those that a model was trained on, or cannot be used."""


@dataclass(frozen=True)
class Numeric:
    """How one numeric column is transformed: clipped, missing values replaced by the median, standardised."""

    name: str
    low: float
    high: float
    median: float
    mean: float
    deviation: float
    indicator: bool


@dataclass(frozen=True)
class Categorical:
    """The known values of one categorical column, in order of their ids from `FIRST_KNOWN`."""

    name: str
    vocabulary: tuple[str, ...]

    @property
    def cardinality(self) -> int:
        """Number of ids, with those of missing and unknown values."""
        return FIRST_KNOWN + len(self.vocabulary)


@dataclass(frozen=True)
class Transformation:
    """All columns' transformations, fitted on the train part only."""

    numeric: tuple[Numeric, ...]
    categorical: tuple[Categorical, ...]

    @property
    def columns(self) -> tuple["Numeric | Categorical", ...]:
        """All columns that it reads, numeric ones first."""
        return (*self.numeric, *self.categorical)

    @property
    def width(self) -> int:
        """Columns of the numeric array: one a column, and one more where values were missing in training."""
        return len(self.numeric) + sum(column.indicator for column in self.numeric)

    @classmethod
    def fit(cls, table: pa.Table, numeric: list[str], categorical: list[str]) -> "Transformation":
        """Fit on the rows of `table`.

        A value seen fewer than `RARE` times becomes unknown, so that the unknown id is trained as well.

        Raises:
            FeatureError: if a column is missing or holds an infinity.
        """
        _require(table, [*numeric, *categorical])
        return cls(
            tuple(_fit_numeric(name, table[name]) for name in numeric),
            tuple(_fit_categorical(name, table[name]) for name in categorical),
        )

    def apply(self, table: pa.Table) -> tuple[Floats, Ids]:
        """Transform a table: float32 of shape (rows, width) and int64 ids of shape (rows, categorical columns).

        Raises:
            FeatureError: if a column is missing or holds an infinity.
        """
        _require(table, [column.name for column in self.columns])
        numbers = np.empty((table.num_rows, self.width), dtype=np.float32)
        extra = len(self.numeric)
        for index, column in enumerate(self.numeric):
            values = _values(column.name, table[column.name])
            absent = np.isnan(values)
            filled = np.where(absent, column.median, np.clip(values, column.low, column.high))
            numbers[:, index] = (filled - column.mean) / column.deviation
            if column.indicator:
                numbers[:, extra] = absent
                extra += 1
        ids = np.empty((table.num_rows, len(self.categorical)), dtype=np.int64)
        for index, group in enumerate(self.categorical):
            ids[:, index] = _ids(table[group.name], group.vocabulary)
        return numbers, ids

    def to_json(self) -> dict[str, Any]:
        """As plain JSON, for `model.json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> "Transformation":
        """Rebuild from `to_json`."""
        return cls(
            tuple(Numeric(**column) for column in body["numeric"]),
            tuple(Categorical(column["name"], tuple(column["vocabulary"])) for column in body["categorical"]),
        )


def _require(table: pa.Table, wanted: list[str]) -> None:
    missing = [name for name in wanted if name not in table.column_names]
    if missing:
        raise FeatureError(
            f"Feature columns {', '.join(missing)} are missing: the table has {', '.join(table.column_names)}. "
            "Give the features that the model was trained on."
        )


def _values(name: str, column: pa.ChunkedArray) -> npt.NDArray[np.float64]:
    try:
        values: npt.NDArray[np.float64] = pc.cast(column, pa.float64(), safe=False).to_numpy()
    except pa.ArrowException:
        raise FeatureError(f"Feature {name}: expected numbers, found {column.type}. Declare it categorical.") from None
    endless = int(np.isinf(values).sum())
    if endless:
        raise FeatureError(f"Feature {name}: {endless} values are infinite; expected finite numbers or nulls.")
    return values


def _fit_numeric(name: str, column: pa.ChunkedArray) -> Numeric:
    values = _values(name, column)
    known = np.sort(values[~np.isnan(values)])
    indicator = len(known) < len(values)
    if len(known) == 0:
        return Numeric(name, 0.0, 0.0, 0.0, 0.0, 1.0, indicator)
    low, median, high = (float(known[int(q * (len(known) - 1))]) for q in (_CLIP[0], 0.5, _CLIP[1]))
    filled = np.where(np.isnan(values), median, np.clip(values, low, high))
    deviation = float(filled.std())
    return Numeric(name, low, high, median, float(filled.mean()), deviation if deviation > 0 else 1.0, indicator)


def _fit_categorical(name: str, column: pa.ChunkedArray) -> Categorical:
    counts = pc.value_counts(pc.cast(column, pa.string()))
    pairs = zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True)
    return Categorical(name, tuple(sorted(value for value, count in pairs if value is not None and count >= RARE)))


def _ids(column: pa.ChunkedArray, vocabulary: tuple[str, ...]) -> Ids:
    text = pc.cast(column, pa.string())
    found = pc.index_in(text, value_set=pa.array(vocabulary, pa.string()))
    ids = pc.fill_null(pc.add(pc.cast(found, pa.int64()), FIRST_KNOWN), UNKNOWN).to_numpy().copy()
    ids[pc.is_null(text).to_numpy()] = MISSING
    return np.asarray(ids, dtype=np.int64)
