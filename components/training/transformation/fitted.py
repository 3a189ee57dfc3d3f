"""Fitted transformations: raw feature columns to the arrays that a model reads, the same in training and serving."""

import hashlib
import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.components.training.transformation.columns import Columns, numbers_of, require_columns, texts_of, type_of
from gatehouse.components.training.transformation.columns import (
    FeatureError as FeatureError,
)
from gatehouse.components.training.transformation.spec import CategoricalSpec, NumericSpec, TransformationSpec

MISSING, UNKNOWN, FIRST_KNOWN = 0, 1, 2
_KNOTS = 1001

Doubles = npt.NDArray[np.float64]
Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Numeric:
    """How one numeric column is transformed.

    Attributes:
        name: Of the feature.
        low, high: Values beyond are clipped; None for no bound.
        fill: Stands for a missing value.
        centre, scale: What is left is (value - centre) / scale.
        indicator: Whether one more column says where values are missing.
        knots: For ranks: values in ascending order, each with its rank from 0 to 1; between them it is interpolated.
        type: Arrow type in training; empty for any.
    """

    name: str
    low: float | None
    high: float | None
    fill: float
    centre: float
    scale: float
    indicator: bool
    knots: tuple[tuple[float, float], ...] = ()
    type: str = ""

    def apply(self, values: Doubles) -> Doubles:
        """The column of the model's array for values of shape (rows,), NaN where one is missing."""
        filled = np.where(np.isnan(values), self.fill, np.clip(values, self.low, self.high))
        if self.knots:
            filled = np.interp(filled, *np.array(self.knots).T)
        scaled: Doubles = (filled - self.centre) / self.scale
        return scaled


@dataclass(frozen=True)
class Categorical:
    """The known values of one categorical column, in order of their ids from `FIRST_KNOWN`.

    Attributes:
        name: Of the feature.
        vocabulary: The known values.
        buckets: How many ids follow those of the vocabulary, for the hashes of other values; 0 for none.
        type: Arrow type in training; empty for any.
    """

    name: str
    vocabulary: tuple[str, ...]
    buckets: int = 0
    type: str = ""

    @property
    def cardinality(self) -> int:
        """Number of ids, with those of missing and unknown values."""
        return FIRST_KNOWN + len(self.vocabulary) + self.buckets

    def apply(self, texts: pa.ChunkedArray) -> Ids:
        """The id of each value, shape (rows,)."""
        found = pc.index_in(texts, value_set=pa.array(self.vocabulary, pa.string()))
        ids: Ids = pc.fill_null(pc.add(pc.cast(found, pa.int64()), FIRST_KNOWN), UNKNOWN).to_numpy().copy()
        if self.buckets:
            other = ids == UNKNOWN
            ids[other] = [self._bucket(text) for text in texts.filter(pa.array(other)).to_pylist()]
        ids[pc.is_null(texts).to_numpy()] = MISSING
        return ids

    def _bucket(self, text: str | None) -> int:
        digest = hashlib.sha256((text or "").encode()).digest()
        return FIRST_KNOWN + len(self.vocabulary) + int.from_bytes(digest[:8], "big") % self.buckets


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
        """Columns of the numeric array: one a column, and one more for each indicator."""
        return len(self.numeric) + sum(column.indicator for column in self.numeric)

    @classmethod
    def fit(
        cls,
        table: Columns,
        numeric: list[str],
        categorical: list[str],
        spec: TransformationSpec = TransformationSpec(),  # noqa: B008  # frozen
    ) -> "Transformation":
        """Fit on the rows of `table`, whatever their order; one column after another is in memory.

        Raises:
            FeatureError: if a column is missing, cannot be used, or holds an infinity; or if the settings of single
                columns do not fit the columns.
        """
        require_columns(table, [*numeric, *categorical])
        if problems := spec.problems(numeric, categorical):
            raise FeatureError("The transformation has problems:" + "".join(f"\n  - {text}" for text in problems))
        return cls(
            tuple(_fit_numeric(name, table[name], spec.of_numeric(name)) for name in numeric),
            tuple(_fit_categorical(name, table[name], spec.of_categorical(name)) for name in categorical),
        )

    def apply(self, table: pa.Table) -> tuple[Floats, Ids]:
        """Transform a table: float32 of shape (rows, width) and int64 ids of shape (rows, categorical columns).

        Raises:
            FeatureError: if a column is missing, is not of the kind it was in training, or holds an infinity.
        """
        require_columns(table, [column.name for column in self.columns])
        numbers = np.empty((table.num_rows, self.width), dtype=np.float32)
        extra = len(self.numeric)
        for index, column in enumerate(self.numeric):
            values = numbers_of(column.name, table[column.name], column.type)
            with np.errstate(over="ignore"):
                numbers[:, index] = column.apply(values)
            if not np.isfinite(numbers[:, index]).all():
                raise FeatureError(f"Feature {column.name}: values are too large for single precision. Clip them.")
            if column.indicator:
                numbers[:, extra] = np.isnan(values)
                extra += 1
        ids = np.empty((table.num_rows, len(self.categorical)), dtype=np.int64)
        for index, group in enumerate(self.categorical):
            ids[:, index] = group.apply(texts_of(group.name, table[group.name], group.type))
        return numbers, ids

    def to_json(self) -> dict[str, Any]:
        """As plain JSON, for `transformation.json` and `model.json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> "Transformation":
        """Rebuild from `to_json`."""
        return cls(
            tuple(_numeric_of(column) for column in body["numeric"]),
            tuple(
                Categorical(**{**column, "vocabulary": tuple(column["vocabulary"])}) for column in body["categorical"]
            ),
        )


def _numeric_of(body: dict[str, Any]) -> Numeric:
    return Numeric(**{**body, "knots": tuple((value, rank) for value, rank in body["knots"])})


def _fit_numeric(name: str, column: pa.ChunkedArray, spec: NumericSpec) -> Numeric:
    """All sums run over sorted values, so that the order of rows changes no bit."""
    values = numbers_of(name, column)
    known = np.sort(values[~np.isnan(values)]) + 0.0  # Of equal zeros, the negative one would be first or not.
    absent = len(values) - len(known)
    indicator = spec.indicator == "always" or (spec.indicator == "when_missing" and absent > 0)
    low, high = (_quantile(known, q) for q in spec.clip) if spec.clip and len(known) else (None, None)
    clipped = np.clip(known, low, high)
    fill = _imputed(known, clipped, spec)
    filled = _Filled(clipped, absent, fill)
    with np.errstate(over="ignore", invalid="ignore"):
        centre, scale = _normalised(filled, spec)
    if not (math.isfinite(centre) and math.isfinite(scale)):
        raise FeatureError(f"Feature {name}: values are too large to be normalised. Clip them.")
    knots = _knots(filled) if spec.normalisation == "quantile" else ()
    return Numeric(name, low, high, fill, centre, scale, indicator, knots, type_of(column))


@dataclass(frozen=True)
class _Filled:
    """The values of a column once clipped and imputed: `known` in ascending order, and `absent` times `fill`."""

    known: Doubles
    absent: int
    fill: float

    @property
    def rows(self) -> int:
        return len(self.known) + self.absent

    def mean(self) -> float:
        return float((self.known.sum() + self.absent * self.fill) / self.rows) if self.rows else 0.0

    def deviation(self) -> float:
        mean = self.mean()
        squares = ((self.known - mean) ** 2).sum() + self.absent * (self.fill - mean) ** 2
        return float(np.sqrt(squares / self.rows)) if self.rows else 0.0

    def every(self) -> Doubles:
        """All of them in ascending order."""
        return np.insert(self.known, np.searchsorted(self.known, self.fill), np.full(self.absent, self.fill))


def _quantile(known: Doubles, share: float) -> float:
    return float(known[int(share * (len(known) - 1))])


def _imputed(known: Doubles, clipped: Doubles, spec: NumericSpec) -> float:
    if spec.imputation == "constant":
        return spec.constant
    if len(known) == 0:
        return 0.0
    return _quantile(known, 0.5) if spec.imputation == "median" else float(clipped.mean())


def _normalised(filled: _Filled, spec: NumericSpec) -> tuple[float, float]:
    """Centre and scale; a column with one value only is not scaled."""
    if spec.normalisation == "standard":
        return filled.mean(), filled.deviation() or 1.0
    if spec.normalisation == "min_max" and filled.rows:
        every = filled.every()
        return float(every[0]), float(every[-1] - every[0]) or 1.0
    return 0.0, 1.0


def _knots(filled: _Filled) -> tuple[tuple[float, float], ...]:
    """Values at evenly spaced ranks; a value that has several ranks has their mean."""
    if not filled.rows:
        return ((0.0, 0.5),)
    every, ranks = filled.every(), np.linspace(0.0, 1.0, _KNOTS)
    values = every[(ranks * (len(every) - 1)).astype(np.int64)]
    distinct, where = np.unique(values, return_inverse=True)
    means = np.bincount(where, weights=ranks) / np.bincount(where)
    return tuple(zip(distinct.tolist(), means.tolist(), strict=True))


def _fit_categorical(name: str, column: pa.ChunkedArray, spec: CategoricalSpec) -> Categorical:
    counts = pc.value_counts(texts_of(name, column))
    pairs = zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True)
    frequent = sorted((-count, value) for value, count in pairs if value is not None and count >= spec.min_count)
    kept = frequent[: spec.max_size] if spec.max_size else frequent
    return Categorical(name, tuple(sorted(value for _, value in kept)), spec.buckets, type_of(column))
