"""Fits a transformation on the train part: bounds, fills, scales and vocabularies, one column after another."""

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.training.transformation.columns import (
    Columns,
    FeatureError,
    numbers_of,
    require_columns,
    texts_of,
    type_of,
)
from gatehouse.training.transformation.fitted import Categorical, Doubles, Numeric, Transformation
from gatehouse.training.transformation.spec import CategoricalSpec, NumericSpec, TransformationSpec

_KNOTS = 1001


def fit(
    table: Columns,
    numeric: list[str],
    categorical: list[str],
    spec: TransformationSpec = TransformationSpec(),  # noqa: B008  # frozen
) -> Transformation:
    """Fit on the rows of the train part, in any order; one column after another is in memory."""
    require_columns(table, [*numeric, *categorical])
    problems = []
    for name in spec.misplaced(numeric, categorical):
        kind = "numeric" if isinstance(spec.columns[name], NumericSpec) else "categorical"
        problems.append(f"\n  - columns.{name}: expected a {kind} feature of that name, found none")
    if problems:
        raise FeatureError("The transformation has problems:" + "".join(problems))
    return Transformation(
        tuple(_fit_numeric(name, table, spec.of_numeric(name)) for name in numeric),
        tuple(_fit_categorical(name, table[name], spec.of_categorical(name)) for name in categorical),
    )


def _fit_numeric(name: str, table: Columns, spec: NumericSpec) -> Numeric:
    """All sums run over sorted values, so that the order of rows changes no bit."""
    column = table[name]
    values = numbers_of(name, column)
    present = np.sort(values[~np.isnan(values)]) + 0.0  # Of equal zeros, the negative one would be first or not.
    absent = len(values) - len(present)
    indicator = spec.indicator == "always" or (spec.indicator == "when_missing" and absent > 0)
    low, high = (_quantile(present, q) for q in spec.clip) if spec.clip and len(present) else (None, None)
    clipped = np.clip(present, low, high)
    fill = 0.0
    if spec.imputation == "constant":
        fill = spec.constant
    elif len(present):
        fill = _quantile(present, 0.5) if spec.imputation == "median" else float(clipped.mean())
    filled = _Filled(clipped, absent, fill)
    centre, scale = 0.0, 1.0
    with np.errstate(over="ignore", invalid="ignore"):  # A column with one value only is not scaled.
        if spec.normalisation == "standard":
            centre, scale = filled.mean(), filled.deviation() or 1.0
        elif spec.normalisation == "min_max" and filled.rows:
            ascending = filled.ascending()
            centre, scale = float(ascending[0]), float(ascending[-1] - ascending[0]) or 1.0
    if not (math.isfinite(centre) and math.isfinite(scale)):
        raise FeatureError(f"Feature {name}: values are too large to be normalised. Clip them.", feature=name)
    knots = _knots(filled) if spec.normalisation == "quantile" else ()
    return Numeric(name, low, high, fill, centre, scale, indicator, knots, type_of(column))


@dataclass(frozen=True)
class _Filled:
    """The clipped and imputed values of a column: `present` in ascending order, and `absent` times `fill`."""

    present: Doubles
    absent: int
    fill: float

    @property
    def rows(self) -> int:
        return len(self.present) + self.absent

    def mean(self) -> float:
        return float((self.present.sum() + self.absent * self.fill) / self.rows) if self.rows else 0.0

    def deviation(self) -> float:
        mean = self.mean()
        squares = ((self.present - mean) ** 2).sum() + self.absent * (self.fill - mean) ** 2
        return float(np.sqrt(squares / self.rows)) if self.rows else 0.0

    def ascending(self) -> Doubles:
        return np.insert(self.present, np.searchsorted(self.present, self.fill), np.full(self.absent, self.fill))


def _quantile(present: Doubles, share: float) -> float:
    return float(present[int(share * (len(present) - 1))])


def _knots(filled: _Filled) -> tuple[tuple[float, float], ...]:
    """Values at evenly spaced ranks; a value that has several ranks has their mean."""
    if not filled.rows:
        return ((0.0, 0.5),)
    ascending, ranks = filled.ascending(), np.linspace(0.0, 1.0, _KNOTS)
    values = ascending[(ranks * (len(ascending) - 1)).astype(np.int64)]
    distinct, where = np.unique(values, return_inverse=True)
    means = np.bincount(where, weights=ranks) / np.bincount(where)
    return tuple(zip(distinct.tolist(), means.tolist(), strict=True))


def _fit_categorical(name: str, column: pa.ChunkedArray, spec: CategoricalSpec) -> Categorical:
    counts = pc.value_counts(texts_of(name, column))
    pairs = zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True)
    frequent = sorted((-count, value) for value, count in pairs if value is not None and count >= spec.min_count)
    kept = frequent[: spec.max_size] if spec.max_size else frequent
    return Categorical(name, tuple(sorted(value for _, value in kept)), type_of(column))
