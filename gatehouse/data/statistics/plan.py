"""What is wanted of each column: its kind, whether values may be shown, and the baseline's bins to count rows in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gatehouse.data.statistics.counted import CountedNumbers
from gatehouse.data.statistics.kinds import Kind, kind_of


@dataclass(frozen=True)
class ColumnPlan:
    """What is wanted of one column.

    Attributes:
        name: The column.
        arrow: Name of its Arrow type.
        kind: What is measured.
        sensitive: Whether only rows, nulls and distinct values are counted, and no value kept beyond that.
        edges: Edges of the baseline's bins, or None where it has none.
        display: Edges of the baseline's histogram; empty for none.
        known: Values that the baseline lists, or None where it lists none.
    """

    name: str
    arrow: str
    kind: Kind
    sensitive: bool = False
    edges: tuple[float, ...] | None = None
    display: tuple[float, ...] = ()
    known: tuple[Any, ...] | None = None

    @classmethod
    def of(cls, field: pa.Field, sensitive: bool, baseline: Mapping[str, Any]) -> "ColumnPlan":
        """Plan a column; a baseline of another kind gives no bins."""
        kind, plan = kind_of(field.type), cls(field.name, str(field.type), kind_of(field.type), sensitive)
        if sensitive:
            return plan
        if kind in (Kind.WHOLE, Kind.REAL) and "edges" in baseline:
            shown = baseline.get("histogram", {}).get("edges", ())
            return cls(plan.name, plan.arrow, kind, edges=tuple(baseline["edges"]), display=tuple(shown))
        if kind in (Kind.TEXT, Kind.TRUTH) and "values" in baseline:
            wanted = str if kind is Kind.TEXT else bool
            known = tuple(value for value, _ in baseline["values"] if isinstance(value, wanted))
            return cls(plan.name, plan.arrow, kind, known=known)
        return plan


def plans_of(schema: pa.Schema, sensitive: frozenset[str], baseline: Mapping[str, Any]) -> tuple[ColumnPlan, ...]:
    """Plan all columns of a table.

    Args:
        schema: Its Arrow schema.
        sensitive: Columns of which no value may be shown.
        baseline: Statistics by column of the baseline; empty for none.
    """
    return tuple(ColumnPlan.of(field, field.name in sensitive, baseline.get(field.name, {})) for field in schema)


@dataclass(frozen=True)
class Binned:
    """Numbers counted in given bins.

    Attributes:
        up_to: How many numbers other than zero are at most each edge of the baseline's bins.
        below: How many numbers are below each edge of its histogram; at most the last one.
    """

    up_to: npt.NDArray[np.int64]
    below: npt.NDArray[np.int64]

    @classmethod
    def of(cls, counted: CountedNumbers, plan: ColumnPlan) -> "Binned":
        """Count."""
        display = plan.display
        held = counted.values != 0
        up_to = ranks(counted.values[held], counted.counts[held], plan.edges or (), "right")
        below = ranks(counted.values, counted.counts, display, "left")
        if len(below):
            below[-1:] = ranks(counted.values, counted.counts, display[-1:], "right")
        return cls(up_to, below)

    def merged(self, other: "Binned") -> "Binned":
        """The counts of both."""
        return Binned(self.up_to + other.up_to, self.below + other.below)


def ranks(values: npt.NDArray[Any], weights: npt.NDArray[Any], edges: Sequence[float], side: Any) -> npt.NDArray[Any]:
    """Rows below each edge, or at most each edge; shape (edges,).

    Args:
        values: Ascending, shape (values,).
        weights: Rows that each value stands for, same shape.
        edges: Ascending.
        side: `left` for below, `right` for at most.
    """
    cumulated = np.concatenate((np.zeros(1, weights.dtype), np.cumsum(weights)))
    found: npt.NDArray[Any] = cumulated[np.searchsorted(values, np.asarray(edges, np.float64), side=side)]
    return found
