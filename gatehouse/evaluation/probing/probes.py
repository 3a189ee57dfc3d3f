"""Changes one feature of a table of test rows at a time: missing, unknown, out of range, shuffled."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

MISSING, UNKNOWN, BELOW, ABOVE = "missing", "unknown category", "below the range", "above the range"
_UNSEEN = "\u2205 never seen"


@dataclass(frozen=True)
class Feature:
    """One feature as the model was trained on it.

    Attributes:
        low, high: Least and greatest value of the train part; NaN for categories, and where all are missing.
    """

    name: str
    kind: str
    low: float = np.nan
    high: float = np.nan


def probes_of(feature: Feature, table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """The name of each change that the feature allows, and the table with it.

    For a missing value every row is null. A value out of range lies below the least value of the train part, or above
    the greatest, by the distance between these two. A boolean feature has no value out of range and no unknown one.
    """
    kind, rows = table.schema.field(feature.name).type, table.num_rows
    yield MISSING, _with(table, feature.name, pa.nulls(rows, kind))
    if pa.types.is_boolean(kind):
        return
    if feature.kind == "categorical":
        # A category that no training row has: a text, or the number before all others.
        plain, unseen = kind.value_type if pa.types.is_dictionary(kind) else kind, pa.array([_UNSEEN] * rows)
        if pa.types.is_integer(plain):
            info = np.iinfo(plain.to_pandas_dtype())
            unseen = pa.array(np.full(rows, info.min if info.min < 0 else info.max), plain)
        elif pa.types.is_floating(plain):
            unseen = pa.array(np.full(rows, np.finfo(np.float32).min), plain)
        yield UNKNOWN, _with(table, feature.name, unseen)
    elif np.isfinite(feature.low):
        apart = (feature.high - feature.low) or 1.0
        for name, value in ((BELOW, feature.low - apart), (ABOVE, feature.high + apart)):
            yield name, _with(table, feature.name, pa.array(np.full(rows, value)))


def shuffled(feature: Feature, table: pa.Table, draw: np.random.Generator) -> pa.Table:
    """The table, of as many rows, with the values of the feature in another order, which `draw` gives."""
    return _with(table, feature.name, table[feature.name].take(pa.array(draw.permutation(table.num_rows))))


def _with(table: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, values)
