"""How feature columns become the arrays of a model, the same in training and serving, and how that is fitted."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.errors import GatehouseError
from gatehouse.store.hidden_values import error_words
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore
from gatehouse.training.model_spec import CategoricalSpec, NumericSpec, TransformationSpec

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
        """Rows of each column."""

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
                f"Feature {name}: expected values of one type in all rows: {error_words(error)}.", feature=name
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
            f"Feature {name}: expected categories of type {kind}: {error_words(error)}.", feature=name
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


FILE = "transformation.json"  # the file of a published transformation
MISSING, UNKNOWN, FIRST_KNOWN = 0, 1, 2

Doubles = npt.NDArray[np.float64]
Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Numeric:
    """The transformation of one numeric column: clipped, filled, interpolated, then (value - centre) / scale."""

    name: str
    low: float | None  # values beyond are clipped; None for no bound
    high: float | None
    fill: float
    centre: float
    scale: float
    indicator: bool  # whether one more column says where values are missing
    knots: tuple[tuple[float, float], ...] = ()  # for ranks: ascending values with their ranks from 0 to 1
    type: str = ""  # Arrow type in training; empty for any

    def apply(self, values: Doubles) -> Doubles:
        """The column of the model's array for values of shape (rows,), NaN where one is missing."""
        filled = np.where(np.isnan(values), self.fill, np.clip(values, self.low, self.high))
        if self.knots:
            filled = np.interp(filled, *np.array(self.knots).T)
        scaled: Doubles = (filled - self.centre) / self.scale
        return scaled


@dataclass(frozen=True)
class Categorical:
    """The ids of one categorical column; the vocabulary's begin at `FIRST_KNOWN`, in order."""

    name: str
    vocabulary: tuple[str, ...]
    type: str = ""  # Arrow type in training; empty for any

    @property
    def cardinality(self) -> int:
        """Number of ids, including missing and unknown values."""
        return FIRST_KNOWN + len(self.vocabulary)

    @cached_property
    def _categories(self) -> pa.StringArray:
        return pa.array(self.vocabulary, pa.string())

    def apply(self, texts: pa.ChunkedArray) -> Ids:
        """The id of each value, shape (rows,)."""
        places = pc.cast(pc.index_in(texts, value_set=self._categories), pa.int64())
        ids: Ids = pc.fill_null(pc.add(places, FIRST_KNOWN), UNKNOWN).to_numpy().copy()
        ids[pc.is_null(texts).to_numpy()] = MISSING
        return ids


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
    def column_names(self) -> list[str]:
        """Names of the model's columns, in the order of numbers and ids."""
        indicators = [f"{column.name} is missing" for column in self.numeric if column.indicator]
        names = [column.name for column in self.numeric], [column.name for column in self.categorical]
        return [*names[0], *indicators, *names[1]]

    @property
    def width(self) -> int:
        """Columns of the numeric array: one a column, and one more for each indicator."""
        return len(self.numeric) + sum(column.indicator for column in self.numeric)

    def apply(self, table: pa.Table) -> tuple[Floats, Ids]:
        """Transform a table: float32 of shape (rows, width) and int64 ids of shape (rows, categorical columns)."""
        require_columns(table, [column.name for column in self.columns])
        numbers = np.empty((table.num_rows, self.width), dtype=np.float32)
        extra = len(self.numeric)
        for index, column in enumerate(self.numeric):
            values = numbers_of(column.name, table[column.name], column.type)
            with np.errstate(over="ignore"):
                numbers[:, index] = column.apply(values)
            if not np.isfinite(numbers[:, index]).all():
                raise FeatureError(
                    f"Feature {column.name}: values are too large for single precision. Clip them.", feature=column.name
                )
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
        numeric, categorical = body["numeric"], body["categorical"]
        return cls(
            tuple(Numeric(**{**column, "knots": tuple(map(tuple, column["knots"]))}) for column in numeric),
            tuple(Categorical(**{**column, "vocabulary": tuple(column["vocabulary"])}) for column in categorical),
        )


def read_transformation(store: ArtifactStore, split: str, transformation: str) -> Transformation:
    """Read a fitted transformation. One of another split is refused: its train rows may be test rows of this split."""
    fitted_on, expected = (
        store.manifest(transformation).derived_from.get("split", "nothing"),
        str(Reference.parse(split)),
    )
    if fitted_on != expected:
        raise FeatureError(
            f"{transformation} was fitted on {fitted_on}, expected {expected}. Fit one on the train part of this split."
        )
    return Transformation.from_json(store.read_json(transformation, FILE))


_KNOTS = 1001


def fit(
    table: Columns,
    numeric: list[str],
    categorical: list[str],
    spec: TransformationSpec = TransformationSpec(),  # noqa: B008  # frozen
) -> Transformation:
    """Fit on the rows of the train part, in any order; one column after another is in memory."""
    require_features(table, numeric, categorical, spec)
    return Transformation(
        tuple(_fit_numeric(name, table, spec.of_numeric(name)) for name in numeric),
        tuple(_fit_categorical(name, table[name], spec.of_categorical(name)) for name in categorical),
    )


def require_features(table: Columns, numeric: list[str], categorical: list[str], spec: TransformationSpec) -> None:
    """Check that there are such columns, and that the spec names no others. Raises FeatureError with all that are."""
    require_columns(table, [*numeric, *categorical])
    problems = []
    for name in spec.misplaced(numeric, categorical):
        kind = "numeric" if isinstance(spec.columns[name], NumericSpec) else "categorical"
        problems.append(f"\n  - columns.{name}: expected a {kind} feature of that name, found none")
    if problems:
        raise FeatureError("The transformation has problems:" + "".join(problems))


def _fit_numeric(name: str, table: Columns, spec: NumericSpec) -> Numeric:
    """All sums run over sorted values, so that the order of rows changes no bit.

    The values are sorted and clipped in place, as a column may take much of the memory.
    """
    column = table[name]
    values, kind = numbers_of(name, column), type_of(column)
    del column
    missing = np.isnan(values)
    absent = int(missing.sum())
    present = values[~missing]
    del values, missing
    present.sort()
    present += 0.0  # So that -0.0, which equals 0.0, has no place of its own.
    indicator = spec.indicator == "always" or (spec.indicator == "when_missing" and absent > 0)
    low, high = (_quantile(present, q) for q in spec.clip) if spec.clip and len(present) else (None, None)
    median = _quantile(present, 0.5) if len(present) else 0.0
    if low is not None:
        np.clip(present, low, high, out=present)
    fill = 0.0
    if spec.imputation == "constant":
        fill = spec.constant
    elif len(present):
        fill = median if spec.imputation == "median" else float(present.mean())
    filled = _Filled(present, absent, fill)
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
    return Numeric(name, low, high, fill, centre, scale, indicator, knots, kind)


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
        distances = self.present - mean
        distances *= distances
        squares = distances.sum() + self.absent * (self.fill - mean) ** 2
        return float(np.sqrt(squares / self.rows)) if self.rows else 0.0

    def ascending(self) -> Doubles:
        if not self.absent:
            return self.present
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
