"""Fitted transformations: raw feature columns to the arrays that a model reads, the same in training and serving."""

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore
from gatehouse.training.transformation.columns import FeatureError, numbers_of, require_columns, texts_of

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
